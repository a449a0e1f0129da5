"""Bounds on the distortion of a projection, against all outcomes of tiny independent hashes.

An r-wise independent hash has the moments of independent ones up to the order r/2, and the bound
for a probability of nearly 0 is that of the last of them: so bounds tell what moments they are of.
"""

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from beam_dp.hashing.distortion import Distortion
from beam_dp.hashing.projections import cell_of, num_buckets

Reals = NDArray[np.float64]
RARE = 1e-60


def distortions(num_rows: int, row_width: int, query: list[float], counts: list[float]) -> Reals:
    """Of all hashes of a few keys to cells and signs, alike likely."""
    buckets = np.arange(num_buckets(row_width))
    cells = cell_of(buckets, row_width)
    entries = [sign * np.eye(row_width)[cell] for cell in cells for sign in (1, -1)]
    found = [0.0]
    for _ in range(num_rows):
        row = []
        for places in itertools.product(entries, repeat=len(query)):
            columns = np.array(places)
            row.append((query @ columns) @ (counts @ columns) - np.dot(query, counts))
        found = [a + b for a in found for b in row]
    return np.array(found) / num_rows


# Rows, their cells, a query, counts: alike and not, with keys in common and without.
CASES = {
    "dense, in common": (2, 1, [1.0, 1.0, 1.0], [2.0, 2.0, 2.0]),
    "dense, without": (2, 1, [1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 3.0, 1.0]),
    "dense, some": (1, 1, [1.0, 1.0, 0.5, 0.0, 0.0], [4.0, 0.0, 1.0, 1.0, 2.0]),
    "dense, eight keys": (1, 1, [1.0] * 8, [5.0] * 8),
    "blocks, in common": (2, 2, [1.0, 1.0, 1.0], [2.0, 2.0, 2.0]),
    "blocks, without": (2, 2, [1.0, 1.0, 0.0], [0.0, 0.0, 5.0]),
    "blocks, some": (1, 2, [1.0, 1.0, 1.0, 0.0], [9.0, 1.0, 0.0, 2.0]),
    "folded": (1, 3, [1.0, 1.0, 0.0], [0.0, 3.0, 2.0]),
}


def tails_of(case: str, independence: int) -> tuple[Distortion, Reals, float, float]:
    rows, width, query, counts = CASES[case]
    sparsity = sum(value > 0 for value in query)
    tails = Distortion(rows * width, rows, independence, sparsity, 1)
    found = distortions(rows, width, query, counts)
    return tails, found, float(np.linalg.norm(counts)), max(counts)


@pytest.mark.parametrize("case", CASES)
def test_moments_and_tails_are_within_their_bounds(case):
    for order in (2, 4, 6):
        tails, found, norm, largest = tails_of(case, 2 * order)
        moment = tails.bound(norm, largest, RARE) ** order * RARE
        assert (found**order).mean() <= moment * (1 + 1e-12), order
    tails, found, norm, largest = tails_of(case, 48)
    for probability in (0.9, 0.5, 0.25, 0.1, 0.01):
        assert (np.abs(found) > tails.bound(norm, largest, probability)).mean() <= probability
        assert (np.abs(found) > norm * tails.coefficient(probability)).mean() <= probability


def test_fourth_moment_is_about_half_of_its_bound_if_data_equal_the_query():
    # Of W^2 - 8 for eight signs, against 8 times that of a chi-squared variable less its mean.
    tails, found, norm, largest = tails_of("dense, eight keys", 8)
    moment = tails.bound(norm, largest, RARE) ** 4 * RARE
    assert (found**4).mean() == pytest.approx(0.478 * moment, rel=0.01)
    assert moment == pytest.approx(60 * (8 * 5) ** 4)


def test_variance_is_exact_if_query_and_data_share_no_key():
    for rows, width in ((2, 1), (2, 2)):
        found = distortions(rows, width, [1.0, 1.0, 0.0], [0.0, 0.0, 5.0])
        assert found.var() == pytest.approx(2 * 25 / (rows * width))
    tails = Distortion(4, 2, 4, 2, 1)
    squares = tails.bound(5.0, 5.0, RARE) ** 2 * RARE
    assert found.var() <= squares <= 2 * found.var() * (1 + 1e-12)


def test_bounds_for_extreme_sizes_are_positive_and_finite():
    for sparsity, norm, largest in (
        (2**24, 2.0**50, 2.0**50),
        (1, 2.0**50, 1.0),
        (2**31, 1.0, 1.0),
    ):
        for width, rows in ((2**26, 8), (2**26, 2**26), (2**40, 1), (1, 1), (64, 64)):
            tails = Distortion(width, rows, 48, sparsity, 10**9)
            found = (
                tails.bound(norm, largest, 1e-100),
                tails.coefficient(1e-100),
                tails.squared_norm(1e-100),
                tails.largest_entry(1e-100),
            )
            assert all(0 < each < math.inf for each in found)
