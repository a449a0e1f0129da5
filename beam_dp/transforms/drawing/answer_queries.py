"""The transforms that answer linear or sparse queries about records."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec
from apache_beam.utils.windowed_value import WindowedValue

from beam_dp.checks import check_is
from beam_dp.domain.texts import Element
from beam_dp.errors import InputError
from beam_dp.hashing.keys import HashKey, universe_elements
from beam_dp.mechanisms.linear_answers import LinearAnswersPlan, WorkloadAnswersPlan
from beam_dp.mechanisms.online import saved_runs
from beam_dp.mechanisms.online.private_mw import PrivateMW, PrivateMWPlan
from beam_dp.mechanisms.online.sparse_mw import SparseMW, SparseMWPlan
from beam_dp.mechanisms.resources import worker_bytes
from beam_dp.mechanisms.top_queries import TopQueriesPlan
from beam_dp.privacy.ledger.entries import Token
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.reader import LinearQueries, QueryLine
from beam_dp.queries.sparse import SparseQueries
from beam_dp.releases.kinds import release_from_bytes, release_to_bytes
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.secret.encoding.batch import KeyWords
from beam_dp.secret.encoding.keys import KeyColumns
from beam_dp.secret.summaries.histogram import Histogram, HistogramAccumulator
from beam_dp.secret.summaries.sparse_counts import ElementCounts, KeyCounts
from beam_dp.transforms.answers import AnswerBatch, Row, answer_batches, each_query
from beam_dp.transforms.counting import count_keys, summarise
from beam_dp.transforms.counting.count_keys import EncodeKeys
from beam_dp.transforms.counting.limit_contributions import limited
from beam_dp.transforms.drawing import one_worker
from beam_dp.transforms.job_page import ShowsPromise, show_setup, withhold_messages
from beam_dp.transforms.reading.records import refuse_windows

# Runners that use only one machine, so that all steps access the same folders.
LOCAL_RUNNERS = ("FnApiRunner", "DirectRunner", "SwitchingDirectRunner", "BundleBasedDirectRunner")


class AnswerQueries(ShowsPromise):
    """Answers linear queries about records, one at a time: ``mechanisms.PrivateMW``.

    Privacy: all answers of one job together satisfy ``plan.guarantee``, for records whose unit
    is ``plan.guarantee.privacy_unit``, and for queries that may depend on earlier answers. The
    budget is spent when the job is submitted, regardless of the number of queries. The counts are
    computed as in ``ReleaseSyntheticDatabase``, and are as secret as the records.

    One step answers all bounded queries: these answers have one random ``run_id``, and
    ``WriteAnswers`` commits one run. Unbounded queries are answered under one key, in order of
    arrival. Beam promises that the state of the run and the answers of a bundle commit together or
    not at all. So a retried bundle starts from the state before the bundle, and the answers of its
    first attempt are discarded. A runner that shows the outputs of a bundle and then discards the
    state breaks the guarantee.

    The state of a stream contains the noisy threshold, which is secret: answers and threshold
    together reveal more than the guarantee allows. Protect checkpoints and snapshots as carefully
    as the records. Starting a job twice from one snapshot spends the budget twice.

    Args:
        plan: a plan from ``plan_private_mw``.
        records: Arrow batches (``ReadRecords``), pandas frames, dicts or rows; bounded.
        start: the release to start from; required if, and only if, the plan starts from a release.
        ledger_token: the token from ``Ledger.spend`` that paid for this run.
        save_in: an existing private folder. Each attempt to answer bounded queries saves its run
            there under its ``run_id``, as ``save_private_mw`` does. Keep the saved run whose
            answers were written, and remove the folder.
        resume: the folder of a saved run that bounded queries continue, without spending budget.
            A saved state can be used only once and counts as used before the first answer, so a
            retried attempt fails.
        ledger: the URL of the ledger that paid for the resumed run, if any.

    Raises:
        InputError: if the start is missing or has another domain, the token paid for another run,
            or the saved run is refused; when applied, if the records are windowed or unbounded, or
            lack a column; or if a run is saved or resumed in a stream, or on a runner whose workers
            are other machines with other folders.

    Input: queries, as lines of JSON or dicts that ``LinearQueries.from_json`` reads, optionally
    with an ``id``. Elements may also be lists of queries, answered in the order of the list, or
    pairs of a number and a list, answered in the order of the numbers. The input may have any
    windows; one run answers all queries.

    Output: ``AnswerBatch`` elements of a few MB in the global window. A refused query results in a
    row with an ``error``, spends no budget, and does not stop the run.

    Cost: as for ``PrivateMW``. A stream also has state of a few kB per new query, or about 7 bytes
    per cell for a query with explicit values; after a retried bundle it replays all updates.
    """

    plan: PrivateMWPlan

    def __init__(
        self,
        plan: PrivateMWPlan,
        records: beam.PCollection[Any],
        start: SyntheticDatabase | None = None,
        ledger_token: Token | None = None,
        *,
        save_in: str | Path | None = None,
        resume: str | Path | None = None,
        ledger: str | None = None,
    ) -> None:
        super().__init__()
        check_is("plan", plan, PrivateMWPlan)
        if (start is not None) != plan.starts_from_release:
            condition = "must be given if the plan starts from a release, and only then"
            raise InputError("start", type(start).__name__, condition)
        if start is not None:
            condition = "must be a release of this domain"
            plan.domain.check_same(start.domain, "start", start.domain.names, condition)
        self.plan = plan.paid_by(ledger_token)
        if resume is not None:
            saved_runs.check_private_mw(resume, plan)
        self.records = records
        self.save_in = None if save_in is None else os.fspath(save_in)
        self.starter = _Starter(
            plan,
            start=None if start is None else release_to_bytes(start),
            token=ledger_token,
            resume=None if resume is None else os.fspath(resume),
            # A URL may contain a password, and job graphs are shown. Only a resumed run needs the
            # ledger, and resuming is refused if workers are other machines.
            ledger=None if resume is None else ledger,
        )

    def expand(self, queries: beam.PCollection[Any]) -> beam.PCollection[AnswerBatch]:
        """Counts the records, then answers the queries."""
        starter, plan = self.starter, self.starter.plan
        if self.save_in is not None or starter.resume is not None:
            _refuse_elsewhere(queries)
        count = summarise.CountCells(plan.domain, plan.guarantee, unit_costs=plan.unit_costs)
        shards = self.records | "Count" >> count
        min_ram = worker_bytes(plan, plan.domain.num_cells)
        everything = queries | "To one window" >> beam.WindowInto(beam.window.GlobalWindows())
        if queries.is_bounded:
            answer = functools.partial(_answer_all, starter, self.save_in)
            sides = [everything, shards]
            return one_worker.draw_once(queries.pipeline, answer, sides, min_ram, AnswerBatch)
        stream = beam.ParDo(_AnswerStream(starter), beam.pvalue.AsIter(shards))
        answers = stream.with_output_types(AnswerBatch)
        return (
            everything
            | "Batch" >> beam.ParDo(_Batch()).with_output_types(tuple[str, list[Any]])
            | "Answer" >> answers.with_resource_hints(min_ram=min_ram)
            | "Keep the answers" >> beam.Reshuffle().with_resource_hints(min_ram=min_ram)
        )


def _refuse_elsewhere(queries: beam.PCollection[Any]) -> None:
    """Refuses to save or resume a run if steps may run on machines with different folders."""
    if not queries.is_bounded:
        condition = "must be bounded if a run is saved or resumed: a stream keeps its own state"
        raise InputError("queries", "unbounded", condition)
    name = type(queries.pipeline.runner).__name__
    if name not in LOCAL_RUNNERS:
        names = ", ".join(LOCAL_RUNNERS)
        condition = f"must be on this machine if a run is saved or resumed: {names}"
        raise InputError("runner", name, condition)


@dataclasses.dataclass(frozen=True)
class _Starter:
    """Creates runs; part of the job graph. Everything except the ledger's password is public."""

    plan: PrivateMWPlan
    start: bytes | None
    token: Token | None = None
    resume: str | None = None
    ledger: str | None = dataclasses.field(default=None, repr=False)

    def release(self) -> SyntheticDatabase | None:
        if self.start is None:
            return None
        release = release_from_bytes(self.start)
        assert isinstance(release, SyntheticDatabase)
        return release

    def histogram(self, shards: Iterable[tuple[int, bytes]]) -> Histogram:
        return HistogramAccumulator(self.plan.domain).from_shards(shards)

    def new_run(self, shards: Iterable[tuple[int, bytes]], noise: NoiseSource) -> PrivateMW:
        histogram = self.histogram(shards)
        if self.resume is None:
            start, token = self.release(), self.token
            return PrivateMW(self.plan, histogram, noise, start, ledger_token=token)
        ledger = None if self.ledger is None else Ledger(self.ledger)
        return saved_runs.resume_private_mw(self.resume, self.plan, histogram, noise, ledger)


