"""Plans and draws noisy answers to a declared workload of linear queries."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_choice, check_is
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms import checks
from beam_dp.mechanisms.contract import AnswersPlan
from beam_dp.mechanisms.resources import answers_resources
from beam_dp.privacy.budget import Budget
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.bound import Distribution, largest_noise, noise_variance
from beam_dp.privacy.noise.source import MAX_SCALE, NoiseSource
from beam_dp.privacy.rounding import up
from beam_dp.privacy.steps import Step
from beam_dp.queries.linear import VALUE_BITS
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.sensitivity import WorkloadSensitivity, workload_sensitivity
from beam_dp.releases.answers.verify import linear_answer_steps
from beam_dp.secret.summaries.histogram import clipped_counts

DEFAULT_FAILURE_PROBABILITY = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearAnswersPlan(AnswersPlan):
    """The plan for answering a whole workload, with noise on every released answer.

    ``num_records`` appears on the card and decides ``is_vacuous``; the answers do not use it.

    ``grid``: the number of grid steps per record: 1 for noise on whole records, else 2^16.
    ``scale``: the scale of the noise, in grid steps.
    ``failure_probability``: the probability that a stated bound is wrong, in (0, 1).
    """

    workload: LinearWorkload
    distribution: Distribution
    grid: int
    scale: float
    failure_probability: float = dataclasses.field(
        default=DEFAULT_FAILURE_PROBABILITY, metadata=checks.FAILURE_PROBABILITY
    )

    @property
    def universe(self) -> Domain:
        """The domain of the queries."""
        return self.workload.domain

    @property
    def memory_bytes(self) -> float:
        """The worker's memory for a draw, without the histogram."""
        return answers_resources(self.workload.domain.num_cells, len(self.workload)).memory_bytes

    @property
    def is_vacuous(self) -> bool:
        """Whether the error bound is known in advance to be too large to be useful."""
        return self.num_records != "noisy" and self.bound() >= self.num_records

    @property
    def standard_error(self) -> float:
        """The standard deviation of every answer, in records."""
        return math.sqrt(noise_variance(self.distribution, self.scale)) / self.grid

    @abstractmethod
    def bound(self) -> float:
        """Returns a bound on all errors, in records, for the plan's failure probability."""

    @abstractmethod
    def answered(self, counts: NDArray[np.int64], noise: NoiseSource) -> dict[int, float]:
        """Returns noisy answers in the order of release, keyed by position in the workload.

        ``counts``: shape (num_cells,), int64, in records; secret.

        Privacy: the guarantee of the plan, for one draw.
        """

    def largest_error(self, num_answers: int, failure_probability: float) -> float:
        """Returns a bound on all errors of ``num_answers`` answers, in records."""
        checks.check_failure_probability(failure_probability)
        noise = largest_noise(self.distribution, self.scale, num_answers, failure_probability)
        return noise / self.grid

    def exact(self, counts: NDArray[np.int64], grid: int) -> NDArray[np.int64]:
        """Returns the exact answers, in units of 1 / ``grid`` records; secret."""
        expected = (self.workload.domain.num_cells,)
        if counts.shape != expected or counts.dtype != np.int64:
            condition = f"must be int64 of shape {expected}"
            raise InputError("counts", f"{counts.dtype} {counts.shape}", condition)
        # Answers are numerators over 2^16; the division is exact because the grid fits all queries.
        return self.workload.counts(clipped_counts(counts)) // ((1 << VALUE_BITS) // grid)

    def noisy(self, exact: NDArray[np.int64], noise: NoiseSource) -> NDArray[np.float64]:
        """Adds noise to answers in units of 1 / ``grid`` records; returns records."""
        draw = noise.laplace if self.distribution == "discrete_laplace" else noise.gaussian
        return draw(exact, self.scale) / self.grid

    def _stated_number(self, num_records: int | None) -> dict[str, int | None] | None:
        return None if num_records is None else {"public": num_records}

    def _stated(self) -> dict[str, Any]:
        return {
            "mechanism": self.mechanism,
            "distribution": self.distribution,
            "scale": self.scale,
            "grid": self.grid,
            "num_queries": len(self.workload),
            "num_records": self.num_records,
            "standard_error": self.standard_error,
            "bound": self.bound(),
            "failure_probability": self.failure_probability,
            "guarantee": self.guarantee.to_json(),
            "loss": self.loss.to_json(),
        }


