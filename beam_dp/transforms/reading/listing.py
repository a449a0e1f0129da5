"""Which files match a pattern, how large they are, and when they were written."""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Iterator
from typing import NamedTuple

from apache_beam.io.filesystem import FileSystem
from apache_beam.io.filesystems import FileSystems

from beam_dp.errors import InputError
from beam_dp.storage.store import bucket_of
from beam_dp.transforms.errors import ReadError
from beam_dp.transforms.reading.formats import format_of

_FILE = "file://"
_WILD = r"[*?\[]"
_HERE = os.path.join(os.curdir, "")
# Besides buckets. Of other filesystems, such as Azure's, Beam computes the time by the time zone of
# the worker, an hour off in summer.
_WITH_TIMES = (None, "hdfs")


class FoundFile(NamedTuple):
    """A file that matches a pattern, its size, and when it was written: seconds since 1970, UTC."""

    path: str
    num_bytes: int
    modified: float


def plain_pattern(pattern: str) -> str:
    """Returns a pattern as Beam knows it: the path of a ``file:///PATH``. Refuses a folder.

    Example:
        >>> plain_pattern("file:///landing/*.csv"), plain_pattern("gs://bucket/*.csv")
        ('/landing/*.csv', 'gs://bucket/*.csv')
    """
    if not isinstance(pattern, str):
        raise InputError("input", pattern, "must be a path or a glob, as a text")
    path = plain_path("input", pattern)
    if os.path.isdir(path) and not path.endswith(("/", os.sep)):
        example = os.path.join(path, f"*.{_extension_in(path)}")
        raise InputError("input", pattern, f"is a folder; must match files, as {example!r} does")
    return path


def plain_path(argument: str, path: str) -> str:
    """Returns the path of a ``file:///PATH`` of this machine, and any other path as it is."""
    if not path.lower().startswith(_FILE):
        return path
    found = urllib.parse.unquote(path[len(_FILE) :]).removeprefix("localhost")
    if not found.startswith("/"):
        raise InputError(argument, path, "must be file:///PATH, or a path")
    return found


def _extension_in(folder: str) -> str:
    """Returns the format of most files in a folder; csv where it holds none of ours."""
    try:
        formats = [found.name for name in os.listdir(folder) if (found := format_of(name))]
    except OSError:
        formats = []
    return max(formats, key=formats.count, default="csv")


def list_files(pattern: str) -> Iterator[tuple[str, int]]:
    """Yields the files that match a pattern, with their sizes."""
    for path, num_bytes, _ in _listed_by_beam(pattern):
        yield path, num_bytes


def check_folder(pattern: str) -> None:
    """Refuses local files of a folder that does not exist: none could appear in it."""
    if FileSystems.get_scheme(pattern) is None and not os.path.isdir(_folder(pattern) or os.curdir):
        raise InputError("input", pattern, "must be in a folder that exists")


def check_times(pattern: str) -> None:
    """Refuses files whose time is not known in UTC."""
    if bucket_of(pattern) is None and FileSystems.get_scheme(pattern) not in _WITH_TIMES:
        condition = "must be local, gs://, s3:// or hdfs://: of others no time is known in UTC"
        raise InputError("input", pattern, condition)


def timed_files(pattern: str) -> Iterator[FoundFile]:
    """Yields the files that match a pattern."""
    bucket = bucket_of(pattern)
    if bucket is None:
        for file in _listed_by_beam(pattern):
            if not file.modified:
                raise ReadError(f"{file.path}: its filesystem does not say when it was modified")
            yield file
        return
    # Not Beam's listing: it takes the time zone of the worker, and the time of metadata.
    root = "/".join(pattern.split("/")[:3]) + "/"
    wanted = pattern[len(root) :] + ("*" if pattern.endswith("/") else "")
    is_match = re.compile(FileSystem.translate_pattern(wanted)).match
    for name, num_bytes, modified in bucket.listed(re.split(_WILD, wanted)[0]):
        if is_match(name) and not name.endswith("/"):
            yield FoundFile(root + name, num_bytes, modified)


def _listed_by_beam(pattern: str) -> Iterator[FoundFile]:
    # Without a folder in its name Beam lists none.
    is_here = FileSystems.get_scheme(pattern) is None and not _folder(pattern)
    (match,) = FileSystems.match([_HERE + pattern if is_here else pattern])
    for each in match.metadata_list:
        path = each.path.removeprefix(_HERE) if is_here else each.path
        yield FoundFile(path, each.size_in_bytes, each.last_updated_in_seconds)


def _folder(pattern: str) -> str:
    """Returns the folder that a pattern names before its first wildcard."""
    return os.path.dirname(re.split(_WILD, pattern)[0])