def _answer_all(
    starter: _Starter,
    save_in: str | None,
    noise: NoiseSource,
    lines: Iterable[Any],
    shards: Iterable[tuple[int, bytes]],
) -> list[AnswerBatch]:
    """Answers all queries of a bounded collection."""
    run = starter.new_run(shards, noise)
    queries = LinearQueries(starter.plan.domain)
    rows = [saved_runs.answer_line(run, queries, line)[0] for line in each_query(lines)]
    run_id, total = noise.draw_id(), run.settings.total
    if save_in is not None:
        # This step writes the secret state to disk, and never to a collection.
        saved_runs.save_private_mw(run, os.path.join(save_in, run_id))
    return answer_batches(run_id, total, rows)


class _Batch(beam.DoFn):
    """Collects the queries of a bundle under one key, so that they share a state transaction."""

    def start_bundle(self) -> None:
        self._lines: list[Any] = []
        self._timestamp: Any = None

    def process(self, line: Any, timestamp: Any = beam.DoFn.TimestampParam) -> None:
        self._lines += each_query([line])
        self._timestamp = timestamp if self._timestamp is None else max(timestamp, self._timestamp)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._lines:
            yield WindowedValue(
                ("run", self._lines), self._timestamp, (beam.window.GlobalWindow(),)
            )


