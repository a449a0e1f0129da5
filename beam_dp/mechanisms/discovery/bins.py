"""Finds the bins of a column of numbers, dates or times, from noisy counts of its leaves.

Every leaf has a count, and every node of a tree over the leaves has the sum of its leaves. All
counts get noise, and the least-squares fit to them estimates how many units lie below each leaf.
The bins are the segments of a line through these estimates: again and again, the segment with the
largest error is split. So values that are drawn uniformly within their bins are close to the true
values, in ranks and in magnitude, whatever the shape of the distribution.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer
from beam_dp.domain.discover import GRID
from beam_dp.domain.ordered import BinnedAttribute
from beam_dp.errors import InputError
from beam_dp.interval_strategies.hierarchy import Hierarchy, best_tree
from beam_dp.noise.bound import Distribution, noise_variance
from beam_dp.noise.source import MAX_SCALE, NoiseSource
from beam_dp.privacy.accounting import discrete_parameter
from beam_dp.privacy.guarantee import Neighboring
from beam_dp.privacy.rounding import Real, up
from beam_dp.releases.intervals.release import nearest_increasing

# Counts of at most so many standard errors: ends of the range that are cut off, and bins that are
# not made. Far values cost more than narrow bins do. Both are chosen by measured errors
# (benchmarks/discovery.py).
_END_ERRORS, _BIN_ERRORS = 2.0, 1.0
# How much an error in ranks weighs against the same share of an error in numbers of leaves.
_RANKS_WEIGHT = 1.0

Values = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Bins:
    """The bins that were found: unions of leaves.

    ``cuts``: the positions of the edges of the bins among the edges of the leaves, increasing.
    ``counts``: the noisy number of units in each bin, a unit with several records in parts; as
    estimated for fixed bins, though the bins were chosen by the same noise.
    ``standard_errors``: the standard errors of the counts.
    """

    cuts: tuple[int, ...]
    counts: tuple[float, ...]
    standard_errors: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class BinsPlan:
    """The public parameters for finding the bins of one column. Made by ``plan_bins``.

    Privacy: counting the leaves is the only step that reads records, and its noise has the loss of
    ``domain_steps``, under the relation ``neighboring``, for units whose counts add up to at most
    ``grid``. The bins and the counts follow from the noisy sums.
    """

    leaves: BinnedAttribute  # the leaves that are counted
    num_bins: int  # the largest number of bins
    neighboring: Neighboring
    distribution: Distribution
    scale: float  # of the noise, in grid steps
    grid: int = GRID  # how many grid steps are one unit

    @property
    def strategy(self) -> Hierarchy:
        """The tree of sums that are measured."""
        return best_tree(
            self.leaves.num_levels, 1 if self.distribution == "discrete_laplace" else 2
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the noise as a card states it."""
        return {
            "measured": self.leaves.name,
            "distribution": self.distribution,
            "scale": self.scale,
            "grid": self.grid,
            "levels": list(self.strategy.sizes[1:]),
        }

    @functools.cached_property
    def noise_deviation(self) -> float:
        """The standard deviation of the noise of each sum, in units."""
        return math.sqrt(noise_variance(self.distribution, self.scale)) / self.grid

    @functools.cached_property
    def typical_error(self) -> float:
        """The root of the mean squared error of the counts of all intervals of leaves, in units."""
        return self.noise_deviation * math.sqrt(self.strategy.errors.mean())

    def release(self, counts: NDArray[np.int64], noise: NoiseSource) -> Bins:
        """Returns bins of the leaves; the only step that reads exact counts.

        Accuracy: the number of units below an edge has the error of a prefix of the tree. The
        longest ends of the range whose counts are at most two standard errors are cut off, so that
        a few far values, or noise, do not stretch the first or the last bin; the bins next to them
        also take those units. Every bin has at least as many units as one typical error, as
        estimated. So there may be fewer bins than ``num_bins``; with too few records there is one
        bin, the whole range.

        ``counts``: the sums of the leaves in grid steps, shape (number of leaves,), int64; secret.
        """
        num_leaves = self.leaves.num_levels
        if counts.shape != (num_leaves,) or counts.dtype != np.int64:
            found = f"{counts.dtype} of shape {counts.shape}"
            raise InputError("counts", found, f"must be int64 of shape ({num_leaves},)")
        draw = noise.laplace if self.distribution == "discrete_laplace" else noise.gaussian
        noisy = draw(self.strategy.measure(counts), self.scale)
        estimate = self.strategy.estimate(noisy / self.grid)
        increasing = np.append(0.0, np.maximum(nearest_increasing(estimate.values[1:]), 0.0))
        ends = self._ends(increasing)
        least = _BIN_ERRORS * self.typical_error
        cuts = segments(increasing, places_of(self.leaves), ends, self.num_bins, least)
        low, high = np.array(cuts[:-1]), np.array(cuts[1:]) - 1
        counts = estimate.answer(low, high).tolist()
        return Bins(tuple(cuts), tuple(counts), tuple(self._errors(low, high).tolist()))

    def _errors(self, low: NDArray[np.int64], high: NDArray[np.int64]) -> Values:
        """Returns the standard errors of the counts of the leaves low..high, both included."""
        return self.noise_deviation * np.sqrt(self.strategy.errors.variances(low, high))

    def _ends(self, prefixes: Values) -> tuple[int, int]:
        """Returns the positions in increasing prefixes between which there seem to be units."""
        last = len(prefixes) - 1
        inner = np.arange(1, last)
        below = prefixes[1:-1] <= _END_ERRORS * self._errors(np.zeros_like(inner), inner - 1)
        above = _END_ERRORS * self._errors(inner, np.full_like(inner, last - 1))
        start = int(inner[below].max(initial=0))
        stop = int(inner[prefixes[-1] - prefixes[1:-1] <= above].min(initial=last))
        return (start, stop) if start < stop else (0, last)


