"""Rows of any width, folded from blocks of 2^b buckets.

Blocks of ``BlockSigns`` have a power of two buckets. A row of w cells is made from a block of 2^b
buckets: 2^b = w if w is a power of two, otherwise 2^b >= 2 w. Bucket i is added to cell
floor(i w / 2^b), so a record still affects only one cell per row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def num_buckets(row_width: int) -> int:
    """Returns the number of buckets in the block that is folded into a row."""
    if row_width & (row_width - 1) == 0:
        return row_width
    return 1 << (row_width.bit_length() + 1)


def fold(sums: NDArray[np.int64], num_rows: int, row_width: int) -> NDArray[np.int64]:
    """Returns, for each cell of consecutive rows, the exact sum of its buckets modulo 2^64.

    Example:
        >>> fold(np.arange(8), 1, 3)
        array([ 3, 12, 13])
    """
    buckets = num_buckets(row_width)
    if buckets == row_width:
        return sums
    starts = -(-np.arange(row_width) * buckets // row_width)
    return np.asarray(np.add.reduceat(sums.reshape(num_rows, buckets), starts, axis=1)).ravel()


def cell_of(buckets: NDArray[np.int64], row_width: int) -> NDArray[np.int64]:
    """Returns the cell of each bucket within its row."""
    return buckets * row_width // num_buckets(row_width)


def collisions(row_width: int) -> float:
    """Returns the probability that two elements share a cell times the row width: at most 1.05."""
    buckets = num_buckets(row_width)
    least, larger = divmod(buckets, row_width)
    squares = larger * (least + 1) ** 2 + (row_width - larger) * least**2
    return squares * row_width / buckets**2
