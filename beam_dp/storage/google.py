"""Buckets of Google Cloud Storage.

Versions are generations; a name never gets the same generation twice. A request that must happen
only once states the expected generation, so that the library may retry any request whose response
was lost. According to the service's documentation, listings and reads see all earlier writes.
"""

from __future__ import annotations

import contextlib
import errno
import io
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from beam_dp.storage.bucket import BucketSettingsError, FoundObject

_NEW = 0  # the generation of an object that does not exist
_RIGHTS = ("create", "delete", "get", "list")


class GoogleBucket:
    """A bucket, accessed with the application's default credentials at the first request.

    ``STORAGE_EMULATOR_HOST`` selects another service, as for all users of Google's library.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._opened: Any = None

    def check(self) -> None:
        """Raises BucketSettingsError if no draft should be written here."""
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", self._name):
            raise BucketSettingsError("must be gs://BUCKET/FOLDER")
        with _errors():
            bucket = self._bucket()
            bucket.reload()
            wanted = [f"storage.objects.{right}" for right in _RIGHTS]
            granted = bucket.test_iam_permissions(wanted)
        update = f"gcloud storage buckets update gs://{self._name}"
        if bucket.versioning_enabled:
            reason, cure = "has object versioning", f"{update} --no-versioning"
        elif (bucket.soft_delete_policy.retention_duration_seconds or 0) > 0:
            reason, cure = "has soft delete", f"{update} --clear-soft-delete"
        elif bucket.retention_period:
            reason, cure = "has a retention policy", f"{update} --clear-retention-period"
        elif bucket.default_event_based_hold:
            reason, cure = (
                "has an event-based hold",
                f"{update} --no-default-event-based-hold",
            )
        elif bucket.iam_configuration.public_access_prevention != "enforced":
            raise BucketSettingsError(
                "must be in a bucket that prevents public access, because drafts are private:"
                f" {update} --public-access-prevention"
            )
        elif missing := sorted(set(wanted) - set(granted)):
            raise BucketSettingsError(f"must be in a bucket where you have {missing[0]}")
        else:
            return
        raise BucketSettingsError(
            "must be in a bucket that keeps no deleted objects, because drafts are private, and"
            f" this one {reason}: {cure}"
        )

    def create(self, name: str) -> str | None:
        """Creates an empty object; returns its version, or None if the object exists."""
        try:
            with _errors():
                blob = self._bucket().blob(name)
                blob.upload_from_string(b"", if_generation_match=_NEW)
                return str(blob.generation)
        except FileExistsError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Writes an object, whether it exists or not."""
        with _errors():
            _upload(self._bucket().blob(name), data)

    def replace(self, name: str, version: str, data: bytes) -> str | None:
        """Overwrites an object only if it has ``version``; returns the new version or None."""
        try:
            with _errors():
                blob = self._bucket().blob(name)
                _upload(blob, data, if_generation_match=int(version))
                return str(blob.generation)
        except FileExistsError:
            return self._version_of_same(name, data)

    def copy(self, source: str, target: str) -> None:
        """Copies an object, whether the target exists or not."""
        with _errors():
            self._copy(source, target)

    def copy_exclusively(self, source: str, version: str, target: str) -> bool:
        """Copies an object; returns False if the object's version changed or the target exists."""
        conditions = {"if_generation_match": _NEW, "if_source_generation_match": int(version)}
        try:
            with _errors():
                self._copy(source, target, **conditions)
        except FileExistsError:
            return False
        return True

    def size(self, name: str) -> int:
        """Returns the size of an object in bytes."""
        with _errors():
            blob = self._bucket().blob(name)
            blob.reload()
            return int(blob.size)

    def read(self, name: str, file: BinaryIO) -> None:
        """Writes the content of an object to a file and verifies it."""
        with _errors():
            self._bucket().blob(name).download_to_file(file)

    def listed(self, prefix: str) -> Iterator[FoundObject]:
        """Returns the objects whose names have this prefix, sorted by name."""
        # ``time_created`` is the time of the content: ``updated`` also changes with metadata.
        with _errors():
            for blob in self._bucket().client.list_blobs(self._bucket(), prefix=prefix):
                yield FoundObject(blob.name, int(blob.size), blob.time_created.timestamp())

    def delete(self, name: str) -> None:
        """Deletes an object for good; does nothing if the object is missing."""
        with contextlib.suppress(FileNotFoundError), _errors():
            self._bucket().delete_blob(name)

    def _version_of_same(self, name: str, data: bytes) -> str | None:
        """Returns the version of an object if its content is ``data``, else None."""
        # The library retries requests: a refused request may be the retry of a successful one.
        with _errors():
            blob = self._bucket().get_blob(name)
            is_same = blob is not None and blob.download_as_bytes() == data
            return str(blob.generation) if is_same else None

    def _copy(self, source: str, target: str, **conditions: int) -> None:
        from google.cloud.storage.retry import DEFAULT_RETRY

        bucket = self._bucket()
        blob, origin, token = bucket.blob(target), bucket.blob(source), None
        while True:
            # Copies may be retried, even copies without conditions.
            token, _, _ = blob.rewrite(origin, token=token, retry=DEFAULT_RETRY, **conditions)
            if token is None:
                return

    def _bucket(self) -> Any:
        if self._opened is None:
            from google.cloud import storage

            self._opened = storage.Client().bucket(self._name)
        return self._opened


def _upload(blob: Any, data: bytes, **conditions: int) -> None:
    # If the size is known, a small file takes only one request.
    blob.upload_from_file(io.BytesIO(data), size=len(data), **conditions)


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Raises errors of the service and its library as OSError, in one line without secrets."""
    # Raises FileExistsError if a condition of the request was not met.
    try:
        import requests
        from google.api_core import exceptions
        from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
        from google.cloud.storage.exceptions import DataCorruption
    except ImportError:
        condition = "google-cloud-storage is not installed: pip install 'beam_dp[gcs]'"
        raise OSError(errno.ENOPKG, condition) from None
    try:
        yield
    except exceptions.NotFound:
        raise FileNotFoundError(errno.ENOENT, "no such object or bucket") from None
    except exceptions.PreconditionFailed:
        raise FileExistsError(errno.EEXIST, "an object has another version") from None
    except exceptions.GoogleAPICallError as error:
        reason = f"Google Cloud Storage says {error.code} {type(error).__name__}"
        raise OSError(errno.EIO, reason) from None
    except DataCorruption:
        raise OSError(errno.EIO, "an object was damaged in transfer") from None
    except DefaultCredentialsError:
        condition = "Google Cloud credentials are missing: gcloud auth application-default login"
        raise OSError(errno.EACCES, condition) from None
    except (GoogleAuthError, exceptions.RetryError, requests.RequestException) as error:
        reason = f"Google Cloud Storage cannot be reached: {type(error).__name__}"
        raise OSError(errno.EIO, reason) from None
