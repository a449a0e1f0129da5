"""What the records of a privacy unit cost together, and how many of them a public limit keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = Sequence[NDArray[Any]]

# One record costs so many parts: costs are whole numbers of parts, so that sums of them are exact
# in any order and fit 64 bits up to MAX_RECORDS records a unit.
PARTS = 2**30
MAX_RECORDS = 2**16
# Patterns of agreement are listed up to this many attributes.
MAX_ATTRIBUTES = 20
_STEP_RECORDS = 16
_STEP_PAIRS = 2**20


@dataclass(frozen=True, eq=False)
class UnitCosts:
    """A public limit of what the records of one unit may cost together.

    Every pair of records has a cost, which depends on where they agree; two equal records cost
    ``PARTS``, and others at most as much, perhaps less than nothing. A unit costs the sum over all
    ordered pairs of its records, each with itself included: n^2 for n equal records, and about n
    for n records that have little in common.

    Args:
        axes: of the attributes that agreement is looked at in, ascending; at most 20.
        pairs: the cost of two records by their pattern of agreement, a bit an attribute, the first
            the lowest; shape (2^len(axes),), int64, the last entry ``PARTS``.
        limit: of a unit, in parts; from ``PARTS`` to 2^62.
    """

    axes: tuple[int, ...]
    pairs: NDArray[np.int64]
    limit: int

    @property
    def num_free(self) -> int:
        """How many records no unit can be over the limit with: n of them cost n^2 at most."""
        number = int((self.limit / PARTS) ** 0.5) + 1
        while number * number * PARTS > self.limit:
            number -= 1
        return number

    def holds(self, other: UnitCosts) -> bool:
        """Returns whether what another limit keeps is within this one, for the same pairs."""
        return (
            self.axes == other.axes
            and np.array_equal(self.pairs, other.pairs)
            and other.limit <= self.limit
        )

    def keeps(self, unit: NDArray[np.intp], codes: Codes) -> NDArray[np.bool_]:
        """Returns which records stay: of each unit the first ones, before the limit is passed.

        The records of a unit are taken in the order in which they come, and all stay before the
        first with which the cost is above the limit, also where it would sink again later on.

        Guarantee: the cost of what stays of any unit is at most the limit; what stays depends on
        nothing but the unit's own records and their order.

        Args:
            unit: shape (n,), ascending.
            codes: of every attribute of the domain, shape (n,) each.

        Returns:
            shape (n,).

        Cost: about 10 ns for each pair of records of a unit up to the limit.
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
        """Takes the next records of some units.

        Args:
            codes: of the attributes that are looked at.
            starts: of the units among the records.
            lengths: their records.
            costs: of their first ``done`` records, which all stay.
            done: a multiple of the step.

        Returns:
            How many of the next 16 records stay of each unit, and what the unit costs with them.
        """
        places = starts[:, None] + np.arange(done + _STEP_RECORDS)
        # What is beyond the end of a unit is its last record, and never kept.
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
