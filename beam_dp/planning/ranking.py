"""The ranking of all mechanisms for one job, best first."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

from beam_dp.checks import check_is
from beam_dp.mechanisms.registry import SYNTHETIC
from beam_dp.planning.intervals import intervals_option
from beam_dp.planning.job import Option, PlanningJob
from beam_dp.planning.linear_answers import answers_option, private_mw_option, small_db_option
from beam_dp.planning.synthetic_databases import synthetic_option
from beam_dp.theorems.theorem import Calibration


@dataclasses.dataclass(frozen=True)
class Ranking:
    """What every mechanism would make of a job, best first.

    Args:
        job: what was asked.
        options: one a mechanism and calibration, sorted by ``Option.rank``.
    """

    job: PlanningJob
    options: tuple[Option, ...]

    @property
    def best(self) -> Option | None:
        """The first option that a program runs and that can do the job; None where none can."""
        return next((each for each in self.options if each.is_feasible and each.program), None)

    def to_json(self) -> dict[str, Any]:
        """Returns the ranking as JSON values."""
        job = self.job
        return {
            "guarantee": job.guarantee.to_json(),
            "num_records": job.num_records,
            "num_records_is_public": job.num_records_is_public,
            "num_cells": job.domain.num_cells,
            "num_queries": job.num_queries,
            "failure_probability": job.failure_probability,
            "max_error_fraction": job.max_error_fraction,
            "options": [option.to_json() for option in self.options],
        }


def rank_mechanisms(job: PlanningJob) -> Ranking:
    """Returns what every mechanism would make of a job, best first.

    Reads no data and spends nothing: everything follows from the job, which must be public.
    Options are sorted by their expected error, or, where that depends on the data, by the bound
    of their largest error, which is never less. A mechanism that only has a bound may do better.

    Args:
        job: the workload, the promise and the number of records.

    Cost: seconds; grows with the marginals of a workload, or with cells times queries, of which
    small databases look at 2^22 at most.

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
    options = [make(job) for make in option_makers()]
    return Ranking(job, tuple(sorted(options, key=lambda option: option.rank)))


def option_makers() -> list[Callable[[PlanningJob], Option]]:
    """Returns what makes the option of each mechanism and calibration for a job."""
    measuring = [each for each in SYNTHETIC.values() if not each.answers_linear_queries]
    calibrations: tuple[Calibration, ...] = ("tight", "textbook")
    return [
        *(
            partial(synthetic_option, mechanism=each, calibration=name)
            for name in calibrations
            for each in measuring
        ),
        small_db_option,
        private_mw_option,
        partial(private_mw_option, calibration="textbook"),
        partial(answers_option, distribution="discrete_laplace"),
        partial(answers_option, distribution="discrete_gaussian"),
        intervals_option,
    ]
