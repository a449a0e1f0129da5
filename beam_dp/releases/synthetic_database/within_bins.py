"""Where released values lie within their bins.

A release knows only the bin of a value. Its values are drawn within the bin, with a density that
rises or falls as the records of the bins beside it do, because a bin at the end of a long tail has
most of its values near the others. This follows from the released records alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.ordered import BinnedAttribute

# The released value of a bin: a draw with a density that follows the bins beside it, a uniform
# draw, or the middle of the bin. Readers draw values again, so a rule that gives other values needs
# another name.
WITHIN_BINS = ("density", "uniform", "midpoint")
# Within a piece, which holds an equal part of a bin's values, values are uniform. Their ends are
# rounded, so that every machine draws the same values.
_NUM_PIECES, ROUNDING = 128, 2**20
# Rates are differences of the logarithms of the density at both ends of a bin: the largest one of a
# bin between others, and the smallest one that counts.
_MAX_RATE, _FLAT = 12.0, 1e-3
# A found bin that begins at 0 has only zeros if it is at most so large a share of the range, with
# so many times the density of so many widths after it: many columns have zeros beside numbers, and
# noise may put some units beside a peak.
_NARROW, _PEAK, _NUM_WIDTHS = 1 / 100, 100, 10
# Rates of a density that falls to the end of a column, and its mean as a share of where it begins.
_TAIL_RATES = np.geomspace(_FLAT, 64, 4096)
_TAIL_SHARES = -np.expm1(-_TAIL_RATES) / _TAIL_RATES

# The ends of the pieces of each bin, as shares of its width: shape (bins, pieces + 1).
Positions = NDArray[np.float64]


def bin_positions(
    attribute: BinnedAttribute, counts: NDArray[Any], within_bins: str = "density"
) -> Positions:
    """Returns where the values of each bin lie; one piece a bin if they are uniform.

    The density within a bin is exponential. The slope of its logarithm is the smaller one of those
    towards the two bins beside it, and 0 if one rises and the other falls (the minmod limiter): so
    a peak in one bin bends no other bin. A bin at an end uses the slopes of the two nearest pairs;
    where these fall, it begins with the density at the end of the bin beside it. A peak in a found
    bin that begins at 0 is a peak of zeros.

    ``counts``: the number of records in each bin, shape (bins,).
    """
    size = attribute.num_levels
    if within_bins == "uniform" or size < 3:
        return np.tile([0.0, 1.0], (size, 1))
    # Extreme edges make infinite widths or slopes, for which values are uniform.
    with np.errstate(all="ignore"):
        widths: NDArray[Any]
        if attribute.whole_ends is None:
            widths = np.diff(np.array(attribute.edges, np.float64))
        else:
            widths = 1.0 + attribute.whole_ends[1] - attribute.whole_ends[0]
        logs = np.log((counts + 0.5) / widths)
        slopes = 2 * np.diff(logs) / (widths[:-1] + widths[1:])
        before, after = np.append(slopes[1], slopes), np.append(slopes, slopes[-2])
        smaller = np.sign(before) * np.minimum(np.abs(before), np.abs(after))
        rates = np.where(before * after > 0, smaller, 0.0) * widths
    rates = np.clip(np.nan_to_num(rates, posinf=0.0, neginf=0.0), -_MAX_RATE, _MAX_RATE)
    for end, neighbor, outward in ((0, 1, -1), (size - 1, size - 2, 1)):
        if outward * rates[end] < -_FLAT:
            # The density goes on from where that of the bin beside it ends.
            rate = min(outward * float(rates[neighbor]), -_FLAT)
            begin = logs[neighbor] + math.log(rate / -math.expm1(-rate))
            share = math.exp(min(logs[end] - begin, 0.0))
            rates[end] = -outward * np.interp(share, _TAIL_SHARES[::-1], _TAIL_RATES[::-1])
    shares, steep = np.linspace(0, 1, _NUM_PIECES + 1), np.maximum(np.abs(rates), _FLAT)[:, None]
    rising = np.log1p(shares * np.expm1(steep)) / steep
    ends = np.where(rates[:, None] < 0, 1 - rising[:, ::-1], rising)
    ends = np.where(np.abs(rates[:, None]) < _FLAT, shares, ends)
    rounded: Positions = np.rint(ends * ROUNDING) / ROUNDING
    if attribute.edges_from is not None and 0 in attribute.edges[:-2]:
        zero = attribute.edges.index(0)
        if _is_peak(attribute.places, counts, zero):
            rounded[zero] = 0.0
    return rounded


def _is_peak(edges: NDArray[np.float64], counts: NDArray[Any], place: int) -> bool:
    """Returns whether a narrow bin has a much larger density than the numbers after it."""
    reached = np.append(0.0, np.cumsum(counts))
    end, width = edges[place + 1], edges[place + 1] - edges[place]
    beside = np.interp(end + _NUM_WIDTHS * width, edges, reached) - reached[place + 1]
    is_narrow = width / _NARROW < edges[-1] - edges[0]
    return bool(is_narrow and counts[place] > _PEAK * (beside + 1) / _NUM_WIDTHS)


def values_within(
    attribute: BinnedAttribute,
    codes: NDArray[Any],
    words: NDArray[np.uint64],
    positions: Positions,
) -> NDArray[Any]:
    """Returns a value in the bin of each code, from random words; 0 outside the bins."""
    is_in_bin = codes < attribute.num_levels
    bins = np.where(is_in_bin, codes, 0)
    places = (words >> np.uint64(11)).astype(np.float64) * (2.0**-53 * (positions.shape[1] - 1))
    pieces = places.astype(np.int64)
    places -= pieces
    pieces += bins.astype(np.int64) * positions.shape[1]
    ends = positions.ravel()
    uniforms = ends[pieces] * (1 - places) + ends[pieces + 1] * places
    return np.where(is_in_bin, attribute.values_within(bins, uniforms), 0)
