"""The transforms that release the windows of a stream, and read them back as rows with a schema."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beam_dp.checks import check_is
from beam_dp.errors import InputError
from beam_dp.mechanisms.resources import worker_bytes
from beam_dp.mechanisms.windows.plan import (
    WindowDatabasesPlan,
    WindowsPlan,
    WindowTablesPlan,
    horizon_card,
)
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.workload import Workload
from beam_dp.releases.error_bars import FROM_NOISE
from beam_dp.releases.files.commit import complete_committed, holds_card
from beam_dp.releases.kinds import commit_release, release_from_bytes, release_to_bytes
from beam_dp.releases.synthetic_database.questions import values_of
from beam_dp.releases.windows import horizon_files
from beam_dp.releases.windows.horizon_files import read_horizon, read_window, read_windows
from beam_dp.secret.summaries.histogram import HistogramAccumulator, Marginals
from beam_dp.transforms.counting.count_windows import BeamWindows, CountWindows, SumTables
from beam_dp.transforms.job_page import ShowsPromise, count_committed, show_setup, withhold_messages
from beam_dp.transforms.reading.read import ReadRecords
from beam_dp.transforms.reading.read_arrivals import ReadArrivals, SeenFiles, keep_files
from beam_dp.transforms.reading.read_kafka import ReadKafka
from beam_dp.transforms.reading.records import source_of
from beam_dp.transforms.reading.released_rows import (
    Directory,
    Fields,
    ReleasedRows,
    Rows,
    marginal_fields,
)


class WindowRows(ReleasedRows):
    """Returns the counts of a marginal in each released window of a horizon as rows with a schema.

    The rows are post-processing of the releases, as those of ``MarginalRows``. A job that continues
    a horizon returns the rows of earlier windows again, with the same draw ids.

    Args:
        directory: the directory of the horizon, begun with ``begin_windows``, which all workers
            must be able to access.
        attributes: the names of the attributes to count by, all in one released marginal.

    Raises:
        InputError: if an attribute is unknown, or no released marginal has all of them.
        ReleaseError: if the horizon or a window is missing or damaged.

    Input: the output of ``ReleaseWindows``; or the start of a pipeline, for the windows that have
    been released when the pipeline runs.

    Output: one ``beam.Row`` per window and cell: ``window`` (its number), ``start`` and ``end`` (as
    ISO 8601 strings in UTC), and the fields of ``MarginalRows``. Blocks of windows have no rows.

    Example:
        >>> rows = released | WindowRows("out/week-48", attributes=["city"])  # doctest: +SKIP
    """

    def __init__(self, directory: Directory, *, attributes: Sequence[str]) -> None:
        workload = read_horizon(directory)[1].workload
        place: Fields = {"window": int, "start": str, "end": str}
        names, fields = marginal_fields(workload.domain, attributes, place)
        if not any(set(names) <= set(sets) for sets in workload):
            raise InputError("attributes", list(names), "must all be in one released marginal")
        super().__init__(directory, fields, _window_values, os.fspath(directory), names)

    def expand(self, released: Any) -> beam.PCollection[Any]:
        """Reads each released window in one step, then distributes its rows."""
        if isinstance(released, beam.pvalue.PBegin):
            start = released | "Directory" >> beam.Create([self.directory])
            released = start | "Windows" >> beam.FlatMap(_windows).with_output_types(Any)
        return self._spread(released)


def _windows(directory: str) -> Iterator[tuple[str, int]]:
    return (("window", number) for number in read_windows(directory).released)


def _window_values(released: tuple[str, int], directory: str, names: Sequence[str]) -> Rows:
    level, number = released
    if level == "window":
        release, times = read_window(directory, number)
        start, end = (datetime.datetime.fromtimestamp(time, datetime.UTC) for time in times)
        (answer,) = release.answer(Workload(release.domain, (tuple(names),)))
        attributes = [release.domain[name] for name in names]
        cells = itertools.product(*(values_of(column, range(column.size)) for column in attributes))
        ends = start.isoformat(), end.isoformat()
        errors = answer.standard_error, answer.bound, FROM_NOISE, None, release.draw_id
        for cell, value in zip(cells, answer.values.ravel().tolist(), strict=True):
            yield number, *ends, *cell, value, *errors


Level = Literal["window", "block"]
DrawRelease = Callable[[int, Marginals, NoiseSource, str], Any]


def begin_windows(
    plan: WindowsPlan,
    directory: str | os.PathLike[str],
    source: Mapping[str, Any] | None = None,
    *,
    event_time: str,
    arrival: str,
    replayable: bool,
) -> str:
    """Begins a horizon in a directory, or continues the same horizon (see ``begin_horizon``).

    Args:
        plan: the plan for the windows.
        directory: an empty directory, or the directory of this horizon.
        source: a description of the source of the records, as JSON values that must be the same
            after a restart, such as the pattern of files, or the ``source`` of ``ReadKafka``.
        event_time: the column with the time of the event.
        arrival: the column with the time of arrival at the source.
        replayable: whether the source can be read again from the start, with the same records and
            arrivals. The guarantee of a continued job depends on this.

    Returns:
        The id of the horizon, for ``ReleaseWindows`` and for the ledger entry that pays.

    Raises:
        InputError: if the directory contains something else, or a horizon with another promise.
        ReleaseError: if the file ``horizon.json`` of the directory is damaged.
    """
    check_is("plan", plan, WindowTablesPlan, WindowDatabasesPlan)
    columns = {**(source or {}), "event_time": event_time, "arrival": arrival}
    card = horizon_card(plan, columns, replayable=replayable)
    return horizon_files.begin_horizon(directory, card, NoiseSource().draw_id())


class ReleaseWindows(ShowsPromise):
    """Releases each window of a horizon once the window closes, in one folder per window.

    Privacy: the committed releases of any ``protected_windows`` windows, with their blocks, satisfy
    ``plan.guarantee``, as described in ``plan_window_tables``. The distributed part computes the
    exact histogram of each window (``CountWindows``), which is as secret as the records. The
    histogram is a function of the records and their arrivals. For the same files, it is the same in
    a stream, in batch and after a replay, if no file appeared late. The guarantee depends on this,
    so a job that continues a horizon compares the files that were read (``SeenFiles``). A window is
    drawn by one step, and the first committed draw is its release (``commit_files``): a draw that a
    replay repeats is discarded unseen, and a committed window is not drawn again. Windows without
    records are released, too. The watermark of the source determines when a window is released, so
    the watermark must not depend on records.

    Args:
        plan: the plan for tables or databases of windows.
        directory: the directory of the horizon, begun with ``begin_windows``; every worker must be
            able to access it.
        horizon_id: the id returned by ``begin_windows``.
        event_time: the column with the time of the event.
        arrival: the column with the time of arrival at the source.
        private_folder: the folder that stores the path, size and time of each file read, so that
            other jobs on the horizon read the same files (``SeenFiles``). The default is next to
            the directory, if that is local.

    Raises:
        InputError: if the plan's domain has more cells than the limit of histograms. When applied:
            if the records are windowed, lack a column, or come from several readers; if the horizon
            of the directory has another promise, other time columns or another topic; if a file
            that was read has changed; or if Flink makes checkpoints without
            ``--finish_bundle_before_checkpointing``.

    Input: as for ``CountWindows``. Output: the level ("window" or "block") and number of each
    window and block, once its release is in its folder.
    """

    plan: WindowsPlan

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
        plan.paid_by(None)  # the horizon was paid for at its beginning
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
        """Counts windows, then draws each window and each block of windows."""
        _refuse_open_bundles(records.pipeline.options)
        self.check_begun(records)
        # Flink refuses a savepoint with steps of other names: one of another horizon holds counts
        # of other records.
        windows = records | f"Count {self.horizon_id}" >> self.count
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

    def check_begun(self, records: beam.PCollection[Any]) -> None:
        """Refuses records, columns or a plan other than those with which the horizon was begun.

        Lists the files of the records, if the horizon was begun.
        """
        is_strict = horizon_card(self.plan, replayable=True).needs_same_records
        kept = (ReadArrivals, ReadRecords) if is_strict else ReadArrivals
        made_of = list(_made_of(records))
        readers = [reader for reader in map(source_of, made_of) if isinstance(reader, kept)]
        sources = [made.source for made in made_of if hasattr(made, "source")]
        if len(readers) + len(sources) > 1:
            condition = "must come from one reader: a horizon lists the files of only one"
            raise InputError("records", f"from {len(readers) + len(sources)} readers", condition)
        seen = SeenFiles(self.directory, self.private_folder) if readers else None
        times = {"event_time": self.count.event_time, "arrival": self.count.arrival}
        source = {name: value for part in (times, *sources) for name, value in part.items()}
        card = horizon_card(self.plan, source, replayable=True)
        if (
            horizon_files.check_same_horizon(self.directory, card) == self.horizon_id
            and seen is not None
        ):
            done = horizon_files.released(self.directory, card)
            is_lost = is_strict and bool(done.windows or done.blocks)
            seen.begin(self.horizon_id, may_be_new=not is_lost)
            keep_files(readers[0], seen, may_be_removed=not is_strict)


def repeatable_source(records: beam.PCollection[Any]) -> dict[str, Any] | None:
    """Returns what describes the files or the topic of all records; None if some have others."""
    described: dict[str, Any] = {}
    for made in _made_of(records):
        described |= getattr(made, "source", {})
        step = made.producer
        if step is not None and any(isinstance(one, beam.pvalue.PBegin) for one in step.inputs):
            while step is not None and not isinstance(step.transform, ReadRecords | ReadKafka):
                step = step.parent
            if step is None:
                return None
    return described


def _made_of(records: beam.PCollection[Any]) -> Iterator[Any]:
    """Yields a collection, and all collections from which the collection was computed."""
    left, met = [records], set()
    while left:
        step = left.pop()
        if step not in met:
            met.add(step)
            yield step
            left += () if step.producer is None else step.producer.inputs


def _refuse_open_bundles(options: PipelineOptions) -> None:
    """Refuses Flink checkpoints that lose the records that a bundle has read but not yet output.

    Several jobs with these checkpoints succeeded, but records were missing. Only Flink's job server
    defines the flags for checkpoints.
    """
    given = options.get_all_options(drop_default=True, retain_unknown_options=True)
    interval, finishes = "checkpointing_interval", "finish_bundle_before_checkpointing"
    if interval in given and str(given.get(finishes)).lower() != "true":
        condition = f"needs --{finishes}: otherwise records are lost"
        raise InputError(interval, given[interval], condition)


def _shards(table: tuple[int, Iterable[tuple[int, bytes]]]) -> Iterable[tuple[int, bytes]]:
    return table[1]


@dataclasses.dataclass(eq=False, repr=False)
class _DrawEach(beam.PTransform):
    """Draws and commits a release for each exact table."""

    plan: WindowsPlan
    horizon_id: str
    draw: DrawRelease
    place: _Place

    def expand(self, tables: beam.PCollection[Any]) -> beam.PCollection[tuple[str, int]]:
        """Draws and commits in one stage, so that a retried stage finds the committed releases."""
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
    """The folders for releases of windows, or of blocks of ``block`` windows."""

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
    """The only step that draws noise; yields empty bytes for a window that is already committed."""

    plan: WindowsPlan
    horizon_id: str
    draw: DrawRelease
    place: _Place

    @show_setup
    def setup(self) -> None:
        """Opens the source of noise on the worker."""
        # The source is never pickled: copies of a generator would draw the same noise.
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
    """Commits a release, or completes an earlier commit."""

    def __init__(self, place: _Place) -> None:
        self.place = place

    def process(self, drawn: tuple[int, bytes]) -> Iterator[tuple[str, int]]:
        number, release = drawn
        directory = self.place.of(number)
        if release:
            commit_release(release_from_bytes(release), directory)
        else:
            complete_committed(directory)
        count_committed(directory)
        return iter([(self.place.level, number)])
