"""Exact marginals of log-linear weights over domains of any size.

If weights are products of small tables, only groups of connected attributes need a joint table. A
junction tree has one table per clique of connected attributes. Two passes of messages along the
tree turn log-potentials into marginals (Lauritzen and Spiegelhalter, 1988).

Sums add probabilities, not logarithms: each clique's table is exponentiated once, shifted by a
bound on its largest value. If the range of values is so wide that small values would underflow, the
shift is instead the exact maximum, found separately for each message cell.

A marginal over any attributes, even of different cliques, is collected at one clique. Every
neighbour whose side of the tree has wanted attributes sends the distribution of these attributes,
given the attributes shared with the receiver. One message is enough for all marginals that need
the same attributes from one side, and one cascade computes all sums of one clique's table.

Records are rounded without randomness. Records that agree on the attributes that determine the next
attribute's distribution are adjacent in an ordering. A low-discrepancy sequence along this ordering
decides the codes, so that in every run of adjacent records the number of each code is its expected
number up to a logarithmic error. The sequence of each attribute is scrambled by a different hash:
without scrambling, the sequences would correlate attributes that are independent in the tree (Owen,
1995; Laine and Karras, 2011).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Axes
from beam_dp.models import elimination
from beam_dp.models.elimination import Cascade, axes_of, broadcast_shape, mask_of, sum_to

# The range of exponents, in nats, over which exp keeps its precision.
_SAFE_RANGE = 600.0


@dataclasses.dataclass
class Clique:
    """One table of the tree."""

    axes: Axes  # in memory order, large axes last
    parent: int  # the position of the parent clique; -1 for the root
    separator: Axes  # the axes shared with the parent, in the order of ``axes``
    belief: NDArray[np.float64]  # the normalised marginal, after calibration
    tables: list[Axes]  # the axes of tables added to or summed out of this one
    sets: list[list[int]]
    children: list[list[int]]
    cascade: Cascade | None = None

    @property
    def mask(self) -> int:
        """The axes as a bit mask."""
        return elimination.mask_of(self.axes)


class JunctionTree:
    """Tables of the cliques that attribute sets connect, and messages between these cliques.

    Attributes outside all sets are uniform. The tree stores only its latest calibration.

    ``sets``: the attribute sets of the log-potentials, as ascending axes.
    """

    def __init__(self, shape: Sequence[int], sets: Iterable[Axes]) -> None:
        self.shape = tuple(shape)
        self.sets = tuple(sets)
        masks = [elimination.mask_of(axes) for axes in self.sets]
        cover = elimination.triangulate(self.shape, elimination.maximal_masks(masks))
        self.num_cells = cover.num_cells
        self.version = 0
        self.cliques = [
            self._clique(*clique) for clique in elimination.join_cliques(self.shape, cover.cliques)
        ]
        self._assign(masks)

    def _clique(self, mask: int, parent: int, separator: int) -> Clique:
        # All cliques use one order of axes, with the largest axes last: long rows are fast.
        axes = tuple(sorted(elimination.axes_of(mask), key=lambda axis: (self.shape[axis], axis)))
        return Clique(
            axes=axes,
            parent=parent,
            separator=tuple(axis for axis in axes if separator >> axis & 1),
            belief=np.empty([self.shape[axis] for axis in axes]),
            tables=[],
            sets=[],
            children=[],
        )

    def _assign(self, masks: Sequence[int]) -> None:
        """Assigns every set to the smallest clique that contains it, and builds the cascades."""
        mask_tables: list[dict[int, tuple[list[int], list[int]]]] = [{} for _ in self.cliques]
        by_size = sorted(range(len(self.cliques)), key=lambda i: self.cliques[i].belief.size)
        clique_masks = [clique.mask for clique in self.cliques]
        for number, mask in enumerate(masks):
            home = next(i for i in by_size if mask & ~clique_masks[i] == 0)
            mask_tables[home].setdefault(mask, ([], []))[0].append(number)
        for number, clique in enumerate(self.cliques):
            if clique.parent >= 0:
                separator = elimination.mask_of(clique.separator)
                mask_tables[clique.parent].setdefault(separator, ([], []))[1].append(number)
        for clique, tables in zip(self.cliques, mask_tables, strict=True):
            for mask, (sets, children) in tables.items():
                clique.tables.append(tuple(axis for axis in clique.axes if mask >> axis & 1))
                clique.sets.append(sets)
                clique.children.append(children)
            clique.cascade = Cascade(clique.axes, self.shape, clique.tables)

    def calibrate(
        self, potentials: Sequence[NDArray[np.float64]]
    ) -> tuple[float, list[NDArray[np.float64]]]:
        """Computes the distribution proportional to exp of the sum of all potentials.

        Potentials are finite, or -inf in impossible cells; each has one axis per attribute of its
        set, in order. Returns the log of the sum of the weights over the whole domain, and one
        marginal per set, which sums to 1. The next calibration overwrites the marginals.
        """
        self.version += 1
        with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
            log_sum, sums = self._collect(potentials)
            return log_sum, self._distribute(sums)

    def _collect(
        self, potentials: Sequence[NDArray[np.float64]]
    ) -> tuple[float, list[NDArray[np.float64]]]:
        """Passes messages to the root; stores scaled beliefs and their sums over separators."""
        messages: list[NDArray[np.float64]] = [np.zeros(())] * len(self.cliques)
        sums = list(messages)
        log_sum = 0.0
        for number in range(len(self.cliques) - 1, -1, -1):
            clique = self.cliques[number]
            tables, highest, lowest = self._log_tables(clique, potentials, messages)
            assert clique.cascade is not None
            clique.cascade.add_up(tables, clique.belief)
            is_kept = tuple(axis in clique.separator for axis in clique.axes)
            shift = np.full((1,) * len(clique.axes), highest)
            if not highest - lowest < _SAFE_RANGE:
                summed = tuple(i for i, kept in enumerate(is_kept) if not kept)
                shift = clique.belief.max(axis=summed, keepdims=True)
                # If all cells are impossible, the maximum is -inf, which cannot be subtracted.
                shift[np.isneginf(shift)] = 0.0
            clique.belief -= shift
            np.exp(clique.belief, out=clique.belief)
            sums[number] = sum_to(clique.belief, is_kept)
            scale = shift.reshape(sums[number].shape if shift.size > 1 else ())
            message = np.log(sums[number]) + scale
            if clique.parent >= 0:
                # Shift messages close to 0, so that the bounds on a clique's values stay narrow.
                largest = float(message.max())
                if largest == -math.inf:
                    raise ValueError("every cell of the domain is impossible")
                messages[number] = message - largest
                log_sum += largest
            else:
                log_sum += float(message)
        if log_sum == -math.inf:
            raise ValueError("every cell of the domain is impossible")
        return log_sum, sums

    def _log_tables(
        self,
        clique: Clique,
        potentials: Sequence[NDArray[np.float64]],
        messages: Sequence[NDArray[np.float64]],
    ) -> tuple[list[NDArray[np.float64] | None], float, float]:
        """Returns the log-tables to add up in a clique, and bounds on the sum."""
        tables: list[NDArray[np.float64] | None] = []
        highest = lowest = 0.0
        for axes, sets, children in zip(clique.tables, clique.sets, clique.children, strict=True):
            parts = [into_order(potentials[number], axes) for number in sets]
            parts += [messages[child] for child in children]
            table = parts[0]
            for part in parts[1:]:
                table = table + part
            tables.append(table)
            highest += float(table.max())
            lowest += float(table.min())
        return tables, highest, lowest

    def _distribute(self, sums: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
        """Passes messages from the root; returns the marginals of the sets."""
        shared = [np.ones(())] * len(self.cliques)
        marginals = [np.ones(())] * len(self.sets)
        for number, clique in enumerate(self.cliques):
            # Cells that are impossible for a child have no mass in its parent.
            possible = sums[number] > 0
            ratio = np.zeros(sums[number].shape)
            np.divide(shared[number], sums[number], out=ratio, where=possible)
            clique.belief *= ratio.reshape(
                broadcast_shape(clique.separator, clique.axes, self.shape)
            )
            assert clique.cascade is not None
            summed = clique.cascade.sum_down(clique.belief)
            for axes, table, sets, children in zip(
                clique.tables, summed, clique.sets, clique.children, strict=True
            ):
                for child in children:
                    shared[child] = table
                for names in sets:
                    marginals[names] = table.transpose(
                        [axes.index(axis) for axis in self.sets[names]]
                    )
        return marginals


def into_order(table: NDArray[np.float64], axes: Axes) -> NDArray[np.float64]:
    """Transposes a table from ascending axes to another order of the same axes."""
    ascending = sorted(axes)
    return table.transpose([ascending.index(axis) for axis in axes])


# A message: sender, receiver, and the wanted attributes on the sender's side (a mask).
_Message = tuple[int, int, int]


def tree_marginals(tree: JunctionTree, wanted: Iterable[Axes]) -> list[NDArray[np.float64]]:
    """Returns copies of marginals of a calibrated tree; each marginal sums to 1."""
    with np.errstate(divide="ignore", invalid="ignore", under="ignore"):
        return _Marginals(tree, [mask_of(axes) for axes in wanted]).tables()


class _Marginals:
    """Plans all needed sums of beliefs first, and then computes the marginals."""

    def __init__(self, tree: JunctionTree, wanted: list[int]) -> None:
        self._tree = tree
        self._wanted = wanted
        self._masks = [clique.mask for clique in tree.cliques]
        self._neighbours: list[dict[int, int]] = [{} for _ in tree.cliques]
        for number, clique in enumerate(tree.cliques):
            if clique.parent >= 0:
                separator = mask_of(clique.separator)
                self._neighbours[number][clique.parent] = separator
                self._neighbours[clique.parent][number] = separator
        self._sides: dict[tuple[int, int], int] = {}
        self._costs: dict[_Message, float] = {}
        self._cells: dict[int, int] = {}
        self._needed: list[set[int]] = [set() for _ in tree.cliques]
        self._sums: list[dict[int, NDArray[np.float64]]] = []
        self._messages: dict[_Message, tuple[Axes, NDArray[np.float64]]] = {}
        self._planned: set[_Message] = set()

    def tables(self) -> list[NDArray[np.float64]]:
        roots = {mask: self._root_of(mask) for mask in set(self._wanted)}
        for mask, root in roots.items():
            self._plan(root, -1, mask)
        for number, clique in enumerate(self._tree.cliques):
            needed = [
                tuple(axis for axis in clique.axes if mask >> axis & 1)
                for mask in sorted(self._needed[number])
            ]
            sums: list[NDArray[np.float64]] = []
            if needed:
                sums = Cascade(clique.axes, self._tree.shape, needed).sum_down(clique.belief)
            self._sums.append(
                {mask_of(axes): table for axes, table in zip(needed, sums, strict=True)}
            )
        done = {mask: self._collect(root, -1, mask) for mask, root in roots.items()}
        results = []
        for mask in self._wanted:
            axes, table = done[mask]
            # Return copies, because the cascades reuse the tables.
            results.append(table.transpose([axes.index(axis) for axis in axes_of(mask)]).copy())
        return results

    def _side(self, sender: int, receiver: int) -> int:
        """Returns the attributes that occur only on the sender's side of an edge."""
        key = sender, receiver
        if key not in self._sides:
            side = self._masks[sender]
            for other in self._neighbours[sender]:
                if other != receiver:
                    side |= self._side(other, sender)
            if receiver >= 0:
                side &= ~self._neighbours[sender][receiver]
            self._sides[key] = side
        return self._sides[key]

    def _received(self, clique: int, receiver: int, wanted: int) -> list[_Message]:
        """Returns the messages that a clique needs from its neighbours."""
        result = []
        for other in self._neighbours[clique]:
            if other != receiver:
                part = wanted & self._side(other, clique)
                if part:
                    result.append((other, clique, part))
        return result

    def _num_cells(self, mask: int) -> int:
        if mask not in self._cells:
            self._cells[mask] = math.prod(self._tree.shape[axis] for axis in axes_of(mask))
        return self._cells[mask]

    def _steps(self, clique: int, receiver: int, wanted: int) -> tuple[int, int, list[_Message]]:
        """Returns masks of the attributes to keep and to use from the belief, and the messages."""
        kept = wanted
        if receiver >= 0:
            kept |= self._neighbours[clique][receiver]
        messages = self._received(clique, receiver, wanted)
        needed = kept & self._masks[clique]
        for other, _, _ in messages:
            needed |= self._neighbours[clique][other]
        # Small messages are multiplied first.
        messages.sort(key=lambda message: self._num_cells(message[2]))
        return kept, needed, messages

    def _cost(self, clique: int, receiver: int, wanted: int) -> float:
        """Returns the number of operations for a message, or for a marginal without a receiver."""
        key = clique, receiver, wanted
        if key not in self._costs:
            kept, needed, messages = self._steps(clique, receiver, wanted)
            cost = float(self._num_cells(needed))
            for number, (other, _, part) in enumerate(messages):
                cost += self._cost(other, clique, part)
                cost += float(self._num_cells(needed | part))
                needed |= part
                later = kept
                for neighbour, _, _ in messages[number + 1 :]:
                    later |= self._neighbours[clique][neighbour]
                needed &= later
            self._costs[key] = cost
        return self._costs[key]

    def _root_of(self, wanted: int) -> int:
        """Returns the clique that computes a marginal with the fewest operations."""
        holding = [i for i, mask in enumerate(self._masks) if wanted & ~mask == 0]
        if holding:
            return min(holding, key=lambda i: self._num_cells(self._masks[i]))
        touched = [i for i, mask in enumerate(self._masks) if wanted & mask]
        # A clique without wanted attributes may be the cheapest if it is between other cliques.
        candidates = touched if len(self._masks) > 64 else range(len(self._masks))
        return min(candidates, key=lambda i: self._cost(i, -1, wanted))

    def _plan(self, clique: int, receiver: int, wanted: int) -> None:
        key = clique, receiver, wanted
        if key in self._planned:
            return
        self._planned.add(key)
        _, needed, messages = self._steps(clique, receiver, wanted)
        self._needed[clique].add(needed)
        if receiver >= 0:
            self._needed[clique].add(self._neighbours[clique][receiver])
        for other, _, part in messages:
            self._plan(other, clique, part)

    def _collect(self, clique: int, receiver: int, wanted: int) -> tuple[Axes, NDArray[np.float64]]:
        key = clique, receiver, wanted
        if key in self._messages:
            return self._messages[key]
        kept, needed, messages = self._steps(clique, receiver, wanted)
        order = self._tree.cliques[clique].axes
        table = self._sums[clique][needed]
        axes = tuple(axis for axis in order if needed >> axis & 1)
        if receiver >= 0:
            separator = self._neighbours[clique][receiver]
            sums = self._sums[clique][separator]
            shape = [self._tree.shape[a] if separator >> a & 1 else 1 for a in axes]
            sums = sums.reshape(shape)
            table = np.divide(table, sums, out=np.zeros(table.shape), where=sums > 0)
        for number, message in enumerate(messages):
            later = kept
            for neighbour, _, _ in messages[number + 1 :]:
                later |= self._neighbours[clique][neighbour]
            axes, table = _product(axes, table, *self._collect(*message), later)
        self._messages[key] = axes, table
        return axes, table


