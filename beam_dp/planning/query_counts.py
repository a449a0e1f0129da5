"""The number of queries that each mechanism can answer within a target error."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, get_args

from beam_dp.checks import checked_integer, checked_number
from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError, magnitude
from beam_dp.mechanisms.checks import MAX_RECORDS, NumRecords
from beam_dp.mechanisms.online.plan import OnlinePlan
from beam_dp.mechanisms.online.private_mw_plan import plan_private_mw
from beam_dp.mechanisms.online.sparse_mw import MAX_SPARSITY, plan_sparse_mw
from beam_dp.mechanisms.small_db.choice import MAX_SIZE
from beam_dp.planning.job import check_promise
from beam_dp.planning.theorems import synthesis
from beam_dp.planning.theorems.theorem import Calibration, Theorem
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.bound import FAILURE_PROBABILITY

MAX_CELLS = 2**1000
_CALIBRATIONS: tuple[Calibration, ...] = get_args(Calibration)


@dataclasses.dataclass(frozen=True)
class QueryCountJob:
    """A job with unknown queries: records, a guarantee, and the largest error of any answer.

    ``num_records``: N >= 1; a guess if the number is private. Never compute this guess from the
    records. ``num_records_is_public`` must be true under replace-one; if false, mechanisms whose
    theorems state the cost of a noisy number pay for it.
    """

    guarantee: Guarantee
    num_records: int
    num_records_is_public: bool
    target_error: float  # A, in records, > 0 and < N
    failure_probability: float = FAILURE_PROBABILITY  # that an answer is off by over A, in (0, 1)
    num_cells: int | None = None  # U, the size of the universe, up to 2^1000; None if infinite
    max_sparsity: int | None = None  # m, the largest number of elements of a query

    def __post_init__(self) -> None:
        check_promise(self.guarantee, self.num_records_is_public, self.failure_probability)
        checked_integer("num_records", self.num_records, 1, MAX_RECORDS)
        note = " (num_records): any answer keeps a larger one"
        checked_number(
            "target_error", self.target_error, above=0, below=self.num_records, note=note
        )
        if self.num_cells is not None:
            checked_integer("num_cells", self.num_cells, 1, MAX_CELLS)
        if self.max_sparsity is not None:
            checked_integer("max_sparsity", self.max_sparsity, 1, MAX_SPARSITY)

    @property
    def given_num_records(self) -> NumRecords:
        """The public number of records, or "noisy" if a mechanism must pay for a noisy number."""
        return self.num_records if self.num_records_is_public else "noisy"

    def to_json(self) -> dict[str, Any]:
        """Returns the job as JSON values."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**fields, "guarantee": self.guarantee.to_json()}


@dataclasses.dataclass(frozen=True)
class QueryCount:
    """The number of queries that a theorem allows; 0, with the reason, if there is no plan."""

    mechanism: str
    calibration: Calibration
    num_queries: int = 0
    theorem: str = ""
    assumes: str = ""
    refusal: str | None = None

    @property
    def note(self) -> str:
        """The theorem and its assumptions."""
        return f"{self.theorem}; {self.assumes}"

    def to_json(self) -> dict[str, Any]:
        """Returns the count as JSON values; beyond 10^15 only the logarithm is given."""
        count = self.num_queries
        return {
            **dataclasses.asdict(self),
            "num_queries": count if count < synthesis.MAX_EXACT else None,
            "log10_num_queries": math.log10(count) if count else None,
        }


def count_queries(job: QueryCountJob) -> list[QueryCount]:
    """Returns the number of queries that each mechanism can answer, the largest number first.

    A mechanism may answer more queries than its theorem guarantees. For a small database the number
    may be larger than a machine can handle, because the draw is slow.
    """
    found = [
        _counted(job, name, calibration, count)
        for name, count in _COUNTS.items()
        for calibration in _CALIBRATIONS
        if (name, calibration) != ("mwem", "tight")  # there is no theorem for tight MWEM
    ]
    return sorted(found, key=lambda each: (each.refusal is not None, -each.num_queries))


# A tuple of the number of queries, the theorem that allows this number, and its assumptions.
_Found = tuple[int, Theorem, str]