# The version, the run id, the number of the next batch, and the secret checkpoint of the run.
_HEAD = beam.DoFn.StateParam(ReadModifyWriteStateSpec("head", beam.coders.FastPrimitivesCoder()))
_LOG = beam.DoFn.StateParam(BagStateSpec("log", beam.coders.StrUtf8Coder()))


class _AnswerStream(beam.DoFn):
    """Answers batches under one key; the state of the run commits together with the answers.

    The object caches the run with its dense tables. The cached run is used only while the state
    contains the random version that the object wrote last. After a failed bundle, or on another
    worker, the run is rebuilt from the state.
    """

    def __init__(self, starter: _Starter) -> None:
        self.starter = starter

    @show_setup
    def setup(self) -> None:
        # The source is never pickled: copies of a generator would draw the same noise.
        self._noise = NoiseSource()
        self._queries = LinearQueries(self.starter.plan.domain)
        self._kept: tuple[str, PrivateMW] | None = None

    @withhold_messages
    def process(
        self,
        batch: tuple[str, list[Any]],
        shards: Iterable[tuple[int, bytes]],
        head: Any = _HEAD,
        log: Any = _LOG,
    ) -> Iterator[AnswerBatch]:
        stored = head.read()
        # No run is cached while answering: after a failure, it would be ahead of the state.
        kept, self._kept = self._kept, None
        if stored is None:
            run_id, number = self._noise.draw_id(), 0
            run = self.starter.new_run(shards, self._noise)
        else:
            version, run_id, number, state = stored
            if kept is not None and kept[0] == version:
                run = kept[1]
            else:
                plan, release = self.starter.plan, self.starter.release()
                histogram = self.starter.histogram(shards)
                run = saved_runs.run_from_log(
                    plan, histogram, self._noise, release, state, log.read()
                )
        rows = []
        for line in batch[1]:
            row, entry = saved_runs.answer_line(run, self._queries, line)
            rows.append(row)
            if entry is not None:
                log.add(entry)
        version = self._noise.draw_id()
        head.write((version, run_id, number + 1, saved_runs.checkpoint(run)))
        self._kept = version, run
        return iter([AnswerBatch(run_id, number, run.settings.total, rows)])


