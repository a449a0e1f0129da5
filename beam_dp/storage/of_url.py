"""The storage that a path or URL names."""

from __future__ import annotations

import os
import re
from pathlib import Path

from beam_dp.errors import InputError
from beam_dp.storage.amazon import AmazonBucket
from beam_dp.storage.bucket import Bucket, BucketStore
from beam_dp.storage.google import GoogleBucket
from beam_dp.storage.local import LocalStore
from beam_dp.storage.store import Store


def store_for(directory: str | os.PathLike[str], name: str) -> Store:
    """Returns the store of a directory, without looking at it.

    ``directory``: a local path, ``gs://BUCKET/FOLDER`` or ``s3://BUCKET/FOLDER``.

    Example:
        >>> type(store_for("gs://releases/visits", "output")).__name__
        'BucketStore'
    """
    if not isinstance(directory, str | os.PathLike):
        raise InputError(name, directory, "must be a directory, as a path or a URL")
    text = os.fspath(directory)
    if not is_url(text):
        return LocalStore(local_path(text, name), name)
    bucket = bucket_of(text)
    if bucket is not None:
        return BucketStore(bucket, text, name)
    condition = "must be a local directory, gs://BUCKET/FOLDER or s3://BUCKET/FOLDER"
    raise InputError(name, text, condition)


def bucket_of(url: str) -> Bucket | None:
    """Returns the bucket of an URL, without looking at it; None where it names no bucket."""
    scheme, _, rest = url.partition("://")
    name, _, folder = rest.partition("/")
    if scheme == "gs":
        return GoogleBucket(name)
    return AmazonBucket(name, folder.rstrip("/")) if scheme == "s3" else None


def local_path(directory: str | os.PathLike[str], name: str) -> Path:
    """Returns the path of a local directory."""
    text = os.fspath(directory)
    if is_url(text):
        raise InputError(name, text, "must be a local directory")
    if not text or "\0" in text:
        raise InputError(name, text, "must be the path of a directory")
    return Path(text)


def is_url(text: str) -> bool:
    """Returns whether a text names a directory on another filesystem than the local one."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) is not None
