"""Answers with error bars, and the error bars of ratios."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

ErrorKind = Literal["exact", "approximate", "model_based"]
_KINDS: tuple[ErrorKind | None, ...] = get_args(ErrorKind)  # the surest first

# A number of records below this many standard errors may be 0.
_LEAST_DEVIATIONS = 4.0


@dataclass(frozen=True)
class Estimate:
    """An answer with its error bar.

    ``standard_error``: in the same unit; None if none can be stated honestly.
    ``margin``: in 95 % of cases, the truth is within this distance; None like the standard
    error.
    ``kind``: of the error. ``exact``: it follows from the noise alone, for all data;
    ``approximate``: predicted, for attributes that were measured together, or for a ratio, to
    first order; ``model_based``: predicted, for interactions that were not measured.
    ``reason``: why there is no error bar; empty if there is one.
    ``bound``: proved. The errors of all answers to one request, or of all that the release was
    made for, are within theirs, except with ``failure_probability``; None without a proof.
    ``failure_probability``: of the bound, in (0, 1).
    """

    value: float
    standard_error: float | None = None
    margin: float | None = None
    kind: ErrorKind | None = None
    reason: str = ""
    bound: float | None = None
    failure_probability: float | None = None

    def scaled(self, factor: float) -> Estimate:
        """Returns the estimate in another unit."""
        errors = (self.standard_error, self.margin, self.bound)
        error, margin, bound = (None if each is None else each * abs(factor) for each in errors)
        value = self.value * factor
        return replace(self, value=value, standard_error=error, margin=margin, bound=bound)


@dataclass(frozen=True, eq=False)
class MarginalAnswer:
    """One marginal, answered from a release.

    ``attributes``: names, in domain order: the axes of ``values``.
    ``values``: expected number of records in each cell, float64; they sum to ``num_records``.
    ``standard_error``: of one cell, in records; None where the release states none.
    ``bound``: no cell's error exceeds it, except with ``failure_probability``; in records.
    """

    attributes: tuple[str, ...]
    values: NDArray[np.float64]
    standard_error: float | None = None
    bound: float | None = None
    failure_probability: float | None = None


@dataclass(frozen=True)
class Ratio:
    """A sum over a number of records, both estimated in one way; None if either is not."""

    total: Estimate | None
    number: Estimate | None

    @property
    def value(self) -> float:
        """The quotient; 0 if there is none."""
        if self.total is None or self.number is None or not self.number.value > 0:
            return 0.0
        return self.total.value / self.number.value

    def with_error(self, moved: Estimate | None) -> Estimate | None:
        """Returns the quotient; its error is that of ``moved``, divided by the number.

        That is the error to first order, at the estimated number and quotient: exact only if the
        number is known, or without any error.
        """
        number = self.number
        if moved is None or number is None:
            return None
        if not number.value > 0:
            return Estimate(math.nan, reason="no records")
        if moved.standard_error is None or number.standard_error is None:
            return Estimate(self.value, reason=moved.reason or number.reason)
        if number.value < _LEAST_DEVIATIONS * number.standard_error:
            return Estimate(self.value, reason="too few records for their noise")
        found = moved.scaled(1 / number.value)
        found = replace(found, value=self.value, bound=None, failure_probability=None)
        if found.kind == "exact" and number.standard_error > 0 and moved.standard_error > 0:
            return replace(found, kind="approximate")
        return found


def weakest_kind(answers: Iterable[Estimate]) -> ErrorKind | None:
    """Returns the kind of an error that follows from several; None if one of them has no error."""
    kinds = {each.kind for each in answers}
    return None if None in kinds else max(kinds, key=_KINDS.index)