class AnswerWorkload(ShowsPromise):
    """Answers all queries of a linear workload, or only the queries with the largest answers.

    Privacy: the output satisfies ``plan.guarantee``, as described in ``draw_workload_answers`` and
    ``draw_top_queries``. Noise is drawn once, by one step before a ``Reshuffle``. A repeated draw
    has a different ``run_id``, and ``WriteAnswers`` commits only one draw.

    Args:
        plan: a plan from ``plan_workload_answers`` or ``plan_top_queries``.
        lines: the lines of the query file. Valid queries must be in the plan's workload; refused
            lines result in rows with an error.
        ledger_token: the token from ``Ledger.spend`` that paid for these answers.

    Raises:
        InputError: if a query is not in the workload, or the token paid for another plan; when
            applied, if the records are windowed or unbounded, or lack a column.

    Output: numbered ``AnswerBatch`` elements of a few MB, in the order of the lines. The largest
    answers are in the order in which they were chosen, followed by refused lines.
    """

    plan: LinearAnswersPlan

    def __init__(
        self,
        plan: LinearAnswersPlan,
        lines: Sequence[QueryLine],
        ledger_token: Token | None = None,
    ) -> None:
        super().__init__()
        check_is("plan", plan, WorkloadAnswersPlan, TopQueriesPlan)
        self.plan = plan.paid_by(ledger_token)
        nothing = dict.fromkeys(
            ("value", "standard_error", "bound", "route", "updates_left", "questions_left")
        )
        statement = {
            "standard_error": plan.standard_error,
            "bound": plan.bound(),
            "route": "measured",
        }
        places = {query: place for place, query in enumerate(plan.workload)}
        self.rows: list[tuple[Row, int | None]] = []
        for line in lines:
            row = {"id": line.id, "query": line.text, **nothing, "error": line.error}
            if line.query is None:
                self.rows.append((row, None))
            elif line.query not in places:
                raise InputError("query", line.text, "must be in the workload of the plan")
            else:
                self.rows.append((row | statement, places[line.query]))

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[AnswerBatch]:
        """Counts records, then draws the answers."""
        plan, domain = self.plan, self.plan.workload.domain
        count = summarise.CountCells(domain, plan.guarantee, unit_costs=plan.unit_costs)
        shards = records | "Count" >> count
        answers = functools.partial(_workload_answers, plan, self.rows)
        min_ram = worker_bytes(plan, domain.num_cells)
        return one_worker.draw_once(records.pipeline, answers, [shards], min_ram, AnswerBatch)


def _workload_answers(
    plan: LinearAnswersPlan,
    asked: list[tuple[Row, int | None]],
    noise: NoiseSource,
    shards: Iterable[tuple[int, bytes]],
) -> list[AnswerBatch]:
    histogram = HistogramAccumulator(plan.workload.domain).from_shards(shards)
    values = plan.answered(histogram.counts, noise)
    answered = [line for line in asked if line[1] is None or line[1] in values]
    if isinstance(plan, TopQueriesPlan):
        # Chosen queries by rank, then refused lines in their order.
        ranks: dict[int | None, int] = {place: rank for rank, place in enumerate(values)}
        answered.sort(key=lambda line: ranks.get(line[1], len(ranks)))
    rows = [row if place is None else {**row, "value": values[place]} for row, place in answered]
    public = None if plan.num_records == "noisy" else plan.num_records
    return answer_batches(noise.draw_id(), public, rows)


# Fingerprints use only the 16 bytes of the hash key; the independence of hash functions is unused.
_INDEPENDENCE = 1


