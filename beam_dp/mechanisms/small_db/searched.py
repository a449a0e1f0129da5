"""The sampler that searches: it works for any queries, but its time depends on the data."""

from __future__ import annotations

import dataclasses
import math
import operator
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from beam_dp.mechanisms.small_db.size import TILT_BITS, MultisetLaw, Tilt, draw_cells, find_tilts
from beam_dp.privacy.noise.bound import as_exponent, exp_above, exp_bounds
from beam_dp.privacy.noise.source import NoiseSource


@dataclasses.dataclass(eq=False)
class _Group:
    """A set of types: a node of a binary tree whose leaves are single types."""

    kinds: NDArray[np.int64]
    cells: int
    ends: NDArray[np.int64]
    number: int
    spread: float  # the sum over queries of the largest minus the smallest answer
    halves: tuple[_Group, _Group] | None  # the two child nodes
    sums: tuple[tuple[int, ...], ...] = ()


@dataclasses.dataclass(eq=False, slots=True)
class _State:
    """The set of all multisets that take given numbers of cells from some groups."""

    groups: tuple[tuple[_Group, int], ...]  # disjoint groups and their numbers of cells, > 0
    volume: int
    bound: int
    sums: tuple[int, ...]
    units: tuple[int, ...]  # per tilt, a bound from above on the factor of the cells' weights
    division: _Division | None = None


@dataclasses.dataclass(eq=False, slots=True)
class _Division:
    """A state split into parts, by how many cells of a group lie in the group's first half."""

    position: int  # the position of the group in ``_State.groups``
    bounds: list[int]
    totals: list[int]  # upper bounds on the parts' weights, which the search lowers
    visited: dict[int, _State]


