"""Jobs to plan, and the options that a plan compares. All of it is public."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from beam_dp.checks import check_is, checked_integer
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.contract import MAX_RECORDS, NumRecords, check_failure_probability
from beam_dp.mechanisms.resources import Resources
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.workload import Workload
from beam_dp.theorems.theorem import Bound, Calibration, checked_fraction


@dataclasses.dataclass(frozen=True)
class PlanningJob:
    """What must be answered, about how many records, under which promise.

    Args:
        workload: marginals, or linear queries; it holds the domain.
        guarantee: what is promised.
        num_records: N >= 1; a guess where the number is private. Never take it from the records
            then: what is planned would tell of them.
        num_records_is_public: must be true under replace-one; else a noisy number is paid for.
        failure_probability: beta of all bounds, in (0, 1).
        max_error_fraction: of the inverse question, in (0, 1]: how many records are needed so that
            no answer is wrong by more than this share of them? None where it is not asked.

    Raises:
        InputError: if an argument is out of range.
    """

    workload: Workload | LinearWorkload
    guarantee: Guarantee
    num_records: int
    num_records_is_public: bool
    failure_probability: float = 0.05
    max_error_fraction: float | None = None

    def __post_init__(self) -> None:
        check_is("workload", self.workload, Workload, LinearWorkload)
        check_is("guarantee", self.guarantee, Guarantee)
        checked_integer("num_records", self.num_records, 1, MAX_RECORDS)
        if self.guarantee.neighboring is Neighboring.REPLACE_ONE and not self.num_records_is_public:
            condition = "must be True: it is public under replace_one"
            raise InputError("num_records_is_public", False, condition)
        check_failure_probability(self.failure_probability)
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
        """What a mechanism is told: the public number, or that it must pay for a noisy one."""
        return self.num_records if self.num_records_is_public else "noisy"


@dataclasses.dataclass(frozen=True)
class Option:
    """What one mechanism would make of a job.

    Args:
        mechanism: its name, as a program takes it unless the parameters name another.
        calibration: ``tight`` or ``textbook``.
        program: the pipeline that runs it; None where none does.
        refusal: why it cannot do the job; None where it can.
        expected_error: root mean squared error of an answer, averaged over the workload by its
            weights, in records; None where it depends on the data. Of a synthetic database it is
            the error of the unbiased noisy tables: the fit lowers it where many cells are empty.
        measured_error: the same of an answer that is measured in the course of a mechanism
            whose expected error is not known.
        bound: of the largest error of all answers at once; None where nothing is proved.
        records_needed: for the job's ``max_error_fraction``, by the bound; None where it was not
            asked, or no number is enough.
        resources: memory and time; None where it cannot do the job.
        parameters: what follows from public numbers and must be given to the program.
        note: what must be known beside the numbers.
        noisy_cells: how many cells of the workload's marginals will be too noisy to use, if the
            records are spread evenly; None where it is not known.
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
        """What options are sorted by: whether they can do the job, then how wrong they would be.

        The expected error, where it is known; else the bound, which is not less; then the bound.
        Of two equal ones the first is that which a program runs.
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
        return {
            **dataclasses.asdict(self),
            "bound": bound,
            "parameters": dict(self.parameters),
        }