def _counted(
    job: QueryCountJob,
    name: str,
    calibration: Calibration,
    count: Callable[[QueryCountJob, Calibration], _Found],
) -> QueryCount:
    try:
        number, theorem, assumes = count(job, calibration)
    except InputError as error:
        is_missing = error.value is None
        refusal = f"{error.name} {error.condition}" if is_missing else str(error)
        return QueryCount(name, calibration, refusal=refusal)
    return QueryCount(name, calibration, number, theorem.name, assumes)


def _small_db(job: QueryCountJob, calibration: Calibration) -> _Found:
    cells, guarantee, beta = _cells(job), job.guarantee, job.failure_probability
    units = guarantee.max_records_per_unit

    def theorem_of(count: int) -> Theorem:
        return synthesis.small_db_theorem(cells, count, guarantee.epsilon, beta, calibration, units)

    if calibration == "textbook":
        return _largest(job, theorem_of, f"{_all_at_once(job)}, a size without limit", least=3)
    return _largest(job, theorem_of, f"{_all_at_once(job)}, a size up to {MAX_SIZE:,}")


def _mwem(job: QueryCountJob, calibration: Calibration) -> _Found:
    cells, guarantee = _cells(job), job.guarantee
    if guarantee.delta > 0:
        raise InputError(
            "delta", guarantee.delta, "must be 0: the bound is published for pure privacy only"
        )
    epsilon, units = guarantee.epsilon, guarantee.max_records_per_unit
    number, rounds = synthesis.mwem_queries_allowed(
        cells, epsilon, job.num_records, job.target_error, job.failure_probability, units
    )
    theorem = synthesis.mwem_theorem(cells, max(1, number), epsilon, units, rounds)
    return number, theorem, f"{rounds:,} round{'' if rounds == 1 else 's'}, {_all_at_once(job)}"


def _private_mw(job: QueryCountJob, calibration: Calibration) -> _Found:
    domain = Domain((IntegerAttribute("cell", 0, _cells(job) - 1),))
    plan = plan_private_mw(
        domain,
        job.guarantee,
        job.given_num_records,
        num_questions=1,
        failure_probability=job.failure_probability,
        calibration=calibration,
    )
    return _of_run(job, plan, _universe(job))


def _sparse_mw(job: QueryCountJob, calibration: Calibration) -> _Found:
    if job.max_sparsity is None:
        raise InputError("max_sparsity", None, "must be given")
    plan = plan_sparse_mw(
        job.guarantee,
        job.given_num_records,
        max_sparsity=job.max_sparsity,
        num_questions=1,
        failure_probability=job.failure_probability,
        calibration=calibration,
    )
    return _of_run(job, plan, f"queries of at most {job.max_sparsity:,} keys, any universe")


_COUNTS: dict[str, Callable[[QueryCountJob, Calibration], _Found]] = {
    "small_db": _small_db,
    "mwem": _mwem,
    "private_mw": _private_mw,
    "sparse_mw": _sparse_mw,
}


def _of_run(job: QueryCountJob, plan: OnlinePlan, queries: str) -> _Found:
    def theorem_of(count: int) -> Theorem:
        # A plan would refuse more than 2^31 questions.
        return synthesis.online_theorem(dataclasses.replace(plan, num_questions=count))

    assumes = f"{queries}, one query at a time"
    if plan.calibration == "textbook" and job.guarantee.delta > 0:
        assumes += ", as published: not proved for few queries"
    return _largest(job, theorem_of, assumes)


def _largest(
    job: QueryCountJob, theorem_of: Callable[[int], Theorem], assumes: str, *, least: int = 1
) -> _Found:
    number = synthesis.queries_allowed(
        theorem_of, job.num_records, job.target_error, job.failure_probability, least=least
    )
    return number, theorem_of(max(number, least)), assumes


def _cells(job: QueryCountJob) -> int:
    if job.num_cells is None:
        raise InputError("num_cells", None, "must be given")
    return job.num_cells


def _universe(job: QueryCountJob) -> str:
    cells = _cells(job)
    return "1 cell" if cells == 1 else f"{magnitude(cells)} cells"


def _all_at_once(job: QueryCountJob) -> str:
    text = f"{_universe(job)}, queries known beforehand"
    # These theorems ignore the budget that a noisy number of records costs.
    return text if job.num_records_is_public else f"{text}, a public number of records"
