"""The number of queries that each mechanism can answer within a target error."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, get_args

from beam_dp.errors import InputError
from beam_dp.planning import answers, textbook
from beam_dp.planning.job import AllowedQueries, QueryCountJob
from beam_dp.planning.theorems.theorem import MAX_EXACT, Calibration

_CALIBRATIONS: tuple[Calibration, ...] = get_args(Calibration)


@dataclasses.dataclass(frozen=True)
class QueryCount:
    """The number of queries that a theorem allows; 0, with the reason, if there is no plan."""

    mechanism: str
    calibration: Calibration
    num_queries: int = 0
    theorem: str = ""
    assumes: str = ""
    refusal: str | None = None

    @property
    def note(self) -> str:
        """The theorem and its assumptions."""
        return f"{self.theorem}; {self.assumes}"

    def to_json(self) -> dict[str, Any]:
        """Returns the count as JSON values; beyond 10^15 only the logarithm is given."""
        count = self.num_queries
        return {
            **dataclasses.asdict(self),
            "num_queries": count if count < MAX_EXACT else None,
            "log10_num_queries": math.log10(count) if count else None,
        }


# For each mechanism, the number of queries that its theorem allows.
_COUNTS: dict[str, Callable[[QueryCountJob, Calibration], AllowedQueries]] = {
    "small_db": textbook.small_db_queries,
    "mwem": textbook.mwem_queries,
    "private_mw": answers.private_mw_queries,
    "sparse_mw": answers.sparse_mw_queries,
}


def count_queries(job: QueryCountJob) -> list[QueryCount]:
    """Returns the number of queries that each mechanism can answer, the largest number first.

    A mechanism may answer more queries than its theorem guarantees. For a small database the number
    may be larger than a machine can handle, because the draw is slow.
    """
    found = [
        _counted(job, name, calibration, count)
        for name, count in _COUNTS.items()
        for calibration in _CALIBRATIONS
        if (name, calibration) != ("mwem", "tight")  # there is no theorem for tight MWEM
    ]
    return sorted(found, key=lambda each: (each.refusal is not None, -each.num_queries))


def _counted(
    job: QueryCountJob,
    name: str,
    calibration: Calibration,
    count: Callable[[QueryCountJob, Calibration], AllowedQueries],
) -> QueryCount:
    try:
        number, theorem, assumes = count(job, calibration)
    except InputError as error:
        is_missing = error.value is None
        refusal = f"{error.name} {error.condition}" if is_missing else str(error)
        return QueryCount(name, calibration, refusal=refusal)
    return QueryCount(name, calibration, number, theorem.name, assumes)
