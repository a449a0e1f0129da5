"""The registry of mechanisms: maps the names that programs use to classes.

To add a mechanism, add a line here and a file in a subpackage. The flags of programs, the checks of
these flags and the parameters of job templates follow from the entry. So do the rows of
``beam-dp plan``, for a mechanism that measures marginals or releases a sketch.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from beam_dp.checks import check_choice, check_is, checked_integer
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.flags.flag import Flag, flags_of
from beam_dp.flags.shared import MAX_RECORDS
from beam_dp.mechanisms.bin_sums import with_bin_sums
from beam_dp.mechanisms.checks import NumRecords, Progress
from beam_dp.mechanisms.contract import AnswersPlan, check_promise
from beam_dp.mechanisms.left_out import LEFT_OUT_SHARE, plan_left_out
from beam_dp.mechanisms.marginals.plan import (
    MarginalsPlan,
    Mechanism,
    StartingRecords,
    check_num_rows,
    joins_fit,
)
from beam_dp.privacy.budget import Budget
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.workload import Workload
from beam_dp.releases.earlier_stage import PaidTogether
from beam_dp.releases.synthetic_database.bin_sums import BinSums
from beam_dp.releases.synthetic_database.records import check_records_format
from beam_dp.releases.synthetic_database.shards import WITHIN_BINS

if TYPE_CHECKING:
    from beam_dp.mechanisms.sketches.plan import SparseMechanism
    from beam_dp.privacy.noise.source import NoiseSource
    from beam_dp.releases.synthetic_database.release import SyntheticDatabase
    from beam_dp.secret.summaries.histogram import Marginals

T = TypeVar("T")


class Classes(Mapping[str, type[T]]):
    """A mapping from mechanism names to classes, which imports a class on first access."""

    def __init__(self, **homes: str) -> None:
        self._homes = homes

    def __getitem__(self, name: str) -> type[T]:
        module, _, made = self._homes[name].rpartition(".")
        registered: type[T] = getattr(importlib.import_module(f"{__package__}.{module}"), made)
        return registered

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


# Mechanisms that release synthetic databases.
SYNTHETIC: Mapping[str, type[Mechanism]] = Classes(
    mwem="marginals.measure_all.MWEM",
    laplace="marginals.measure_all.Laplace",
    gaussian="marginals.measure_all.Gaussian",
    small_db="small_db.small_db.SmallDB",
)
# Mechanisms that release an artifact from which queries about keys can be answered.
SKETCHES: Mapping[str, type[SparseMechanism]] = Classes(
    sparse_project="sketches.mechanisms.SparseProject",
    count_sketch="sketches.mechanisms.CountSketch",
    stability_histogram="sketches.mechanisms.StabilityHistogram",
    hybrid="sketches.mechanisms.HybridSketch",
)
# The plans of mechanisms that answer queries; the fields of a plan are the mechanism's options.
ANSWERS: Mapping[str, type[AnswersPlan]] = Classes(
    private_mw="online.private_mw.PrivateMWPlan",
    sparse_mw="online.sparse_mw.SparseMWPlan",
    laplace="linear_answers.WorkloadAnswersPlan",
    gaussian="linear_answers.WorkloadAnswersPlan",
    top_queries="top_queries.TopQueriesPlan",
)


def options_of(table: Mapping[str, type[Any]]) -> dict[str, tuple[Flag, ...]]:
    """Returns the flags that apply to each mechanism of a table."""
    return {name: flags_of(options) for name, options in table.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseOptions(PaidTogether):
    """The options of a release of a synthetic database; see ``ReleaseSyntheticDatabase``."""

    num_records: NumRecords = "noisy"
    count_left_out: bool = False
    within_bins: Literal["density", "uniform", "midpoint"] = "density"
    records_format: Literal["avro", "parquet", "csv"] = "avro"
    num_synthetic_records: int | None = None
    start_from: Any = None
    queries: str | None = None
    bin_sums: bool | None = None
    # The loss that was paid before the records per unit were known; the plan then states it.
    paid: Loss | None = None


def plan_release(
    mechanism: Mechanism,
    domain: Domain,
    workload: Workload | LinearWorkload,
    guarantee: Guarantee,
    options: ReleaseOptions = ReleaseOptions(),
) -> MarginalsPlan:
    """Returns the plan of a mechanism for marginals or for linear queries."""
    alone, planned = candidate_plan(mechanism, domain, workload, guarantee, options)
    check_promise(*alone)
    return planned


def candidate_plan(
    mechanism: Mechanism,
    domain: Domain,
    workload: Workload | LinearWorkload,
    guarantee: Guarantee,
    options: ReleaseOptions,
) -> tuple[tuple[MarginalsPlan, Guarantee], MarginalsPlan]:
    """Returns a mechanism's own plan with its guarantee, to be checked, and the plan with options.

    The mechanism's own loss must cover its own steps; other losses are added afterwards.
    """
    check_is("domain", domain, Domain)
    check_is("workload", workload, Workload, LinearWorkload)
    check_is("guarantee", guarantee, Guarantee)
    check_is("mechanism", mechanism, Mechanism, methods=("plan", "release"))
    check_choice("within_bins", options.within_bins, WITHIN_BINS)
    check_records_format(domain, options.records_format)
    if not (isinstance(workload, Workload) or mechanism.answers_linear_queries):
        given = f"{len(workload):,} linear queries"
        raise InputError("workload", given, f"must consist of marginals for {mechanism.name}")
    chosen, discovered = options.records_per_unit, options.discovered
    if chosen is not None:
        if chosen.whole != guarantee:
            condition = "must be that of the choice of the records per unit and this release"
            raise InputError("guarantee", guarantee.to_json(), condition)
        if options.count_left_out:
            condition = "must be left out where the records per unit are chosen"
            raise InputError("count_left_out", True, condition)
        guarantee = chosen.main
    if discovered is not None:
        if discovered.whole != guarantee:
            condition = "must be that of the release of the domain and this one together"
            raise InputError("guarantee", guarantee.to_json(), condition)
        guarantee = discovered.main
    share = LEFT_OUT_SHARE if options.count_left_out else 0
    part, _ = Budget.of(guarantee, "pure").split(share)
    start = options.start_from
    records = None if start is None else StartingRecords.of(start, domain)

    def alone(guarantee: Guarantee) -> MarginalsPlan:
        plan = _plan_of(mechanism, domain, workload, guarantee, options)
        check_is("mechanism", plan, MarginalsPlan, methods=("release",))
        if records is not None and not plan.fits_tables:
            condition = f"must be left out with {mechanism.name} here: it fits no tables"
            raise InputError("start_from", records.source, condition)
        return plan if records is None else plan.starting_from(records)

    plan = with_bin_sums(alone, domain, part, options.bin_sums)
    rows = options.num_synthetic_records
    if rows is not None:
        if plan.sets_num_rows:
            condition = f"must be left out with {mechanism.name} here, which decides the number"
            raise InputError("num_synthetic_records", rows, condition)
        checked_integer("num_synthetic_records", rows, 1, MAX_RECORDS)
    else:
        check_num_rows(plan)
    left_out = plan_left_out(domain, guarantee, plan.loss) if options.count_left_out else None
    loss = plan.loss if left_out is None else left_out.loss
    if discovered is not None:
        from beam_dp.mechanisms.discovery import plan as discovery

        beside = dataclasses.replace(plan, loss=loss, left_out=left_out)
        discovery.check_together(beside, discovered)
        loss = discovery.total_loss(discovered)
        if left_out is not None:
            left_out = dataclasses.replace(left_out, guarantee=discovered.whole)
    if chosen is not None:
        from beam_dp.mechanisms.discovery.records_per_unit import loss_with_records

        loss = loss_with_records(
            dataclasses.replace(plan, loss=loss, discovered=discovered), chosen
        )
    if options.paid is not None:
        if not options.paid.covers(loss):
            condition = "must have a loss within the one that was paid"
            raise InputError("mechanism", plan.mechanism, condition)
        loss = options.paid
    named = {} if options.queries is None else {"queries": options.queries}
    is_listed = isinstance(workload, Workload)
    complete = dataclasses.replace(
        plan,
        within_bins=options.within_bins,
        records_format=options.records_format,
        num_synthetic_records=rows,
        asked=workload.to_json() if is_listed else {**named, "num_queries": len(workload)},
        left_out=left_out,
        loss=loss,
        **options.earlier,
    )
    return (plan, part), complete


def _plan_of(
    mechanism: Mechanism, domain: Domain, workload: Any, part: Guarantee, options: ReleaseOptions
) -> MarginalsPlan:
    """Returns a mechanism's own plan.

    Beside the release of a domain, ``MWEM`` measures with Gaussian noise even if Laplace noise is
    predicted to be better, because only the losses of Gaussian noise add up well. ``MWEM`` also
    keeps to the kind of noise that was paid.
    """
    from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian, Laplace

    kind = None if options.paid is None else options.paid.kind
    if options.discovered is not None and part.delta > 0:
        kind = "gaussian"
    if kind is None or part.delta == 0 or mechanism != MWEM() or not joins_fit(workload):
        return mechanism.plan(domain, workload, part, options.num_records)
    planning = Laplace() if kind == "pure" else Gaussian()
    plan = planning.plan(domain, workload, part, options.num_records)
    return dataclasses.replace(plan, mechanism=mechanism.name)


def draw_database(
    plan: MarginalsPlan,
    summary: Marginals,
    noise: NoiseSource,
    progress: Progress | None = None,
) -> SyntheticDatabase:
    """Turns an exact summary into a release that keeps ``plan.guarantee``, in the plan's format.

    Together with earlier releases, if the plan states any, it keeps ``plan.promised``, which the
    card then states.
    """
    together = {**plan.earlier, "guarantee": plan.promised} if plan.earlier else {}
    release = plan.release(summary, noise, progress)
    if (sums := plan.bin_sums) is not None:
        together["bin_sums"] = BinSums(sums, sums.draw(summary, noise), sums.variance**0.5)
    return dataclasses.replace(
        release,
        records_format=plan.records_format,
        within_bins=plan.within_bins,
        **together,
    )
