"""Jobs to plan, and the options that a plan compares. Jobs and options are public."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from beam_dp.checks import check_is, checked_integer, checked_number
from beam_dp.errors import InputError, magnitude
from beam_dp.flags.shared import MAX_RECORDS
from beam_dp.mechanisms.checks import (
    MAX_SPARSITY,
    NumRecords,
    check_failure_probability,
)
from beam_dp.mechanisms.resources import Resources
from beam_dp.mechanisms.sketches.errors import KeyProfile
from beam_dp.mechanisms.sketches.plan import DEFAULT_SIZE
from beam_dp.planning.theorems.theorem import (
    Bound,
    Calibration,
    Theorem,
    checked_fraction,
    queries_allowed,
)
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.privacy.noise.bound import FAILURE_PROBABILITY
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.workload import OfWorkload, Workload

MAX_CELLS = 2**1000


class Promised:
    """What all jobs to plan have: a guarantee, and a number of records that may be public."""

    guarantee: Guarantee
    num_records_is_public: bool
    failure_probability: float

    def __post_init__(self) -> None:
        check_is("guarantee", self.guarantee, Guarantee)
        is_replaced = self.guarantee.neighboring is Neighboring.REPLACE_ONE
        if is_replaced and not self.num_records_is_public:
            condition = "must be True: it is public under replace_one"
            raise InputError("num_records_is_public", False, condition)
        check_failure_probability(self.failure_probability)

    @property
    def given_num_records(self) -> NumRecords:
        """The public number of records, or "noisy" if a mechanism must pay for a noisy number."""
        whole: Any = getattr(self, "profile", self)
        number: int = whole.num_records
        return number if self.num_records_is_public else "noisy"

    def to_json(self) -> dict[str, Any]:
        """Returns the job as JSON values."""
        return {**vars(self), "guarantee": self.guarantee.to_json()}


@dataclasses.dataclass(frozen=True)
class PlanningJob(OfWorkload, Promised):
    """A job to plan: the queries to answer, the number of records, and the guarantee.

    Args:
        workload: marginals or linear queries, with their domain.
        guarantee: the privacy guarantee.
        num_records: N >= 1; a guess if the number is private. Never compute this guess from the
            records, because the plan reveals the guess.
        num_records_is_public: must be true under replace-one; if false, some of the budget pays for
            a noisy number.
        failure_probability: beta, the probability that a bound is wrong, in (0, 1).
        max_error_fraction: in (0, 1]; if given, the plan also states the number of records for
            which the error of every answer is at most this fraction of the records.
    """

    workload: Workload | LinearWorkload
    guarantee: Guarantee
    num_records: int
    num_records_is_public: bool
    failure_probability: float = FAILURE_PROBABILITY
    max_error_fraction: float | None = None

    def __post_init__(self) -> None:
        check_is("workload", self.workload, Workload, LinearWorkload)
        checked_integer("num_records", self.num_records, 1, MAX_RECORDS)
        super().__post_init__()
        if self.max_error_fraction is not None:
            checked_fraction(self.max_error_fraction)

    @property
    def num_queries(self) -> int:
        """The number of answers: the number of cells of the marginals, or of linear queries."""
        if isinstance(self.workload, Workload):
            return self.workload.num_cells()
        return len(self.workload)

    def proved(self, theorem: Theorem) -> dict[str, Any]:
        """Returns the fields of an option that a theorem states: the bound and its records."""
        share = self.max_error_fraction
        needed = None if share is None else theorem.records_needed(share)
        return {"bound": theorem.bound(self.num_records), "records_needed": needed}

    def to_json(self) -> dict[str, Any]:
        """Returns the job as JSON values."""
        return {
            "guarantee": self.guarantee.to_json(),
            "num_records": self.num_records,
            "num_records_is_public": self.num_records_is_public,
            "num_cells": self.domain.num_cells,
            "num_queries": self.num_queries,
            "failure_probability": self.failure_probability,
            "max_error_fraction": self.max_error_fraction,
        }


@dataclasses.dataclass(frozen=True)
class SparsePlanningJob(Promised):
    """A job to plan: sparse queries about the keys of records, under a guarantee.

    Args:
        guarantee: the privacy guarantee.
        profile: the numbers of records and distinct keys, and the largest count of a key. If these
            numbers are private, give guesses, and never compute the guesses from the records.
        max_sparsity: m, the largest number of keys in a query.
        max_size: the largest number of stored numbers in a release.
        num_questions: K, the number of different queries for which one bound is valid together.
            With None, a bound is for one query, and mechanisms that answer queries one at a time
            are not planned.
        num_records_is_public: must be true under replace-one.
        failure_probability: beta, the probability that a bound is wrong, in (0, 1).
    """

    guarantee: Guarantee
    profile: KeyProfile
    max_sparsity: int
    max_size: int = DEFAULT_SIZE
    num_questions: int | None = None
    num_records_is_public: bool = False
    failure_probability: float = FAILURE_PROBABILITY

    def __post_init__(self) -> None:
        super().__post_init__()
        check_is("profile", self.profile, KeyProfile)
        checked_integer("max_sparsity", self.max_sparsity, 1, MAX_SPARSITY)

    @property
    def num_bounded(self) -> int:
        """The number of queries for which a bound is valid together; 1 by default."""
        return self.num_questions or 1

    def to_json(self) -> dict[str, Any]:
        """Returns the job as JSON values."""
        fields = super().to_json()
        guarantee, profile = fields.pop("guarantee"), fields.pop("profile")
        return {"guarantee": guarantee, **dataclasses.asdict(profile), **fields}


Job = PlanningJob | SparsePlanningJob


@dataclasses.dataclass(frozen=True)
class Option:
    """The plan of one mechanism for a job: predicted errors and resources.

    ``expected_error``: the root mean squared error of an answer, averaged over the workload by the
    workload's weights, in records; None if the error depends on the data. For a synthetic database
    this is the error of the unbiased noisy tables; if many cells are empty, the fit's error is
    smaller. If pairs are selected, it is the prediction of a model (``selected_pairs``).
    ``error_range``: the errors of usual tables, if the expected error is such a prediction.
    ``total_variation_range``: of a marginal from the true one, as shares of the records; likewise.
    ``records_needed``: the least number of records for which the bound meets the job's
    ``max_error_fraction``; None if the job has no such fraction or if no number is enough.
    ``parameters``: flags that follow from public numbers and must be given to the program.
    ``noisy_cells``: the number of cells of the workload's marginals that are too noisy to use if
    the records are spread evenly; None if unknown.
    ``disk_bytes``: about the most that released records take; 0 for other releases.
    """

    mechanism: str  # the name for programs, unless ``parameters`` contain another name
    calibration: Calibration
    program: str | None  # the pipeline program that runs the mechanism; None if there is none
    refusal: str | None = None  # why the mechanism cannot do the job; None if the job is feasible
    expected_error: float | None = None
    error_range: tuple[float, float] | None = None
    total_variation_range: tuple[float, float] | None = None
    measured_error: float | None = None
    bound: Bound | None = None  # on the errors of all answers together; None if no bound is proved
    records_needed: int | None = None
    resources: Resources | None = None  # memory and time; None if the mechanism cannot do the job
    parameters: tuple[tuple[str, str], ...] = ()
    note: str = ""  # a remark on the numbers
    noisy_cells: int | None = None
    disk_bytes: float = 0.0

    @property
    def is_feasible(self) -> bool:
        """Whether the mechanism can do the job."""
        return self.refusal is None

    @property
    def rank(self) -> tuple[bool, float, float, bool]:
        """The sort key: feasible options come first, sorted by expected error and then by bound."""
        # An unknown expected error is replaced by the bound, which is never smaller. If two options
        # are equal, an option that a program can run comes first.
        bound = math.inf if self.bound is None or self.bound.vacuous else self.bound.max_error
        expected = bound if self.expected_error is None else self.expected_error
        return not self.is_feasible, expected, bound, self.program is None

    def to_json(self) -> dict[str, Any]:
        """Returns the option as JSON values."""
        bound = None
        if self.bound is not None:
            bound = {
                **dataclasses.asdict(self.bound),
                "max_error_fraction": self.bound.max_error_fraction,
                "vacuous": self.bound.vacuous,
            }
        return {**dataclasses.asdict(self), "bound": bound, "parameters": dict(self.parameters)}


@dataclasses.dataclass(frozen=True)
class SparseOption(Option):
    """The plan of one mechanism for sparse queries, without memory and time.

    The expected error is for queries about m keys, drawn at random from all distinct keys.
    """

    error_of_one: float | None = None  # for queries of one key; None if it depends on the data
    size: int | None = None
    is_pure: bool = False


@dataclasses.dataclass(frozen=True)
class Planner:
    """How one mechanism is planned, in one calibration."""

    mechanism: str
    program: str
    predict: Callable[[Any], dict[str, Any]]  # from a job to the fields of its option
    calibration: Calibration = "tight"
    option: type[Option] = Option
    refusals: tuple[type[Exception], ...] = (InputError,)  # errors that refuse only this option

    def plan(self, job: Job) -> Option:
        """Returns the option for a job, which may be refused."""
        option = self.option(self.mechanism, self.calibration, self.program)
        try:
            return dataclasses.replace(option, **self.predict(job))
        except self.refusals as error:
            return dataclasses.replace(option, refusal=str(error))


@dataclasses.dataclass(frozen=True)
class QueryCountJob(Promised):
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
        super().__post_init__()
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
    def cells(self) -> int:
        """The size of the universe; refuses the job without one."""
        if self.num_cells is None:
            raise InputError("num_cells", None, "must be given")
        return self.num_cells

    @property
    def universe(self) -> str:
        """The size of the universe as text."""
        return "1 cell" if self.cells == 1 else f"{magnitude(self.cells)} cells"

    @property
    def known_beforehand(self) -> str:
        """What theorems assume that answer all queries together."""
        text = f"{self.universe}, queries known beforehand"
        # These theorems ignore the budget that a noisy number of records costs.
        return text if self.num_records_is_public else f"{text}, a public number of records"

    def allowed(
        self, theorem_of: Callable[[int], Theorem], assumes: str, *, least: int = 1
    ) -> dict[str, Any]:
        """Returns the fields of a count: what ``queries_allowed`` says of a theorem."""
        number = queries_allowed(
            theorem_of, self.num_records, self.target_error, self.failure_probability, least=least
        )
        theorem = theorem_of(max(number, least)).name
        return {"num_queries": number, "theorem": theorem, "assumes": assumes}
