"""Discrete transforms, and convolutions: exact ones of integers, and over ordered pairs."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

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

    ``values``: shape (..., n), float64.

    It is its own inverse: the sum over j of sqrt(2 / (n + 1)) sin(pi i j / (n + 1)) v[j], i and j
    from 1 to n.
    """
    length = values.shape[-1]
    odd = np.zeros((*values.shape[:-1], 2 * (length + 1)))
    odd[..., 1 : length + 1] = values
    odd[..., length + 2 :] = -values[..., ::-1]
    waves: Values = np.fft.rfft(odd).imag[..., 1 : length + 1]
    return waves * -math.sqrt(0.5 / (length + 1))


Integers = NDArray[np.int64]

# A floating-point convolution of length n errs by at most this many units of rounding times
# log2(n) times the product of the two norms: three transforms of log2(n) steps, each of which
# errs by less than 4 units (Higham, 2002, Theorem 24.2), and twice that to be safe.
_UNITS = 24.0
_LARGEST_ERROR = 0.25


def convolve_integers(kernel: Integers, values: Integers) -> Integers:
    """Returns the convolution of integers, exactly, modulo 2^64.

    The values are split into signed digits so small that the error of a floating-point
    convolution of each of them is below 1/4, whatever the values: rounding then gives the
    integers. The size of the digits follows from the kernel and the lengths alone.

    ``kernel``: shape (m,), int64, with a norm of at most 2^30.

    Returns:
        shape (m + n - 1,), int64.
    """
    length = len(kernel) + len(values) - 1
    padded = fast_length(length)
    norm = float(np.linalg.norm(kernel.astype(np.float64))) * math.sqrt(len(values))
    rounding = _UNITS * math.log2(padded + 1) * 2.0**-53
    digit_bits = math.floor(math.log2(_LARGEST_ERROR / (norm * rounding))) + 1
    if digit_bits < 2:
        raise ValueError("the kernel is too large for an exact convolution")
    digit_bits = min(digit_bits, 32)
    transformed = np.fft.rfft(kernel.astype(np.float64), padded)
    result = np.zeros(length, np.int64)
    rest = values.copy()
    half = 1 << (digit_bits - 1)
    for shift in range(0, 64, digit_bits):
        # Signed digits from -half to half - 1; modulo 2^64 what is left at the end is 0.
        digits = ((rest + half) & (2 * half - 1)) - half
        rest = (rest - digits) >> digit_bits
        product = np.fft.irfft(transformed * np.fft.rfft(digits, padded), padded)
        result += np.rint(product[:length]).astype(np.int64) << shift
    return result


def ordered_convolution(first: Values, second: Values) -> Values:
    """Returns for each s the sum of first[i] second[j] over i < j with i + j = s.

    Returns:
        shape (2 n - 1,), float64.
    """
    size = 1 << (len(first) - 1).bit_length()
    padding = (0, size - len(first))
    first, second = np.pad(first, padding), np.pad(second, padding)
    result = np.zeros(2 * size)
    half = size // 2
    while half:
        left = np.fft.rfft(first.reshape(-1, 2 * half)[:, :half], 2 * half)
        right = np.fft.rfft(second.reshape(-1, 2 * half)[:, half:], 2 * half)
        result.reshape(-1, 4 * half)[:, half : 3 * half] += np.fft.irfft(left * right, 2 * half)
        half //= 2
    return result[: 2 * (size - padding[1]) - 1]
