"""The sampler for nested queries, such as prefixes and hierarchies.

The sampler never enumerates multisets. exp(-loss / s) is the sum of exp(-L / s) - exp(-L' / s) over
all possible losses L >= loss, where L' is the next possible loss after L. So the sampler
draws L with probability proportional to this difference times the number of multisets whose loss is
at most L, and then one of these multisets uniformly. This draws y with probability proportional to
exp(-loss(y) / s). A multiset has a loss of at most L if its number of cells in each query is in
some interval. If every two queries are disjoint or nested, products of polynomials count these
multisets, from the innermost queries outwards.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from beam_dp.errors import InputError
from beam_dp.mechanisms.small_db.size import MultisetLaw, draw_cells
from beam_dp.privacy.noise.bound import as_exponent, exp_above, exp_bounds
from beam_dp.privacy.noise.source import NoiseSource

# The number of losses whose intervals are computed in one step.
_LEVELS_AT_ONCE = 256


@dataclasses.dataclass
class _Node:
    """The cells of one query, or all cells; ``queries`` have exactly these cells."""

    queries: list[int]
    children: list[int]
    cells: NDArray[np.int64]


def is_nested(answers: NDArray[np.int64]) -> bool:
    """Returns whether every query has a single value > 0, and any two are disjoint or nested."""
    # ``answers``: shape (num_queries, num_types), >= 0.
    support = (answers > 0).astype(np.float64)
    if ((answers > 0) & (answers != answers.max(axis=1, keepdims=True, initial=0))).any():
        return False
    common, sizes = support @ support.T, support.sum(axis=1)
    return bool(((common == 0) | (common == np.minimum.outer(sizes, sizes))).all())


def num_products(num_queries: int, size: int) -> int:
    """Returns the number of products of polynomials, which determines the sampler's time."""
    return (num_queries + 1) ** 2 * (size + 1)


