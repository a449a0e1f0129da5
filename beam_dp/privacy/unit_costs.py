"""The joint cost of the records of a privacy unit, and how many of them a public limit keeps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.privacy.rounding import UNIT

Vector = NDArray[np.float64]

# Newton steps at most for each weight of the barrier, and how far that is lowered.
_STEPS = 50
_SMALLEST_BARRIER = 1e-9


def least_overlap(
    shape: Sequence[int], supports: Sequence[tuple[int, ...]], precisions: Sequence[float] | Vector
) -> float:
    """Returns a lower bound of the weighted inner product of any two records' residuals.

    That product is the sum over the supports S of precision_S prod over i in S of x_i, where x_i is
    1 - 1/size_i where the records agree and -1/size_i where they differ: a polynomial in the x_i,
    of as many patterns as the attributes have subsets.

    Claim. Write p_i for the precisions of single attributes, and P for the symmetric matrix of
    those of pairs, with zeros on its diagonal. For every vector c for which P + diag(c) is positive
    semidefinite, x' P x >= - sum of c_i x_i^2. So what orders up to 2 come to, the constant
    aside, is at least

        sum over i of the smaller value of p_i x_i - c_i x_i^2 / 2 at the two x_i.

    The best c is found by Newton's method with a barrier; any c is right, and the one that was
    found is raised until the matrix is positive by more than rounding can err. Each support of
    three and more attributes is bounded by itself: its most negative product is that of all
    1 - 1/size_i, over the least size_i - 1.

    No product is below minus that of equal records either, by Cauchy and Schwarz.

    ``supports``: distinct, as ascending axes.
    ``precisions``: of each, >= 0.
    """
    used = sorted({axis for support in supports for axis in support if shape[axis] > 1})
    place = {axis: number for number, axis in enumerate(used)}
    number = len(used)
    agree = np.array([1.0 - 1.0 / shape[axis] for axis in used])
    constant, single, pairs = 0.0, np.zeros(number), np.zeros((number, number))
    higher = one = 0.0
    for support, precision in zip(supports, precisions, strict=True):
        if any(shape[axis] == 1 for axis in support):
            continue
        places = tuple(place[axis] for axis in support)
        largest = precision * math.prod(agree[list(places)].tolist())
        one += largest
        if len(places) == 0:
            constant += precision
        elif len(places) == 1:
            single[places[0]] += precision
        elif len(places) == 2:
            pairs[places] += precision
            pairs[places[::-1]] += precision
        else:
            higher -= largest / (min(shape[axis] for axis in support) - 1)
    curvature = _raised(pairs, _best_curvature(single, pairs, agree))
    total = float(np.sum(precisions)) + float(curvature.sum())
    slack = 8 * (len(supports) + 8 * number) * UNIT * total
    lower = float(_values(single, curvature, agree).min(axis=0).sum())
    return max(constant + lower + higher, -one) - slack


def _values(single: Vector, curvature: Vector, agree: Vector) -> Vector:
    """What each attribute comes to where records agree, and where they differ; shape (2, n)."""
    at = np.stack([agree, agree - 1.0])
    values: Vector = single * at - curvature * at**2 / 2
    return values


def _best_curvature(single: Vector, pairs: Vector, agree: Vector) -> Vector:
    """Returns c that makes the claim's sum about as large as any."""
    rows = pairs.sum(axis=1)
    scale = max(float(single.max(initial=0.0)), float(rows.max(initial=0.0)))
    if scale <= 0:
        return np.zeros(len(single))
    single, pairs = single / scale, pairs / scale
    curvature = rows / scale * 1.01 + 0.01
    squares = np.stack([agree, agree - 1.0]) ** 2 / 2
    weight = 1.0
    while weight > _SMALLEST_BARRIER:
        for _ in range(_STEPS):
            values = _values(single, curvature, agree)
            # A smooth minimum: the attribute is in either state with these chances.
            lower = values.min(axis=0)
            chances = np.exp((lower - values) / weight)
            chances /= chances.sum(axis=0)
            inverse = np.linalg.inv(pairs + np.diag(curvature))
            gradient = weight * np.diag(inverse) - (chances * squares).sum(axis=0)
            spread = (chances * squares**2).sum(axis=0) - (chances * squares).sum(axis=0) ** 2
            hessian = weight * inverse**2 + np.diag(np.maximum(spread, 0.0) / weight)
            step = np.linalg.solve(hessian + 1e-12 * np.eye(len(single)), gradient)
            decrement = float(gradient @ step)
            length = 1.0 / (1.0 + math.sqrt(max(decrement, 0.0) / weight))
            while not _is_positive(pairs + np.diag(curvature + length * step)):
                length /= 2
            curvature = curvature + length * step
            if decrement < 1e-3 * weight:
                break
        weight /= 4
    best: Vector = curvature * scale
    return best


def _raised(pairs: Vector, curvature: Vector) -> Vector:
    """Returns c, raised so that the matrix is positive whatever rounding did to its eigenvalues."""
    if not len(curvature):
        return curvature
    largest = float((pairs.sum(axis=1) + curvature).max())
    margin = 64 * len(curvature) * UNIT * largest
    least = float(np.linalg.eigvalsh(pairs + np.diag(curvature))[0])
    raised: Vector = curvature + max(0.0, margin - least)
    return raised


