"""Buckets of Amazon S3.

A version is an ETag, which distinguishes contents, not writes. ETags are enough for files: a writer
that finds its own bytes may publish these bytes. The object that opens a draft must have unique
content; otherwise a writer could publish from a draft that was withdrawn and opened again.
According to the service's documentation, listings and reads see all earlier writes.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import platform
import re
import time
from collections.abc import Iterator
from typing import Any, BinaryIO

from beam_dp.storage.bucket import BucketSettingsError, FoundObject
from beam_dp.storage.store import DRAFT_PREFIX

_CHUNK_BYTES = 2**20
_MAX_BYTES = 5 * 2**30
_MAX_ATTEMPTS = 7
_NO_VERSION = '"0"'
_PUBLIC_ACCESS = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy",
                  "RestrictPublicBuckets")  # fmt: skip


class AmazonBucket:
    """A bucket, accessed with the credentials that boto3 finds at the first request.

    ``AWS_ENDPOINT_URL_S3`` selects another service, as for every program that uses boto3. A service
    that ignores the conditions of writes or copies is refused.

    ``folder``: where ``check`` tests permissions, because these are often granted per folder.
    """

    def __init__(self, name: str, folder: str = "") -> None:
        self._name = name
        self._folder = folder
        self._opened: Any = None

    def check(self) -> None:
        """Raises BucketSettingsError if no draft should be written here.

        Suspended versioning is accepted: new objects then have the single version ``null``, and
        deleting removes them. Versioning that was enabled once can only be suspended.
        """
        if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", self._name):
            raise BucketSettingsError("must be s3://BUCKET/FOLDER")
        lock = self._setting("get_object_lock_configuration", "ObjectLockConfiguration")
        access = self._setting("get_public_access_block", "PublicAccessBlockConfiguration")
        if lock.get("ObjectLockEnabled") == "Enabled":
            # Object Lock and the versioning of a bucket with Object Lock can't be turned off.
            raise _keeps_deleted_objects("has Object Lock", "create-bucket --bucket ANOTHER")
        if self._request("get_bucket_versioning").get("Status") == "Enabled":
            cure = f"put-bucket-versioning --bucket {self._name}"
            cure += " --versioning-configuration Status=Suspended"
            raise _keeps_deleted_objects("has versioning", cure)
        if not all(access.get(block) for block in _PUBLIC_ACCESS):
            raise BucketSettingsError(
                "must be in a bucket that blocks all public access, because drafts are private:"
                f" aws s3api put-public-access-block --bucket {self._name}"
                " --public-access-block-configuration "
                + ",".join(f"{block}=true" for block in _PUBLIC_ACCESS)
            )
        self._request("list_objects_v2", Prefix=f"{self._folder}/", MaxKeys=1)
        # No object has this name, so the conditional write and deletion change nothing. If
        # versioning is suspended, the bucket would record a deletion without a condition.
        name = f"{self._folder}/{DRAFT_PREFIX}"
        written = self.replace(name, _NO_VERSION, b"")
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            self._request("delete_object", Key=name, IfMatch="*")
        if written is not None:
            raise OSError(errno.EOPNOTSUPP, "this service ignores the conditions of writes")

    def create(self, name: str) -> str | None:
        """Creates an object without a file's content; returns its version, or None if it exists."""
        # Two objects with the same name must have different contents. One is deleted before the
        # other is created, so they come from different processes or times.
        content = f"{platform.node()} {os.getpid()} {time.time_ns()}"
        version = self._put(name, content.encode(), IfNoneMatch="*")
        if version is not None:
            self._check_copies(name)
        return version

    def write(self, name: str, data: bytes) -> None:
        """Writes an object, whether it exists or not."""
        self._put(name, data)

    def replace(self, name: str, version: str, data: bytes) -> str | None:
        """Overwrites an object only if it has ``version``; returns the new version or None."""
        return self._put(name, data, IfMatch=version)

    def copy(self, source: str, target: str) -> None:
        """Copies an object, whether the target exists or not."""
        self._copy(source, target)

    def copy_exclusively(self, source: str, version: str, target: str) -> bool:
        """Copies an object; returns False if the object's version changed or the target exists."""
        try:
            self._copy(source, target, CopySourceIfMatch=version, IfNoneMatch="*")
        except FileExistsError:
            return False
        return True

    def size(self, name: str) -> int:
        """Returns the size of an object in bytes."""
        return int(self._request("head_object", Key=name)["ContentLength"])

    def read(self, name: str, file: BinaryIO) -> None:
        """Writes the content of an object to a file and verifies it."""
        self._read(name, file)

    def listed(self, prefix: str) -> Iterator[FoundObject]:
        """Returns the objects whose names have this prefix, sorted by name."""
        with _errors():
            pages = self._client().get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._name, Prefix=prefix):
                for entry in page.get("Contents", ()):
                    modified = entry["LastModified"].timestamp()
                    yield FoundObject(entry["Key"], int(entry["Size"]), modified)

    def delete(self, name: str) -> None:
        """Deletes an object for good; does nothing if the object is missing."""
        self._request("delete_object", Key=name)

    def _setting(self, operation: str, key: str) -> dict[str, Any]:
        """Returns a setting of the bucket; an empty dict if it was never configured."""
        try:
            return dict(self._request(operation)[key])
        except FileNotFoundError:
            return {}

    def _check_copies(self, name: str) -> None:
        """Raises if the service ignores conditions: copies of an object to itself must fail."""
        for condition in ({"IfNoneMatch": "*"}, {"CopySourceIfMatch": _NO_VERSION}):
            try:
                self._copy(name, name, MetadataDirective="REPLACE", **condition)
            except OSError:
                continue
            self.delete(name)
            raise OSError(errno.EOPNOTSUPP, "this service ignores the conditions of copies")

    def _put(self, name: str, data: bytes, **conditions: str) -> str | None:
        """Writes an object; returns its version, or None if a condition is not met."""
        if len(data) > _MAX_BYTES:
            raise OSError(errno.EFBIG, "Amazon S3 accepts at most 5 GB in one request")
        try:
            return str(self._request("put_object", Key=name, Body=data, **conditions)["ETag"])
        except (FileExistsError, FileNotFoundError):
            return self._version_of_same(name, data)

    def _version_of_same(self, name: str, data: bytes) -> str | None:
        """Returns the version of an object if its content is ``data``, else None."""
        # The library retries requests: a refused request may be the retry of a successful one.
        content = io.BytesIO()
        try:
            version = self._read(name, content)
        except FileNotFoundError:
            return None
        return version if content.getvalue() == data else None

    def _read(self, name: str, file: BinaryIO) -> str:
        """Writes the content of an object to a file; returns the object's version."""
        answer = self._request("get_object", Key=name, ChecksumMode="ENABLED")
        with _errors():
            for chunk in answer["Body"].iter_chunks(_CHUNK_BYTES):
                file.write(chunk)
        return str(answer["ETag"])

    def _copy(self, source: str, target: str, **conditions: str) -> None:
        origin = {"Bucket": self._name, "Key": source}
        self._request("copy_object", Key=target, CopySource=origin, **conditions)

    def _request(self, operation: str, **parameters: Any) -> Any:
        with _errors():
            return getattr(self._client(), operation)(Bucket=self._name, **parameters)

    def _client(self) -> Any:
        if self._opened is None:
            import boto3

            client = boto3.Session().client("s3")
            copying = client.meta.service_model.operation_model("CopyObject").input_shape
            if "IfNoneMatch" not in copying.members:
                raise OSError(errno.ENOPKG, "boto3 is too old: pip install 'beam_dp[s3]'")
            client.meta.events.register_first("needs-retry.s3", _pause_after_conflict)
            self._opened = client
        return self._opened


