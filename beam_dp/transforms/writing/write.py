"""The transform that commits a release."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import apache_beam as beam

from beam_dp.releases.files.commit import Draw, check_output, commit_draw
from beam_dp.transforms.elements import ReleaseShard
from beam_dp.transforms.reading.records import refuse_windows
from beam_dp.transforms.writing.write_outputs import take_output


class WriteRelease(beam.PTransform):
    """Writes the shards of a release as a directory; the first complete draw wins.

    A bundle that is done again writes the same draw again, which changes nothing. Should a
    runner deliver two draws, one of them is committed and the other discarded unseen. Nothing is
    written before; ``beam_dp.releases.probe_output`` tries whether it can be, before you pay.

    Args:
        directory: a local directory that every worker sees, ``gs://BUCKET/FOLDER`` or
            ``s3://BUCKET/FOLDER``; it does not exist yet, or is empty.

    Raises:
        InputError: if the directory holds something, also drafts of another job, or can't be
            written; when applied, if the shards are windowed, or the pipeline writes there already.

    Output: the directory, once a release is in it.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__()
        check_output(directory)
        self.directory = os.fspath(directory)

    def expand(self, shards: beam.PCollection[ReleaseShard]) -> beam.PCollection[str]:
        """Joins the shards of each draw, then writes."""
        refuse_windows(shards)
        take_output(shards.pipeline, self.directory)
        return (
            shards
            | "Group shards" >> beam.GroupByKey()
            | "Write" >> beam.ParDo(_Write(self.directory)).with_output_types(str)
        )


class _Write(beam.DoFn):
    def __init__(self, directory: str) -> None:
        self.directory = directory

    def process(self, draw: tuple[str, Iterable[tuple[int, int, bytes]]]) -> Iterator[str]:
        shards = list(draw[1])
        pieces = {number: piece for number, _, piece in shards}
        num_pieces = shards[0][1]
        # Anything less is no complete attempt.
        if len(pieces) == num_pieces:
            data = b"".join(pieces[number] for number in range(num_pieces))
            commit_draw(Draw.from_bytes(data), self.directory)
            yield self.directory