class SearchSampler:
    """Draws exactly from a ``MultisetLaw`` by top-down search with bounds and rejection.

    A set of multisets is divided by the number of cells in the first half of a group of types. For
    each multiset of a set, multiply the weights of its cells. The set's weight is at most the sum
    of these products, times a power of the weight of the set's least possible loss. ``find_tilts``
    gives several such bounds, one with equal weights for all cells; the smallest is used.

    A descent starts with the set of all multisets, draws a part in proportion to these bounds, then
    a part of that part, until one multiset is left. If the bounds of the parts add up to less than
    the bound of their set, the descent gives up with probability (difference / bound of the set),
    and a new descent starts. A descent that starts with the total bound T therefore ends in y with
    probability weight(y) / T, for any earlier descents, so the first descent that ends draws
    exactly from the law. Each descent tightens the bounds for the next one.

    Exact arithmetic: upper bounds are integers, computed from doubles with a margin far beyond
    their rounding. Sums of bounds over sets are exact, so parts never outweigh the whole. The last
    step, weight(y) over its upper bound, is tossed exactly.

    Privacy: time and memory depend on the data, and reveal how well the data can be answered. Use
    this sampler only if no one else can see how long a draw takes. ``auto`` never selects it.

    Reference: Maddison, Tarlow and Minka (2014) search for the largest perturbed weight in the same
    way; Gilks and Wild (1992) for adaptive rejection sampling.
    """

    name: ClassVar[str] = "search"

    def __init__(self, law: MultisetLaw) -> None:
        self._law = law
        targets = np.array(law.targets, np.int64)
        self._targets = np.concatenate([targets, -targets])
        self._units: dict[int, tuple[int, ...]] = {}
        self._tilts = [Tilt(1.0, (1 << TILT_BITS,) * law.num_types)]
        table: list[NDArray[np.int64]] = []
        everything = _group(law, np.arange(law.num_types), table)
        self._ends = np.array(table)
        self._least = 0
        self._bits = 0
        self.num_divisions = 0
        self._root = self._whole(everything, 0)
        self._least = int(self._excess(self._root).max(initial=0))
        self._root = self._whole(everything, self._least)
        # The bound of a greedy descent determines the precision that weights need.
        good = self._root
        while (division := self._divide(good)) is not None:
            good = self._part(good, division, int(np.argmin(division.bounds)))
        reach = as_exponent((good.bound - self._least) / law.scale)
        self._bits = law.num_multisets.bit_length() + 40 + math.ceil(reach * 3 / 2)
        self._units.clear()
        self._tilts = find_tilts(law, self._least)
        self._root = self._whole(everything, self._least)

    def draw(self, noise: NoiseSource) -> NDArray[np.int64]:
        """Returns the cells of one drawn multiset in ascending order."""
        while (state := self._descend(noise)) is None:
            pass
        cells: list[int] = []
        for group, count in state.groups:
            cells += draw_cells(self._law.members[int(group.kinds[0])], count, noise)
        return np.sort(np.array(cells, np.int64))

    def _descend(self, noise: NoiseSource) -> _State | None:
        """Returns the state of single types in which a descent ends; None if the descent fails."""
        state = self._root
        path: list[tuple[_Division, int]] = []
        promised = min(map(operator.mul, state.sums, state.units))
        if state.division is not None:
            promised = sum(state.division.totals)
        while True:
            if state.division is None:
                state.division = self._divide(state)
                self.num_divisions += 1
            division = state.division
            if division is None:
                break
            # The descent fails if the drawn number exceeds the sum of the bounds of the parts.
            drawn = noise.below(promised)
            cumulative = list(accumulate(division.totals))
            if drawn >= cumulative[-1]:
                self._tighten(path, cumulative[-1])
                return None
            number = bisect_right(cumulative, drawn)
            path.append((division, number))
            promised = division.totals[number]
            if number not in division.visited:
                division.visited[number] = self._part(state, division, number)
            state = division.visited[number]
        self._tighten(path, promised)
        exponent = (state.bound - self._least) / self._law.scale
        ways = state.volume << TILT_BITS * self._law.size

        def share(bits: int) -> tuple[int, int]:
            low, high = exp_bounds(exponent, bits + self._bits)
            return low * ways // promised, -(-high * ways // promised)

        return state if noise.coin(share) else None

    def _tighten(self, path: list[tuple[_Division, int]], total: int) -> None:
        """Updates the upper bounds of all ancestors of the last state, whose bound is ``total``."""
        for division, number in reversed(path):
            division.totals[number] = total
            total = sum(division.totals)

    def _divide(self, state: _State) -> _Division | None:
        """Returns a division of a state; None if all groups of the state are single types."""
        # Divides the group with the largest spread, so that bounds on all queries tighten early.
        position = max(
            range(len(state.groups)),
            key=lambda place: (state.groups[place][0].spread, state.groups[place][1]),
        )
        group, count = state.groups[position]
        if group.halves is None:
            return None
        first, second = group.halves
        numbers = np.arange(count + 1)[:, None]
        ends = self._excess(state) + numbers * (first.ends - second.ends)
        ends += count * (second.ends - group.ends)
        bounds = ends.max(axis=1, initial=state.bound).tolist()
        rests = [total // sums[count] for total, sums in zip(state.sums, group.sums, strict=True)]
        totals = []
        for number, bound in enumerate(bounds):
            units = map(min, self._unit(bound), state.units)
            totals.append(
                min(
                    rest * one[number] * other[count - number] * unit
                    for rest, one, other, unit in zip(
                        rests, first.sums, second.sums, units, strict=True
                    )
                )
            )
        return _Division(position, bounds, totals, {})

    def _part(self, state: _State, division: _Division, number: int) -> _State:
        """Returns the part of a state that has ``number`` cells in the first half of the group."""
        group, count = state.groups[division.position]
        assert group.halves is not None
        groups = list(state.groups)
        del groups[division.position]
        volume = state.volume // _multisets(group, count)
        sums = [total // row[count] for total, row in zip(state.sums, group.sums, strict=True)]
        for half, taken in zip(group.halves, (number, count - number), strict=True):
            volume *= _multisets(half, taken)
            sums = [total * row[taken] for total, row in zip(sums, half.sums, strict=True)]
            if taken:
                groups.append((half, taken))
        # A part's units never exceed those of the whole, so that parts never outweigh the whole.
        bound = division.bounds[number]
        units = tuple(map(min, self._unit(bound), state.units))
        return _State(tuple(groups), volume, bound, tuple(sums), units)

    def _whole(self, everything: _Group, bound: int) -> _State:
        """Returns the state of all multisets with the current tilts."""
        _sum_weights(everything, self._law, self._tilts)
        sums = tuple(row[self._law.size] for row in everything.sums)
        groups = ((everything, self._law.size),)
        return _State(groups, self._law.num_multisets, bound, sums, self._unit(bound))

    def _excess(self, state: _State) -> NDArray[np.int64]:
        """Returns the least excess per query of answers over targets, then of targets over them."""
        # An excess may be negative; the largest excess is a lower bound on the loss.
        groups = self._ends[[group.number for group, _ in state.groups]]
        counts = np.array([count for _, count in state.groups])
        excess: NDArray[np.int64] = counts @ groups - self._targets
        return excess

    def _unit(self, bound: int) -> tuple[int, ...]:
        unit = self._units.get(bound)
        if unit is None:
            exponent = as_exponent((bound - self._least) / self._law.scale)
            unit = self._units[bound] = tuple(
                exp_above(tilt.rest * exponent, self._bits) for tilt in self._tilts
            )
        return unit


def _multisets(group: _Group, size: int) -> int:
    return math.comb(group.cells + size - 1, size)


def _sum_weights(group: _Group, law: MultisetLaw, tilts: Sequence[Tilt]) -> None:
    """Computes the weight sums of a group and of all its descendants, exactly."""
    if group.halves is None:
        kind = int(group.kinds[0])
        group.sums = tuple(
            tuple(
                _multisets(group, size) * tilt.weights[kind] ** size for size in range(law.size + 1)
            )
            for tilt in tilts
        )
        return
    for half in group.halves:
        _sum_weights(half, law, tilts)
    first, second = group.halves
    group.sums = tuple(
        tuple(
            sum(one[taken] * other[size - taken] for taken in range(size + 1))
            for size in range(law.size + 1)
        )
        for one, other in zip(first.sums, second.sums, strict=True)
    )


def _group(law: MultisetLaw, kinds: NDArray[np.int64], table: list[NDArray[np.int64]]) -> _Group:
    """Builds the tree of groups; the query with the most even split divides a group in two."""
    answers = law.answers[:, kinds]
    low, high = answers.min(axis=1), answers.max(axis=1)
    cells = sum(law.ways[kind] for kind in kinds)
    ends = np.concatenate([low, -high])
    group = _Group(kinds, cells, ends, len(table), float((high - low).sum()), None)
    table.append(ends)
    if len(kinds) > 1:
        upper = answers * 2 > (low + high)[:, None]
        sizes = upper.sum(axis=1)
        best = int(np.argmax(np.where(high > low, np.minimum(sizes, len(kinds) - sizes), -1)))
        side = upper[best]
        if 8 * min(sizes[best], len(kinds) - sizes[best]) < len(kinds):
            # An uneven split would make the tree deep: split by position instead, since adjacent
            # columns have similar answers.
            side = np.arange(len(kinds)) * 2 >= len(kinds)
        group.halves = _group(law, kinds[~side], table), _group(law, kinds[side], table)
    return group
