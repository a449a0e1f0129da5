"""The step that draws noise, on one worker with enough memory, and the elements that it outputs.

All outputs of the step are public, in elements of a few MB that any runner supports.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam

from beam_dp.mechanisms.left_out import LeftOutPlan, with_left_out
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.releases.kinds import release_to_bytes
from beam_dp.releases.release import Release
from beam_dp.secret.summaries.histogram import HistogramAccumulator
from beam_dp.transforms.job_page import show_setup, withhold_messages

ReleaseShard = tuple[str, tuple[int, int, bytes]]  # draw id, (number, number of shards, bytes)
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
