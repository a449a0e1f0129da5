"""The sampler that searches: for queries of any kind, in a time that depends on the data."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from beam_dp.exponentials import as_exponent, exp_above, exp_bounds
from beam_dp.mechanisms.multisets import MultisetLaw, draw_cells
from beam_dp.noise import NoiseSource


@dataclasses.dataclass(eq=False)
class _Group:
    """Types that are not told apart yet: a node of a binary tree over all of them.

    Args:
        kinds: the types.
        cells: how many cells they have.
        low: their least answer to each query.
        high: their largest.
        spread: sum of high - low; 0 for a single type.
        halves: none for a single type.
    """

    kinds: NDArray[np.int64]
    cells: int
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    spread: float
    halves: tuple[_Group, _Group] | None


@dataclasses.dataclass(eq=False)
class _State:
    """All multisets that have given numbers of cells of some groups.

    Args:
        held: groups and how many cells of them, none 0; they share no type.
        volume: how many multisets there are.
        low: least answers.
        high: largest answers.
        bound: no loss is less.
        unit: upper bound on the weight of each multiset, an integer.
        total: upper bound on their weights together; gets smaller as the search goes on.
        parts: states that these multisets are divided into, once they are.
    """

    held: tuple[tuple[_Group, int], ...]
    volume: int
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    bound: int
    unit: int
    total: int
    parts: list[_State] | None = None


class SearchSampler:
    """Draws exactly from a law by top-down search with bounds and rejection.

    Sets of multisets are divided step by step: of so many cells of a group of types, how many are
    in its first half. A set's weight is at most its size times the weight of its least possible
    loss. From the set of all, a part is drawn by these upper bounds, then a part of that, until
    one multiset is left; where the parts of a set have less weight together than the set was
    thought to have, the difference is the probability to give up and start again. A descent
    started with the bound T in all then ends in y with probability weight(y) / T, whatever earlier
    descents were like: so the one that ends draws exactly from the law. Each descent leaves tighter
    bounds to the next.

    Exact arithmetic: upper bounds are integers, from doubles with a margin far beyond their
    rounding; the last step, weight(y) over its upper bound, is tossed exactly.

    Args:
        law: to draw from.

    Cost: time and memory depend on the data, steeply: they tell how well the data can be answered.
    Use it only where nobody else sees how long it takes. It is never chosen unasked.

    Reference: Maddison, Tarlow and Minka (2014) search in the same way, for a largest perturbed
    weight; Gilks and Wild (1992) for rejection with bounds that adapt.
    """

    name: ClassVar[str] = "search"

    def __init__(self, law: MultisetLaw) -> None:
        self._law = law
        self._targets = np.array(law.targets, np.int64)
        self._units: dict[int, int] = {}
        everything = _group(law, np.arange(law.num_types))
        low, high = everything.low * law.size, everything.high * law.size
        self._least = self._loss_at_least(low, high)
        self._bits = 0
        volume = law.num_multisets
        self._root = _State(((everything, law.size),), volume, low, high, self._least, 1, volume)
        # A greedy answer says how small the weights are that matter.
        good = self._root
        while (parts := self._divide(good)) is not None:
            good = min(parts, key=lambda part: part.bound)
        reach = as_exponent((good.bound - self._least) / law.scale)
        self._bits = volume.bit_length() + 40 + math.ceil(reach * 3 / 2)
        self._units.clear()
        self._root.unit = self._unit(self._least)
        self._root.total = self._root.unit * volume
        self.num_divisions = 0

    def draw(self, noise: NoiseSource) -> NDArray[np.int64]:
        """Returns one multiset as its cells in ascending order."""
        while (state := self._descend(noise)) is None:
            pass
        cells: list[int] = []
        for group, count in state.held:
            cells += draw_cells(self._law.members[int(group.kinds[0])], count, noise)
        return np.sort(np.array(cells, np.int64))

    def _descend(self, noise: NoiseSource) -> _State | None:
        """Returns the one state of types that a descent ends in, or None where it gives up."""
        state, path = self._root, []
        while True:
            promised = state.total
            if state.parts is None:
                state.parts = self._divide(state)
                if state.parts is None:
                    break
                self.num_divisions += 1
                state.total = sum(part.total for part in state.parts)
            path.append(state)
            drawn = noise.below(promised)
            for part in state.parts:
                if drawn < part.total:
                    break
                drawn -= part.total
            else:
                self._update(path)
                return None
            state = part
        self._update(path)
        exponent = (state.bound - self._least) / self._law.scale
        unit = state.unit

        def share(bits: int) -> tuple[int, int]:
            low, high = exp_bounds(exponent, bits + self._bits)
            return low // unit, -(-high // unit)

        return state if noise.coin(share) else None

    def _update(self, path: list[_State]) -> None:
        for state in reversed(path):
            assert state.parts is not None
            state.total = sum(part.total for part in state.parts)

    def _divide(self, state: _State) -> list[_State] | None:
        """Returns the parts of a state; None where all its groups are single types."""
        # The least resolved group: level by level, which bounds whole queries early.
        position = max(
            range(len(state.held)),
            key=lambda each: (state.held[each][0].spread, state.held[each][1]),
        )
        group, count = state.held[position]
        if group.halves is None:
            return None
        first, second = group.halves
        numbers = np.arange(count + 1)[:, None]
        lows = state.low + numbers * first.low + (count - numbers) * second.low - count * group.low
        highs = (
            state.high + numbers * first.high + (count - numbers) * second.high - count * group.high
        )
        bounds = np.maximum(lows - self._targets, self._targets - highs).max(
            axis=1, initial=state.bound
        )
        rest = state.volume // math.comb(group.cells + count - 1, count)
        others = state.held[:position] + state.held[position + 1 :]
        parts = []
        for number, bound in enumerate(bounds.tolist()):
            volume = (
                rest
                * math.comb(first.cells + number - 1, number)
                * math.comb(second.cells + count - number - 1, count - number)
            )
            held = others
            if number:
                held = (*held, (first, number))
            if number < count:
                held = (*held, (second, count - number))
            # Never more than the parent's, so that parts never outweigh it.
            unit = min(self._unit(bound), state.unit)
            parts.append(
                _State(held, volume, lows[number], highs[number], bound, unit, volume * unit)
            )
        return parts

    def _loss_at_least(self, low: NDArray[np.int64], high: NDArray[np.int64]) -> int:
        return int(np.maximum(low - self._targets, self._targets - high).max(initial=0))

    def _unit(self, bound: int) -> int:
        known = self._units.get(bound)
        if known is None:
            exponent = as_exponent((bound - self._least) / self._law.scale)
            known = self._units[bound] = exp_above(exponent, self._bits)
        return known


def _group(law: MultisetLaw, kinds: NDArray[np.int64]) -> _Group:
    """Builds the tree: each group is divided by the query that divides it most evenly."""
    answers = law.answers[:, kinds]
    low, high = answers.min(axis=1), answers.max(axis=1)
    cells = sum(law.ways[kind] for kind in kinds)
    halves = None
    if len(kinds) > 1:
        upper = answers * 2 > (low + high)[:, None]
        sizes = upper.sum(axis=1)
        best = int(np.argmax(np.where(high > low, np.minimum(sizes, len(kinds) - sizes), -1)))
        side = upper[best]
        halves = _group(law, kinds[~side]), _group(law, kinds[side])
    return _Group(kinds, cells, low, high, float((high - low).sum()), halves)
