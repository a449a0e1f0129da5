"""What each mechanism needs to be within an error: its least epsilon, the least one first."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

from beam_dp.checks import checked_number
from beam_dp.errors import InputError
from beam_dp.planning.job import Option, PlanningJob
from beam_dp.planning.least_epsilon import Least, least_epsilon
from beam_dp.planning.ranking import option_makers
from beam_dp.planning.sketches.job import SparsePlanningJob
from beam_dp.planning.sketches.ranking import sparse_option_makers
from beam_dp.planning.windows import WindowsOption
from beam_dp.privacy.guarantee import MAX_EPSILON


@dataclasses.dataclass(frozen=True)
class Target:
    """An error that is to be kept, in records.

    Args:
        error: finite and > 0.
        of_bound: whether it is of the bound of all answers at once, which holds except with the
            job's failure probability; else of the expected error of an answer, root mean squared
            over the workload.

    Raises:
        InputError: if the error is out of range.
    """

    error: float
    of_bound: bool = False

    def __post_init__(self) -> None:
        checked_number(self.name, self.error, above=0)

    @property
    def name(self) -> str:
        """The flag that asks for it, without dashes."""
        return "target_bound" if self.of_bound else "target_error"

    def error_of(self, option: Option) -> float:
        """Returns the error of an option; infinite where nothing is known of it before."""
        if not self.of_bound:
            return math.inf if option.expected_error is None else option.expected_error
        is_known = option.bound is not None and not option.bound.vacuous
        return option.bound.max_error if option.bound and is_known else math.inf


@dataclasses.dataclass(frozen=True)
class TargetRanking:
    """What each mechanism needs to be within an error, the least epsilon first.

    Args:
        job: what was asked, but for its epsilon.
        target: the error.
        found: the mechanisms that are within it, with some epsilon.
        beyond: those that are not with any, the least error first.
        refused: options that cannot do the job, or whose error depends on the data.
    """

    job: PlanningJob | SparsePlanningJob
    target: Target
    found: tuple[Least[Option], ...]
    beyond: tuple[Least[Option], ...]
    refused: tuple[Option, ...]

    @property
    def best(self) -> Least[Option]:
        """The first that a program runs, or else the first."""
        return next((each for each in self.found if each.option.program), self.found[0])

    def to_json(self) -> dict[str, Any]:
        """Returns the ranking as JSON values: of the job all but the epsilon, which is found."""
        guarantee = self.job.guarantee.to_json()
        del guarantee["epsilon"]
        reached = [{"epsilon": each.epsilon, **each.option.to_json()} for each in self.found]
        others = [each.option for each in self.beyond]
        return {
            self.target.name: self.target.error,
            "guarantee": guarantee,
            "failure_probability": self.job.failure_probability,
            "options": reached,
            "not_reached": [option.to_json() for option in others],
            "refused": [option.to_json() for option in self.refused],
        }


def rank_for_target(job: PlanningJob | SparsePlanningJob, target: Target) -> TargetRanking:
    """Returns the least epsilon of each mechanism that keeps an error; reads no data.

    Args:
        job: the workload, or what is asked of keys; the epsilon of its guarantee is not used.
        target: the error.

    Raises:
        InputError: naming ``target_error`` or ``target_bound``, with the least error that can be
            had, if no mechanism is within it with an epsilon up to 1e6.

    Cost: about twenty times that of ``rank_mechanisms``, or of ``rank_sparse_mechanisms``.

    Example:
        >>> from beam_dp.domain.files import read_domain
        >>> from beam_dp.privacy.guarantee import Guarantee
        >>> from beam_dp.queries.workload import marginals
        >>> domain = read_domain('{"age": 8, "sex": 2}')
        >>> promise = Guarantee(1.0, 0, "replace_one", "record", 1)
        >>> job = PlanningJob(marginals(domain, ways=2), promise, 10_000, True)
        >>> best = rank_for_target(job, Target(5.0)).best
        >>> best.epsilon, best.error <= 5
        (0.5461, True)
    """
    makers: list[Any] = option_makers() if isinstance(job, PlanningJob) else sparse_option_makers()
    found, beyond, refused = [], [], []
    for make in makers:
        least = least_epsilon(
            lambda epsilon, make=make: make(_with_epsilon(job, epsilon)),  # type: ignore[misc]
            target.error_of,
            target.error,
        )
        if least.epsilon is not None:
            found.append(least)
        elif math.isfinite(least.error):
            beyond.append(least)
        else:
            refused.append(_unknown(least.option, target))
    found.sort(key=lambda least: least.rank)
    beyond.sort(key=lambda least: least.rank)
    if not found:
        raise out_of_reach(target, beyond[0].error if beyond else math.inf)
    return TargetRanking(job, target, tuple(found), tuple(beyond), tuple(refused))


def rank_windows_for_target(
    rank: Callable[[float], list[WindowsOption]], target: Target
) -> list[Least[WindowsOption]]:
    """Returns the least epsilon of each strategy to measure windows, the least one first.

    The error is the largest of the questions, each asked as soon as it can be. Of a strategy it is
    that of the noise and the blocks that are best for all questions together: those that a release
    with this strategy has.

    Args:
        rank: the ways, as of ``rank_window_strategies``, with an epsilon.
        target: the expected error.

    Raises:
        InputError: as of ``rank_for_target``; what ``rank`` raises at epsilon 1.

    Cost: about twenty times that of ``rank``.
    """

    @functools.cache
    def best(epsilon: float) -> dict[str, WindowsOption]:
        try:
            options = rank(epsilon)
        except InputError:
            if epsilon == 1:
                raise
            return {}  # the noise of such an epsilon cannot be drawn
        return {option.strategy: option for option in reversed(options)}

    found: list[Least[WindowsOption | None]] = [
        least_epsilon(
            lambda epsilon, strategy=strategy: best(epsilon).get(strategy),  # type: ignore[misc]
            lambda option: math.inf if option is None else _largest_error(option),
            target.error,
        )
        for strategy in best(1.0)
    ]
    found.sort(key=lambda least: least.rank)
    reached = [
        Least(least.epsilon, least.option, least.error)
        for least in found
        if least.epsilon is not None and least.option is not None
    ]
    if not reached:
        raise out_of_reach(target, found[0].error)
    return reached


def _largest_error(option: WindowsOption) -> float:
    return max(option.errors.values())


def out_of_reach(target: Target, floor: float) -> InputError:
    """Returns the refusal of an error that nothing keeps, which says the least that can be kept.

    Args:
        target: that was asked for.
        floor: the least error of all mechanisms; infinite where none is known beforehand.
    """
    if not math.isfinite(floor):
        what = "bound is proved" if target.of_bound else "error is known before the data"
        return InputError(target.name, target.error, f"must be of a job for which some {what}")
    least = f"{floor * (1 + 1e-3):.4g}"
    found = f"the least error that was found, with epsilon up to {MAX_EPSILON:,.0f}"
    condition = f"must be at least {least} records: {found}"
    return InputError(target.name, target.error, condition)


def _unknown(option: Option, target: Target) -> Option:
    """Returns an option of no finite error as one that is refused."""
    if option.refusal is not None:
        return option
    refusal = "no bound below the number of records is proved of it"
    if not target.of_bound:
        refusal = "its expected error depends on the data"
    return dataclasses.replace(option, refusal=refusal)


def _with_epsilon(job: Any, epsilon: float) -> Any:
    """Returns the same job with another epsilon."""
    guarantee = dataclasses.replace(job.guarantee, epsilon=epsilon, allow_large_delta=True)
    return dataclasses.replace(job, guarantee=guarantee)
