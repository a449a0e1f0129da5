"""Ranks all mechanisms for one job, best first, or by the least epsilon that meets an error."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from beam_dp.checks import check_is, checked_number
from beam_dp.domain.discover import OpenDomain
from beam_dp.errors import InputError
from beam_dp.planning import answers, intervals, sketches, textbook
from beam_dp.planning.job import Job, Option, Planner, PlanningJob, SparsePlanningJob
from beam_dp.planning.synthetic_databases import discovering_planners, synthetic_planners
from beam_dp.privacy.guarantee import MAX_EPSILON

# Only epsilons with four significant digits are tried: the printed epsilon is the planned one.
# This is the number of steps from a power of ten to the next.
_STEPS = 9000
_FIRST_DECADE = -6
_LAST = 12 * _STEPS  # the step of epsilon 1e6
# The number of steps that assume an error proportional to 1 / epsilon; later steps use bisection.
_GUESSES = 8

OptionT = TypeVar("OptionT")


@dataclasses.dataclass(frozen=True)
class Ranking:
    """The options for a job, best first.

    ``error_of_nothing``: for sparse queries, the error of always answering 0; a mechanism with a
    larger expected error is not worth its budget.
    """

    job: Job
    options: tuple[Option, ...]  # one per mechanism and calibration, sorted by ``Option.rank``
    error_of_nothing: float | None = None

    @property
    def best(self) -> Option | None:
        """The first feasible option that a program can run; None if there is no such option."""
        return next((each for each in self.options if each.is_feasible and each.program), None)

    def to_json(self) -> dict[str, Any]:
        """Returns the ranking as JSON values."""
        fields = self.job.to_json()
        if self.error_of_nothing is not None:
            fields["error_of_nothing"] = self.error_of_nothing
        return {**fields, "options": [option.to_json() for option in self.options]}


def rank_mechanisms(job: PlanningJob) -> Ranking:
    """Returns an option per mechanism and calibration for a job, best first.

    Reads no data and spends no budget: the ranking follows from the job, which must be public.
    Options are sorted by expected error. If the expected error depends on the data, the bound on
    the largest error is used instead, so the mechanism may do better than its rank.

    Cost: seconds; the time grows with the number of marginals in the workload, or with cells times
    queries, up to the limit of 2^22 for small databases.

    Example:
        >>> from beam_dp.domain.files import read_domain
        >>> from beam_dp.privacy.guarantee import Guarantee
        >>> from beam_dp.queries.workload import marginals
        >>> domain = read_domain('{"age": 8, "sex": 2}')
        >>> promise = Guarantee(1.0, 0, "replace_one", "record", 1)
        >>> ranking = rank_mechanisms(PlanningJob(marginals(domain, ways=2), promise, 10_000, True))
        >>> ranking.best.mechanism, round(ranking.best.expected_error, 2)
        ('mwem', 2.71)
    """
    check_is("job", job, PlanningJob)
    return Ranking(job, _ranked(planners_of(job), job))


def rank_discovering_mechanisms(job: PlanningJob, domain: OpenDomain) -> Ranking:
    """Returns an option per mechanism that can follow the discovery of a domain, best first.

    ``job``: for the largest domain that may be found; its guarantee covers the discovery, too.
    """
    return Ranking(job, _ranked(discovering_planners(domain), job))


def rank_sparse_mechanisms(job: SparsePlanningJob) -> Ranking:
    """Returns an option per mechanism for sparse queries, best first.

    Reads no data and spends no budget: the ranking follows from the job, which must be public. The
    errors of releases come from ``plan_sparse_release``. Without a ledger,
    ``release_projection --mechanism auto`` chooses the best option of this ranking.

    Example:
        >>> from beam_dp.mechanisms.sketches.errors import KeyProfile
        >>> from beam_dp.privacy.guarantee import Guarantee
        >>> promise = Guarantee(1.0, 0, "add_or_remove_one", "record", 1)
        >>> job = SparsePlanningJob(promise, KeyProfile(10**6, 10**6, 1), 256, max_size=2**16)
        >>> ranking = rank_sparse_mechanisms(job)
        >>> ranking.best.mechanism, round(ranking.best.expected_error)
        ('count_sketch', 66)
    """
    check_is("job", job, SparsePlanningJob)
    return Ranking(
        job,
        _ranked(planners_of(job), job),
        sketches.error_of_nothing(job.profile, job.max_sparsity),
    )


def _ranked(planners: Iterable[Planner], job: Job) -> tuple[Option, ...]:
    options = [planner.plan(job) for planner in planners]
    return tuple(sorted(options, key=lambda option: option.rank))


def planners_of(job: Job) -> list[Planner]:
    """Returns how a job of this type is planned, per mechanism and calibration."""
    if isinstance(job, SparsePlanningJob):
        return [*sketches.PLANNERS, answers.SPARSE_PLANNER]
    return [
        *synthetic_planners("tight"),
        *synthetic_planners("textbook"),
        textbook.PLANNER,
        *answers.PLANNERS,
        intervals.PLANNER,
    ]


@dataclasses.dataclass(frozen=True)
class Least(Generic[OptionT]):
    """The least epsilon with which a mechanism meets an error target."""

    epsilon: float | None  # four significant digits; None if even 1e6 is not enough
    option: OptionT  # at this epsilon, or else the one with the least error
    error: float

    @property
    def rank(self) -> tuple[float, float]:
        """The sort key: the epsilon, then the error."""
        return math.inf if self.epsilon is None else self.epsilon, self.error


def least_epsilon(
    plan: Callable[[float], OptionT], error_of: Callable[[OptionT], float], error: float
) -> Least[OptionT]:
    """Returns the least epsilon with four significant digits that meets an error target.

    The returned option was planned with exactly this epsilon and meets the target; the option with
    the next smaller epsilon was planned, too, and misses the target. If the error never grows with
    epsilon, no smaller epsilon meets the target. ``error_of`` returns infinity for an option that
    is refused or whose error is unknown.
    """
    planned = functools.cache(lambda step: plan(_epsilon(step)))

    def reaches(step: int) -> bool:
        return error_of(planned(step)) <= error

    # The search tries powers of ten, starting from 1, and then searches within one decade.
    step = -_FIRST_DECADE * _STEPS
    seen = [step]
    if reaches(step):
        while step > 0 and reaches(step - _STEPS):
            step -= _STEPS
        low, high = step - _STEPS, step
    else:
        while step < _LAST and not reaches(step):
            step += _STEPS
            seen.append(step)
        low, high = step - _STEPS, step
    if not reaches(high):
        best = min(seen, key=lambda epsilon: error_of(planned(epsilon)))
        return Least(None, planned(best), error_of(planned(best)))
    guess, guesses = high, 0
    while high - low > 1 and high > 0:
        step = min(max(guess, low + 1), high - 1) if guesses < _GUESSES else (low + high) // 2
        low, high = (low, step) if reaches(step) else (step, high)
        guess, guesses = _guess(step, error_of(planned(step)) / error), guesses + 1
    return Least(_epsilon(high), planned(high), error_of(planned(high)))


def _epsilon(step: int) -> float:
    """Returns the epsilon of a step, as the double nearest to a number with four digits."""
    decade, digits = divmod(step, _STEPS)
    return float(f"{1000 + digits}e{decade + _FIRST_DECADE - 3}")


def _guess(step: int, ratio: float) -> int:
    """Returns the step at which an error that decays like 1 / epsilon has shrunk by ``ratio``."""
    wanted = _epsilon(step) * min(max(ratio, 1e-3), 1e3)
    decade = math.floor(math.log10(wanted))
    digits = math.ceil(wanted / 10.0 ** (decade - 3) - 1e-9) - 1000
    return (decade - _FIRST_DECADE) * _STEPS + digits


@dataclasses.dataclass(frozen=True)
class Target:
    """The largest acceptable error, in records, finite and > 0.

    With ``of_bound`` the target limits the bound on the errors of all answers together, which fails
    with the job's failure probability. Otherwise the target limits the root mean squared error of
    an answer, averaged over the workload.
    """

    error: float
    of_bound: bool = False

    def __post_init__(self) -> None:
        checked_number(self.name, self.error, above=0)

    @property
    def name(self) -> str:
        """The name of the flag for this kind of target, without dashes."""
        return "target_bound" if self.of_bound else "target_error"

    def error_of(self, option: Option) -> float:
        """Returns the error of an option; infinite if it depends on the data."""
        if not self.of_bound:
            return math.inf if option.expected_error is None else option.expected_error
        is_known = option.bound is not None and not option.bound.vacuous
        return option.bound.max_error if option.bound and is_known else math.inf


@dataclasses.dataclass(frozen=True)
class TargetRanking:
    """Mechanisms that meet an error target, least epsilon first; those in ``beyond`` miss it."""

    job: Job
    target: Target
    reached: tuple[Least[Option], ...]
    beyond: tuple[Least[Option], ...]
    refused: tuple[Option, ...]

    @property
    def best(self) -> Least[Option]:
        """The first mechanism that a program can run, or else the first mechanism."""
        return next((least for least in self.reached if least.option.program), self.reached[0])

    def to_json(self) -> dict[str, Any]:
        """Returns the ranking as JSON values, without the job's epsilon."""
        guarantee = self.job.guarantee.to_json()
        del guarantee["epsilon"]
        return {
            self.target.name: self.target.error,
            "guarantee": guarantee,
            "failure_probability": self.job.failure_probability,
            "options": [
                {"epsilon": least.epsilon, **least.option.to_json()} for least in self.reached
            ],
            "not_reached": [least.option.to_json() for least in self.beyond],
            "refused": [option.to_json() for option in self.refused],
        }


