"""The probability distribution of small databases: multisets of cells, weighted by their errors.

A multiset's weight is at most a product of weights of its cells: a loss is the largest of many
excesses, so the loss is at least any average of excesses, and an average is a sum over the cells
of a multiset. exp(-loss / scale) is therefore at most a product of weights of cells. The sum of
these products over all multisets of one size is a coefficient of a product of power series.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from beam_dp.privacy.noise.bound import exp_above
from beam_dp.privacy.noise.source import NoiseSource

# Exact answers are clipped here to fit 64 bits. Clipping doesn't raise the sensitivity.
MAX_TARGET = 2**61
MAX_ANSWER = 2**60


@dataclasses.dataclass(frozen=True, eq=False)
class MultisetLaw:
    """A distribution over multisets y of one size: P(y) is proportional to exp(-loss(y) / scale).

    The loss is the integer max over q of |target(q) - sum of answers(q, x) over x in y|. Cells
    with equal answers to every query have the same type; multisets of one size from the cells of
    one type are equally likely. ``size`` times the largest answer is at most 2^60.
    """

    targets: tuple[int, ...]  # one per query, 0 <= target <= 2^61; secret
    answers: NDArray[np.int64]  # shape (num_queries, num_types), >= 0, distinct columns
    members: tuple[NDArray[np.int64], ...]  # the cells of each type
    size: int  # the number of cells in a multiset, >= 1
    scale: Fraction

    @property
    def num_types(self) -> int:
        """The number of distinct columns."""
        return len(self.members)

    @cached_property
    def ways(self) -> tuple[int, ...]:
        """The number of cells of each type."""
        return tuple(len(cells) for cells in self.members)

    @property
    def num_multisets(self) -> int:
        """The number of multisets of cells."""
        return math.comb(sum(self.ways) + self.size - 1, self.size)


def draw_cells(cells: NDArray[np.int64], size: int, noise: NoiseSource) -> list[int]:
    """Returns a uniformly drawn multiset of the given size from some cells.

    Multisets of c from k cells correspond to sets of c from k + c - 1 places (stars and bars).
    Floyd's algorithm draws such a set with c uniform integers.
    """
    places = len(cells) + size - 1
    chosen: set[int] = set()
    for last in range(places - size, places):
        place = noise.below(last + 1)
        chosen.add(last if place in chosen else place)
    return [int(cells[place - rank]) for rank, place in enumerate(sorted(chosen))]


# Weights of cells are integers in units of 2^-64.
TILT_BITS = 64
# The weight of the excesses in the average; the least known loss gets the rest of the weight.
_MASSES = (1.0, 0.75, 0.5, 0.25)
_NUM_STEPS = 150
_MARGIN = 1e-9
_RELATIVE_MARGIN = 1e-12


@dataclasses.dataclass(frozen=True, eq=False)
class Tilt:
    """An upper bound on weights: exp(-rest * (least known loss) / scale) times weights of cells."""

    rest: float  # the part of the average that is not excesses, >= 0
    weights: tuple[int, ...]  # the weight of a cell, per type; in units of 2^-64


def find_tilts(law: MultisetLaw, least: int) -> list[Tilt]:
    """Returns several upper bounds on weights; their sums over all multisets are nearly minimal.

    In the first bound, the plain tilt, all cells have weight 1. The law and everything
    derived from the law are secret.

    Reference: for each mass, the sum of all bounds is convex in the shares of the average.
    Exponentiated gradient descent reduces it (Kivinen and Warmuth, 1997).
    """
    plain = Tilt(1.0, (1 << TILT_BITS,) * law.num_types)
    offsets = [target + least for target in law.targets]
    offsets += [least - target for target in law.targets]
    answers = np.concatenate([law.answers, -law.answers])
    most = law.size * answers.max(axis=1)
    # The answers to the remaining queries are never off by more than the least loss.
    useful = [number for number, offset in enumerate(offsets) if most[number] > offset]
    if not useful:
        return [plain]
    scale = float(law.scale)
    excess = answers[useful] / scale
    excess -= np.array([offsets[number] / law.size / scale for number in useful])[:, None]
    margin = _MARGIN + _RELATIVE_MARGIN * float(np.abs(excess).max())
    tilts = [plain]
    for mass in _MASSES:
        exponents = -(_best_shares(excess, law, mass) @ excess) + margin
        top = max(math.ceil(float(exponents.max()) / math.log(2)), 0)
        weights = tuple(
            exp_above(top * math.log(2) - each, TILT_BITS + top) for each in exponents.tolist()
        )
        tilts.append(Tilt(1 - mass, weights))
    return tilts


def _best_shares(excess: NDArray[np.float64], law: MultisetLaw, mass: float) -> NDArray[np.float64]:
    ways = np.array(law.ways, np.float64)
    shares = np.full(len(excess), mass / len(excess))
    best, least = shares, math.inf
    for step in range(_NUM_STEPS):
        value, numbers = _log_sum(-(shares @ excess), ways, law.size)
        if value < least:
            best, least = shares, value
        slopes = excess @ numbers  # the derivatives of minus the logarithm
        spread = float(np.ptp(slopes))
        if spread <= 0:
            break
        rate = 4 * math.sqrt(math.log(len(shares) + 1) / (step + 1)) / spread
        logs = np.log(np.maximum(shares, 1e-300)) + rate * (slopes - slopes.max())
        shares = np.exp(logs - logs.max())
        shares *= mass / shares.sum()
    return best


def _log_sum(
    exponents: NDArray[np.float64], ways: NDArray[np.float64], size: int
) -> tuple[float, NDArray[np.float64]]:
    """Returns the log of the sum over all multisets, and the expected number of cells per type."""
    top = float(exponents.max())
    powers = np.exp(np.multiply.outer(np.arange(1, size + 1), exponents - top))
    sums = powers @ ways
    coefficients = np.ones(size + 1)
    for degree in range(1, size + 1):
        coefficients[degree] = sums[:degree] @ coefficients[degree - 1 :: -1][:degree] / degree
    numbers = ways * (coefficients[size - 1 :: -1][:size] @ powers) / coefficients[size]
    return float(np.log(coefficients[size])) + size * top, numbers
