"""Discrete transforms that numpy lacks, by its Fourier transforms."""

from __future__ import annotations

import math

import numpy as np

from beam_dp.interval_strategies.strategy import Values


def fast_length(least: int) -> int:
    """Returns the least length from ``least`` on of which transforms are fast: 2^a 3^b 5^c.

    Example:
        >>> fast_length(1), fast_length(17), fast_length(1025)
        (1, 18, 1080)
    """
    best = 1 << max(least - 1, 0).bit_length()
    five = 1
    while five < best:
        odd = five
        while odd < best:
            best = min(best, odd << (math.ceil(least / odd) - 1).bit_length())
            odd *= 3
        five *= 5
    return best


def sine_transform(values: Values) -> Values:
    """Returns the orthonormal discrete sine transform of type 1 along the last axis.

    It is its own inverse: the sum over j of sqrt(2 / (n + 1)) sin(pi i j / (n + 1)) v[j], i and j
    from 1 to n.

    Args:
        values: shape (..., n), float64.

    Cost: one Fourier transform of 2 (n + 1) numbers.
    """
    length = values.shape[-1]
    odd = np.zeros((*values.shape[:-1], 2 * (length + 1)))
    odd[..., 1 : length + 1] = values
    odd[..., length + 2 :] = -values[..., ::-1]
    waves: Values = np.fft.rfft(odd).imag[..., 1 : length + 1]
    return waves * -math.sqrt(0.5 / (length + 1))