Choice = Literal["auto", "discrete_laplace", "discrete_gaussian"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkloadAnswersPlan(LinearAnswersPlan):
    """The plan of ``draw_workload_answers``, with the sensitivity of all answers together."""

    sensitivity: WorkloadSensitivity

    @property
    def steps(self) -> Sequence[Step]:
        """The noisy draws of this plan, as `beam-dp verify` checks them."""
        return linear_answer_steps(self.public, self.sensitivity)

    def bound(self, failure_probability: float | None = None) -> float:
        """Returns a bound on all errors, in records, that fails with the given probability.

        ``failure_probability``: in (0, 1); by default the plan's failure probability.

        Accuracy: see ``largest_noise``, for the number of queries.
        """
        if failure_probability is None:
            failure_probability = self.failure_probability
        return self.largest_error(len(self.workload), failure_probability)

    def answered(self, counts: NDArray[np.int64], noise: NoiseSource) -> dict[int, float]:
        """Returns all answers; see ``draw_workload_answers``."""
        return dict(enumerate(draw_workload_answers(self, counts, noise).values.tolist()))

    def _stated(self) -> dict[str, Any]:
        return {
            **super()._stated(),
            "l1_sensitivity": self.sensitivity.l1 / 2**VALUE_BITS,
            "l2_sensitivity": self.sensitivity.l2 / 2**VALUE_BITS,
            "l2_sensitivity_squared": up(Fraction(self.sensitivity.l2_squared, 4**VALUE_BITS)),
            "sensitivity_is_exact": self.sensitivity.is_exact,
        }


@dataclasses.dataclass(frozen=True, eq=False)
class WorkloadAnswers:
    """A public release: noisy answers and their accuracy."""

    values: NDArray[np.float64]  # in records; unbiased, not clipped or made consistent
    standard_error: float  # of every answer, in records
    bound: float
    failure_probability: float
    public: dict[str, Any]


def plan_workload_answers(
    workload: LinearWorkload,
    guarantee: Guarantee,
    num_records: checks.NumRecords,
    distribution: Choice = "auto",
    failure_probability: float = DEFAULT_FAILURE_PROBABILITY,
) -> WorkloadAnswersPlan:
    """Returns the plan for answering a workload. Does not read any records.

    ``auto`` uses discrete Laplace noise if delta is 0, else the noise with the smaller error.

    Privacy: discrete Laplace noise of scale s in grid steps gives pure epsilon, as s is at least
    the L1 sensitivity over epsilon. Discrete Gaussian noise sigma gives (epsilon, delta), as D^2 /
    (sigma^2 - 4) is at most the square of ``discrete_gaussian_mu`` for the L2 sensitivity D. Both
    proofs are for the relation and unit of the guarantee. Exact answers are integers on the grid:
    whole records for Laplace noise if all queries are 0 or 1; otherwise steps of 2^-16, which keeps
    Gaussian noise as private as continuous noise.

    Args:
        workload: the queries; a repeated query costs as much as a new query.
        guarantee: the guarantee of all answers together.
        num_records: the public number of records, or ``"noisy"``; a number under ``replace_one``.
        distribution: the distribution of the noise.
        failure_probability: the probability that the stated bound is wrong, in (0, 1).

    Raises:
        InputError: if a parameter is invalid, if delta is 0 for Gaussian noise, or if the noise
            would not fit 64-bit integers.

    Cost: see ``workload_sensitivity``.
    Reference: Dwork and Roth (2014), Theorem 3.6; Canonne, Kamath and Steinke (2020).

    Example:
        >>> from beam_dp.domain.files import read_domain
        >>> from beam_dp.queries.linear_workload import parse_linear_workload
        >>> workload = parse_linear_workload("prefixes:age", read_domain('{"age": 100}'))
        >>> promise = Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
        >>> plan = plan_workload_answers(workload, promise, "noisy")
        >>> plan.distribution, round(plan.standard_error, 2)
        ('discrete_gaussian', 54.95)
    """
    check_is("workload", workload, LinearWorkload)
    check_is("guarantee", guarantee, Guarantee)
    check_choice("distribution", distribution, ("auto", "discrete_laplace", "discrete_gaussian"))
    checks.check_num_records(num_records, guarantee)
    checks.check_failure_probability(failure_probability)
    if distribution == "discrete_gaussian" and guarantee.delta == 0:
        raise InputError("delta", 0.0, "must be > 0 for Gaussian noise")
    sensitivity = workload_sensitivity(
        workload, guarantee.neighboring, guarantee.max_records_per_unit
    )
    plans: list[tuple[Distribution, Budget, int, float]] = []
    if distribution != "discrete_gaussian":
        grid = 1 << VALUE_BITS if workload.explicit else 1
        steps = max(1, -(-sensitivity.l1 * grid >> VALUE_BITS))
        budget = Budget.of(guarantee, "pure")
        plans.append(("discrete_laplace", budget, grid, budget.scale(steps)))
    if distribution != "discrete_laplace" and guarantee.delta > 0:
        budget = Budget.of(guarantee, "gaussian")
        scale = budget.scale(max(1, sensitivity.l2_squared))
        plans.append(("discrete_gaussian", budget, 1 << VALUE_BITS, scale))
    checks.check_noise(guarantee, [min(scale for *_, scale in plans)])
    return min(
        (
            WorkloadAnswersPlan(
                mechanism=kind.removeprefix("discrete_"),
                workload=workload,
                guarantee=guarantee,
                num_records=num_records,
                sensitivity=sensitivity,
                distribution=kind,
                grid=grid,
                scale=scale,
                loss=budget.loss,
                failure_probability=failure_probability,
            )
            for kind, budget, grid, scale in plans
            if scale <= MAX_SCALE
        ),
        key=lambda plan: plan.standard_error,
    )


def draw_workload_answers(
    plan: WorkloadAnswersPlan, counts: NDArray[np.int64], noise: NoiseSource
) -> WorkloadAnswers:
    """Returns noisy answers; no other step sees the exact counts. Draw once per plan.

    Privacy: ``plan.guarantee``, if the counted records of each unit are limited as the guarantee
    says. Counts and answers too large for 64 bits are clipped, which raises no sensitivity.

    ``counts``: shape (num_cells,), int64, in records; secret. Answers are right if every cell is at
    most 2^61 / num_cells and every answer at most 2^46.
    """
    check_is("plan", plan, WorkloadAnswersPlan)
    exact = plan.exact(counts, plan.grid)
    return WorkloadAnswers(
        values=plan.noisy(exact, noise),
        standard_error=plan.standard_error,
        bound=plan.bound(),
        failure_probability=plan.failure_probability,
        public=plan.public,
    )
