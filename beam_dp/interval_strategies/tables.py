"""A strategy as named tables of integers, from which answers and errors are computed."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from beam_dp.errors import InputError
from beam_dp.interval_strategies.hierarchy import Hierarchy
from beam_dp.interval_strategies.sine import SineStrategy
from beam_dp.interval_strategies.strategy import (
    Indices,
    Measured,
    Strategy,
    Values,
    mean_of_intervals,
)
from beam_dp.interval_strategies.textbook_tree import TextbookTree
from beam_dp.interval_strategies.transforms import fast_length
from beam_dp.privacy.guarantee import Neighboring

Tables = Mapping[str, NDArray[np.int64]]

# More than any strategy that is built here has, and little enough to compute with.
MAX_ROOTS = 1024
_MAX_ROWS = 2 * MAX_ROOTS
_MAX_LEVELS = 21
_MAX_ENTRY = 2**26

# Weighted trees are no longer planned; releases made with them are read.
TREES = ("histogram", "tree", "weighted_tree", "windows")


@dataclasses.dataclass(frozen=True, eq=False)
class SquareRootErrors:
    """The square-root factorisation of prefix sums, of which releases of version 0.1 were made.

    A[i, j] = coefficients[i - j] for i >= j, the power series of (1 - x)^(-1/2) in integers. It is
    no longer planned: the sine strategy always has less error. For an interval the variance of
    the last interval of its length is stated: it is exact there, and an upper bound elsewhere,
    because variances increase with the place. The mean is exact.

    Args:
        coefficients: shape (d,), int64, >= 0, the first >= 1.

    Reference: Henzinger, Upadhyay and Upadhyay (2023), Theorem 1, for prefix sums.
    """

    coefficients: NDArray[np.int64]

    @property
    def num_leaves(self) -> int:
        """The number of cells."""
        return len(self.coefficients)

    @property
    def errors(self) -> SquareRootErrors:
        """The variances of all answers, for noise of variance 1."""
        return self

    def mean(self) -> float:
        """Returns the mean of the variances of all intervals."""
        variances = np.cumsum(self._series**2)
        return mean_of_intervals(variances, float((np.cumsum(self._series) ** 2).sum()))

    def variances(self, low: Indices, high: Indices) -> Values:
        """Returns an upper bound on the variance of each interval low..high, both included."""
        result: Values = self._by_length[high - low]
        return result

    @functools.cached_property
    def _series(self) -> Values:
        """The power series that turns what is measured into prefixes: Newton's inverse, summed."""
        known = np.array([1 / self.coefficients[0]])
        while len(known) < self.num_leaves:
            length = min(2 * len(known), self.num_leaves)
            known = np.append(known, np.zeros(length - len(known)))
            rest = -_product(self.coefficients[:length].astype(np.float64), known)
            rest[0] += 2
            known = _product(known, rest)
        return np.cumsum(known)

    @functools.cached_property
    def _by_length(self) -> Values:
        squares = np.cumsum(self._series**2)
        # For each lag the sum of series[m] series[m + lag].
        lags = _product(self._series[::-1], self._series)[::-1]
        shorter = np.append(squares[-2::-1], 0.0)
        result: Values = squares[-1] + shorter - 2 * np.append(lags[1:], 0.0)
        return result


