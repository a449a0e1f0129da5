"""The transform that writes a release, and the directories that a pipeline writes to."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import apache_beam as beam
from apache_beam.utils.windowed_value import WindowedValue

from beam_dp.errors import InputError
from beam_dp.releases.files.commit import check_output
from beam_dp.releases.kinds import commit_release, release_from_bytes, write_shard
from beam_dp.releases.release import Release
from beam_dp.releases.synthetic_database.shards import RecordShard
from beam_dp.storage.store import PayloadFile, is_url
from beam_dp.threads import Calls
from beam_dp.transforms.drawing.one_worker import ReleaseShard
from beam_dp.transforms.job_page import WRITTEN, count_committed
from beam_dp.transforms.reading.records import refuse_windows


class WriteRelease(beam.PTransform):
    """Writes a release as a directory; the first complete draw wins.

    Several workers write the files of records of a large release.

    A retried bundle writes the same draw again, without effect. If a runner delivers two draws, one
    draw is committed and the other is discarded unseen. Nothing is written before the draw; before
    you pay, call ``beam_dp.releases.probe_output`` to check that the directory is writable.

    Args:
        directory: a local directory that every worker can access, ``gs://BUCKET/FOLDER`` or
            ``s3://BUCKET/FOLDER``. The directory must be empty or not exist yet.
        beside: the name of a subfolder that may exist in the directory.

    Raises:
        InputError: if the directory is not empty (even if it contains only drafts of another job)
            or not writable; when applied, if the shards are windowed, or another transform of the
            pipeline writes to the directory.

    Output: the directory, once a release is in it.
    """

    def __init__(self, directory: str | os.PathLike[str], beside: str | None = None) -> None:
        super().__init__()
        check_output(directory, beside)
        self.directory = os.fspath(directory)

    def expand(self, pieces: beam.PCollection[ReleaseShard]) -> beam.PCollection[str]:
        """Joins each draw, writes the files of records in parallel, then commits one draw."""
        refuse_windows(pieces)
        take_output(pieces.pipeline, self.directory)
        write = beam.ParDo(_WriteFile(self.directory))
        return (
            pieces
            | "Group pieces" >> beam.GroupByKey()
            | "Divide" >> beam.ParDo(_Divide()).with_output_types(tuple[str, Any])
            | "Spread files" >> beam.Reshuffle()
            | "Write records" >> write.with_output_types(tuple[str, Any])
            | "Group files" >> beam.GroupByKey()
            | "Commit" >> beam.ParDo(_Commit(self.directory)).with_output_types(str)
        )


# A piece of a draw, the rows of a file of records, or the name and the checksum of a written file.
Piece = tuple[int, int, bytes]
Rows = tuple[str, tuple[bytes, ...]]
File = tuple[str, tuple[str, int] | None]


class _Divide(beam.DoFn):
    """Yields the pieces of each draw and, if it has several files of records, each file's rows."""

    def process(self, draw: tuple[str, Iterable[Piece]]) -> Iterator[tuple[str, Piece | Rows]]:
        draw_id, pieces = draw[0], list(draw[1])
        release = _joined(pieces)
        if release is not None:
            yield from ((draw_id, piece) for piece in pieces)
            if release.num_shards > 1:
                WRITTEN.found(release.num_shards)
                yield from ((draw_id, shard.to_plain()) for shard in release.shards())


class _WriteFile(beam.DoFn):
    """Writes the rows of a file of records into a draft; yields the file's name and checksum."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def start_bundle(self) -> None:
        # None waits for a thread: a job that is stopped starts no more drafts.
        self._calls = Calls(self._written)

    def process(self, element: tuple[str, Any]) -> Iterator[tuple[str, Piece | File]]:
        if isinstance(element[1][0], int):
            yield element
        else:
            for file in self._calls.add(element):
                WRITTEN.done()
                yield file

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for file in self._calls.rest():
            WRITTEN.done()
            yield beam.window.GlobalWindows.windowed_value(file)

    def _written(self, element: tuple[str, Rows]) -> tuple[str, File]:
        shard = RecordShard.from_plain(element[1])
        file = write_shard(shard, self.directory)
        return element[0], (shard.name, None if file is None else (file.sha256, file.num_bytes))


class _Commit(beam.DoFn):
    """Commits a draw once all its files are written."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def process(self, draw: tuple[str, Iterable[Any]]) -> Iterator[str]:
        parts = list(draw[1])
        release = _joined([part for part in parts if isinstance(part[0], int)])
        files: list[File] = [part for part in parts if isinstance(part[0], str)]
        # An attempt with missing pieces or files is skipped.
        if release is not None and len(files) == release.num_shards * (release.num_shards > 1):
            written = {name: PayloadFile(*file) if file else None for name, file in files}
            commit_release(release, self.directory, written or None)
            count_committed(self.directory)
            yield self.directory


def _joined(pieces: Sequence[Piece]) -> Release | None:
    """Returns the release that pieces form; None if pieces are missing."""
    numbered = {number: data for number, _, data in pieces}
    if not pieces or len(numbered) < pieces[0][1]:
        return None
    return release_from_bytes(b"".join(numbered[number] for number in range(len(numbered))))


_TAKEN: WeakKeyDictionary[beam.Pipeline, set[str]] = WeakKeyDictionary()


def refuse_taken_output(pipeline: beam.Pipeline, directory: str | os.PathLike[str]) -> None:
    """Refuses a directory to which another transform of the pipeline writes, under any path."""
    if _place(directory) in _TAKEN.get(pipeline, ()):
        condition = "must be another directory: this pipeline writes there already"
        raise InputError("output", os.fspath(directory), condition)


def take_output(pipeline: beam.Pipeline, directory: str | os.PathLike[str]) -> None:
    """Records that a pipeline writes to a directory."""
    refuse_taken_output(pipeline, directory)
    _TAKEN.setdefault(pipeline, set()).add(_place(directory))


def outputs_of(pipeline: beam.Pipeline) -> list[str]:
    """Returns the directories that a pipeline writes to, sorted, with real paths if local."""
    return sorted(_TAKEN.get(pipeline, ()))


def _place(directory: str | os.PathLike[str]) -> str:
    """Returns the same string for all paths of a directory, resolving links if it is local."""
    text = os.fspath(directory)
    return text.rstrip("/") if is_url(text) else os.path.realpath(text)