class AnswerSparseQueries(ShowsPromise):
    """Answers sparse queries about the keys of records, one at a time: ``mechanisms.SparseMW``.

    Privacy: all answers of one job together satisfy ``plan.guarantee``, as in ``AnswerQueries``,
    for records whose unit is ``plan.guarantee.privacy_unit``. A record counts for one key. The
    counts of keys are computed as in ``ReleaseProjection``, and are as secret as the records. One
    step, with the counts as a side input, answers all queries. All answers of the step have one
    random ``run_id``, and ``WriteAnswers`` commits one run.

    Args:
        plan: a plan from ``plan_sparse_mw``.
        columns: the column of keys, without weights.
        records: Arrow batches (``ReadRecords``), pandas frames, dicts or rows; bounded.
        ledger_token: the token from ``Ledger.spend`` that paid for this run.

    Raises:
        InputError: if there are weights, or the token paid for another run; when applied, if
            the records are windowed or unbounded or lack a column, or the queries are unbounded.

    Input: queries, as lines of JSON or dicts ``{"sparse": {...}}``, optionally with an ``id``, or
    lists of queries as for ``AnswerQueries``.

    Output: ``AnswerBatch`` elements of a few MB. A refused query results in a row with an
    ``error``, spends no budget, and does not stop the run.

    Cost: 16 bytes per distinct key in the memory of one worker; 5 microseconds per queried element.
    """

    plan: SparseMWPlan

    def __init__(
        self,
        plan: SparseMWPlan,
        columns: KeyColumns,
        records: beam.PCollection[Any],
        ledger_token: Token | None = None,
    ) -> None:
        super().__init__()
        check_is("plan", plan, SparseMWPlan)
        check_is("columns", columns, KeyColumns)
        if columns.weight is not None:
            raise InputError("weight", columns.weight, "must not be given: records are counted")
        if columns.list_keys:
            raise InputError("list_keys", True, "must not be given: answers list no keys")
        self.plan = plan.paid_by(ledger_token)
        self.columns = columns
        self.records = records
        self.hash_key = HashKey.draw(_INDEPENDENCE)

    def expand(self, queries: beam.PCollection[Any]) -> beam.PCollection[AnswerBatch]:
        """Counts the keys, then answers the queries."""
        if not queries.is_bounded:
            raise InputError("queries", "an unbounded collection", "must be bounded for sparse_mw")
        refuse_windows(self.records)
        guarantee = self.plan.guarantee
        encode = EncodeKeys(self.columns, 1, self.hash_key, guarantee.privacy_unit)
        encoded = self.records | "Encode" >> encode
        keys = limited(encoded, KeyWords(), guarantee, unit_costs=self.plan.unit_costs)
        shards = keys | "Count" >> count_keys.CountElements()
        everything = queries | "To one window" >> beam.WindowInto(beam.window.GlobalWindows())
        reader = SparseQueries(self.columns.key_type, self.plan.max_sparsity, self.hash_key)
        answers = functools.partial(_sparse_answers, self.plan, reader)
        sides, min_ram = [everything, shards], worker_bytes(self.plan, 0)
        return one_worker.draw_once(queries.pipeline, answers, sides, min_ram, AnswerBatch)


def _sparse_answers(
    plan: SparseMWPlan,
    reader: SparseQueries,
    noise: NoiseSource,
    lines: Iterable[Any],
    shards: Iterable[bytes],
) -> list[AnswerBatch]:
    counts = _CountsByFingerprint(count_keys.counts_of_shards(shards), reader.hash_key)
    run = SparseMW(plan, KeyCounts(counts), noise)
    rows = [saved_runs.answer_line(run, reader, line)[0] for line in each_query(lines)]
    return answer_batches(noise.draw_id(), run.settings.total, rows)


class _CountsByFingerprint(Mapping[Element, int]):
    """Counts of elements, looked up by fingerprint; integers are their own fingerprints. Secret."""

    def __init__(self, counts: ElementCounts, hash_key: HashKey) -> None:
        self._elements = counts.elements
        self._counts = counts.counts
        self._hash_key = hash_key

    def __repr__(self) -> str:
        return "_CountsByFingerprint(secret)"

    def __getitem__(self, element: Element) -> int:
        (fingerprint,) = universe_elements([element], self._hash_key)
        place = int(np.searchsorted(self._elements, fingerprint))
        if place == len(self._elements) or self._elements[place] != fingerprint:
            raise KeyError
        return int(self._counts[place])

    def __iter__(self) -> Iterator[Element]:
        return iter(self._elements.tolist())

    def __len__(self) -> int:
        return len(self._elements)