def _is_positive(matrix: Vector) -> bool:
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


Codes = Sequence[NDArray[Any]]

# The cost of one record. Costs are whole numbers of parts, so that their sums are exact in any
# order and fit 64 bits up to MAX_RECORDS records a unit.
PARTS = 2**30
MAX_RECORDS = 2**16
# Patterns of agreement are listed up to this many attributes.
MAX_ATTRIBUTES = 20
_STEP_RECORDS = 16
_STEP_PAIRS = 2**20


@dataclass(frozen=True, eq=False)
class UnitCosts:
    """A public limit of the joint cost of the records of one unit.

    Every pair of records has a cost, which depends on where they agree; two equal records cost
    ``PARTS``, and others at most as much, perhaps less than nothing. A unit costs the sum over all
    ordered pairs of its records, each with itself included: n^2 for n equal records, and about n
    for n records that have little in common.

    ``axes``: of the attributes that agreement is looked at in, ascending; at most 20.
    ``pairs``: the cost of two records by their pattern of agreement, a bit an attribute, the
    first the lowest; shape (2^len(axes),), int64, the last entry ``PARTS``.
    ``limit``: of a unit, in parts; from ``PARTS`` to 2^62.
    """

    axes: tuple[int, ...]
    pairs: NDArray[np.int64]
    limit: int

    @property
    def num_free(self) -> int:
        """The largest number of records that always stays within the limit: n cost n^2 at most."""
        number = int((self.limit / PARTS) ** 0.5) + 1
        while number * number * PARTS > self.limit:
            number -= 1
        return number

    def holds(self, other: UnitCosts) -> bool:
        """Returns whether units within another limit are within this one, for the same pairs."""
        return (
            self.axes == other.axes
            and np.array_equal(self.pairs, other.pairs)
            and other.limit <= self.limit
        )

    def keeps(self, unit: NDArray[np.intp], codes: Codes) -> NDArray[np.bool_]:
        """Returns which records stay: those of each unit before the limit is passed; shape (n,).

        The records of a unit are taken in the order in which they come, and all stay before the
        first with which the cost is above the limit, also where it would sink again later on.

        ``codes``: of every attribute of the domain, shape (n,) each.

        Guarantee: the cost of what stays of any unit is at most the limit; what stays depends on
        nothing but the unit's own records and their order.
        """
        if unit.size == 0:
            return np.zeros(0, np.bool_)
        used = [np.ascontiguousarray(codes[axis], np.int32) for axis in self.axes]
        starts = np.flatnonzero(np.r_[True, unit[1:] != unit[:-1]])
        lengths = np.diff(np.r_[starts, unit.size])
        kept = np.zeros(starts.size, np.int64)
        costs = np.zeros(starts.size, np.int64)
        active, done = np.arange(starts.size), 0
        while active.size:
            num_units = max(1, _STEP_PAIRS // (_STEP_RECORDS * (done + _STEP_RECORDS)))
            going_on = []
            for first in range(0, active.size, num_units):
                some = active[first : first + num_units]
                number, costs[some] = self._step(
                    used, starts[some], lengths[some], costs[some], done
                )
                kept[some] = done + number
                going_on.append(some[(number == _STEP_RECORDS) & (lengths[some] > kept[some])])
            active, done = np.concatenate(going_on), done + _STEP_RECORDS
        place = np.arange(unit.size) - np.repeat(starts, lengths)
        keeps: NDArray[np.bool_] = place < np.repeat(kept, lengths)
        return keeps

    def _step(
        self,
        codes: Codes,
        starts: NDArray[np.intp],
        lengths: NDArray[np.intp],
        costs: NDArray[np.int64],
        done: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns how many of the next 16 records of some units stay, and the units' costs then."""
        places = starts[:, None] + np.arange(done + _STEP_RECORDS)
        # Places beyond the end of a unit repeat its last record, and are never kept.
        np.minimum(places, (starts + lengths - 1)[:, None], out=places)
        patterns = np.zeros((starts.size, _STEP_RECORDS, done + _STEP_RECORDS), np.int32)
        for bit, column in enumerate(codes):
            before = column[places]
            equal = before[:, done:, None] == before[:, None, :]
            patterns |= equal.astype(np.int32) << bit
        pairs = self.pairs[patterns]
        earlier = np.tri(_STEP_RECORDS, done + _STEP_RECORDS, done - 1, dtype=np.bool_)
        added = 2 * pairs.sum(axis=2, where=earlier) + PARTS
        totals = costs[:, None] + np.cumsum(added, axis=1)
        stays = (totals <= self.limit) & (done + np.arange(_STEP_RECORDS) < lengths[:, None])
        number = np.where(stays.all(axis=1), _STEP_RECORDS, np.argmin(stays, axis=1))
        last = np.take_along_axis(totals, np.maximum(number - 1, 0)[:, None], axis=1)[:, 0]
        return number, np.where(number > 0, last, costs)
