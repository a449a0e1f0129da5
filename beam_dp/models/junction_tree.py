"""Exact marginals of log-linear weights over domains of any size.

Weights that are products of small tables need the whole domain only where attributes hang
together. A junction tree holds one table for each clique of attributes that do; two passes of
messages along it turn log-potentials into marginals (Lauritzen and Spiegelhalter, 1988).

Sums run over probabilities, not over logarithms: each clique's table is exponentiated once, shifted
by a bound on its largest value. Only where values spread so far that small ones would vanish is
the largest one sought for every message cell.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from beam_dp.models import elimination
from beam_dp.models.cascades import Cascade, broadcast_shape, sum_to

# exp keeps its precision over this range, in nats.
_SAFE_RANGE = 600.0


@dataclasses.dataclass
class Clique:
    """One table of the tree.

    ``axes``: in the order of its memory, large axes last.
    ``parent``: position of its parent, -1 for the root.
    ``separator``: axes shared with the parent, in the order of ``axes``.
    ``belief``: its normalised marginal once the tree is calibrated.
    ``tables``: what is added up in it and summed out of it: (axes in the order of ``axes``).
    """

    axes: elimination.Axes
    parent: int
    separator: elimination.Axes
    belief: NDArray[np.float64]
    tables: list[elimination.Axes]
    sets: list[list[int]]
    children: list[list[int]]
    cascade: Cascade | None = None

    @property
    def mask(self) -> int:
        """The axes as a bit mask."""
        return elimination.mask_of(self.axes)


class JunctionTree:
    """Tables of the attributes that some sets tie together, and messages between them.

    Attributes in no set are uniform. The tree holds one calibration at a time.

    ``sets``: attribute sets that carry log-potentials, as ascending axes.
    """

    def __init__(self, shape: Sequence[int], sets: Iterable[elimination.Axes]) -> None:
        self.shape = tuple(shape)
        self.sets = tuple(sets)
        masks = [elimination.mask_of(each) for each in self.sets]
        found = elimination.triangulate(self.shape, elimination.maximal_masks(masks))
        self.num_cells = found.num_cells
        self.version = 0
        self.cliques = [
            self._clique(*each) for each in elimination.join_cliques(self.shape, found.cliques)
        ]
        self._assign(masks)

    def _clique(self, mask: int, parent: int, separator: int) -> Clique:
        # The same order everywhere; operations on rows are fast where rows are long.
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
        """Gives every set to the smallest clique that holds it, and builds the cascades."""
        own: list[dict[int, tuple[list[int], list[int]]]] = [{} for _ in self.cliques]
        by_size = sorted(range(len(self.cliques)), key=lambda i: self.cliques[i].belief.size)
        clique_masks = [clique.mask for clique in self.cliques]
        for number, mask in enumerate(masks):
            home = next(i for i in by_size if mask & ~clique_masks[i] == 0)
            own[home].setdefault(mask, ([], []))[0].append(number)
        for number, clique in enumerate(self.cliques):
            if clique.parent >= 0:
                separator = elimination.mask_of(clique.separator)
                own[clique.parent].setdefault(separator, ([], []))[1].append(number)
        for clique, tables in zip(self.cliques, own, strict=True):
            for mask, (sets, children) in tables.items():
                clique.tables.append(tuple(axis for axis in clique.axes if mask >> axis & 1))
                clique.sets.append(sets)
                clique.children.append(children)
            clique.cascade = Cascade(clique.axes, self.shape, clique.tables)

    def calibrate(
        self, potentials: Sequence[NDArray[np.float64]]
    ) -> tuple[float, list[NDArray[np.float64]]]:
        """Computes the distribution proportional to exp of the sum of all potentials.

        ``potentials``: for each set, in its order, a table with one axis an attribute;
        finite, or -inf in cells that are impossible.

        Returns:
            The log of the sum of the weights over the whole domain, and for each set its marginal,
            which sums to 1. The next calibration overwrites the marginals.
        """
        self.version += 1
        with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
            log_sum, sums = self._collect(potentials)
            return log_sum, self._distribute(sums)

    def _collect(
        self, potentials: Sequence[NDArray[np.float64]]
    ) -> tuple[float, list[NDArray[np.float64]]]:
        """Passes messages to the root; leaves each belief scaled, with its sums to the parent."""
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
                # Where all is impossible nothing needs a shift.
                shift[np.isneginf(shift)] = 0.0
            clique.belief -= shift
            np.exp(clique.belief, out=clique.belief)
            sums[number] = sum_to(clique.belief, is_kept)
            own = shift.reshape(sums[number].shape if shift.size > 1 else ())
            message = np.log(sums[number]) + own
            if clique.parent >= 0:
                # Messages stay near 0, so that the bounds on a clique's values stay narrow.
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
        """Returns what is added up in a clique, and bounds on the sum."""
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
            # What a child cannot do, its parent gave no mass.
            possible = sums[number] > 0
            ratio = np.zeros(sums[number].shape)
            np.divide(shared[number], sums[number], out=ratio, where=possible)
            clique.belief *= ratio.reshape(
                broadcast_shape(clique.separator, clique.axes, self.shape)
            )
            assert clique.cascade is not None
            found = clique.cascade.sum_down(clique.belief)
            for axes, table, sets, children in zip(
                clique.tables, found, clique.sets, clique.children, strict=True
            ):
                for child in children:
                    shared[child] = table
                for each in sets:
                    marginals[each] = table.transpose(
                        [axes.index(axis) for axis in self.sets[each]]
                    )
        return marginals


def into_order(table: NDArray[np.float64], axes: elimination.Axes) -> NDArray[np.float64]:
    """Returns a table over ascending axes as one over the same axes in another order."""
    ascending = sorted(axes)
    return table.transpose([ascending.index(axis) for axis in axes])
