"""The list of mechanisms, by what programs call them.

A new mechanism is a line here and a file in its family: the flags of the programs, what they
refuse and the parameters of job templates follow from its entry; so do the rows of
``beam-dp plan`` for a mechanism that measures marginals or makes a sketch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from beam_dp.checks import check_choice, check_is
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.flags.flag import Flag
from beam_dp.flags.options import flags_of
from beam_dp.mechanisms.checks import NumRecords
from beam_dp.mechanisms.contract import AnswersPlan, check_promise
from beam_dp.mechanisms.left_out import plan_left_out, share_guarantee
from beam_dp.mechanisms.linear_answers.answers import WorkloadAnswersPlan
from beam_dp.mechanisms.linear_answers.top_queries import TopQueriesPlan
from beam_dp.mechanisms.marginals.measure_all import Gaussian, Laplace
from beam_dp.mechanisms.marginals.mwem import MWEM
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism
from beam_dp.mechanisms.marginals.released_records import StartingRecords
from beam_dp.mechanisms.online.private_mw_plan import PrivateMWPlan
from beam_dp.mechanisms.online.sparse_mw import SparseMWPlan
from beam_dp.mechanisms.sketches import mechanisms
from beam_dp.mechanisms.sketches.plan import SparseMechanism
from beam_dp.mechanisms.small_db.small_db import SmallDB
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database.records import WITHIN_BINS, check_records_format

# Release synthetic databases.
SYNTHETIC: Mapping[str, type[Mechanism]] = {
    each.name: each for each in (MWEM, Laplace, Gaussian, SmallDB)
}
# Release an artifact that answers queries about keys.
SKETCHES: Mapping[str, type[SparseMechanism]] = {
    "sparse_project": mechanisms.SparseProject,
    "count_sketch": mechanisms.CountSketch,
    "stability_histogram": mechanisms.StabilityHistogram,
    "hybrid": mechanisms.HybridSketch,
}
# Answer queries; their plans hold the options.
ANSWERS: Mapping[str, type[AnswersPlan]] = {
    "private_mw": PrivateMWPlan,
    "sparse_mw": SparseMWPlan,
    "laplace": WorkloadAnswersPlan,
    "gaussian": WorkloadAnswersPlan,
    "top_queries": TopQueriesPlan,
}


def options_of(table: Mapping[str, type[Any]]) -> dict[str, tuple[Flag, ...]]:
    """Returns the flags that apply to each mechanism of a table."""
    return {name: flags_of(options) for name, options in table.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseOptions:
    """The options of a release of a synthetic database.

    ``num_records``: public, or ``"noisy"`` to estimate it from the budget.
    ``count_left_out``: whether the records outside the domain are counted, too, from 5 % of the
    budget: see ``plan_left_out``.
    ``start_from``: public records, or an earlier release of the same domain, whose distribution
    the hypothesis starts from if that seems to lower its error: see ``StartingRecords``.
    """

    num_records: NumRecords = "noisy"
    count_left_out: bool = False
    within_bins: Literal["uniform", "midpoint"] = "uniform"
    records_format: Literal["avro", "parquet", "csv"] = "avro"
    start_from: Any = None
    queries: str | None = None


def plan_release(
    mechanism: Mechanism,
    domain: Domain,
    workload: Workload | LinearWorkload,
    guarantee: Guarantee,
    options: ReleaseOptions = ReleaseOptions(),
) -> MarginalsPlan:
    """Returns what a mechanism would do for a workload of either kind."""
    check_is("domain", domain, Domain)
    check_is("workload", workload, Workload, LinearWorkload)
    check_is("guarantee", guarantee, Guarantee)
    check_is("mechanism", mechanism, Mechanism, methods=("plan", "release"))
    check_choice("within_bins", options.within_bins, WITHIN_BINS)
    check_records_format(domain, options.records_format)
    if not (isinstance(workload, Workload) or mechanism.answers_linear_queries):
        given = f"{len(workload):,} linear queries"
        raise InputError("workload", given, f"must be of marginals for {mechanism.name}")
    own = share_guarantee(guarantee) if options.count_left_out else guarantee
    plan = mechanism.plan(domain, workload, own, options.num_records)
    # Before the loss of the counts joins that of the plan, which must cover the plan by itself.
    check_promise(plan, own)
    start = options.start_from
    records = None if start is None else StartingRecords.of(start, domain)
    if records is not None and not plan.fits_tables:
        condition = f"must be left out with {mechanism.name} here: it fits no tables"
        raise InputError("start_from", records.source, condition)
    left_out = plan_left_out(domain, guarantee, plan.loss) if options.count_left_out else None
    named = {} if options.queries is None else {"queries": options.queries}
    is_listed = isinstance(workload, Workload)
    return dataclasses.replace(
        plan,
        within_bins=options.within_bins,
        records_format=options.records_format,
        start_from=records,
        asked=workload.to_json() if is_listed else {**named, "num_queries": len(workload)},
        left_out=left_out,
        loss=plan.loss if left_out is None else left_out.loss,
    )
