"""The joint cost of a privacy unit's records, and a public limit on that cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.privacy.rounding import UNIT

Vector = NDArray[np.float64]

# The largest number of Newton steps per barrier weight, and the smallest barrier weight.
_STEPS = 50
_SMALLEST_BARRIER = 1e-9


def least_overlap(
    shape: Sequence[int], supports: Sequence[tuple[int, ...]], precisions: Sequence[float] | Vector
) -> float:
    """Returns a lower bound on the weighted inner product of any two records' residuals.

    The inner product is the sum over the supports S of precision_S prod over i in S of x_i, where
    x_i is 1 - 1/size_i if the records agree on attribute i, and -1/size_i otherwise: a polynomial
    in the x_i, which has one pattern of agreement per subset of the attributes.

    Claim. Let p_i be the precision of attribute i alone, and P the symmetric matrix of the
    precisions of pairs, with a zero diagonal. For every vector c for which P + diag(c) is positive
    semidefinite, x' P x >= - sum of c_i x_i^2. So the sum of the terms of order 1 and 2 is at least

        sum over i of the smaller value of p_i x_i - c_i x_i^2 / 2 at the two possible x_i.

    Newton's method with a barrier finds a nearly optimal c. The bound is valid for every c with a
    positive semidefinite matrix, so c is then raised by more than rounding errors. Each support S
    of three or more attributes has its own lower bound: its most negative product is -prod(1 -
    1/size_i) / (smallest size_i - 1).

    By the Cauchy-Schwarz inequality, the inner product is also at least minus the inner product of
    two equal records.

    ``supports``: distinct sets of attributes, as ascending axes.
    ``precisions``: the weight of each support, >= 0.
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
    """Returns each attribute's term if records agree and if they differ; shape (2, n)."""
    at = np.stack([agree, agree - 1.0])
    values: Vector = single * at - curvature * at**2 / 2
    return values


def _best_curvature(single: Vector, pairs: Vector, agree: Vector) -> Vector:
    """Returns the c that nearly maximizes the sum in the claim of ``least_overlap``."""
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
            # The weights of a smooth minimum: a probability for each state (agree, differ) per
            # attribute.
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
    """Returns c raised by more than rounding errors, so that the matrix is positive definite."""
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

# The cost of one record, in parts. Costs are whole numbers of parts, so sums are exact in any order
# and fit 64 bits for up to MAX_RECORDS records per unit.
PARTS = 2**30
MAX_RECORDS = 2**16
# The largest number of attributes whose patterns of agreement are enumerated.
MAX_ATTRIBUTES = 20
_STEP_RECORDS = 16
_STEP_PAIRS = 2**20


@dataclass(frozen=True, eq=False)
class UnitCosts:
    """A public limit on the joint cost of the records of one unit.

    The cost of a pair of records depends on the attributes in which the two records agree. Two
    equal records cost ``PARTS``; no pair costs more, and a cost may be negative. A unit's cost is
    the sum over all ordered pairs of its records, including each record with itself: n^2 ``PARTS``
    for n equal records, and about n ``PARTS`` for n records with little in common.

    ``pairs``: the cost of two records per pattern of agreement, with one bit per attribute (the
    lowest bit for the first attribute); shape (2^len(axes),), int64; the last entry is ``PARTS``.
    """

    axes: tuple[int, ...]  # of the compared attributes, ascending; at most 20
    pairs: NDArray[np.int64]
    limit: int  # the largest cost of a unit, in parts; from ``PARTS`` to 2^62

    @property
    def num_free(self) -> int:
        """The number of records that always fit the limit: n records cost at most n^2 ``PARTS``."""
        number = int((self.limit / PARTS) ** 0.5) + 1
        while number * number * PARTS > self.limit:
            number -= 1
        return number

    def holds(self, other: UnitCosts) -> bool:
        """Returns whether another limit has the same pair costs and is at most this limit."""
        return (
            self.axes == other.axes
            and np.array_equal(self.pairs, other.pairs)
            and other.limit <= self.limit
        )

    def keeps(self, unit: NDArray[np.intp], codes: Codes) -> NDArray[np.bool_]:
        """Returns a mask of the records that are kept; shape (n,).

        The costs of a unit's records are added up in the given order. The first record that raises
        the cost above the limit and all later records of the unit are dropped, even if the cost
        would fall again.

        ``codes``: one array of codes per attribute of the domain, each of shape (n,).

        Guarantee: the cost of a unit's kept records is at most the limit; which records are kept
        depends only on the unit's own records and their order.
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
        """Returns, per unit, how many of the next 16 records are kept, and the unit's new cost."""
        places = starts[:, None] + np.arange(done + _STEP_RECORDS)
        # Positions beyond the end of a unit repeat the unit's last record and are never kept.
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
