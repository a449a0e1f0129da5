"""Finds the bins of a column of numbers, dates or times, from noisy counts of its leaves.

The leaves are many: the range of the column is not known. So they are counted several times, each
time in a few cells. The first cells cover all leaves; the next ones divide the part in which there
seem to be units; and so on, until cells can be leaves. How often, and with which noise, is public.
The least-squares fit to all noisy sums estimates how many units lie below each edge of a cell. The
bins are the segments of a line through these estimates: again and again, the segment with the
largest error is split. So values that are drawn uniformly within their bins are close to the true
values, in ranks and in magnitude, whatever the shape of the distribution.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import statistics
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer
from beam_dp.domain.discover import GRID, LARGEST, NUM_CELLS, levels_of
from beam_dp.domain.ordered import BinnedAttribute
from beam_dp.errors import InputError
from beam_dp.models.rounding import nearest_increasing
from beam_dp.privacy.accounting import discrete_parameter
from beam_dp.privacy.guarantee import Neighboring
from beam_dp.privacy.noise.bound import Distribution, noise_variance
from beam_dp.privacy.noise.source import MAX_SCALE, NoiseSource
from beam_dp.privacy.rounding import Real, up
from beam_dp.releases.earlier_stage import END_ERRORS

# So many of the new edges of a level are in its first cell, and in its last one. The last level has
# more, so that the ends of the range are close to the first and the last value.
_NUM_AT_END, _NUM_AT_LAST_END = 3, 6
# By so much of the range, at most, the last level moves an end outwards: no finer cells say where
# the units beyond it are.
_LAST_MOVE = 0.1
# In standard deviations of the noise of a sum: by how much each sum is made smaller before the ends
# are cut off, and the units that every bin has at least. They and END_ERRORS were chosen by the
# errors of whole copies (benchmarks/undescribed_tables.py).
_SHRINKAGE, _BIN_ERRORS = 1.5, 1.0
# A bin may have fewer units than that, if a line without it is wrong by so many times as many.
_GAP_ERRORS = 4.0
# A tail goes on beyond an end if the sum beyond it has so many standard deviations, and is at most
# so large a share of all, and so wide next to the rest, because it is extrapolated.
_TAIL_ERRORS, _TAIL_SHARE, _TAIL_WIDTH = 1.0, 0.02, 1 / 3
# How much an error in ranks weighs against the same share of an error in numbers of leaves.
_RANKS_WEIGHT = 1.0

Values = NDArray[np.float64]
Positions = NDArray[np.int64]  # of edges of cells among those of the leaves, increasing
Measured = tuple[Positions, Values]  # the edges of cells, and their noisy sums


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
    def num_levels(self) -> int:
        """How often the leaves are counted."""
        return len(levels_of(self.leaves.num_levels))

    def to_json(self) -> dict[str, Any]:
        """Returns the noise as a card states it."""
        return {
            "measured": self.leaves.name,
            "distribution": self.distribution,
            "scale": self.scale,
            "grid": self.grid,
            "levels": levels_of(self.leaves.num_levels),
        }

    @functools.cached_property
    def noise_deviation(self) -> float:
        """The standard deviation of the noise of each sum, in units."""
        return math.sqrt(noise_variance(self.distribution, self.scale)) / self.grid

    def release(self, counts: NDArray[np.int64], noise: NoiseSource) -> Bins:
        """Returns bins of the leaves; the only step that reads exact counts.

        Privacy: each measurement is a histogram of cells that follow from the noisy sums before it
        and public numbers, with noise of its own.

        Accuracy: the ends of the range in which there seem to be no units are cut off, so that a
        few far values, or noise, do not stretch the first or the last bin; the bins next to them
        also take those units. Where a tail goes on beyond such an end, it gets a bin of its own, up
        to where a normal tail would have its last unit. Every bin inside is estimated to
        have at least as many units as the noise of one sum, unless it is an empty range next to a
        number of many units. So there may be fewer bins than ``num_bins``; with too few records
        there is one bin, the whole range.

        ``counts``: the sums of the leaves in grid steps, shape (number of leaves,), int64; secret.

        Cost: fits of less than a hundred sums.
        """
        num_leaves = self.leaves.num_levels
        if counts.shape != (num_leaves,) or counts.dtype != np.int64:
            kind = f"{counts.dtype} of shape {counts.shape}"
            raise InputError("counts", kind, f"must be int64 of shape ({num_leaves},)")
        draw = noise.laplace if self.distribution == "discrete_laplace" else noise.gaussian
        places, ends = self.leaves.places, (0, num_leaves)
        measured: list[Measured] = []
        cells = np.unique(num_leaves * np.arange(NUM_CELLS + 1) // NUM_CELLS)
        for level in range(self.num_levels):
            noisy = draw(np.add.reduceat(counts, cells[:-1]), self.scale)
            measured.append((cells, noisy / self.grid))
            edges, sums, _ = _fitted(measured, shrinkage=_SHRINKAGE * self.noise_deviation)
            before = ends
            ends = _ends(edges, sums, END_ERRORS * self.noise_deviation) or ends
            is_next_last = level == self.num_levels - 2
            cells = _finer(edges, sums, ends, _NUM_AT_LAST_END if is_next_last else _NUM_AT_END)
        ends = _close(ends, before, places)
        edges, sums, covariance = _fitted(measured)
        prefixes = np.append(0.0, np.maximum(nearest_increasing(np.cumsum(sums)), 0.0))
        start, stop = np.searchsorted(edges, ends).tolist()
        least = _BIN_ERRORS * self.noise_deviation
        first, last = ends
        if self.num_bins > 2:  # one bin is between the tails
            first, last = self._with_tails(edges, sums, covariance, ends)
        num_bins = self.num_bins - (first < ends[0]) - (last > ends[1])
        if ends == (0, num_leaves) and abs(places[[0, -1]]).min() >= LARGEST:
            num_bins = 1  # noise hides where the units are among all numbers
        cuts = segments(prefixes, places[edges], (start, stop), num_bins, least)
        cuts = [0] * (first < ends[0]) + cuts + [len(sums)] * (last > ends[1])
        bins = np.zeros((len(cuts) - 1, len(sums)))
        for row, (low, high) in zip(bins, itertools.pairwise(cuts), strict=True):
            row[low:high] = 1.0
        errors = self.noise_deviation * np.sqrt(((bins @ covariance) * bins).sum(axis=1))
        positions = (first, *edges[cuts[1:-1]].tolist(), last)
        return Bins(positions, tuple((bins @ sums).tolist()), tuple(errors))

    def _with_tails(
        self, edges: Positions, sums: Values, covariance: Values, ends: tuple[int, int]
    ) -> tuple[int, int]:
        """Returns the positions of the ends, or of the ends of tails that go on beyond them."""
        places, total = self.leaves.places, float(sums.sum())
        span, moved = float(places[ends[1]] - places[ends[0]]), []
        for end, outward in zip(ends, (-1, 1), strict=True):
            moved.append(end)
            inward = slice(None, None, -outward)
            distances = outward * (places[end] - places[edges])[inward]
            num_beyond = int(np.searchsorted(distances, 0.0))
            beyond = float(sums[inward][:num_beyond].sum())
            variance = covariance[inward, inward][:num_beyond, :num_beyond].sum()
            noise = _TAIL_ERRORS * self.noise_deviation * math.sqrt(variance)
            if not max(noise, 1.0) < beyond < _TAIL_SHARE * total:
                continue
            numbers = np.maximum.accumulate(beyond + np.cumsum(sums[inward][num_beyond:]))
            inside = distances[num_beyond:]
            step = float(np.interp(3 * beyond, np.append(beyond, numbers), inside))
            last, here, before = map(_normal_score, (1.0, beyond, 3 * beyond), [total] * 3)
            width = min(step * (here - last) / (before - here), _TAIL_WIDTH * span)
            # No further, so that a column of two whole numbers gets no third one.
            target = places[end] + outward * width
            moved[-1] = int(np.searchsorted(places, target, "right" if outward > 0 else "left"))
            moved[-1] -= outward > 0
        return min(moved[0], ends[0]), max(moved[1], ends[1])


def _normal_score(number: float, total: float) -> float:
    """Returns the standard normal quantile of a share of all units."""
    return statistics.NormalDist().inv_cdf(number / total)


def _ends(edges: Positions, sums: Values, few: float) -> tuple[int, int] | None:
    """Returns the positions with more units than a few between them, and no more beyond each."""
    prefixes = np.append(0.0, np.cumsum(sums))
    low, high = edges[prefixes <= few].max(), edges[prefixes >= prefixes[-1] - few].min()
    return (int(low), int(high)) if low < high else None


def _close(ends: tuple[int, int], before: tuple[int, int], places: Values) -> tuple[int, int]:
    """Returns ends; for one that is far outside the ends before, that of before."""
    room = _LAST_MOVE * (places[before[1]] - places[before[0]])
    low = ends[0] if places[before[0]] - places[ends[0]] <= room else before[0]
    high = ends[1] if places[ends[1]] - places[before[1]] <= room else before[1]
    return (low, high) if low < high else ends


def _finer(edges: Positions, sums: Values, ends: tuple[int, int], num_at_end: int) -> Positions:
    """Returns the edges of the cells to count next: those between the ends, and more.

    Most of the new edges are where most units seem to be, the others in the first and last cells.
    """
    num_inside = NUM_CELLS - 2 * _NUM_AT_END
    num_cells = num_inside + 2 * num_at_end
    inner = edges[(edges >= ends[0]) & (edges <= ends[1])]
    units = sums[np.searchsorted(edges, inner[:-1])] * (np.diff(inner) > 1)
    shares = units * num_inside / max(units.sum(), 1e-9)
    shares[[0, -1]] += num_at_end
    reached = np.append(0.0, np.cumsum(shares))
    new = np.interp(np.arange(1, num_cells) / num_cells * reached[-1], reached, inner)
    return np.unique([edges[0], *inner, *np.rint(new).astype(np.int64), edges[-1]])


def _fitted(
    measured: list[Measured], *, shrinkage: float | None = None
) -> tuple[Positions, Values, Values]:
    """Returns the edges of all cells, sums between them, and their covariance for unit noise.

    The sums are those of least squares. With a shrinkage, they are also not negative, and their
    total costs so much per unit and measurement: sums that may be noise become 0.
    """
    edges = np.unique(np.concatenate([cells for cells, _ in measured]))
    matrix = np.concatenate([_membership(edges, cells) for cells, _ in measured])
    sums = np.concatenate([noisy for _, noisy in measured])
    covariance = np.linalg.inv(matrix.T @ matrix)
    if shrinkage is None:
        return edges, covariance @ (matrix.T @ sums), covariance
    from scipy.optimize import nnls

    root = np.linalg.cholesky(matrix.T @ matrix)
    target = np.linalg.solve(root, matrix.T @ sums - shrinkage)
    return edges, nnls(root.T, target)[0], covariance


def _membership(edges: Positions, cells: Positions) -> Values:
    """Returns which parts between edges each cell consists of, as rows of 0 and 1."""
    return ((edges[:-1] >= cells[:-1, None]) & (edges[1:] <= cells[1:, None])).astype(np.float64)


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
    l1 = neighboring.num_moved * plan.num_levels * grid
    exact = Fraction(loss)
    scale = discrete_parameter(l1 * grid / exact**2) if epsilon is None else up(l1 / exact)
    if not scale <= MAX_SCALE:
        raise InputError(name, loss, "is too small: noise must have a scale of at most 2^50")
    return dataclasses.replace(plan, scale=scale)


def segments(
    prefixes: Values, places: Values, ends: tuple[int, int], num_bins: int, least: float
) -> list[int]:
    """Returns the cuts of a line of segments that is close to increasing prefixes.

    The error of a segment is the area between the prefixes and the segment: over the numbers of the
    leaves, and over the prefixes themselves. The first one compares magnitudes, the second one
    compares ranks.

    ``prefixes``: increasing, shape (leaves + 1,); ``places``: the edges of the leaves.
    ``ends``: the positions where the line starts and stops.
    ``least``: the least difference of prefixes in a segment, > 0. A segment may have a smaller one
    if the gap between line and prefixes is large there: then it is next to a number of many units.
    """
    start, stop = ends
    ranks = np.diff(prefixes) / max(prefixes[stop] - prefixes[start], least)
    widths = 1 / (stop - start) + _RANKS_WEIGHT * ranks

    def split(low: int, high: int) -> tuple[float, int, int, int]:
        """Returns the error of a segment, its ends, and where to split it; 0 for nowhere."""
        inner = slice(low, high + 1)
        share = (places[inner] - places[low]) / (places[high] - places[low])
        gap = np.abs(prefixes[inner] - prefixes[low] - share * (prefixes[high] - prefixes[low]))
        area = float((gap[1:] + gap[:-1]) @ widths[low:high])
        middle = int(np.argmax(gap))
        if gap[middle] < _GAP_ERRORS * least:
            first = int(np.searchsorted(prefixes[inner], prefixes[low] + least))
            last = int(np.searchsorted(prefixes[inner], prefixes[high] - least, "right")) - 1
            if not 0 < first <= last < high - low:
                return 0.0, low, high, 0
            middle = first + int(np.argmax(gap[first : last + 1]))
        return area, low, high, low + middle

    parts = [split(start, stop)]
    while len(parts) < num_bins:
        worst = max(parts)
        area, low, high, middle = worst
        if not area > 0:
            break
        parts.remove(worst)
        parts += [split(low, middle), split(middle, high)]
    return [*sorted(low for _, low, _, _ in parts), stop]
