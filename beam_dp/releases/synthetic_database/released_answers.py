"""What releases of tables answer: whole marginals, and linear queries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from beam_dp.releases.error_bars import ErrorKind, Estimate


@dataclass(frozen=True, eq=False)
class MarginalAnswer:
    """One marginal, answered from a release.

    Args:
        attributes: names, in domain order: the axes of ``values``.
        values: expected number of records in each cell, float64; they sum to ``num_records``.
        standard_error: of one cell, in records; None where the release states none.
        bound: no cell's error exceeds it, except with ``failure_probability``; in records.
        failure_probability: in (0, 1).
    """

    attributes: tuple[str, ...]
    values: NDArray[np.float64]
    standard_error: float | None = None
    bound: float | None = None
    failure_probability: float | None = None


@dataclass(frozen=True)
class QueryAnswer:
    """One linear query, answered from a release.

    Args:
        value: in records.
        bound: the errors of all queries that were asked, or that the release was made for, together
            do not exceed it, except with ``failure_probability``; in records. None where no bound
            is proved.
        failure_probability: in (0, 1).
        standard_error: in records; None where none can be stated honestly.
        margin: the answer is within so many records of the truth in 95 % of cases; None as above.
        kind: of the error: see ``error_bars.Estimate``.
        reason: why there is no standard error; empty where there is one.
    """

    value: float
    bound: float | None = None
    failure_probability: float | None = None
    standard_error: float | None = None
    margin: float | None = None
    kind: ErrorKind | None = None
    reason: str = ""

    @classmethod
    def of(
        cls, answer: Estimate, bound: float | None, failure_probability: float | None
    ) -> QueryAnswer:
        """Returns an estimate with a bound, where one is proved."""
        errors = answer.standard_error, answer.margin, answer.kind, answer.reason
        return cls(answer.value, bound, failure_probability, *errors)