def plan_bins(
    leaves: BinnedAttribute,
    num_bins: int,
    neighboring: Neighboring,
    *,
    mu: Real | None = None,
    epsilon: Real | None = None,
    grid: int = GRID,
) -> BinsPlan:
    """Returns the plan for finding at most ``num_bins`` bins of a column within a privacy loss.

    Privacy: see ``BinsPlan``. Gaussian noise keeps ``mu``, Laplace noise keeps ``epsilon``.

    ``leaves``: the attribute of the column whose levels are the leaves.
    ``mu, epsilon``: the loss of the plan; exactly one of them is given.
    ``grid``: what the counts of one unit add up to, at most.
    """
    checked_integer("bins", num_bins, 2)
    if (mu is None) == (epsilon is None):
        raise InputError("mu", mu, "must be given without epsilon, or epsilon without mu")
    name, loss = ("mu", mu) if epsilon is None else ("epsilon", epsilon)
    assert loss is not None
    if not 0 < loss < math.inf:
        raise InputError(name, loss, "must be a finite number > 0")
    kind: Distribution = "discrete_gaussian" if epsilon is None else "discrete_laplace"
    plan = BinsPlan(leaves, num_bins, neighboring, kind, 1.0, grid)
    l1 = neighboring.num_moved * len(plan.strategy.sizes[1:]) * grid
    exact = Fraction(loss)
    scale = discrete_parameter(l1 * grid / exact**2) if epsilon is None else up(l1 / exact)
    if not scale <= MAX_SCALE:
        raise InputError(name, loss, "is too small: noise must have a scale of at most 2^50")
    return dataclasses.replace(plan, scale=scale)


def places_of(leaves: BinnedAttribute) -> Values:
    """Returns the edges of the leaves as numbers; whole numbers end before the next one begins."""
    first, last = leaves.bin_ends
    is_whole = leaves.whole_ends is not None
    return np.append(first, last[-1] + is_whole).astype(np.float64)


def segments(
    prefixes: Values, places: Values, ends: tuple[int, int], num_bins: int, least: float
) -> list[int]:
    """Returns the cuts of a line of segments that is close to increasing prefixes.

    The error of a segment is the area between the prefixes and the segment: over the numbers of the
    leaves, and over the prefixes themselves. The first one compares magnitudes, the second one
    compares ranks.

    ``prefixes``: increasing, shape (leaves + 1,); ``places``: the edges of the leaves.
    ``ends``: the positions where the line starts and stops.
    ``least``: the least difference of prefixes in a segment, > 0.
    """
    start, stop = ends
    ranks = np.diff(prefixes) / max(prefixes[stop] - prefixes[start], least)
    widths = 1 / (stop - start) + _RANKS_WEIGHT * ranks

    def split(low: int, high: int) -> tuple[float, int, int, int]:
        """Returns the error of a segment, its ends, and where to split it; 0 for nowhere."""
        inner = slice(low, high + 1)
        share = (places[inner] - places[low]) / (places[high] - places[low])
        gap = np.abs(prefixes[inner] - prefixes[low] - share * (prefixes[high] - prefixes[low]))
        first = int(np.searchsorted(prefixes[inner], prefixes[low] + least))
        last = int(np.searchsorted(prefixes[inner], prefixes[high] - least, "right")) - 1
        if not 0 < first <= last < high - low:
            return 0.0, low, high, 0
        area = float((gap[1:] + gap[:-1]) @ widths[low:high])
        return area, low, high, low + first + int(np.argmax(gap[first : last + 1]))

    found = [split(start, stop)]
    while len(found) < num_bins:
        worst = max(found)
        area, low, high, middle = worst
        if not area > 0:
            break
        found.remove(worst)
        found += [split(low, middle), split(middle, high)]
    return [*sorted(low for _, low, _, _ in found), stop]
