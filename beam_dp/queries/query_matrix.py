"""A small workload as a matrix of integers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from beam_dp.queries.linear import VALUE_BITS
from beam_dp.queries.linear_workload import LinearWorkload

MAX_MATRIX_VALUES = 2**24  # of all queries at all cells: 128 MiB


def query_matrix(
    workload: LinearWorkload,
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Returns the indices of the possible cells, the queries there in integers, and their unit.

    The matrix has shape (num_queries, num_possible) and int64 from 0 to the unit, which is 1.
    """
    domain = workload.domain
    possible = np.ones(domain.shape, bool)
    for each in domain.impossible:
        where = [size if axis in each.axes else 1 for axis, size in enumerate(domain.shape)]
        possible &= ~each.mask(domain.shape).reshape(where)
    cells = np.flatnonzero(possible.ravel())
    # Multiples of 2^-16, so that this rounds nothing.
    rows = [np.rint(query.values()[cells] * 2.0**VALUE_BITS) for query in workload.queries]
    matrix = np.array(rows).astype(np.int64)
    common = math.gcd(int(np.gcd.reduce(matrix, axis=None)), 1 << VALUE_BITS)
    return cells, matrix // common, (1 << VALUE_BITS) // common
