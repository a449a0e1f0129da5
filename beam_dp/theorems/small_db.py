"""The expected error of a small database, for imagined data."""

from __future__ import annotations

import math
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from beam_dp.errors import InputError
from beam_dp.mechanisms.small_db.choice import MultisetChoice
from beam_dp.mechanisms.small_db.size import num_multisets

MAX_MULTISETS = 2**20


def expected_small_db_error(mechanism: MultisetChoice, counts: NDArray[np.int64]) -> float:
    """Returns the expected largest error of a query, in records, by the law of the mechanism.

    It depends on the data, so it is for planning with data that one imagines: uniform, or those of
    another year that are public. Exact counts must never be given: what is returned has no noise.

    Args:
        mechanism: whose law is summed over all multisets of its distinct columns.
        counts: imagined records of each cell, >= 0, shape (num_cells,), int64.

    Raises:
        InputError: if there are more than 2^20 of these.

    Cost: the multisets times the queries.

    Example:
        >>> queries = np.array([[0, 1]], np.int64)
        >>> mechanism = MultisetChoice(queries, epsilon=1.0, num_records=5, size=3)
        >>> round(expected_small_db_error(mechanism, np.array([3, 2])), 6)
        1.215775
    """
    law = mechanism.law(counts)
    if num_multisets(law.num_types, law.size) > MAX_MULTISETS:
        condition = f"must make at most {MAX_MULTISETS:,} multisets"
        raise InputError("size", mechanism.size, condition)
    losses, log_weights = [], []
    targets = np.array(law.targets, dtype=np.float64)
    answers = law.answers.astype(np.float64)
    for kinds in combinations_with_replacement(range(law.num_types), law.size):
        copies = np.bincount(kinds, minlength=law.num_types)
        losses.append(float(np.abs(targets - answers @ copies).max()))
        log_ways = sum(
            math.log(math.comb(ways + int(number) - 1, int(number)))
            for ways, number in zip(law.ways, copies, strict=True)
        )
        log_weights.append(log_ways - losses[-1] / float(law.scale))
    shares = np.exp(np.array(log_weights) - max(log_weights))
    expected = float(np.array(losses) @ shares / shares.sum())
    return expected / (mechanism.size * mechanism.denominator)
