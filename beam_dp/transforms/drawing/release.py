"""The transforms that release a synthetic database, and before it what nobody has declared."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

import apache_beam as beam

from beam_dp.checks import check_is
from beam_dp.domain.universe import Domain, check_edges_budget
from beam_dp.mechanisms.discovery.plan import DomainPlan
from beam_dp.mechanisms.registry import ReleaseOptions, draw_database, plan_release
from beam_dp.mechanisms.resources import worker_bytes
from beam_dp.mechanisms.stages import EarlierStage
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.entries import Token
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.workload import Workload
from beam_dp.releases.domain.release import DomainRelease
from beam_dp.releases.release import Release
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.secret.summaries.histogram import MarginalsAccumulator
from beam_dp.transforms.counting import summarise
from beam_dp.transforms.counting.count_keys import (
    CountUnits,
    CountValues,
    counts_of_values,
    levels_of_shards,
)
from beam_dp.transforms.drawing.one_worker import ReleaseShard, draw_release
from beam_dp.transforms.job_page import ShowsPromise
from beam_dp.transforms.reading.records import refuse_windows

if TYPE_CHECKING:
    from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism


class ReleasePlanned(ShowsPromise):
    """``ReleaseSyntheticDatabase`` with an existing plan, because planning takes seconds."""

    plan: MarginalsPlan

    def __init__(self, plan: MarginalsPlan, ledger_token: Token | None = None) -> None:
        super().__init__()
        self.plan = plan.paid_by(ledger_token)
        self.accumulator = MarginalsAccumulator(plan.counted, plan.summary_tables)

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[ReleaseShard]:
        """Encodes records, limits contributions, counts, and draws the release."""
        encoded, left_out = summarise.limited_records(
            records,
            self.plan.counted,
            self.plan.guarantee,  # with the number of records per unit that is kept
            as_cells=self.accumulator.as_cells,
            left_out=self.plan.left_out,
            unit_costs=self.plan.unit_costs,
        )
        shards = encoded | "Summarise" >> summarise.Summarise(self.accumulator)
        release = functools.partial(_released_database, self.plan, self.accumulator)
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
        bin_sums: whether 2 % of the budget measure where the numbers of each bin lie on average,
            so that means and released values follow (see ``with_bin_sums``). By default, where that
            is possible; True is refused where it is not.

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
        bin_sums: bool | None = None,
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
            bin_sums=bin_sums,
            discovered=None if domain_release is None else domain_release.discovered,
        )
        if mechanism is None:
            from beam_dp.mechanisms.marginals.measure_all import MWEM

            mechanism = MWEM()
        plan = plan_release(mechanism, domain, workload, guarantee, options)
        super().__init__(plan, ledger_token)
        check_edges_budget(domain, None if ledger_token is None else ledger_token.dataset_id)


def _released_database(
    plan: MarginalsPlan,
    accumulator: MarginalsAccumulator,
    noise: NoiseSource,
    shards: Iterable[tuple[int, bytes]],
) -> SyntheticDatabase:
    """Runs the mechanism on the counts."""
    summary = accumulator.from_shards(shards)
    return draw_database(plan, summary, noise, _log_progress)


def _log_progress(step: str, done: int, total: int) -> None:
    """Logs the progress of a step, which is public; if ``total`` is 1, logs only the name."""
    text = step if total == 1 else f"{step}: {done} of {total}"
    logging.getLogger("beam_dp.progress").info("%s", text)


class ReleaseEarlier(ShowsPromise):
    """Releases what a later release is planned with: a domain, or noisy numbers of units.

    Privacy: see ``DomainPlan`` and ``RecordsPlan``. The distributed part computes exact sums, which
    are as secret as the records. Noise is drawn once, by one step after the last combine, and one
    draw is committed, as in ``ReleaseSyntheticDatabase``.
    """

    plan: EarlierStage

    def __init__(self, plan: EarlierStage, ledger_token: Token | None = None) -> None:
        super().__init__()
        self.plan = plan.paid_by(ledger_token)

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[ReleaseShard]:
        """Counts values or units, and draws the release."""
        refuse_windows(records)
        plan = self.plan
        counts_of: Callable[[Iterable[Any]], Any]
        if isinstance(plan, DomainPlan):
            count = "Count values" >> CountValues(plan.columns, plan.whole)
            counts_of = functools.partial(counts_of_values, plan.columns)
            num_cells = sum(leaves.num_levels for leaves in plan.columns.leaves)
        else:
            unit = plan.whole.privacy_unit
            count = "Count units" >> CountUnits(plan.declared, unit, plan.max_records)
            counts_of = functools.partial(levels_of_shards, plan.max_records)
            num_cells = plan.num_leaves
        release = functools.partial(_released_earlier, plan, counts_of)
        min_ram = worker_bytes(plan, num_cells)
        return draw_release(records.pipeline, release, [records | count], min_ram)


def _released_earlier(
    plan: Any, counts_of: Callable[[Iterable[Any]], Any], noise: NoiseSource, shards: Iterable[Any]
) -> Release:
    """Runs the mechanisms on the sums."""
    release: Release = plan.release(counts_of(shards), noise)
    return release


class ReleaseDomain(ReleaseEarlier):
    """Releases a domain, whose open attributes get the values and edges that noise lets pass.

    Privacy: the output satisfies ``plan.guarantee`` for records whose unit is
    ``plan.guarantee.privacy_unit``; together with the release that uses the domain, ``plan.whole``
    (see ``DomainPlan``). The distributed part limits what each unit adds and computes exact sums,
    which are as secret as the records. Noise is drawn once, by one step after the last combine, and
    one draw is committed, as in ``ReleaseSyntheticDatabase``.

    A second pipeline uses the domain, which must be written and read back first::

        plan = dp.plan_domain(open_domain, guarantee)
        ... | dp.ReleaseDomain(plan, token) | dp.WriteRelease("out/domain")
        found = dp.read_release("out/domain", kind=dp.DomainRelease)
        ... | dp.ReleaseSyntheticDatabase(
            found.domain, workload, guarantee, mechanism, ledger_token=token, domain_release=found
        )

    Args:
        plan: from ``plan_domain``.
        ledger_token: the token that paid for this domain and the release that uses it, of the
            mechanism of that release, ``plan.whole`` and ``total_loss(plan.shared)``. Each of the
            two releases may use the token once.

    Raises:
        InputError: if the token paid for something else; when applied, if the records are windowed
            or unbounded, or lack a column.

    Input: Arrow batches (``ReadRecords``), pandas frames, dicts, or rows with a schema.

    Output: shards of one serialised release, for ``WriteRelease``.
    """

    def __init__(self, plan: DomainPlan, ledger_token: Token | None = None) -> None:
        check_is("plan", plan, DomainPlan)
        super().__init__(plan, ledger_token)
