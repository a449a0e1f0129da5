"""Released interval counts: every interval, prefix and quantile of one attribute."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_dp.checks import check_is, checked_number
from beam_dp.domain.attributes import Attribute
from beam_dp.domain.ordered import OrderedAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.models.intervals.strategy import (
    MAX_LEAVES,
    Indices,
    Nodes,
    Prefixes,
    Strategy,
    Values,
)
from beam_dp.models.rounding import nearest_increasing
from beam_dp.privacy.noise.bound import FAILURE_PROBABILITY, noise_bound
from beam_dp.queries.reader import LinearQueries
from beam_dp.releases.release import LeftOut, Release, library_versions, plain_json


@dataclasses.dataclass(frozen=True, eq=False)
class IntervalAnswers:
    """Estimated counts of intervals.

    ``values``: the number of records in each interval, float64, unbiased.
    ``failure_probability``: the probability that one bound fails or, with ``all_at_once``, that any
    bound of the release fails.
    """

    values: Values
    standard_errors: Values
    bounds: Values
    failure_probability: float


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class IntervalRelease(Release):
    """Public counts of all intervals of one ordered attribute.

    The counts of adjacent intervals add up to the count of their union, except with the textbook
    tree. The values "other" and null have no place in the order: no interval counts their records.

    Args:
        attribute: the attribute; its integers or its bins are the cells, in ascending order.
        guarantee: the privacy guarantee for the people in the data.
        choice: the names of the strategy and of the noise.
        scale: the scale of the noise of each measurement, in grid units.
        grid: the number of grid units in one unit of the strategy.
        noise_variance: the variance of the noise of each measurement, in squared grid units.
        mean_squared_error: the mean squared error over all intervals, in squared records.
        strategy: the measured matrix, in integers.
        estimate: the estimated counts.
        draw_id: the id of this draw of noise.
        plan: other public parameters, such as the entry of a ledger.
        versions: the versions of the libraries that made the release.
        left_out: noisy counts of the records outside the attribute, if the budget covers these
            counts.
    """

    KIND: ClassVar[str] = "intervals"

    attribute: Attribute
    choice: tuple[str, str]
    scale: float
    grid: int
    noise_variance: float
    mean_squared_error: float
    strategy: Strategy
    estimate: Prefixes | Nodes
    plan: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    versions: Mapping[str, str] = dataclasses.field(default_factory=library_versions)
    left_out: LeftOut | None = None

    def __repr__(self) -> str:
        return (
            f"IntervalRelease(attribute={self.attribute.name!r}, num_leaves={self.num_leaves},"
            f" choice={self.choice!r}, draw_id={self.draw_id!r})"
        )

    @property
    def num_leaves(self) -> int:
        """The number of cells, d."""
        return self.strategy.num_leaves

    @cached_property
    def card(self) -> dict[str, Any]:
        """The content of the card, as JSON values."""
        return {
            "mechanism": self.choice[0],
            "guarantee": self.guarantee.to_json(),
            "attribute": self.attribute.to_json(),
            "parameters": plain_json(self.plan),
            "noise": {
                "distribution": self.choice[1],
                "scale": self.scale,
                "grid": self.grid,
                "variance": self.noise_variance,
            },
            "errors": {
                "intervals": self.num_leaves * (self.num_leaves + 1) // 2,
                "mean_squared_error": self.mean_squared_error,
                "root_mean_squared_error": math.sqrt(self.mean_squared_error),
            },
            **({} if self.left_out is None else {"left_out": self.left_out.to_json()}),
            "versions": dict(self.versions),
        }

    @property
    def mechanism(self) -> str:
        """The name of the strategy."""
        return self.choice[0]

    @property
    def noise(self) -> list[dict[str, Any]]:
        """The noise of each measurement; its standard deviation is in units of the strategy."""
        entry = {
            "measured": self.choice[0],
            "distribution": self.choice[1],
            "scale": self.scale,
            "grid": self.grid,
            "standard_deviation": math.sqrt(self.noise_variance) / self.grid,
        }
        return [entry]

    @property
    def records_domain(self) -> Domain:
        """The domain of the attribute."""
        return Domain((self.attribute,))

    def noisy_number(self) -> tuple[float, float]:
        """Returns the noisy count of the records in all cells, and its standard error."""
        everything = self.answer(0, self.num_leaves - 1)
        return float(everything.values), float(everything.standard_errors)

    def not_counted(self) -> str:
        """Returns a note that intervals leave out "other" and null; empty without such values."""
        has_others = self.attribute.size > self.num_leaves
        return "counted in no interval: other or null" if has_others else ""

    def cells(self, low: Any, high: Any) -> tuple[int, int]:
        """Returns the first and the last cell of an interval of the attribute's own values.

        Args:
            low: the first integer or, for bins, the lower edge of the first bin.
            high: the last integer (inclusive) or, for bins, the upper edge of the last bin.

        Raises:
            InputError: unless low and high are integers of the attribute with low <= high, or
                edges with low < high.

        Example:
            >>> release.cells(25, 44)  # doctest: +SKIP
            (25, 44)
        """
        return interval_cells(self.attribute, low, high)

    def answer(
        self,
        low: ArrayLike,
        high: ArrayLike,
        *,
        failure_probability: float = FAILURE_PROBABILITY,
        all_at_once: bool = False,
    ) -> IntervalAnswers:
        """Returns the number of records in the cells low..high, both included.

        Standard errors are exact, except for ``sine`` above 1,024 cells, where they are
        interpolated (to 0.2 % at 4,096 cells).

        Args:
            low: the first cells, integers, any shape.
            high: the last cells, integers >= low and < d, with the shape of ``low``.
            failure_probability: the probability that a bound fails, in (0, 1).
            all_at_once: whether the failure probability covers all intervals together.

        Returns:
            Arrays with the shape of ``low``.

        Raises:
            InputError: if an end is out of range or not an integer.

        Cost: O(1) per interval, O(log d) for trees; about 0.25 s for 1e6 intervals. The first call
        prepares the variances: for ``sine`` in 2 s with 65,536 cells and 20 s with 2^20 cells, for
        other strategies in up to a second.
        """
        first, last = self._checked(low, high)
        checked_number("failure_probability", failure_probability, above=0, below=1)
        shape = first.shape
        first, last = first.ravel(), last.ravel()
        deviation = math.sqrt(self.noise_variance) / self.grid
        # Rounding may make a variance of 0 slightly negative.
        errors = deviation * np.sqrt(np.maximum(self.strategy.errors.variances(first, last), 0.0))
        num_bounds = self.num_leaves * (self.num_leaves + 1) // 2 if all_at_once else 1
        is_laplace = self.choice[1] == "discrete_laplace"
        laplace_variance = self.noise_variance if is_laplace else None
        factor = noise_bound(1.0, num_bounds, laplace_variance, failure_probability)
        return IntervalAnswers(
            self.estimate.answer(first, last).reshape(shape),
            errors.reshape(shape),
            (factor * errors).reshape(shape),
            failure_probability,
        )

    def prefixes(self) -> Values:
        """Returns the unbiased counts of the first 0, 1, ..., d cells, shape (d + 1,)."""
        ends = np.arange(self.num_leaves)
        return np.append(0.0, self.estimate.answer(np.zeros_like(ends), ends))

    def histogram(self) -> Values:
        """Returns the unbiased counts of the cells, shape (d,); some may be negative."""
        cells = np.arange(self.num_leaves)
        return self.estimate.answer(cells, cells)

    def increasing_prefixes(self) -> Values:
        """Returns the nearest prefixes that start at 0 and never decrease, shape (d + 1,).

        The differences of these prefixes are a histogram without negative counts. Distance is the
        sum of squares over prefixes. The error is smaller if most cells are empty, but the result
        is biased: small counts come out too large, and no standard error is known.

        Cost: O(d).
        """
        fitted = nearest_increasing(self.prefixes()[1:])
        return np.append(0.0, np.maximum(fitted, 0.0))

    def quantiles(self, shares: ArrayLike) -> NDArray[np.int64]:
        """Returns the cells at which the given shares of the records are reached.

        Args:
            shares: shares of the records, in [0, 1], any shape.

        Returns:
            Per share, the first cell c for which the cells 0..c contain at least this share of the
            records, according to ``increasing_prefixes``.

        Raises:
            InputError: if a share is out of range.
        """
        asked = np.asarray(shares, np.float64)
        if not np.all((asked >= 0) & (asked <= 1)):
            raise InputError("shares", shares, "must be from 0 to 1: 0.5 is the median")
        prefixes = self.increasing_prefixes()[1:]
        cells = np.searchsorted(prefixes, asked * prefixes[-1])
        result: NDArray[np.int64] = np.minimum(cells, self.num_leaves - 1).astype(np.int64)
        return result

    def _checked(self, low: ArrayLike, high: ArrayLike) -> tuple[Indices, Indices]:
        ends = []
        for name, given in (("low", low), ("high", high)):
            array = np.asarray(given)
            if not array.size:
                array = array.astype(np.int64)  # an empty list has no type
            if array.dtype.kind not in "iu":
                raise InputError(name, given, "must be integers")
            ends.append(array)
        if ends[0].shape != ends[1].shape:
            raise InputError("high", ends[1].shape, f"must have the shape of low, {ends[0].shape}")
        if not np.all(ends[0] >= 0):
            raise InputError("low", low, "must be >= 0")
        if not np.all((ends[0] <= ends[1]) & (ends[1] < self.num_leaves)):
            raise InputError("high", high, f"must be >= low and < {self.num_leaves}")
        return ends[0].astype(np.int64), ends[1].astype(np.int64)


def interval_cells(attribute: Attribute, low: Any, high: Any) -> tuple[int, int]:
    """Returns the first and the last cell of an interval: see ``IntervalRelease.cells``."""
    if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
        raise InputError("interval", [low, high], "must have low <= high")
    assert isinstance(attribute, OrderedAttribute)
    ordered = attribute.regular()
    query = LinearQueries(Domain((ordered,))).interval(ordered.name, low, high)
    start, stop = query.ranges[0][0] if query.ranges else (0, ordered.num_levels)
    return start, stop - 1


def check_ordered(attribute: Attribute) -> None:
    """Raises InputError unless an attribute has from 2 to 2^20 integers or bins."""
    if not isinstance(attribute, OrderedAttribute):
        kinds = "an integer, numeric, date or datetime attribute"
        condition = f"must be {kinds}; it is {attribute.kind}, unordered"
        raise InputError("attribute", attribute.name, condition)
    if not 2 <= attribute.num_levels <= MAX_LEAVES:
        condition = f"must have from 2 to {MAX_LEAVES:,} levels; it has {attribute.num_levels:,}"
        raise InputError("attribute", attribute.name, condition)


def ordered_domain(domain: Domain, name: str) -> Domain:
    """Returns the domain of one attribute, which must be known and ordered."""
    check_is("domain", domain, Domain)
    attribute = domain[name]
    check_ordered(attribute)
    return Domain((attribute,))
