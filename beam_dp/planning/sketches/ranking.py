"""The ranking of mechanisms for sparse queries, best first."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

from beam_dp.checks import check_is
from beam_dp.errors import InputError, magnitude
from beam_dp.flags.options import texts_of
from beam_dp.mechanisms.online.sparse_mw import plan_sparse_mw
from beam_dp.mechanisms.registry import SKETCHES
from beam_dp.mechanisms.sketches.plan import SparseMechanism
from beam_dp.planning.sketches.choices import error_of_nothing, plan_sparse_release
from beam_dp.planning.sketches.job import SparseOption, SparsePlanningJob
from beam_dp.theorems.sparse import projection_theorem
from beam_dp.theorems.synthesis import online_theorem

PROGRAM, ONLINE_PROGRAM = "release_projection", "answer_queries"
HISTOGRAM_NOTE = "names the keys that have enough records; private except with probability delta"
BOUND_NOTE = "bound: of noise and hashing, number of queries that do not know the hash key: {}"
ONLINE_NOTE = "answers one query at a time; all answers together are within the bound"
# What each named form of a release is, in the order of docs/sparse_queries.md.
_NAMES = (
    "count_sketch, laplace",
    "count_sketch, gaussian",
    "sparse_project",
    "stability_histogram",
    "hybrid",
)


@dataclasses.dataclass(frozen=True)
class SparseRanking:
    """What every mechanism would make of sparse queries, best first.

    Args:
        job: what was asked.
        options: one a mechanism, with its best parameters, sorted by ``Option.rank``.
        error_of_nothing: of the answer 0 to every query of m keys: nothing with a larger expected
            error is worth its budget.
    """

    job: SparsePlanningJob
    options: tuple[SparseOption, ...]
    error_of_nothing: float

    @property
    def best(self) -> SparseOption | None:
        """The first option that can do the job; None where none can."""
        return next((each for each in self.options if each.is_feasible), None)

    def to_json(self) -> dict[str, Any]:
        """Returns the ranking as JSON values."""
        return {
            **self.job.to_json(),
            "error_of_nothing": self.error_of_nothing,
            "options": [option.to_json() for option in self.options],
        }


def rank_sparse_mechanisms(job: SparsePlanningJob) -> SparseRanking:
    """Returns what every mechanism would make of sparse queries, best first.

    Reads no data and spends nothing: everything follows from the job, which must be public.
    Errors of releases are those of ``plan_sparse_release``, as of ``release_projection --mechanism
    auto``, which without a ledger chooses the same.

    Args:
        job: the promise, the profile of the keys, and what is asked.

    Raises:
        InputError: naming the argument that is refused.

    Cost: seconds.

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
    options = [make(job) for make in sparse_option_makers()]
    return SparseRanking(
        job,
        tuple(sorted(options, key=lambda option: option.rank)),
        error_of_nothing(job.profile, job.max_sparsity),
    )


def sparse_option_makers() -> list[Callable[[SparsePlanningJob], SparseOption]]:
    """Returns what makes the option of each mechanism, with its best parameters, for a job."""
    return [*(partial(_release_option, name=name) for name in _NAMES), _sparse_mw_option]


def release_parameters(mechanism: SparseMechanism) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Returns the name of a mechanism in ``release_projection``, and the flags that make it."""
    name = next(each for each, made in SKETCHES.items() if isinstance(mechanism, made))
    return name, tuple(texts_of(mechanism).items())


def _name(mechanism: SparseMechanism) -> str:
    name, parameters = release_parameters(mechanism)
    return ", ".join([name, *(value for flag, value in parameters if flag == "noise")])


def _release_option(job: SparsePlanningJob, name: str) -> SparseOption:
    choices = plan_sparse_release(
        job.guarantee,
        job.profile,
        max_sparsity=job.max_sparsity,
        max_size=job.max_size,
        is_wanted=lambda mechanism: _name(mechanism) == name,
    )
    if not choices:
        return _refused(name, job)
    choice = choices[0]
    mechanism, parameters = release_parameters(choice.mechanism)
    note = HISTOGRAM_NOTE if choice.has_histogram else ""
    theorem = projection_theorem(
        choice.mechanism.plan(job.guarantee, max_sparsity=job.max_sparsity),
        job.profile.largest_count,
        job.num_bounded,
        job.failure_probability,
    )
    if theorem is not None:
        note = BOUND_NOTE.format(magnitude(job.num_bounded))
    return SparseOption(
        mechanism,
        "tight",
        PROGRAM,
        expected_error=choice.error,
        bound=None if theorem is None else theorem.bound(job.profile.num_records),
        parameters=parameters,
        note=note,
        error_of_one=choice.error_of_one,
        size=choice.size,
        is_pure=choice.is_pure,
    )


def _refused(name: str, job: SparsePlanningJob) -> SparseOption:
    mechanism, _, noise = name.partition(", ")
    if job.guarantee.delta == 0:
        reason = "it needs a delta above 0"
    else:
        reason = f"the keys that it should hold do not fit {magnitude(job.max_size)} numbers"
    parameters = (("noise", noise),) if noise else ()
    return SparseOption(mechanism, "tight", PROGRAM, reason, parameters=parameters)


def _sparse_mw_option(job: SparsePlanningJob) -> SparseOption:
    name = "sparse_mw"
    if job.num_questions is None:
        reason = "--num_questions must be given: how many queries bounds are stated for"
        return SparseOption(name, "tight", ONLINE_PROGRAM, reason)
    number = job.profile.num_records
    try:
        plan = plan_sparse_mw(
            job.guarantee,
            job.given_num_records,
            max_sparsity=job.max_sparsity,
            num_questions=job.num_questions,
            failure_probability=job.failure_probability,
        )
        settings = plan.settle(number)
    except InputError as error:
        return SparseOption(name, "tight", ONLINE_PROGRAM, str(error))
    return SparseOption(
        name,
        "tight",
        ONLINE_PROGRAM,
        measured_error=settings.noise.answer_deviation,
        bound=online_theorem(plan).bound(number),
        parameters=(("num_questions", str(job.num_questions)),),
        note=ONLINE_NOTE,
        is_pure=plan.loss.kind == "pure",
    )
