"""The step that draws noise, on one worker with enough memory, and the elements that it outputs.

All outputs of the step are public, in elements of a few MB that any runner supports.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam

from beam_dp.mechanisms.left_out import LeftOutPlan, with_left_out
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.releases.kinds import release_to_bytes
from beam_dp.releases.release import Release
from beam_dp.secret.summaries.histogram import HistogramAccumulator
from beam_dp.transforms.job_page import show_setup, withhold_messages

ReleaseShard = tuple[str, tuple[int, int, bytes]]  # draw id, (number, number of shards, bytes)
Row = dict[str, Any]


class AnswerBatch(NamedTuple):
    """Answers that were committed together. Public.

    ``number``: the number of the batch in its run, from 0.
    ``num_records``: the public or noisy number of records; None if it is private and not needed.
    ``num_batches``: the number of batches in the run; None for a stream, where it is not known yet.
    """

    run_id: str
    number: int
    num_records: int | None
    answers: list[Row]
    num_batches: int | None = None


# The maximum number of characters per element, and the characters that a row adds to its query.
ELEMENT_TEXT = 2**21
_ROW_TEXT = 512


def answer_batches(run_id: str, num_records: int | None, rows: list[Row]) -> list[AnswerBatch]:
    """Returns all answers of a run, in batches of a few MB; one empty batch without answers."""
    parts = _parts(rows, lambda row: len(row["query"] or "") + _ROW_TEXT) or [[]]
    return [
        AnswerBatch(run_id, number, num_records, part, len(parts))
        for number, part in enumerate(parts)
    ]


def numbered_queries(lines: Sequence[str]) -> list[tuple[int, list[str]]]:
    """Returns queries in numbered lists of a few MB, because a collection has no order."""
    return list(enumerate(_parts(lines, len)))


def _parts(items: Sequence[Any], size: Any) -> list[list[Any]]:
    """Splits items into lists of at least one item and at most ``ELEMENT_TEXT`` characters."""
    parts: list[list[Any]] = []
    held = ELEMENT_TEXT
    for item in items:
        if held + size(item) > ELEMENT_TEXT:
            parts.append([])
            held = 0
        parts[-1].append(item)
        held += size(item)
    return parts


def each_query(elements: Iterable[Any]) -> Iterator[Any]:
    """Yields queries given as single queries and lists; numbered lists come first, by number."""
    others: list[Any] = []
    numbered: list[tuple[int, list[Any]]] = []
    for element in elements:
        (numbered if _is_numbered(element) else others).append(element)
    for _, queries in sorted(numbered, key=lambda element: element[0]):
        yield from queries
    for element in others:
        if isinstance(element, Sequence) and not isinstance(element, str | bytes):
            yield from element
        else:
            yield element


def _is_numbered(element: Any) -> bool:
    return (
        isinstance(element, tuple)
        and len(element) == 2
        and isinstance(element[0], int)
        and isinstance(element[1], list)
    )


RELEASE_SHARD_BYTES = 2**23


class Draw(beam.DoFn):
    """The only step that draws noise: ``drawing`` maps noise and side inputs to public values."""

    def __init__(self, drawing: Callable[..., Iterable[Any]]) -> None:
        self.drawing = drawing

    @show_setup
    def setup(self) -> None:
        """Opens the source of noise on the worker."""
        # The source is never pickled: copies of a generator would draw the same noise.
        self._noise = NoiseSource()

    @withhold_messages
    def process(self, _: None, *sides: Any) -> Iterator[Any]:
        """Finishes the draw before yielding any output."""
        return iter(list(self.drawing(self._noise, *sides)))


def draw_once(
    pipeline: beam.Pipeline,
    drawing: Callable[..., Iterable[Any]],
    sides: Sequence[beam.PCollection[Any] | None],
    min_ram: int,
    output_type: Any,
) -> beam.PCollection[Any]:
    """Returns the values that one step draws from one public element, after a ``Reshuffle``.

    ``sides``: the side inputs of the step; an entry of None is passed on as None. Counts are side
    inputs, so that even an empty collection of records results in a release.
    ``min_ram``: the bytes of memory requested from the runner, a public number.

    Steps with a resource hint run in a separate environment, and a runner fuses only steps in the
    same environment. So the input element and the ``Reshuffle`` have the step's hint, too, and the
    hint does not change the stages.
    """
    given = [side if side is None else beam.pvalue.AsIter(side) for side in sides]
    draw = beam.ParDo(Draw(drawing), *given).with_output_types(output_type)
    return (
        pipeline
        | "Once" >> beam.Create([None]).with_resource_hints(min_ram=min_ram)
        | "Draw" >> draw.with_resource_hints(min_ram=min_ram)
        | "Keep the draw" >> beam.Reshuffle().with_resource_hints(min_ram=min_ram)
    )


def draw_release(
    pipeline: beam.Pipeline,
    release: Callable[..., Any],
    sides: Sequence[beam.PCollection[Any] | None],
    min_ram: int,
    plan: LeftOutPlan | None = None,
    left_out: beam.PCollection[tuple[int, bytes]] | None = None,
) -> beam.PCollection[ReleaseShard]:
    """Returns the shards of one drawn release; ``plan`` adds noisy counts of left-out records."""
    drawing = functools.partial(_drawn, release, plan)
    return draw_once(pipeline, drawing, (left_out, *sides), min_ram, ReleaseShard)


def _drawn(
    release: Callable[..., Any],
    plan: LeftOutPlan | None,
    noise: NoiseSource,
    left_out: Iterable[tuple[int, bytes]] | None,
    *sides: Any,
) -> Iterator[ReleaseShard]:
    """Yields the shards of a release; ``plan`` adds noisy counts of left-out records."""
    drawn = release(noise, *sides)
    if plan is not None and left_out is not None:
        counts = HistogramAccumulator(plan.domain).from_shards(left_out).counts
        drawn = with_left_out(drawn, plan, counts, noise)
    return release_shards(drawn)


def release_shards(release: Release) -> Iterator[ReleaseShard]:
    """Yields a serialised release in shards that are small enough for a runner."""
    data = release_to_bytes(release)
    num_pieces = -(-len(data) // RELEASE_SHARD_BYTES)
    for number in range(num_pieces):
        piece = data[number * RELEASE_SHARD_BYTES :][:RELEASE_SHARD_BYTES]
        yield release.draw_id, (number, num_pieces, piece)
