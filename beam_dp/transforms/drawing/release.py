"""The transforms that release a synthetic database, interval counts, or a sketch of records."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import apache_beam as beam
import numpy as np

from beam_dp.checks import check_is
from beam_dp.domain.universe import Domain, check_edges_budget
from beam_dp.errors import InputError
from beam_dp.mechanisms.intervals.plan import (
    IntervalPlan,
    StrategyChoice,
    plan_intervals,
    release_intervals,
)
from beam_dp.mechanisms.left_out import plan_left_out, share_guarantee
from beam_dp.mechanisms.registry import ReleaseOptions, draw_database, plan_release
from beam_dp.mechanisms.resources import worker_bytes
from beam_dp.mechanisms.sketches.plan import SparsePlan, SparseSummary, release_sparse
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.entries import Token
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.workload import Workload
from beam_dp.releases.domain.release import DomainRelease
from beam_dp.releases.intervals.release import IntervalRelease, ordered_domain
from beam_dp.releases.sketches.release import SparseRelease
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.secret.summaries.histogram import HistogramAccumulator, MarginalsAccumulator
from beam_dp.secret.summaries.projection import ProjectionAccumulator
from beam_dp.transforms.counting import count_keys, summarise
from beam_dp.transforms.counting.limit_contributions import LimitKeys
from beam_dp.transforms.drawing.one_worker import ReleaseShard, draw_release
from beam_dp.transforms.job_page import ShowsPromise
from beam_dp.transforms.reading.records import refuse_windows

if TYPE_CHECKING:
    from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism


class ReleasePlanned(ShowsPromise):
    """``ReleaseSyntheticDatabase`` with an existing plan, because planning takes seconds."""

    plan: MarginalsPlan

    def __init__(
        self, mechanism: Mechanism, plan: MarginalsPlan, ledger_token: Token | None = None
    ) -> None:
        super().__init__()
        self.mechanism = mechanism
        self.plan = plan.paid_by(ledger_token)
        self.accumulator = MarginalsAccumulator(plan.domain, plan.summary_tables)

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[ReleaseShard]:
        """Encodes records, limits contributions, counts, and draws the release."""
        encoded, left_out = summarise.limited_records(
            records,
            self.plan.domain,
            self.plan.guarantee,  # with the number of records per unit that is kept
            as_cells=self.accumulator.as_cells,
            left_out=self.plan.left_out,
            unit_costs=self.plan.unit_costs,
        )
        shards = encoded | "Summarise" >> summarise.Summarise(self.accumulator)
        release = functools.partial(_released_database, self.mechanism, self.plan, self.accumulator)
        min_ram = worker_bytes(self.plan, self.accumulator.num_cells)
        return draw_release(
            records.pipeline, release, [shards], min_ram, self.plan.left_out, left_out
        )


class ReleaseSyntheticDatabase(ReleasePlanned):
    """Releases a synthetic database that answers a workload.

    Privacy: the output satisfies ``guarantee`` for records whose unit is
    ``guarantee.privacy_unit``. The distributed part computes exact integer tables, which are as
    secret as the records. Noise is drawn once, by one step after the last combine. A ``Reshuffle``
    separates the drawing step from the steps that read its output, so that a retried reader sees
    the same draw. Beam may still repeat the drawing step if a runner does not keep the elements
    after the ``Reshuffle``. Each draw has a unique id, and ``WriteRelease`` commits only one draw.

    The constructor and the application to records refuse all invalid arguments, based on public
    parameters alone. No record makes the transform fail, and no log or metric depends on records.

    Args:
        domain: the universe; records outside the domain are silently left out.
        workload: the marginals that the release must answer; for ``SmallDB``, any linear
            queries.
        guarantee: the promised guarantee.
        mechanism: the mechanism that draws the release; ``MWEM()`` by default.
        num_records: the number of records if it is public; ``"noisy"`` to spend a part of the
            budget on an estimate.
        ledger_token: the token from ``Ledger.spend`` that paid for this release; the card then
            names the ledger entry. Without a token, nothing is recorded.
        count_left_out: whether to count records outside the domain, with noise, from 5 % of the
            budget (see ``plan_left_out``). The release contains the counts as ``left_out``.
        within_bins: ``"density"`` to draw released values within their bins, more densely towards
            fuller bins; ``"uniform"`` to draw them uniformly; ``"midpoint"`` for the midpoints.
        records_format: the format of the file of records: ``"avro"``, ``"parquet"`` or ``"csv"``.
        num_synthetic_records: the number of records to release; by default, the number of records.
            Answers are scaled to the number of records; their error bars include the sampling.
        start_from: an earlier ``SyntheticDatabase`` of the same domain, or a table of public
            records. The fit starts from these records if noisy tables say that they are close to
            the data (see ``StartingRecords``). The guarantee stays the same. Where noise selects
            the measured marginals, 1 % of the budget decides whether the records are used.
        domain_release: the release of ``domain`` by ``ReleaseDomain``, if ``guarantee`` covers both
            releases; then the token must have paid for both. Before such a pipeline runs, call
            ``Ledger.use_state(token, 1)``: it fails if the token's second part was already used.

    Raises:
        InputError: if the mechanism refuses these parameters, the token paid for another release,
            or edges of the domain came from a release and the token is not of the same budget;
            when applied, if the records are windowed or unbounded, or lack a column.

    Input: Arrow batches (``ReadRecords``), pandas frames, dicts, or rows with a schema.

    Output: shards of one serialised release, for ``WriteRelease``. Empty input gives a release
    of the same shape as any other input.
    """

    def __init__(
        self,
        domain: Domain,
        workload: Workload | LinearWorkload,
        guarantee: Guarantee,
        mechanism: Mechanism | None = None,
        num_records: int | Literal["noisy"] = "noisy",
        ledger_token: Token | None = None,
        count_left_out: bool = False,
        within_bins: Literal["density", "uniform", "midpoint"] = "density",
        records_format: Literal["avro", "parquet", "csv"] = "avro",
        num_synthetic_records: int | None = None,
        start_from: Any = None,
        domain_release: DomainRelease | None = None,
    ) -> None:
        if domain_release is not None:
            check_is("domain_release", domain_release, DomainRelease)
            condition = "must be the release of this domain"
            domain_release.domain.check_same(domain, "domain_release", "domain", condition)
        options = ReleaseOptions(
            num_records=num_records,
            count_left_out=count_left_out,
            within_bins=within_bins,
            records_format=records_format,
            num_synthetic_records=num_synthetic_records,
            start_from=start_from,
            discovered=None if domain_release is None else domain_release.discovered,
        )
        if mechanism is None:
            from beam_dp.mechanisms.marginals.measure_all import MWEM

            mechanism = MWEM()
        plan = plan_release(mechanism, domain, workload, guarantee, options)
        super().__init__(mechanism, plan, ledger_token)
        check_edges_budget(domain, None if ledger_token is None else ledger_token.dataset_id)


def _released_database(
    mechanism: Mechanism,
    plan: MarginalsPlan,
    accumulator: MarginalsAccumulator,
    noise: NoiseSource,
    shards: Iterable[tuple[int, bytes]],
) -> SyntheticDatabase:
    """Runs the mechanism on the counts."""
    summary = accumulator.from_shards(shards)
    return draw_database(mechanism, plan, summary, noise, _log_progress)


def _log_progress(step: str, done: int, total: int) -> None:
    """Logs the progress of a step, which is public; if ``total`` is 1, logs only the name."""
    text = step if total == 1 else f"{step}: {done} of {total}"
    logging.getLogger("beam_dp.progress").info("%s", text)


class ReleasePlannedIntervals(ShowsPromise):
    """``ReleaseIntervals`` with a plan from ``plan_attribute``, because planning takes seconds."""

    plan: IntervalPlan

    def __init__(self, plan: IntervalPlan, ledger_token: Token | None = None) -> None:
        super().__init__()
        if plan.attribute is None:
            raise InputError("plan", plan, "must be for an attribute")
        self.domain = Domain((plan.attribute,))
        self.plan = plan.paid_by(ledger_token)

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[ReleaseShard]:
        """Counts records, then draws the release."""
        encoded, left_out = summarise.limited_records(
            records,
            self.domain,
            self.plan.guarantee,
            as_cells=True,
            unit_costs=self.plan.unit_costs,
            left_out=self.plan.left_out,
        )
        shards = encoded | "Summarise" >> summarise.Summarise(HistogramAccumulator(self.domain))
        release = functools.partial(_released_intervals, self.plan, self.domain)
        min_ram = worker_bytes(self.plan, self.domain.num_cells)
        return draw_release(
            records.pipeline, release, [shards], min_ram, self.plan.left_out, left_out
        )


class ReleaseIntervals(ReleasePlannedIntervals):
    """Releases counts of all intervals of one ordered attribute: integers, or bins.

    Privacy: the output satisfies ``guarantee``, as described in ``plan_intervals``. The distributed
    part computes the exact histogram of the attribute, which is as secret as the records. Noise is
    drawn once, by one step before a ``Reshuffle``; see ``ReleaseSyntheticDatabase``.

    The transform reads only the columns of the attribute and of the privacy unit: other columns,
    and impossible combinations of the domain, do not exclude records. A record whose level is
    "other" or null has no place in the order: it counts towards a unit's limit, but in no interval.

    Args:
        domain: a domain that has the attribute; values outside are silently left out.
        attribute: the name of an ordered attribute with 2 to 2^20 levels.
        guarantee: the promised guarantee.
        strategy: the name of a strategy (see ``plan_intervals``); the default is the strategy with
            the smallest mean squared error over all intervals.
        ledger_token: the token from ``Ledger.spend`` that paid for this release; the card then
            names the ledger entry.
        count_left_out: whether to count records whose value has no level, with noise, from 5 % of
            the budget (see ``plan_left_out``). The release contains the counts as ``left_out``.

    Raises:
        InputError: if the attribute is not ordered, the strategy can't keep the guarantee, the
            token paid for another release, or the edges came from a release and the token is not of
            the same budget; when applied, if the records are windowed or unbounded, or lack a
            column.

    Input: Arrow batches (``ReadRecords``), pandas frames, dicts, or rows with a schema.

    Output: shards of one serialised release, for ``WriteRelease``. Empty input gives a release of
    the same shape as any other input.
    """

    def __init__(
        self,
        domain: Domain,
        attribute: str,
        guarantee: Guarantee,
        strategy: StrategyChoice = "best",
        ledger_token: Token | None = None,
        count_left_out: bool = False,
    ) -> None:
        plan = plan_attribute(domain, attribute, guarantee, strategy, count_left_out)
        super().__init__(plan, ledger_token)
        check_edges_budget(self.domain, None if ledger_token is None else ledger_token.dataset_id)


def plan_attribute(
    domain: Domain,
    attribute: str,
    guarantee: Guarantee,
    strategy: StrategyChoice = "best",
    count_left_out: bool = False,
) -> IntervalPlan:
    """Plans the measurement of all intervals of one attribute, as for ``ReleaseIntervals``."""
    ordered = ordered_domain(domain, attribute)
    main = share_guarantee(guarantee) if count_left_out else guarantee
    (column,) = ordered.attributes
    plan = plan_intervals(column.num_levels, main, strategy)
    counts = plan_left_out(ordered, guarantee, plan.loss) if count_left_out else None
    loss = plan.loss if counts is None else counts.loss
    return dataclasses.replace(plan, attribute=column, loss=loss, left_out=counts)


def _released_intervals(
    plan: IntervalPlan,
    domain: Domain,
    noise: NoiseSource,
    shards: Iterable[tuple[int, bytes]],
) -> IntervalRelease:
    """Runs the mechanism on the histogram."""
    histogram = HistogramAccumulator(domain).from_shards(shards)
    counts = np.ascontiguousarray(histogram.counts[: plan.num_leaves])
    (attribute,) = domain.attributes
    return release_intervals(plan, counts, noise, attribute, plan.payer())


class ReleaseProjection(ShowsPromise):
    """Releases one artifact that answers any sparse query over a huge universe.

    Privacy: the output satisfies ``plan.guarantee`` for records whose unit is
    ``plan.guarantee.privacy_unit``. The distributed part limits the contributions of each unit, and
    computes exact sums: of the columns of a public projection, of the weights of each element, or
    both. The sums are as secret as the records. Noise is drawn once, by one step after the last
    combine, and one draw is committed, as in ``ReleaseSyntheticDatabase``.

    No record makes the transform fail, and no log or metric depends on records.

    Args:
        plan: a plan from the method ``plan`` of ``SparseProject``, ``CountSketch``,
            ``StabilityHistogram`` or ``HybridSketch``. The hash key is part of the plan and is
            drawn before any record is read.
        columns: the columns of the records to read.
        ledger_token: the token from ``Ledger.spend`` that paid for this release; the card then
            names the ledger entry.

    Raises:
        InputError: if the token paid for another release; when applied, if the records are windowed
            or unbounded, or lack a column.

    Input: Arrow batches (``ReadRecords``), pandas frames, dicts, or rows with a schema.

    Output: shards of one serialised release, for ``WriteRelease``. Empty input gives a release of
    the same shape as any other input.
    """

    plan: SparsePlan

    def __init__(
        self, plan: SparsePlan, columns: summarise.KeyColumns, ledger_token: Token | None = None
    ) -> None:
        super().__init__()
        check_is("plan", plan, SparsePlan)
        check_is("columns", columns, summarise.KeyColumns)
        if columns.list_keys and plan.histogram is None:
            condition = "must come with counts of keys: stability_histogram or hybrid_sketch"
            raise InputError("list_keys", True, condition)
        self.plan = dataclasses.replace(plan, key=columns.stated()).paid_by(ledger_token)
        self.columns = columns

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[ReleaseShard]:
        """Encodes records, limits contributions, projects and counts, and draws the release."""
        refuse_windows(records)
        plan = self.plan
        encode = summarise.EncodeKeys(
            self.columns, plan.max_weight, plan.hash_key, plan.guarantee.privacy_unit
        )
        encoded, texts = records | "Encode" >> encode, None
        if self.columns.list_keys:
            encoded, texts = encoded[summarise.KEYS], encoded[summarise.TEXTS]
        limited = encoded | "Limit" >> LimitKeys(plan)
        sums = counts = None
        if plan.sketch is not None:
            project = summarise.Summarise(ProjectionAccumulator(plan.sketch.signs(plan.hash_key)))
            sums = limited | "Project" >> project
        if texts is not None:
            counts = (limited, texts) | "Count" >> count_keys.CountListedKeys()
        elif plan.histogram is not None:
            counts = limited | "Count" >> count_keys.CountElements()
        release, min_ram = (
            functools.partial(_released_sketch, plan),
            worker_bytes(plan, plan.num_cells),
        )
        return draw_release(records.pipeline, release, [sums, counts], min_ram)


def _released_sketch(
    plan: SparsePlan,
    noise: NoiseSource,
    sums: Iterable[tuple[int, bytes]] | None,
    counts: Iterable[bytes] | None,
) -> SparseRelease:
    """Runs the mechanism on the sums."""
    projection = elements = None
    if plan.sketch is not None and sums is not None:
        projection = ProjectionAccumulator(plan.sketch.signs(plan.hash_key)).from_shards(sums)
    if counts is not None:
        read = count_keys.listed_counts if plan.lists_keys else count_keys.counts_of_shards
        elements = read(counts)
    return release_sparse(plan, SparseSummary(projection, elements), noise)
