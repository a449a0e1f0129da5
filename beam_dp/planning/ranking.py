"""The ranking of all mechanisms for one job, best first."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

from beam_dp.checks import check_is
from beam_dp.mechanisms.registry import SYNTHETIC
from beam_dp.planning import linear_answers
from beam_dp.planning.job import Option, PlanningJob, SparsePlanningJob
from beam_dp.planning.sketches import SPARSE_OPTIONS, error_of_nothing
from beam_dp.planning.synthetic_databases import synthetic_option
from beam_dp.theorems.theorem import Calibration


@dataclasses.dataclass(frozen=True)
class Ranking:
    """The options for a job, best first.

    ``options``: one for each mechanism and calibration, sorted by ``Option.rank``.
    ``error_of_nothing``: for sparse queries, the error of answering 0: a mechanism with a
    larger expected error is not worth its budget.
    """

    job: PlanningJob | SparsePlanningJob
    options: tuple[Option, ...]
    error_of_nothing: float | None = None

    @property
    def best(self) -> Option | None:
        """The first feasible option that a program runs; None if there is none."""
        return next((each for each in self.options if each.is_feasible and each.program), None)

    def to_json(self) -> dict[str, Any]:
        """Returns the ranking as JSON values."""
        found = self.job.to_json()
        if self.error_of_nothing is not None:
            found["error_of_nothing"] = self.error_of_nothing
        return {**found, "options": [option.to_json() for option in self.options]}


def rank_mechanisms(job: PlanningJob) -> Ranking:
    """Returns an option of every mechanism for a job, best first.

    Reads no data and spends nothing: everything follows from the job, which must be public.
    Options are sorted by their expected error, or, where that depends on the data, by the bound
    on their largest error, which is never less. A mechanism that only has a bound may do better.

    Cost: seconds; grows with the marginals of a workload, or with cells times queries, of which
    small databases use 2^22 at most.

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
    return Ranking(job, _ranked(job))


def rank_sparse_mechanisms(job: SparsePlanningJob) -> Ranking:
    """Returns an option of every mechanism for sparse queries, best first.

    Reads no data and spends nothing: everything follows from the job, which must be public.
    Errors of releases are those of ``plan_sparse_release``. Without a ledger
    ``release_projection --mechanism auto`` chooses the same.

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
    return Ranking(job, _ranked(job), error_of_nothing(job.profile, job.max_sparsity))


def _ranked(job: PlanningJob | SparsePlanningJob) -> tuple[Option, ...]:
    options = [make(job) for make in option_makers(job)]
    return tuple(sorted(options, key=lambda option: option.rank))


def option_makers(job: PlanningJob | SparsePlanningJob) -> list[Callable[[Any], Option]]:
    """Returns the functions that plan a job like this one: one a mechanism and calibration."""
    if isinstance(job, SparsePlanningJob):
        return [*SPARSE_OPTIONS]
    measuring = [each for each in SYNTHETIC.values() if not each.answers_linear_queries]
    calibrations: tuple[Calibration, ...] = ("tight", "textbook")
    return [
        *(
            partial(synthetic_option, mechanism=each, calibration=name)
            for name in calibrations
            for each in measuring
        ),
        linear_answers.small_db_option,
        linear_answers.private_mw_option,
        partial(linear_answers.private_mw_option, calibration="textbook"),
        partial(linear_answers.answers_option, distribution="discrete_laplace"),
        partial(linear_answers.answers_option, distribution="discrete_gaussian"),
        linear_answers.intervals_option,
    ]
