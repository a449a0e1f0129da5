"""Ranks all mechanisms for one job, best first."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from beam_dp.checks import check_is
from beam_dp.domain.discover import OpenDomain
from beam_dp.planning import answers, intervals, sketches, textbook
from beam_dp.planning.job import Job, Option, Planner, PlanningJob, SparsePlanningJob
from beam_dp.planning.synthetic_databases import discovering_planners, synthetic_planners


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