def _product(
    left_axes: Axes,
    left: NDArray[np.float64],
    right_axes: Axes,
    right: NDArray[np.float64],
    kept: int,
) -> tuple[Axes, NDArray[np.float64]]:
    """Returns the product of two tables, summed over the shared axes that are not kept."""
    shared = [axis for axis in left_axes if axis in right_axes]
    both = [axis for axis in shared if kept >> axis & 1]
    summed = [axis for axis in shared if not kept >> axis & 1]
    only_left = [axis for axis in left_axes if axis not in shared]
    only_right = [axis for axis in right_axes if axis not in shared]

    def block(axes: Axes, table: NDArray[np.float64], *groups: list[int]) -> NDArray[np.float64]:
        sizes = dict(zip(axes, table.shape, strict=True))
        ordered = table.transpose([axes.index(axis) for group in groups for axis in group])
        return ordered.reshape([math.prod(sizes[axis] for axis in group) for group in groups])

    product = np.matmul(
        block(left_axes, left, both, only_left, summed),
        block(right_axes, right, both, summed, only_right),
    )
    axes = (*both, *only_left, *only_right)
    sizes = dict(zip((*left_axes, *right_axes), (*left.shape, *right.shape), strict=True))
    return axes, product.reshape([sizes[axis] for axis in axes])