def _keeps_deleted_objects(reason: str, cure: str) -> BucketSettingsError:
    return BucketSettingsError(
        "must be in a bucket that keeps no deleted objects, because drafts are private, and"
        f" this one {reason}: aws s3api {cure}"
    )


def _pause_after_conflict(
    response: tuple[Any, Any] | None, attempts: int, **_: object
) -> float | None:
    """Returns the seconds until a conflicting request is retried; None if boto3 should decide."""
    if response is None or response[0].status_code != 409 or attempts >= _MAX_ATTEMPTS:
        return None
    return 0.05 * 2.0**attempts


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Raises errors of the service and its library as OSError, in one line without secrets."""
    # Raises FileExistsError if a condition of the request was not met.
    try:
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
    except ImportError:
        condition = "boto3 is not installed: pip install 'beam_dp[s3]'"
        raise OSError(errno.ENOPKG, condition) from None
    try:
        yield
    except ClientError as error:
        code = error.response["Error"]["Code"]
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        if code == "NoSuchBucket":
            raise OSError(errno.EIO, "no such bucket") from None
        if status == 404:
            raise FileNotFoundError(errno.ENOENT, "no such object or bucket") from None
        if status == 412:
            raise FileExistsError(errno.EEXIST, "an object has another version") from None
        # The service's message is left out, because it names accounts.
        reason = f"Amazon S3 says {status} {code} to {error.operation_name}"
        raise OSError(errno.EIO, reason) from None
    except NoCredentialsError:
        condition = "Amazon Web Services credentials are missing: aws configure"
        raise OSError(errno.EACCES, condition) from None
    except (Boto3Error, BotoCoreError, ValueError) as error:
        reason = f"Amazon S3 cannot be reached: {type(error).__name__}"
        raise OSError(errno.EIO, reason) from None
