"""Columns cut by a number that each of their rows has."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def split_by(
    numbers: NDArray[Any], num_numbers: int, columns: Sequence[NDArray[Any]]
) -> Iterator[tuple[int, list[NDArray[Any]]]]:
    """Yields (number, columns) for each number that rows have, in ascending order.

    Rows of a number stay in their order.

    Args:
        numbers: shape (n,), integers from 0 to ``num_numbers`` - 1.
        num_numbers: how many there may be, at most 2^32.
        columns: arrays of n rows each, the last axis.

    Cost: a stable sort of 16-bit integers, which is a radix sort, where these do; else of 32 bits.

    Example:
        >>> [(number, kept.tolist()) for number, (kept,) in
        ...  split_by(np.array([2, 0, 2]), 3, [np.array([5, 6, 7])])]
        [(0, [6]), (2, [5, 7])]
    """
    if not numbers.size:
        return
    first = int(numbers[0])
    if (numbers == first).all():
        yield first, list(columns)
        return
    narrow = numbers.astype(np.uint16 if num_numbers <= 2**16 else np.uint32)
    order = np.argsort(narrow, kind="stable")
    numbers, columns = narrow[order], [column.take(order, axis=-1) for column in columns]
    edges = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), numbers.size]
    for start, stop in itertools.pairwise(edges):
        yield int(numbers[start]), [column[..., start:stop] for column in columns]