def rank_for_target(job: Job, target: Target) -> TargetRanking:
    """Returns, per mechanism, the least epsilon that meets an error target. Reads no data.

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
    ranked = sorted(
        (
            least_epsilon(
                lambda epsilon, planner=planner: planner.plan(_with_epsilon(job, epsilon)),  # type: ignore[misc]
                target.error_of,
                target.error,
            )
            for planner in planners_of(job)
        ),
        key=lambda least: least.rank,
    )
    reached = [least for least in ranked if least.epsilon is not None]
    if not reached:
        raise out_of_reach(target, ranked[0].error)
    beyond = [least for least in ranked[len(reached) :] if math.isfinite(least.error)]
    unknown = [_unknown(least.option, target) for least in ranked[len(reached) + len(beyond) :]]
    return TargetRanking(job, target, tuple(reached), tuple(beyond), tuple(unknown))


def out_of_reach(target: Target, floor: float) -> InputError:
    """Returns the refusal of an error target that no mechanism meets.

    ``floor``: the least error of all mechanisms; infinite if no error is known in advance.
    """
    if not math.isfinite(floor):
        what = "bound is proved" if target.of_bound else "error is known in advance"
        return InputError(target.name, target.error, f"cannot be reached: no {what} for this job")
    least = f"{floor * (1 + 1e-3):.4g}"
    why = f"the least error that was found, with epsilon up to {MAX_EPSILON:,.0f}"
    condition = f"must be at least {least} records: {why}"
    return InputError(target.name, target.error, condition)


def _unknown(option: Option, target: Target) -> Option:
    """Turns an option without a finite error into a refused option."""
    if option.refusal is not None:
        return option
    refusal = "no bound below the number of records is proved for it"
    if not target.of_bound:
        refusal = "its expected error depends on the data"
    return dataclasses.replace(option, refusal=refusal)


def _with_epsilon(job: Any, epsilon: float) -> Any:
    """Returns the same job with another epsilon."""
    return dataclasses.replace(job, guarantee=job.guarantee.with_limits(epsilon=epsilon))
