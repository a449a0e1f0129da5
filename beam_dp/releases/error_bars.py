"""Answers with error bars, and the error bars of ratios."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

ErrorKind = Literal["from the noise alone", "approximate", "model_based"]
FROM_NOISE: ErrorKind = "from the noise alone"
_KINDS: tuple[ErrorKind | None, ...] = get_args(ErrorKind)  # the most certain kind first

# The number of standard errors that covers 95 % of the errors: 2.12 for one Laplace noise, and less
# for the sum of many noises. Errors that a model predicts have longer tails than a normal
# distribution.
DEVIATIONS = {"discrete_gaussian": 1.96, "discrete_laplace": 2.12, "fitted": 2.0}
# If a number of records is below this many standard errors, the true number may be 0.
_LEAST_DEVIATIONS = 4.0


@dataclass(frozen=True)
class Estimate:
    """An answer with its error bar.

    ``standard_error``: the standard error in the unit of the value; None if it is unknown.
    ``margin``: in 95 % of cases, the truth is within this distance of the value; None if there is
    no standard error.
    ``kind``: the kind of the error. ``from the noise alone``: it holds for all data.
    ``approximate``: the error is predicted, for attributes that were measured together, or computed
    to first order, for a ratio. ``model_based``: the error is predicted, for interactions that were
    not measured.
    ``reason``: the reason why there is no error bar; empty if there is an error bar.
    ``bound``: a proved bound on the error; None without a proof. Except with
    ``failure_probability``, all answers to one request, or all answers that the release was made
    for, are within their bounds.
    ``failure_probability``: the probability that the bounds fail, in (0, 1).
    """

    value: float
    standard_error: float | None = None
    margin: float | None = None
    kind: ErrorKind | None = None
    reason: str = ""
    bound: float | None = None
    failure_probability: float | None = None

    def scaled(self, factor: float) -> Estimate:
        """Returns the estimate and its errors, multiplied by a factor to change the unit."""
        errors = (self.standard_error, self.margin, self.bound)
        error, margin, bound = (None if size is None else size * abs(factor) for size in errors)
        value = self.value * factor
        return replace(self, value=value, standard_error=error, margin=margin, bound=bound)


@dataclass(frozen=True, eq=False)
class MarginalAnswer:
    """The answer of a release to one marginal.

    ``attributes``: the names of the axes of ``values``, in domain order.
    ``values``: the expected number of records in each cell, float64; the sum is ``num_records``.
    ``standard_error``: the standard error of one cell, in records; None if it is not stated.
    ``bound``: a bound on the error of every cell, except with ``failure_probability``, in records.
    """

    attributes: tuple[str, ...]
    values: NDArray[np.float64]
    standard_error: float | None = None
    bound: float | None = None
    failure_probability: float | None = None


@dataclass(frozen=True)
class Ratio:
    """An estimated sum and an estimated number of records; either is None if it is unknown."""

    total: Estimate | None
    number: Estimate | None

    @property
    def value(self) -> float:
        """The quotient; 0 if there are no records."""
        if self.total is None or self.number is None or not self.number.value > 0:
            return 0.0
        return self.total.value / self.number.value

    def with_error(self, moved: Estimate | None) -> Estimate | None:
        """Returns the quotient; its error is that of the sum ``moved``, over the number of records.

        The error is computed to first order, at the estimated number and quotient. It follows from
        the noise alone only if the number is known, or if neither it nor the sum has an error.
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
        ratio = moved.scaled(1 / number.value)
        ratio = replace(ratio, value=self.value, bound=None, failure_probability=None)
        has_errors = number.standard_error > 0 and moved.standard_error > 0
        if ratio.kind == FROM_NOISE and has_errors:
            return replace(ratio, kind="approximate")
        return ratio


def weakest_kind(answers: Iterable[Estimate]) -> ErrorKind | None:
    """Returns the least certain kind among the answers; None if an answer has no kind."""
    kinds = {answer.kind for answer in answers}
    return None if None in kinds else max(kinds, key=_KINDS.index)