# Multipliers of Laine and Karras's hash: they are even, so bits depend on lower bits only.
_MULTIPLIERS = (0x6C50B47C, 0xB82F1E52, 0xC7AFE638, 0x8D22F6E6)
# Keeps positions below the last cumulative probability by more than rounding errors.
_BELOW_ONE = 1 - 1e-9


def tree_records(tree: JunctionTree, num_records: int) -> NDArray[np.int32]:
    """Returns records whose marginals within each clique are close to the tree's.

    Returns: shape (number of attributes, num_records), int32: the codes of each attribute. Cells of
        probability 0 get no records. The order of the records has no meaning.
    """
    codes = np.zeros((len(tree.shape), num_records), dtype=np.int32)
    order = np.arange(num_records)
    for clique in tree.cliques:
        decided = list(clique.separator)
        # Large attributes come first: fewer records then end in groups too small to balance.
        for axis in reversed(clique.axes):
            if axis in decided:
                continue
            table = sum_to(
                clique.belief, tuple(other in decided or other == axis for other in clique.axes)
            )
            kept = [other for other in clique.axes if other in decided or other == axis]
            parents = [other for other in kept if other != axis]
            rows = np.moveaxis(table, kept.index(axis), -1).reshape(-1, tree.shape[axis])
            groups = np.zeros(num_records, dtype=np.int64)
            for other in parents:
                groups = groups * tree.shape[other] + codes[other]
            order = order[np.argsort(groups[order], kind="stable")]
            codes[axis, order] = _codes(rows, groups[order], _positions(num_records, axis))
            decided.append(axis)
            # Sort by this code, too, so that later attributes are balanced over it if possible.
            order = order[np.argsort(codes[axis, order], kind="stable")]
    return codes


