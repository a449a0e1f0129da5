"""A service on the loopback interface that answers as Google Cloud Storage does.

Only what releases need of the JSON API: generations, preconditions, copies inside the service, two
names a page of a listing. Rules are those of the API's reference.
"""

import base64
import contextlib
import email.parser
import email.policy
import hashlib
import itertools
import json
import re
import urllib.parse
from collections.abc import Iterator
from typing import Any

import google_crc32c
from fake_storage import Answer, FakeBucket, FakeStorage

PRIVATE = {"iamConfiguration": {"publicAccessPrevention": "enforced"}}
RIGHTS = {"storage.objects.create", "storage.objects.delete", "storage.objects.get",
          "storage.objects.list"}  # fmt: skip

UPDATED = "2026-12-24T12:00:00.000Z"  # when the metadata of every object last changed


class FakeGoogleStorage(FakeStorage):
    """The service."""

    def __init__(self) -> None:
        super().__init__()
        self._generations = itertools.count(1)
        self._sessions: dict[str, tuple[str, str, dict[str, str]]] = {}

    def version_of(self, data: bytes) -> int:
        return next(self._generations)

    def error(self, ended: Answer) -> bytes:
        return b"{}"

    def answer(
        self, method: str, path: str, query: dict[str, str], headers: Any, body: bytes
    ) -> tuple[dict[str, str], bytes]:
        match = re.fullmatch(r"(/upload|/download)?/storage/v1/b/([^/]+)(/.*)?", path)
        if match is None or match[2] not in self.buckets:
            raise Answer(404)
        bucket, rest = self.buckets[match[2]], match[3] or ""
        if match[1] == "/upload":
            return self._upload(match[2], query, headers, body)
        copied = re.fullmatch(r"/o/([^/]+)/rewriteTo/b/([^/]+)/o/([^/]+)", rest)
        if copied:
            source, target = map(urllib.parse.unquote, (copied[1], copied[3]))
            return self._rewrite(bucket, source, self.buckets[copied[2]], target, query)
        if rest == "":
            return _json(bucket.settings)
        if rest == "/iam/testPermissions":
            asked = query["permissions"].split("\n")
            return _json({"permissions": [one for one in asked if one in bucket.rights]})
        if rest == "/o":
            return _list(bucket, query)
        name = urllib.parse.unquote(rest.removeprefix("/o/"))
        data, generation = _existing(bucket, name, query.get("generation"))
        if method == "DELETE":
            del bucket.objects[name]
            return {}, b""
        if query.get("alt") == "media":
            sums = {"X-Goog-Hash": f"crc32c={_crc32c(data)}"}
            return {**sums, "X-Goog-Generation": str(generation)}, data
        return _json(_metadata(name, data, generation))

    def _upload(
        self, bucket: str, query: dict[str, str], headers: Any, body: bytes
    ) -> tuple[dict[str, str], bytes]:
        if "upload_id" in query:
            name, bucket, query = self._sessions[query["upload_id"]]
            return self._create(self.buckets[bucket], name, body, query)
        if query["uploadType"] == "resumable":
            session = str(len(self._sessions))
            self._sessions[session] = (json.loads(body)["name"], bucket, query)
            location = f"{self.url}/upload/storage/v1/b/{bucket}/o?upload_id={session}"
            return {"Location": location}, b""
        assert query["uploadType"] == "multipart", query
        described = f"Content-Type: {headers['Content-Type']}\r\n\r\n".encode() + body
        message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(described)
        metadata, content = message.iter_parts()
        name = json.loads(metadata.get_payload(decode=True))["name"]
        return self._create(self.buckets[bucket], name, _raw(body, headers, content), query)

    def _create(
        self, bucket: FakeBucket, name: str, data: bytes, query: dict[str, str]
    ) -> tuple[dict[str, str], bytes]:
        _check(bucket, name, query.get("ifGenerationMatch"))
        bucket.objects[name] = (data, self.version_of(data))
        return _json(_metadata(name, *bucket.objects[name]))

    def _rewrite(
        self, source: FakeBucket, name: str, bucket: FakeBucket, target: str, query: dict[str, str]
    ) -> tuple[dict[str, str], bytes]:
        data, _ = _existing(source, name, None)
        _check(source, name, query.get("ifSourceGenerationMatch"))
        headers, body = self._create(bucket, target, data, query)
        done = {"done": True, "objectSize": str(len(data)), "totalBytesRewritten": str(len(data))}
        return headers, json.dumps({**done, "resource": json.loads(body)}).encode()


def _raw(body: bytes, headers: Any, content: Any) -> bytes:
    """The second part, byte for byte: the parser of mails changes line ends."""
    boundary = re.search(r'boundary="?([^";]+)"?', headers["Content-Type"])
    assert boundary is not None and content is not None
    part = body.split(b"--" + boundary[1].encode())[2]
    return part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")


def _check(bucket: FakeBucket, name: str, generation: str | None) -> None:
    held = bucket.objects.get(name, (b"", 0))[1]
    if generation is not None and int(generation) != held:
        raise Answer(412)


def _existing(bucket: FakeBucket, name: str, generation: str | None) -> tuple[bytes, int]:
    found = bucket.objects.get(name)
    if found is None or (generation is not None and int(generation) != found[1]):
        raise Answer(404)
    return found


def _list(bucket: FakeBucket, query: dict[str, str]) -> tuple[dict[str, str], bytes]:
    names, is_truncated = bucket.page(query.get("prefix", ""), query.get("pageToken", ""))
    times = ({"timeCreated": bucket.time_of(name), "updated": UPDATED} for name in names)
    metadata = (_metadata(name, *bucket.objects[name]) for name in names)
    page = [{**each, **time} for each, time in zip(metadata, times, strict=True)]
    return _json({"items": page, **({"nextPageToken": names[-1]} if is_truncated else {})})


def _crc32c(data: bytes) -> str:
    return base64.b64encode(google_crc32c.Checksum(data).digest()).decode()


def _metadata(name: str, data: bytes, generation: int) -> dict[str, str]:
    md5 = base64.b64encode(hashlib.md5(data).digest()).decode()
    sums = {"crc32c": _crc32c(data), "md5Hash": md5}
    return {"name": name, "generation": str(generation), "size": str(len(data)), **sums}


def _json(value: object) -> tuple[dict[str, str], bytes]:
    return {"Content-Type": "application/json"}, json.dumps(value).encode()


@contextlib.contextmanager
def serving(monkeypatch: Any) -> Iterator[FakeGoogleStorage]:
    """The service with a private bucket ``releases``, found by clients of this process."""
    with FakeGoogleStorage() as service:
        service.buckets["releases"] = FakeBucket(dict(PRIVATE), set(RIGHTS))
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", service.url)
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "tests")
        yield service
