"""The step that draws noise, on one worker with enough memory, and a barrier."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam

from beam_dp.mechanisms.left_out import LeftOutPlan, with_left_out
from beam_dp.noise.source import NoiseSource
from beam_dp.releases.kinds import release_to_bytes
from beam_dp.releases.release import Release
from beam_dp.summaries.histogram import HistogramAccumulator
from beam_dp.transforms.elements import ReleaseShard
from beam_dp.transforms.errors import show_setup, withhold_messages

RELEASE_SHARD_BYTES = 2**23


class Draw(beam.DoFn):
    """The only step that draws noise, whatever it draws.

    ``drawing``: is given a source of noise and the side inputs; all that it returns is public.
    """

    def __init__(self, drawing: Callable[..., Iterable[Any]]) -> None:
        self.drawing = drawing

    @show_setup
    def setup(self) -> None:
        """Opens the source of noise, on the worker."""
        # Never pickled: copies of a generator would draw the same noise.
        self._noise = NoiseSource()

    @withhold_messages
    def process(self, _: None, *sides: Any) -> Iterator[Any]:
        """Draws, complete before anything is handed on."""
        return iter(list(self.drawing(self._noise, *sides)))


def draw_once(
    pipeline: beam.Pipeline,
    drawing: Callable[..., Iterable[Any]],
    sides: Sequence[beam.PCollection[Any] | None],
    min_ram: int,
    output_type: Any,
) -> beam.PCollection[Any]:
    """Returns what one step draws that is given one public element, from behind a barrier.

    ``sides``: its side inputs; None is handed to it as it is.
    ``min_ram``: of the worker that runs it, in bytes; asked of the runner, so it must be
    public.

    Not the counts: they are side inputs of the step, so that no records still make a release.

    A hint makes an environment of its own, and a runner fuses only what is in one. So the element
    before the step and the barrier behind it have the same hint: stages end where they would end
    without it.
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
    """Returns the shards of a release that is drawn once.

    ``plan``: of the counts of what was left out, where these are drawn, too: by the same step,
    so that one draw holds both.
    """
    drawing = functools.partial(_drawn, release, plan)
    return draw_once(pipeline, drawing, (left_out, *sides), min_ram, ReleaseShard)


def _drawn(
    release: Callable[..., Any],
    plan: LeftOutPlan | None,
    noise: NoiseSource,
    left_out: Iterable[tuple[int, bytes]] | None,
    *sides: Any,
) -> Iterator[ReleaseShard]:
    """Yields the shards of a release, with noisy counts of what was left out if these are asked."""
    drawn = release(noise, *sides)
    if plan is not None and left_out is not None:
        counts = HistogramAccumulator(plan.domain).from_shards(left_out).counts
        drawn = with_left_out(drawn, plan, counts, noise)
    return release_shards(drawn)


def release_shards(release: Release) -> Iterator[ReleaseShard]:
    """Yields a serialised release in pieces that a runner can carry."""
    data = release_to_bytes(release)
    num_pieces = -(-len(data) // RELEASE_SHARD_BYTES)
    for number in range(num_pieces):
        piece = data[number * RELEASE_SHARD_BYTES :][:RELEASE_SHARD_BYTES]
        yield release.draw_id, (number, num_pieces, piece)