def _positions(length: int, seed: int) -> NDArray[np.float64]:
    """Returns a scrambled van der Corput sequence, in [0, 1)."""
    bits = np.arange(length, dtype=np.uint32) + np.uint32((seed + 1) * 0x9E3779B9 % 2**32)
    for multiplier in _MULTIPLIERS:
        bits ^= bits * np.uint32(multiplier)
    # The lowest bits of the number become the highest bits of the position.
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        low = (bits & np.uint32(mask)) << np.uint32(shift)
        bits = low | (bits >> np.uint32(shift)) & np.uint32(mask)
    bits = bits << np.uint32(16) | bits >> np.uint32(16)
    return bits.astype(np.float64) * (_BELOW_ONE / 2**32)


def _codes(
    rows: NDArray[np.float64], groups: NDArray[np.int64], positions: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Returns, per record, the code at its position in its group's cumulative probabilities.

    ``rows``: the weights of the codes per group, shape (num_groups, size). ``groups``,
    ``positions``: the group and the position in [0, 1) per record, shape (num_records,).
    """
    used, ranks = np.unique(groups, return_inverse=True)
    ends = np.cumsum(rows[used], axis=1)
    # A group whose weights all underflowed may take any code.
    lost = ends[:, -1] <= 0
    ends[lost] = np.arange(1, rows.shape[1] + 1)
    ends /= ends[:, -1:]
    # Search all rows at once: row r covers the numbers from r to r + 1.
    ends += np.arange(len(used))[:, None]
    places = np.searchsorted(ends.ravel(), ranks + positions, side="right")
    codes: NDArray[np.int64] = places - ranks * rows.shape[1]
    return codes
