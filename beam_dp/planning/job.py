"""Jobs to plan, and the options that a plan compares. All of it is public."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from beam_dp.checks import check_is, checked_integer
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.checks import MAX_RECORDS, NumRecords, check_failure_probability
from beam_dp.mechanisms.online.sparse_mw import MAX_SPARSITY
from beam_dp.mechanisms.resources import Resources
from beam_dp.mechanisms.sketches.errors import KeyProfile
from beam_dp.mechanisms.sketches.plan import DEFAULT_SIZE
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.workload import Workload
from beam_dp.theorems.theorem import Bound, Calibration, Theorem, checked_fraction


def check_promise(
    guarantee: Guarantee, num_records_is_public: bool, failure_probability: float
) -> None:
    """Refuses a promise that no job can make."""
    check_is("guarantee", guarantee, Guarantee)
    if guarantee.neighboring is Neighboring.REPLACE_ONE and not num_records_is_public:
        condition = "must be True: it is public under replace_one"
        raise InputError("num_records_is_public", False, condition)
    check_failure_probability(failure_probability)


@dataclasses.dataclass(frozen=True)
class PlanningJob:
    """What must be answered, about how many records, under which promise.

    Args:
        workload: marginals, or linear queries; it contains the domain.
        guarantee: the privacy guarantee.
        num_records: N >= 1; a guess where the number is private. Then never take it from the
            records: the plan would reveal it.
        num_records_is_public: must be true under replace-one; else a noisy number is paid for.
        failure_probability: beta of all bounds, in (0, 1).
        max_error_fraction: in (0, 1]: also find how many records are needed so that no answer is
            off by more than this share of them.
    """

    workload: Workload | LinearWorkload
    guarantee: Guarantee
    num_records: int
    num_records_is_public: bool
    failure_probability: float = 0.05
    max_error_fraction: float | None = None

    def __post_init__(self) -> None:
        check_is("workload", self.workload, Workload, LinearWorkload)
        checked_integer("num_records", self.num_records, 1, MAX_RECORDS)
        check_promise(self.guarantee, self.num_records_is_public, self.failure_probability)
        if self.max_error_fraction is not None:
            checked_fraction(self.max_error_fraction)

    @property
    def domain(self) -> Domain:
        """The universe."""
        return self.workload.domain

    @property
    def num_queries(self) -> int:
        """How many numbers are asked for."""
        if isinstance(self.workload, Workload):
            return self.workload.num_cells()
        return len(self.workload)

    @property
    def given_num_records(self) -> NumRecords:
        """The public number, or that a mechanism must pay for a noisy one."""
        return self.num_records if self.num_records_is_public else "noisy"

    def needed(self, theorem: Theorem) -> int | None:
        """Returns the records that ``max_error_fraction`` needs; None if it is not given."""
        if self.max_error_fraction is None:
            return None
        return theorem.records_needed(self.max_error_fraction)

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
class SparsePlanningJob:
    """Sparse queries about the keys of records, under which promise.

    Args:
        guarantee: the privacy guarantee.
        profile: how many records and distinct keys there are, and how many records the most
            frequent key has; a guess where that is private. Never take it from the records then.
        max_sparsity: m, the most keys that a query may name.
        max_size: the most numbers that an artifact may contain.
        num_questions: K, different queries for which a bound is simultaneous. With None bounds are
            for one query, and mechanisms that answer one query at a time are not planned.
        num_records_is_public: must be true under replace-one.
        failure_probability: beta of bounds, in (0, 1).
    """

    guarantee: Guarantee
    profile: KeyProfile
    max_sparsity: int
    max_size: int = DEFAULT_SIZE
    num_questions: int | None = None
    num_records_is_public: bool = False
    failure_probability: float = 0.05

    def __post_init__(self) -> None:
        check_promise(self.guarantee, self.num_records_is_public, self.failure_probability)
        check_is("profile", self.profile, KeyProfile)
        checked_integer("max_sparsity", self.max_sparsity, 1, MAX_SPARSITY)

    @property
    def given_num_records(self) -> NumRecords:
        """The public number, or that a mechanism must pay for a noisy one."""
        return self.profile.num_records if self.num_records_is_public else "noisy"

    @property
    def num_bounded(self) -> int:
        """How many queries a bound is for at once; 1 by default."""
        return self.num_questions or 1

    def to_json(self) -> dict[str, Any]:
        """Returns the job as JSON values."""
        return {
            "guarantee": self.guarantee.to_json(),
            **dataclasses.asdict(self.profile),
            "max_sparsity": self.max_sparsity,
            "max_size": self.max_size,
            "num_questions": self.num_questions,
            "num_records_is_public": self.num_records_is_public,
            "failure_probability": self.failure_probability,
        }


@dataclasses.dataclass(frozen=True)
class Option:
    """How well one mechanism would do a job.

    ``mechanism``: its name, as a program takes it unless the parameters name another.
    ``program``: the pipeline that runs it; None if there is none.
    ``refusal``: why it cannot do the job; None if it can.
    ``expected_error``: root mean squared error of an answer, averaged over the workload by its
    weights, in records; None if it depends on the data. For a synthetic database it is the
    error of the unbiased noisy tables: the fit lowers it where many cells are empty.
    ``bound``: for the largest error of all answers at once; None if nothing is proved.
    ``records_needed``: for the job's ``max_error_fraction``, by the bound; None if it was not
    asked, or no number is enough.
    ``resources``: memory and time; None if it cannot do the job.
    ``parameters``: flags that follow from public numbers and must be given to the program.
    ``note``: a remark on the numbers.
    ``noisy_cells``: how many cells of the workload's marginals will be too noisy to use if the
    records are spread evenly; None if it is not known.
    """

    mechanism: str
    calibration: Calibration
    program: str | None
    refusal: str | None = None
    expected_error: float | None = None
    measured_error: float | None = None
    bound: Bound | None = None
    records_needed: int | None = None
    resources: Resources | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    note: str = ""
    noisy_cells: int | None = None

    @property
    def is_feasible(self) -> bool:
        """Whether it can do the job."""
        return self.refusal is None

    @property
    def rank(self) -> tuple[bool, float, float, bool]:
        """The sort key: feasible options first, then the least error.

        The expected error if it is known, else the bound, which is not less; then the bound.
        Of two equal options the first is the one that a program runs.
        """
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
    """How well one mechanism would answer sparse queries; memory and time are not planned.

    Its ``expected_error`` is for queries of m keys chosen at random among all distinct ones.

    ``error_of_one``: the same for queries of one key; None if it depends on the data.
    """

    error_of_one: float | None = None
    size: int | None = None
    is_pure: bool = False
