"""A service on the loopback interface that answers as Amazon S3 does.

Only what releases need of its API, with names of buckets in the path: conditional requests, copies
inside the service, two names a page of a listing. Rules are those of the API's reference; like the
service, it tells contents apart, not writes. Requests must be signed, by anybody.
"""

import base64
import contextlib
import hashlib
import urllib.parse
import zlib
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape

import botocore.loaders
from fake_storage import Answer, FakeBucket, FakeStorage

# Of the library: each client reads and parses its description of the service anew, for a tenth of a
# second.
LOADER = botocore.loaders.create_loader()
ACCOUNT = "123456789012"
ENVIRONMENT = {
    "ACCESS_KEY_ID": "tests", "SECRET_ACCESS_KEY": "tests", "DEFAULT_REGION": "us-east-1",
    "EC2_METADATA_DISABLED": "true", "CONFIG_FILE": "/dev/null",
    "SHARED_CREDENTIALS_FILE": "/dev/null",
}  # fmt: skip
BLOCKS = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
# Of a bucket, by the name of the request that asks for it; absent where it was never made.
PRIVATE: dict[str, dict[str, str]] = {"publicAccessBlock": dict.fromkeys(BLOCKS, "true")}
SETTINGS = {
    "object-lock": (
        "s3:GetBucketObjectLockConfiguration",
        "ObjectLockConfiguration",
        "ObjectLockConfigurationNotFoundError",
    ),
    "publicAccessBlock": (
        "s3:GetBucketPublicAccessBlock",
        "PublicAccessBlockConfiguration",
        "NoSuchPublicAccessBlockConfiguration",
    ),
    "versioning": ("s3:GetBucketVersioning", "VersioningConfiguration", ""),
}
RIGHTS = {"s3:DeleteObject", "s3:GetObject", "s3:ListBucket", "s3:PutObject"}
RIGHTS |= {right for right, _, _ in SETTINGS.values()}


class FakeAmazonStorage(FakeStorage):
    """The service.

    Args:
        delete_markers: names whose deletion a bucket with suspended versioning has noted.
        unknown: headers that it passes over, as services like this one do with some.
    """

    def __init__(self) -> None:
        super().__init__()
        self.delete_markers: set[str] = set()
        self.unknown: set[str] = set()

    def version_of(self, data: bytes) -> str:
        return f'"{hashlib.md5(data).hexdigest()}"'

    def error(self, ended: Answer) -> bytes:
        message = f"User: arn:aws:iam::{ACCOUNT}:user/me is at fault"
        return b"" if ended.status == 204 else _xml("Error", Code=ended.code, Message=message)[1]

    def answer(
        self, method: str, path: str, query: dict[str, str], headers: Any, body: bytes
    ) -> tuple[dict[str, str], bytes]:
        if not headers.get("Authorization", "").startswith("AWS4-HMAC-SHA256 Credential=tests/"):
            raise Answer(403, "AccessDenied")
        for header in self.unknown:
            del headers[header]
        where, _, name = urllib.parse.unquote(path).removeprefix("/").partition("/")
        bucket = self.buckets.get(where)
        if bucket is None:
            raise Answer(404, "NoSuchBucket")
        if not name:
            return _list(bucket, query) if "list-type" in query else _setting(bucket, query)
        if method == "PUT" and "x-amz-copy-source" in headers:
            return self._copy(bucket, name, headers)
        if method == "PUT":
            _allow(bucket, "s3:PutObject")
            if headers.get("x-amz-checksum-crc32", _crc32(body)) != _crc32(body):
                raise Answer(400, "BadDigest")
            return {"ETag": self._write(bucket, name, body, headers)}, b""
        if method == "DELETE":
            _allow(bucket, "s3:DeleteObject")
            _check(bucket, name, headers)
            bucket.objects.pop(name, None)
            if bucket.settings.get("versioning") == {"Status": "Suspended"}:
                self.delete_markers.add(name)
            raise Answer(204)
        data, version = _existing(bucket, name)
        wants_sum = headers.get("x-amz-checksum-mode") == "ENABLED"
        sums = {"x-amz-checksum-crc32": _crc32(data)} if wants_sum else {}
        return {"ETag": version, **sums}, data

    def _copy(self, bucket: FakeBucket, target: str, headers: Any) -> tuple[dict[str, str], bytes]:
        _allow(bucket, "s3:PutObject")
        source = urllib.parse.unquote(headers["x-amz-copy-source"]).removeprefix("/")
        where, _, name = source.partition("/")
        data, version = _existing(self.buckets[where], name)
        if headers.get("x-amz-copy-source-if-match", version) != version:
            raise Answer(412, "PreconditionFailed")
        return _xml("CopyObjectResult", ETag=self._write(bucket, target, data, headers))

    def _write(self, bucket: FakeBucket, name: str, data: bytes, headers: Any) -> str:
        _check(bucket, name, headers)
        version = self.version_of(data)
        bucket.objects[name] = (data, version)
        return version


