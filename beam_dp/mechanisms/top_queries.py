"""Chooses the c queries of a workload with the largest answers, and answers them with noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_choice, check_is, checked_integer
from beam_dp.flags.flag import integer, option
from beam_dp.mechanisms import checks
from beam_dp.mechanisms.choosing import METHODS, Method, TopChoice, choose_top, top_choices
from beam_dp.mechanisms.linear_answers import DEFAULT_FAILURE_PROBABILITY, LinearAnswersPlan
from beam_dp.privacy.accounting import zcdp_rho
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import composed
from beam_dp.privacy.noise.bound import Distribution
from beam_dp.privacy.noise.source import MAX_SCALE, NoiseSource
from beam_dp.privacy.rounding import lowered, root_up, up
from beam_dp.privacy.steps import Step
from beam_dp.queries.linear import VALUE_BITS
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.releases.answers.verify import top_query_steps

_OPERATIONS = 16  # larger than the number of rounded operations on a budget


@dataclasses.dataclass(frozen=True, kw_only=True)
class TopQueriesPlan(LinearAnswersPlan):
    """The plan for ``draw_top_queries``, made from public numbers alone."""

    top: int = dataclasses.field(  # c, the number of queries that are chosen
        metadata=option("top_queries: the number of queries to answer", "C", integer)
    )
    choice: Method = dataclasses.field(  # the method; see ``top_choice``
        metadata=option(
            "top_queries: how queries are chosen; auto uses the method with the smallest bound",
            choices=("auto", *METHODS),
            default="auto",
        )
    )
    choice_grid: int  # the number of steps per record when answers are compared: 2^16, against ties
    choice_scale: float  # the scale of the noise of the choice, in steps of ``choice_grid``

    @property
    def steps(self) -> Sequence[Step]:
        """The noisy draws of this plan, as `beam-dp verify` checks them."""
        return top_query_steps(self.public, self.guarantee)

    @property
    def is_vacuous(self) -> bool:
        """Whether an error bound is known in advance to be too large to be useful."""
        return self.num_records != "noisy" and self._error() >= self.num_records

    @property
    def top_choice(self) -> TopChoice:
        """The method and noise that choose the queries."""
        width = _width(self.guarantee, self.choice_grid)
        return TopChoice(self.choice, self.top, width, self.choice_scale)

    def margin(self) -> float:
        """Returns a bound on the t-th largest answer minus the t-th chosen answer, in records.

        Accuracy: for every t, with probability 1 - beta / 2 for the plan's beta.
        """
        half = self.failure_probability / 2
        return self.top_choice.margin(len(self.workload), half) / self.choice_grid

    def bound(self) -> float:
        """Returns a bound on the errors of all released answers, in records.

        Accuracy: with probability 1 - beta / 2 for the plan's beta; answers get fresh noise.
        """
        return self.largest_error(self.top, self.failure_probability / 2)

    def answered(self, counts: NDArray[np.int64], noise: NoiseSource) -> dict[int, float]:
        """Returns the released answers; see ``draw_top_queries``."""
        drawn = draw_top_queries(self, counts, noise)
        return dict(zip(drawn.places, drawn.values.tolist(), strict=True))

    def _error(self) -> float:
        return max(self.margin(), self.bound())

    def _stated(self) -> dict[str, Any]:
        names = ("top", "choice", "choice_grid", "choice_scale")
        fields = {name: getattr(self, name) for name in names}
        return {**super()._stated(), **fields, "margin": self.margin()}


@dataclasses.dataclass(frozen=True, eq=False)
class TopQueries:
    """A public release: the queries with the largest answers, and noisy answers to them."""

    places: list[int]  # the positions of the chosen queries in the workload
    values: NDArray[np.float64]  # shape (c,), in records; unbiased, maybe not in order
    standard_error: float  # of every answer, in records
    margin: float  # see ``TopQueriesPlan``
    bound: float  # see ``TopQueriesPlan``
    public: dict[str, Any]


def plan_top_queries(
    workload: LinearWorkload,
    guarantee: Guarantee,
    num_records: checks.NumRecords,
    top: int,
    choice: Method | Literal["auto"] = "auto",
    failure_probability: float = DEFAULT_FAILURE_PROBABILITY,
) -> TopQueriesPlan:
    """Returns a plan for selecting and releasing the c largest answers. Does not read any records.

    Privacy: the guarantee. A unit of m records moves every answer by at most m, under either
    relation. Adding or removing a unit moves all answers the same way, which halves the noise of
    the choice: see ``top_choice``. Answers have an L1 sensitivity of c m and an L2 sensitivity of
    sqrt(c) m, whichever queries were chosen. Answers get discrete Laplace noise if the guarantee is
    pure, or spent as if it were pure, and discrete Gaussian noise if choice and answers share a
    rho. The shares of the budget, and the method with ``auto``, minimise the larger of the bounds
    of choice and answers.

    ``top``: c, from 1 to the number of queries.
    ``choice``: the method; see ``top_choice``.
    Other arguments: see ``plan_workload_answers``. Queries may overlap without extra noise.

    Example:
        >>> from beam_dp.domain.files import read_domain
        >>> from beam_dp.queries.linear_workload import parse_linear_workload
        >>> workload = parse_linear_workload("intervals:age", read_domain('{"age": 100}'))
        >>> promise = Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
        >>> plan = plan_top_queries(workload, promise, "noisy", 30)
        >>> plan.choice, round(plan.margin()), round(plan.bound())
        ('exponential', 269, 268)
    """
    check_is("workload", workload, LinearWorkload)
    check_is("guarantee", guarantee, Guarantee)
    check_choice("choice", choice, ("auto", *METHODS))
    checks.check_num_records(num_records, guarantee)
    checks.check_failure_probability(failure_probability)
    checked_integer("top", top, 1, len(workload), note=", the number of queries")
    plans = [
        TopQueriesPlan(
            mechanism="top_queries",
            workload=workload,
            guarantee=guarantee,
            num_records=num_records,
            failure_probability=failure_probability,
            top=top,
            **settings,
        )
        for settings in _settings(workload, guarantee, top, choice)
    ]
    checks.check_noise(guarantee, [min(max(plan.choice_scale, plan.scale) for plan in plans)])
    fitting = [plan for plan in plans if max(plan.choice_scale, plan.scale) <= MAX_SCALE]
    best = min(fitting, key=TopQueriesPlan._error)
    return dataclasses.replace(best, loss=composed(step.loss for step in best.steps))


def draw_top_queries(
    plan: TopQueriesPlan, counts: NDArray[np.int64], noise: NoiseSource
) -> TopQueries:
    """Returns the largest answers with noise; no other step sees exact counts. Draw once per plan.

    Privacy: ``plan.guarantee``, if the counted records of each unit are limited as the guarantee
    says. Counts and answers too large for 64 bits are clipped, which raises no sensitivity.

    ``counts``: shape (num_cells,), int64, in records; secret. See ``draw_workload_answers``.
    """
    check_is("plan", plan, TopQueriesPlan)
    exact = plan.exact(counts, plan.choice_grid)
    places = choose_top(exact, plan.top_choice, noise)
    return TopQueries(
        places=places,
        values=plan.noisy(exact[places] // (plan.choice_grid // plan.grid), noise),
        standard_error=plan.standard_error,
        margin=plan.margin(),
        bound=plan.bound(),
        public=plan.public,
    )


def _settings(
    workload: LinearWorkload,
    guarantee: Guarantee,
    top: int,
    choice: Method | Literal["auto"],
) -> Iterator[dict[str, Any]]:
    """Yields the noise for each way to split the budget between choice and answers."""
    of_choice = 1 << VALUE_BITS
    whole = of_choice if workload.explicit else 1
    width = _width(guarantee, of_choice)
    for share in (Fraction(number, 32) for number in range(1, 32)):
        for chosen in top_choices(guarantee, top, width, choice, share):
            distribution, steps, scale = _answers(guarantee, top, 1 - share, chosen, whole)
            yield {
                "choice": chosen.method,
                "choice_grid": of_choice,
                "choice_scale": chosen.scale,
                "distribution": distribution,
                "grid": steps,
                "scale": scale,
                "loss": chosen.loss,
            }


def _answers(
    guarantee: Guarantee, top: int, share: Fraction, chosen: TopChoice, grid: int
) -> tuple[Distribution, int, float]:
    """Returns (distribution, grid, scale) of the answers' noise for a share of epsilon or rho."""
    moved = guarantee.max_records_per_unit
    if not chosen.spends_rho:
        scale = up(top * moved * grid / (Fraction(guarantee.epsilon) * share))
        return "discrete_laplace", grid, scale
    steps = 1 << VALUE_BITS
    rho = lowered(zcdp_rho(guarantee.epsilon, guarantee.delta) * float(share), _OPERATIONS)
    return "discrete_gaussian", steps, root_up(top * (moved * steps) ** 2 / (2 * Fraction(rho)))


def _width(guarantee: Guarantee, grid: int) -> int:
    """Returns the largest change of the difference of two answers by one unit, in grid steps."""
    return guarantee.neighboring.num_moved * guarantee.max_records_per_unit * grid
