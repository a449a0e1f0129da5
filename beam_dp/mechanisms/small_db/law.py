"""The law of small databases: multisets of cells, weighted by how well they answer."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from beam_dp.noise.source import NoiseSource

# Exact answers saturate here: a clipped one moves no more, and no difference wraps.
MAX_TARGET = 2**61
MAX_ANSWER = 2**60


@dataclasses.dataclass(frozen=True, eq=False)
class MultisetLaw:
    """P(y) proportional to exp(-loss(y) / scale) over multisets y of cells, of one size.

    The loss is the largest |target(q) - sum of answers(q, x) over x in y|, all in integers. Cells
    with the same answers to every query are of one type; all multisets of a type's cells that have
    the same size are equally likely.

    Args:
        targets: one for each query, 0 <= target <= 2^61; secret.
        answers: shape (num_queries, num_types), int64, >= 0, distinct columns; ``size`` times the
            largest is at most 2^60.
        members: the cells of each type.
        size: of the multisets, >= 1.
        scale: > 0.
    """

    targets: tuple[int, ...]
    answers: NDArray[np.int64]
    members: tuple[NDArray[np.int64], ...]
    size: int
    scale: Fraction

    @property
    def num_types(self) -> int:
        """Returns the number of distinct columns."""
        return len(self.members)

    @cached_property
    def ways(self) -> tuple[int, ...]:
        """Returns the number of cells of each type."""
        return tuple(len(cells) for cells in self.members)

    @property
    def num_multisets(self) -> int:
        """Returns the number of multisets of cells."""
        return math.comb(sum(self.ways) + self.size - 1, self.size)


class Sampler(Protocol):
    """Draws from a law; what does not depend on a draw is computed when it is made."""

    name: ClassVar[str]

    def draw(self, noise: NoiseSource) -> NDArray[np.int64]:
        """Returns one multiset as its cells in ascending order, shape (size,)."""
        ...


def draw_cells(cells: NDArray[np.int64], size: int, noise: NoiseSource) -> list[int]:
    """Returns a uniform multiset of a size from some cells.

    Multisets of c among k cells are sets of c among k + c - 1 places (stars and bars), of which
    Floyd's algorithm draws one with c uniform integers.
    """
    places = len(cells) + size - 1
    chosen: set[int] = set()
    for last in range(places - size, places):
        place = noise.below(last + 1)
        chosen.add(last if place in chosen else place)
    return [int(cells[place - rank]) for rank, place in enumerate(sorted(chosen))]
