"""The store of a directory, and the bucket of a URL; a client is imported when a URL needs it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from beam_dp.errors import InputError
from beam_dp.storage.store import LocalStore, Store, is_url, local_path

if TYPE_CHECKING:
    from beam_dp.storage.bucket import Bucket


def store_for(directory: str | os.PathLike[str], name: str) -> Store:
    """Returns the store for a directory, without accessing the directory.

    ``directory``: a local path, ``gs://BUCKET/FOLDER`` or ``s3://BUCKET/FOLDER``.
    """
    if not isinstance(directory, str | os.PathLike):
        raise InputError(name, directory, "must be a directory, as a path or a URL")
    text = os.fspath(directory)
    if not is_url(text):
        return LocalStore(local_path(text, name), name)
    bucket = bucket_of(text)
    if bucket is not None:
        from beam_dp.storage.bucket import BucketStore

        return BucketStore(bucket, text, name)
    condition = "must be a local directory, gs://BUCKET/FOLDER or s3://BUCKET/FOLDER"
    raise InputError(name, text, condition)


def bucket_of(url: str) -> Bucket | None:
    """Returns the bucket for a URL, without accessing it; None if the URL names no bucket."""
    scheme, _, rest = url.partition("://")
    name, _, folder = rest.partition("/")
    if scheme == "gs":
        from beam_dp.storage.google import GoogleBucket

        return GoogleBucket(name)
    if scheme == "s3":
        from beam_dp.storage.amazon import AmazonBucket

        return AmazonBucket(name, folder.rstrip("/"))
    return None
