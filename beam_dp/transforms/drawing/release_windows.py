"""The transform from records of a stream to a release of each window, committed in its folder."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Literal

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beam_dp.checks import check_is
from beam_dp.errors import InputError
from beam_dp.mechanisms.resources import worker_bytes
from beam_dp.mechanisms.windows.plan import WindowDatabasesPlan, WindowTablesPlan
from beam_dp.noise.source import NoiseSource
from beam_dp.releases.files.commit import Draw, commit_draw, complete_committed, holds_card
from beam_dp.releases.kinds import release_to_bytes
from beam_dp.releases.windows import horizon_files
from beam_dp.summaries.histogram import HistogramAccumulator, Marginals
from beam_dp.transforms.counting.count_windows import BeamWindows, CountWindows, SumTables
from beam_dp.transforms.errors import show_setup, withhold_messages
from beam_dp.transforms.reading.read import ReadRecords
from beam_dp.transforms.reading.read_arrivals import ReadArrivals
from beam_dp.transforms.reading.records import source_of
from beam_dp.transforms.reading.seen_files import SeenFiles

WindowsPlan = WindowTablesPlan | WindowDatabasesPlan
Level = Literal["window", "block"]
DrawRelease = Callable[[int, Marginals, NoiseSource, str], Any]


def horizon_card(
    plan: WindowsPlan, source: Mapping[str, Any] | None = None, *, replayable: bool
) -> horizon_files.HorizonCard:
    """Returns what ``horizon.json`` promises; ``source`` must be the same after a restart."""
    return horizon_files.HorizonCard(
        horizon=plan.horizon,
        unit=plan.unit,
        guarantee=plan.guarantee,
        workload=plan.workload,
        plan=plan.public,
        source=source or {},
        replayable=replayable,
    )


def begin_windows(
    plan: WindowsPlan,
    directory: str | os.PathLike[str],
    source: Mapping[str, Any] | None = None,
    *,
    event_time: str,
    arrival: str,
    replayable: bool,
) -> str:
    """Begins a horizon in a directory, or goes on with the same one there: ``begin_horizon``.

    Args:
        plan: of the windows.
        directory: empty, or of this horizon.
        source: of the records, as JSON values: what must be the same after a restart, such as the
            pattern of files, or the ``source`` of ``ReadKafka``.
        event_time: the column with the time of a record's event.
        arrival: the column with the time at which its source had it.
        replayable: whether the source can be read again from the start, and then has the same
            records with the same arrivals. What a job that goes on promises depends on it.

    Returns:
        The id of the horizon, for ``ReleaseWindows``, and for the entry of a ledger that pays.

    Raises:
        InputError: if the directory holds something else, or the same horizon with another promise.
        ReleaseError: if its ``horizon.json`` is damaged.
    """
    check_is("plan", plan, WindowTablesPlan, WindowDatabasesPlan)
    stated = {**(source or {}), "event_time": event_time, "arrival": arrival}
    card = horizon_card(plan, stated, replayable=replayable)
    return horizon_files.begin_horizon(directory, card, NoiseSource().draw_id())


class ReleaseWindows(beam.PTransform):
    """Releases each window of a horizon once it closes, in a folder of its own.

    Privacy: of any ``protected_windows`` windows, with their blocks, what is committed keeps
    ``plan.guarantee``, as ``plan_window_tables`` says. The distributed part is the exact histogram
    of each window (``CountWindows``), as secret as the records: a function of these and of their
    arrivals, the same in a stream, in batch and after a replay that are given the same files, if no
    file appeared late. The promise rests on this, so files that were read are compared when a
    job goes on (``SeenFiles``). A window is drawn by one step, and the first draw that is committed
    is its release (``commit_draw``): one that a replay draws again is discarded, unseen, and one
    that is committed is not drawn again. Windows without records are released as well.
    When a window is released follows the watermark of the source, so that must not depend on
    records.

    Args:
        plan: of the tables, or databases, of windows.
        directory: of the horizon, begun with ``begin_windows``; every worker sees it.
        horizon_id: that ``begin_windows`` returned.
        event_time: the column with the time of a record's event.
        arrival: the column with the time at which its source had it.
        private_folder: where the path, size and time of each file that was read are kept, so that
            another job on the horizon reads the same (``SeenFiles``). By default next to a local
            directory.

    Raises:
        InputError: if the plan's domain has more cells than a histogram holds; when applied, if the
            records are windowed, or lack a column, the directory's horizon promises something else,
            or names other columns of times or another topic, a file that was read changed, the
            records are of several readers of files or topics, or Flink is to make checkpoints
            without ``--finish_bundle_before_checkpointing``.

    Input: as for ``CountWindows``. Output: for each window and block its level and number, once its
    release is in its folder.
    """

    def __init__(
        self,
        plan: WindowsPlan,
        directory: str | os.PathLike[str],
        horizon_id: str,
        event_time: str,
        arrival: str,
        private_folder: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        check_is("plan", plan, WindowTablesPlan, WindowDatabasesPlan)
        plan.paid_by(None)  # the horizon was paid for when it was begun
        self.plan = plan
        self.directory = os.fspath(directory)
        self.horizon_id = horizon_id
        self.private_folder = private_folder
        self.count = CountWindows(
            plan.workload.domain,
            plan.horizon,
            plan.unit,
            event_time,
            arrival,
            unit_costs=plan.unit_costs,
        )

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[tuple[str, int]]:
        """Counts windows, and draws each of them, and each block of them."""
        _refuse_open_bundles(records.pipeline.options)
        self._check_begun(records)
        windows = records | "Count" >> self.count
        plan, draw = self.plan, partial(_DrawEach, self.plan, self.horizon_id)
        place = _Place(self.directory, None)
        drawn = [windows | "Draw windows" >> draw(plan.draw, place)]
        if isinstance(plan, WindowTablesPlan) and plan.block is not None:
            of_blocks = BeamWindows(plan.horizon, plan.block)
            blocks = (
                windows
                | "Shards" >> beam.FlatMap(_shards).with_output_types(tuple[int, bytes])
                | "Into blocks" >> of_blocks.into()
                | "Sum blocks" >> SumTables(of_blocks, plan.workload.domain.num_cells)
            )
            place = _Place(self.directory, plan.block)
            drawn.append(blocks | "Draw blocks" >> draw(plan.draw_block, place))
        return drawn | beam.Flatten()

    def _check_begun(self, records: beam.PCollection[Any]) -> None:
        """Refuses records, columns or a plan other than those that the horizon was begun with."""
        is_strict = horizon_card(self.plan, replayable=True).needs_same_records
        kept = (ReadArrivals, ReadRecords) if is_strict else ReadArrivals
        made_of = list(_made_of(records))
        readers = [each for each in map(source_of, made_of) if isinstance(each, kept)]
        sources = [each.source for each in made_of if hasattr(each, "source")]
        if len(readers) + len(sources) > 1:
            condition = "must be of one, for a horizon knows what it has read of one alone"
            raise InputError("records", f"of {len(readers) + len(sources)} readers", condition)
        seen = SeenFiles(self.directory, self.private_folder) if readers else None
        times = {"event_time": self.count.event_time, "arrival": self.count.arrival}
        source = {name: value for each in (times, *sources) for name, value in each.items()}
        card = horizon_card(self.plan, source, replayable=True)
        if (
            horizon_files.check_same_horizon(self.directory, card) == self.horizon_id
            and seen is not None
        ):
            found = horizon_files.released(self.directory, card)
            is_lost = is_strict and bool(found.windows or found.blocks)
            seen.begin(self.horizon_id, may_be_new=not is_lost)
            readers[0].keep(seen, may_be_removed=not is_strict)


def _made_of(records: beam.PCollection[Any]) -> Iterator[Any]:
    """Yields a collection and everything it was made from."""
    left, met = [records], set()
    while left:
        each = left.pop()
        if each not in met:
            met.add(each)
            yield each
            left += () if each.producer is None else each.producer.inputs


def _refuse_open_bundles(options: PipelineOptions) -> None:
    """Refuses checkpoints that lose the records that a bundle has read and not yet passed on.

    Several such jobs succeeded, with records missing. Only Flink's job server knows the flags.
    """
    given = options.get_all_options(drop_default=True, retain_unknown_options=True)
    interval, finishes = "checkpointing_interval", "finish_bundle_before_checkpointing"
    if interval in given and str(given.get(finishes)).lower() != "true":
        condition = f"must be given with --{finishes}: else records are lost"
        raise InputError(interval, given[interval], condition)


def _shards(table: tuple[int, Iterable[tuple[int, bytes]]]) -> Iterable[tuple[int, bytes]]:
    return table[1]


@dataclasses.dataclass(eq=False, repr=False)
class _DrawEach(beam.PTransform):
    """Draws the release of each exact table and commits it."""

    plan: WindowsPlan
    horizon_id: str
    draw: DrawRelease
    place: _Place

    def expand(self, tables: beam.PCollection[Any]) -> beam.PCollection[tuple[str, int]]:
        """Draws and commits in one stage: what is done again finds what was committed."""
        draw = beam.ParDo(_Draw(self.plan, self.horizon_id, self.draw, self.place))
        commit = beam.ParDo(_Commit(self.place))
        min_ram = worker_bytes(self.plan, self.plan.workload.domain.num_cells)
        return (
            tables
            | "Draw"
            >> draw.with_output_types(tuple[int, bytes]).with_resource_hints(min_ram=min_ram)
            | "Commit"
            >> commit.with_output_types(tuple[str, int]).with_resource_hints(min_ram=min_ram)
            | "Out of windows" >> beam.WindowInto(beam.window.GlobalWindows())
        )


@dataclasses.dataclass(frozen=True)
class _Place:
    """The folders of releases of windows, or of blocks of ``block`` windows."""

    directory: str
    block: int | None

    @property
    def level(self) -> Level:
        return "window" if self.block is None else "block"

    def of(self, number: int) -> str:
        if self.block is None:
            return horizon_files.window_directory(self.directory, number)
        return horizon_files.block_directory(self.directory, self.block, number)


@dataclasses.dataclass(eq=False, repr=False)
class _Draw(beam.DoFn):
    """The only step that draws noise; yields no bytes for a release that is committed already."""

    plan: WindowsPlan
    horizon_id: str
    draw: DrawRelease
    place: _Place

    @show_setup
    def setup(self) -> None:
        """Opens the source of noise, on the worker."""
        # Never pickled: copies of a generator would draw the same noise.
        self._noise = NoiseSource()

    @withhold_messages
    def process(
        self, table: tuple[int, Iterable[tuple[int, bytes]]]
    ) -> Iterator[tuple[int, bytes]]:
        number, shards = table
        if holds_card(self.place.of(number)):
            return iter([(number, b"")])
        histogram = HistogramAccumulator(self.plan.workload.domain).from_shards(shards)
        marginals = histogram.marginals(self.plan.summary_tables)
        release = self.draw(number, marginals, self._noise, self.horizon_id)
        return iter([(number, release_to_bytes(release))])


class _Commit(beam.DoFn):
    """Commits a release, or completes the one that was committed before."""

    def __init__(self, place: _Place) -> None:
        self.place = place

    def process(self, drawn: tuple[int, bytes]) -> Iterator[tuple[str, int]]:
        number, release = drawn
        directory = self.place.of(number)
        if release:
            commit_draw(Draw.from_bytes(release), directory)
        else:
            complete_committed(directory)
        return iter([(self.place.level, number)])
