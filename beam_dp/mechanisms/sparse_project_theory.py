"""The published parameters of SparseProject, as calculators."""

from __future__ import annotations

import math

from beam_dp.errors import InputError


def published_tail(num_queries: int, failure_probability: float) -> float:
    """Returns tau = beta / (4 k).

    Example:
        >>> published_tail(16, 0.05)
        0.00078125
    """
    if not 0 < failure_probability < 1:
        raise InputError("failure_probability", failure_probability, "must be > 0 and < 1")
    if num_queries < 1:
        raise InputError("num_queries", num_queries, "must be >= 1")
    return failure_probability / (4 * num_queries)


def published_width(
    num_records: int, sparsity: int, num_queries: int, failure_probability: float
) -> float:
    """Returns T as printed: 4 * 64^2 ln(1 / tau) (m + n^2)^2 / (2 sqrt(m)).

    It is 2 sqrt(m) times what its proof needs, ``proved_width``. It depends on n, so under
    add-or-remove-one it would tell n: the width of a release is an argument.

    Args:
        num_records: n.
        sparsity: m.
        num_queries: k.
        failure_probability: beta, in (0, 1).

    Reference: Blum and Roth (2011), Algorithm 2.

    Example:
        >>> f"{published_width(10, 4, 16, 0.05):.5e}"
        '3.16966e+08'
    """
    proved = proved_width(num_records, sparsity, num_queries, failure_probability)
    return proved * 2 * math.sqrt(sparsity)


def proved_width(
    num_records: int, sparsity: int, num_queries: int, failure_probability: float
) -> float:
    """Returns T as proved: 4 * 64^2 ln(1 / tau) / s^2, s = 2 sqrt(m) / (m + n^2).

    Example:
        >>> f"{proved_width(10, 4, 16, 0.05):.5e}"
        '7.92415e+07'
    """
    if num_records < 1:
        raise InputError("num_records", num_records, "must be >= 1")
    if sparsity < 1:
        raise InputError("sparsity", sparsity, "must be >= 1")
    tail = published_tail(num_queries, failure_probability)
    distortion = 2 * math.sqrt(sparsity) / (sparsity + num_records**2)
    return 4 * 64**2 * math.log(1 / tail) / distortion**2


def published_independence(num_queries: int, width: float, failure_probability: float) -> int:
    """Returns r = 2 log2(k T / (2 beta)), rounded up to an even integer.

    Example:
        >>> published_independence(16, published_width(10, 4, 16, 0.05), 0.05)
        72
    """
    bits = math.log2(num_queries * width / (2 * failure_probability))
    return 2 * math.ceil(bits)


def coordinate_bound(
    num_queries: int, width: int, failure_probability: float, sparsity: int, independence: int
) -> float:
    """Returns what no coordinate of any query's projection exceeds, but for beta (corrected).

    Reference: Blum and Roth (2011), Lemma 4.6, with 2 k T / beta for the printed k T / (2 beta).

    Example:
        >>> round(coordinate_bound(1000, 4096, 0.05, 100, 28), 5)
        3.24939
    """
    union: float = (2 * num_queries * width / failure_probability) ** (1 / independence)
    return union * 2 * math.sqrt(sparsity * independence / width)


def balanced_width(squared_norm: float, deviation: float) -> float:
    """Returns the T at which hashing adds as much to an answer as the noise: |x|^2 / sigma^2.

    Args:
        squared_norm: a public guess of the sum of all squared counts.
        deviation: of the noise, for the sketch whose columns have norm 1.

    Example:
        >>> round(balanced_width(1e6, 5.49527))
        33115
    """
    return squared_norm / deviation**2