def _allow(bucket: FakeBucket, right: str) -> None:
    if right not in bucket.rights:
        raise Answer(403, "AccessDenied")


def _existing(bucket: FakeBucket, name: str) -> tuple[bytes, str]:
    _allow(bucket, "s3:GetObject")
    if name in bucket.objects:
        return bucket.objects[name]
    _allow(bucket, "s3:ListBucket")  # or else nobody learns whether there is one
    raise Answer(404, "NoSuchKey")


def _check(bucket: FakeBucket, name: str, headers: Any) -> None:
    """The conditions of a write or a deletion."""
    if headers.get("If-None-Match") is not None:
        if headers["If-None-Match"] != "*":
            raise Answer(501, "NotImplemented")
        if name in bucket.objects:
            raise Answer(412, "PreconditionFailed")
    expected = headers.get("If-Match")
    if expected is not None:
        if name not in bucket.objects:
            raise Answer(404, "NoSuchKey")
        if expected not in ("*", bucket.objects[name][1]):
            raise Answer(412, "PreconditionFailed")


def _setting(bucket: FakeBucket, query: dict[str, str]) -> tuple[dict[str, str], bytes]:
    (asked,) = query
    right, element, absent = SETTINGS[asked]
    _allow(bucket, right)
    if asked not in bucket.settings and absent:
        raise Answer(404, absent)
    return _xml(element, **bucket.settings.get(asked, {}))


def _list(bucket: FakeBucket, query: dict[str, str]) -> tuple[dict[str, str], bytes]:
    _allow(bucket, "s3:ListBucket")
    page, is_truncated = bucket.page(query.get("prefix", ""), query.get("continuation-token", ""))
    quoted = urllib.parse.quote if query.get("encoding-type") == "url" else str
    entries = "".join(
        f"<Contents><Key>{escape(quoted(name))}</Key><Size>{len(bucket.objects[name][0])}</Size>"
        f"<LastModified>{bucket.time_of(name)}</LastModified></Contents>"
        for name in page
    )
    more = {"NextContinuationToken": page[-1]} if is_truncated else {}
    encoding = {"EncodingType": "url"} if quoted is not str else {}
    flag = {"IsTruncated": str(is_truncated).lower()}
    return _xml("ListBucketResult", entries, **flag, **encoding, **more)


def _crc32(data: bytes) -> str:
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


def _xml(element: str, inner: str = "", **texts: str) -> tuple[dict[str, str], bytes]:
    inner += "".join(f"<{name}>{escape(text)}</{name}>" for name, text in texts.items())
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<{element}>{inner}</{element}>'
    return {"Content-Type": "application/xml"}, text.encode()


@contextlib.contextmanager
def serving(monkeypatch: Any) -> Iterator[FakeAmazonStorage]:
    """The service with a private bucket ``releases``, found by clients of this process."""
    with FakeAmazonStorage() as service:
        service.buckets["releases"] = FakeBucket(dict(PRIVATE), set(RIGHTS))
        monkeypatch.setattr("botocore.loaders.create_loader", lambda search_path: LOADER)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", service.url)
        for name, value in ENVIRONMENT.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        yield service