class NestedSampler:
    """Draws exactly from a ``MultisetLaw`` whose queries are nested, in polynomial time.

    Exact arithmetic: numbers of multisets are integers of any size. Doubles are only used for upper
    bounds on the weights of losses. A loss is drawn in proportion to these bounds and kept with
    probability weight / bound, tossed exactly; the toss fails once in 10^9 draws.
    """

    name: ClassVar[str] = "nested"

    def __init__(self, law: MultisetLaw) -> None:
        if not is_nested(law.answers):
            raise InputError("sampler", self.name, "needs queries that are disjoint or nested")
        self._law = law
        self._nodes = _forest(law)
        self._width = law.num_multisets.bit_length()
        # A polynomial is one integer, with the coefficient of z^d at bit d * width. No coefficient
        # up to z^size exceeds the number of all multisets.
        self._below = [(1 << self._width * degree) - 1 for degree in range(law.size + 2)]
        self._own = [
            self._pack([math.comb(len(n.cells) + c - 1, c) for c in range(law.size + 1)])
            if len(n.cells)
            else 1
            for n in self._nodes
        ]
        self._values = [int(v) for v in law.answers.max(axis=1, initial=0)]
        self._levels = self._all_levels()
        self._weigh()

    def draw(self, noise: NoiseSource) -> NDArray[np.int64]:
        """Returns the cells of one drawn multiset in ascending order."""
        while True:
            drawn = noise.below(self._cumulative[-1])
            level = bisect_right(self._cumulative, drawn)
            if noise.coin(lambda bits, level=level: self._share(level, bits)):  # type: ignore[misc]
                break
        factors: list[list[int]] = []
        self._count(self._intervals(level, level + 1)[0], factors)
        cells: list[int] = []
        pending = [(len(self._nodes) - 1, self._law.size)]
        while pending:
            number, size = pending.pop()
            node = self._nodes[number]
            # factors[number]: the products of the node's own polynomial and its first children's.
            for position in range(len(node.children), 0, -1):
                child = node.children[position - 1]
                taken = self._split(factors[number][position - 1], factors[child][-1], size, noise)
                pending.append((child, taken))
                size -= taken
            if size:
                cells += draw_cells(node.cells, size, noise)
        return np.sort(np.array(cells, np.int64))

    def _split(self, first: int, second: int, size: int, noise: NoiseSource) -> int:
        """Draws how many of ``size`` cells belong to the second of two factors."""
        cumulative = list(
            accumulate(
                self._coefficient(first, size - taken) * self._coefficient(second, taken)
                for taken in range(size + 1)
            )
        )
        return bisect_right(cumulative, noise.below(cumulative[-1]))

    def _all_levels(self) -> list[int]:
        """Returns the possible losses of all queries, ascending and with repetitions.

        A query without cells has a fixed loss, and no multiset has a smaller loss than the largest
        of these. Repetitions make the number of losses depend on public parameters only.
        """
        law = self._law
        least, losses = 0, []
        for target, value in zip(law.targets, self._values, strict=True):
            if value:
                losses += [abs(target - value * count) for count in range(law.size + 1)]
            else:
                least = max(least, abs(target))
        return sorted(max(loss, least) for loss in [*losses, least])

    def _weigh(self) -> None:
        """Counts, per loss, the multisets with no larger loss; bounds the weights from above."""
        levels = self._levels
        counts: list[int] = []
        for start in range(0, len(levels), _LEVELS_AT_ONCE):
            intervals = self._intervals(start, start + _LEVELS_AT_ONCE)
            counts += [self._count(interval) for interval in intervals]
        reference = levels[next(index for index, count in enumerate(counts) if count)]
        self._exponents = [max(level - reference, 0) / self._law.scale for level in levels]
        self._bits = self._width + 40
        self._bounds: list[int] = []
        for index, exponent in enumerate(self._exponents):
            log = as_exponent(exponent)
            if index + 1 < len(levels):
                step = as_exponent(self._exponents[index + 1] - exponent)
                log = log - math.log(-math.expm1(-step)) if step > 0 else math.inf
            self._bounds.append(exp_above(log, self._bits) if log < math.inf else 0)
        self._cumulative = list(
            accumulate(count * bound for count, bound in zip(counts, self._bounds, strict=True))
        )

    def _share(self, level: int, bits: int) -> tuple[int, int]:
        """Returns bounds on (weight of a loss) / (upper bound on it), in units of 2^-bits."""
        bound = self._bounds[level]
        low, high = exp_bounds(self._exponents[level], bits + self._bits)
        if level + 1 < len(self._exponents):
            next_low, next_high = exp_bounds(self._exponents[level + 1], bits + self._bits)
            low, high = max(low - next_high, 0), high - next_low
        return low // bound, -(-high // bound)

    def _intervals(self, start: int, stop: int) -> list[list[tuple[int, int]]]:
        """Returns, per loss, the least and the largest number of cells that each node may have."""
        size = self._law.size
        levels = np.array(self._levels[start:stop], np.int64)
        columns = []
        for node in self._nodes:
            low, high = np.zeros(len(levels), np.int64), np.full(len(levels), size)
            for query in node.queries:
                target, value = self._law.targets[query], self._values[query]
                low = np.maximum(low, -((levels - target) // value))
                high = np.minimum(high, (levels + target) // value)
            columns.append(list(zip(low.tolist(), high.tolist(), strict=True)))
        return list(map(list, zip(*columns, strict=True)))

    def _count(
        self, intervals: Sequence[tuple[int, int]], factors: list[list[int]] | None = None
    ) -> int:
        """Returns the number of multisets within the intervals of all nodes.

        ``factors``: if given, receives for each node the products of its first factors, and last
        the full product cut to the node's interval.
        """
        below, all_degrees = self._below, self._below[-1]
        polynomials: list[int] = []
        for node, first, (low, high) in zip(self._nodes, self._own, intervals, strict=True):
            product = first
            products = [first]
            for child in node.children:
                product = product * polynomials[child] & all_degrees
                products.append(product)
            product = product & (below[high + 1] ^ below[low]) if low <= high else 0
            polynomials.append(product)
            if factors is not None:
                factors.append([*products, product])
        return self._coefficient(polynomials[-1], self._law.size)

    def _coefficient(self, polynomial: int, degree: int) -> int:
        return polynomial >> self._width * degree & self._below[1]

    def _pack(self, coefficients: Sequence[int]) -> int:
        return sum(value << self._width * degree for degree, value in enumerate(coefficients))


def _forest(law: MultisetLaw) -> list[_Node]:
    """Returns the nodes, inner nodes first; the last node contains all cells."""
    support = law.answers > 0
    by_support: dict[bytes, list[int]] = {}
    for query, row in enumerate(support):
        if row.any():
            by_support.setdefault(row.tobytes(), []).append(query)
    everything = np.ones(law.num_types, bool)
    by_support.setdefault(everything.tobytes(), [])
    rows = sorted((np.frombuffer(key, bool) for key in by_support), key=np.count_nonzero)
    nodes: list[_Node] = []
    owner = np.full(law.num_types, -1)  # per type, the last created node that contains the type
    for number, row in enumerate(rows):
        inside = owner[row]
        children = sorted({int(child) for child in inside} - {-1})
        loose = [law.members[kind] for kind in np.flatnonzero(row) if owner[kind] < 0]
        cells = np.concatenate(loose) if loose else np.zeros(0, np.int64)
        nodes.append(_Node(by_support[row.tobytes()], children, cells))
        owner[row] = number
    return nodes