def strategy_tables(strategy: Measured) -> Tables:
    """Returns the tables of a strategy; numerically found ones differ between machines.

    Raises:
        TypeError: if it is of no known class.
    """
    match strategy:
        case Hierarchy(sizes=sizes, weights=weights, top=top):
            roots = np.arange(sizes[0])
            by_root = [
                each[-(-roots * size // sizes[0])]
                for each, size in zip(weights, sizes[1:], strict=True)
            ]
            by_level = np.array(by_root, np.int64).reshape(len(weights), sizes[0])
            return {"sizes": np.array(sizes), "weights": by_level, "top": top}
        case SineStrategy(kernel=kernel, scales=scales):
            return {"kernel": kernel[: len(scales) + 2], "scales": scales}
        case SquareRootErrors(coefficients=coefficients):
            return {"coefficients": coefficients}
        case TextbookTree():
            return {}
    raise TypeError(type(strategy).__name__)


def measured_from_tables(
    name: str, num_leaves: int, neighboring: Neighboring, tables: Tables
) -> Measured:
    """Returns what a release was made with: a strategy, or one that is no longer planned.

    Raises:
        InputError: if the tables describe none.
    """
    if name != "square_root":
        return strategy_from_tables(name, num_leaves, neighboring, tables)
    _check_names(tables, ("coefficients",))
    coefficients = tables["coefficients"]
    _check("coefficients", coefficients, (num_leaves,), 0)
    if coefficients[0] < 1:
        raise InputError("coefficients", int(coefficients[0]), "must begin with one >= 1")
    return SquareRootErrors(coefficients)


def strategy_from_tables(
    name: str, num_leaves: int, neighboring: Neighboring, tables: Tables
) -> Strategy:
    """Returns the strategy that ``strategy_tables`` described.

    Raises:
        InputError: if they describe none.
    """
    if name in TREES:
        _check_names(tables, ("sizes", "weights", "top"))
        return _hierarchy(num_leaves, tables)
    if name == "textbook_tree":
        _check_names(tables, ())
        return TextbookTree.build(num_leaves, neighboring)
    if name == "sine":
        _check_names(tables, ("kernel", "scales"))
        half, scales = tables["kernel"], tables["scales"]
        _check("kernel", half, (num_leaves + 2,), 0)
        _check("scales", scales, (num_leaves,), 1)
        strategy = SineStrategy(np.concatenate([half, half[num_leaves:0:-1]]), scales)
        if not strategy.has_inverse:
            raise InputError("kernel", int(half[0]), "must have an inverse")
        return strategy
    raise InputError("strategy", name, "must be one that this version knows")


def _product(first: Values, second: Values) -> Values:
    """Returns the product of two power series, as long as the first."""
    padded = fast_length(len(first) + len(second))
    product = np.fft.irfft(np.fft.rfft(first, padded) * np.fft.rfft(second, padded), padded)
    result: Values = product[: len(first)]
    return result


def _hierarchy(num_leaves: int, tables: Tables) -> Hierarchy:
    given, weights, top = tables["sizes"], tables["weights"], tables["top"]
    levels = len(given)
    _check("sizes", given, (levels,), 1)
    grows = levels <= _MAX_LEVELS and bool(np.all(np.diff(given) >= 0))
    if not levels or not grows or given[-1] != num_leaves or given[0] > MAX_ROOTS:
        condition = f"must not decrease, from at most {MAX_ROOTS:,} to {num_leaves:,}"
        raise InputError("sizes", given[:_MAX_LEVELS].tolist(), condition)
    roots = int(given[0])
    _check("weights", weights, (levels - 1, roots), 1)
    _check("top", top, (min(len(top), _MAX_ROWS), roots), 0)
    is_measured = bool(np.all(top.any(axis=0))) if levels == 1 else True
    if (not len(top) and roots > 1) or not is_measured:
        raise InputError("top", top.shape, "must measure every root")
    below = tuple(
        weights[level, np.arange(size) * roots // size]
        for level, size in enumerate(given[1:].tolist())
    )
    return Hierarchy(tuple(given.tolist()), below, top)


def _check_names(tables: Tables, names: tuple[str, ...]) -> None:
    if set(tables) != set(names):
        raise InputError("tables", sorted(tables), f"must be {', '.join(names) or 'none'}")


def _check(name: str, table: NDArray[np.int64], shape: tuple[int, ...], least: int) -> None:
    if table.shape != shape:
        raise InputError(name, table.shape, f"must have the shape {shape}")
    if math.prod(shape) and not (least <= int(table.min()) and int(table.max()) <= _MAX_ENTRY):
        condition = f"must hold integers from {least} to {_MAX_ENTRY:,}"
        raise InputError(name, int(table.min()), condition)
