"""Projections with random signs: dense and block-sparse.

A projection A has `projection_width` rows and one column per universe element. A batch adds each
element's column, multiplied by its weight, to the accumulators. Sums are exact 64-bit integers that
wrap modulo 2^64, so any order, split and merge (by adding accumulators) gives the same result. It
is the true sum if the absolute weights of all batches sum to less than 2^63.

The number of buckets in a block of ``BlockSigns`` is a power of two. A row of w cells is made from
a block of 2^b buckets: 2^b = w if w is a power of two, otherwise 2^b >= 2 w. Bucket i is added to
cell floor(i w / 2^b), so a record still affects only one cell per row.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer
from beam_dp.errors import InputError
from beam_dp.hashing.evaluation import Evaluator, split_values
from beam_dp.hashing.keys import HashKey, Words

MAX_PROJECTION_WIDTH = 2**40
_SIGN_TILE_BYTES = 2**26


class DenseSigns:
    """A matrix whose entries are all +1 or -1; any r entries are independent.

    The entry at row 64 b + l and column x is (-1)^(bit l of p_b(x)); see ``evaluation.py``. Divide
    answers by the projection width, because the inner product of a column with itself is the width,
    and the inner product of two different columns has expectation 0.

    ``projection_width``: the number of rows, a multiple of 64.

    Sensitivity: a column has L1 norm `projection_width` and L2 norm its square root. These are the
    sensitivities if an element of weight 1 is added or removed; under replace-one, they are twice
    as large (the key is public, and two columns can be opposite).

    Reference: Blum and Roth (2011), Algorithm 2, without the factor 1 / sqrt(T).
    """

    def __init__(self, key: HashKey, projection_width: int) -> None:
        if not 64 <= projection_width <= MAX_PROJECTION_WIDTH or projection_width % 64:
            raise InputError(
                "projection_width", projection_width, "must be a multiple of 64, at most 2^40"
            )
        self.key = key
        self.projection_width = projection_width
        self._evaluator = Evaluator(key, projection_width // 64)

    def __reduce__(self) -> tuple[type[DenseSigns], tuple[HashKey, int]]:
        # Tables are created on first use, so that a pickle contains only the key.
        return DenseSigns, (self.key, self.projection_width)

    def add(self, accumulators: NDArray[np.int64], keys: Words, weights: NDArray[np.int64]) -> None:
        """Adds the columns of keys, times weights, to C-contiguous accumulators in place."""
        _check(accumulators, keys, weights, self.projection_width)
        self._evaluator.add_signs(accumulators, keys, weights)

    def project(self, keys: Words, weights: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the projection of one batch: shape (projection_width,), int64."""
        accumulators = np.zeros(self.projection_width, dtype=np.int64)
        self.add(accumulators, keys, weights)
        return accumulators

    def signs(self, keys: Words) -> NDArray[np.int8]:
        """Returns the columns of `keys`, shape (n, projection_width), int8."""
        _check_keys(keys)
        words = np.ascontiguousarray(self._evaluator.values(keys)).astype("<u8", copy=False)
        bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").view(np.int8)
        # Works in place, because an answer may need gigabytes of signs.
        np.multiply(bits, np.int8(-2), out=bits)
        np.add(bits, np.int8(1), out=bits)
        return bits

    def sign_tiles(self, keys: Words) -> Iterator[tuple[slice, NDArray[np.int8]]]:
        """Yields slices of `keys` and their columns, about 64 MB of signs at a time."""
        size = max(1, _SIGN_TILE_BYTES // self.projection_width)
        for start in range(0, len(keys), size):
            part = slice(start, min(start + size, len(keys)))
            yield part, self.signs(keys[part])


class BlockSigns:
    """A matrix of blocks of rows; every column has one entry, +1 or -1, in each block.

    One word p_b(x) of 64 bits (see ``evaluation.py``) gives floor(64 / (log2(buckets) + 1)) pairs
    (bucket, sign), one per block; the pairs of any r distinct (b, x) are
    independent and uniform. If r >= 4, an answer has the same variance as with the dense matrix of
    the same width, for any number of blocks, and takes a small part of the time. With a single
    block, large errors are more likely. Divide answers by the number of blocks.

    ``num_blocks``: the number of blocks; projection_width / num_blocks must be a power of two.

    Sensitivity: a column has L1 norm `num_blocks` and L2 norm its square root. These are the
    sensitivities if an element of weight 1 is added or removed; under replace-one, they are twice
    as large (two columns can have opposite signs in the same rows).

    Reference: Charikar, Chen and Farach-Colton (2002) with the sum of the blocks instead of the
    median; Kane and Nelson (2014), the block construction.
    """

    def __init__(self, key: HashKey, projection_width: int, num_blocks: int = 8) -> None:
        checked_integer("num_blocks", num_blocks, 1)
        num_buckets, remainder = divmod(projection_width, num_blocks)
        if (
            not 1 <= projection_width <= MAX_PROJECTION_WIDTH
            or remainder
            or num_buckets & (num_buckets - 1)
        ):
            raise InputError(
                "projection_width",
                projection_width,
                f"must be {num_blocks} (num_blocks) times a power of two, at most 2^40",
            )
        self.key = key
        self.projection_width = projection_width
        self.num_blocks = num_blocks
        self.num_buckets = num_buckets
        self._bucket_bits = num_buckets.bit_length() - 1
        per_word = 64 // (self._bucket_bits + 1)
        self._evaluator = Evaluator(key, -(-num_blocks // per_word))

    def __reduce__(self) -> tuple[type[BlockSigns], tuple[HashKey, int, int]]:
        # Tables are created on first use, so that a pickle contains only the key.
        return BlockSigns, (self.key, self.projection_width, self.num_blocks)

    def add(self, accumulators: NDArray[np.int64], keys: Words, weights: NDArray[np.int64]) -> None:
        """Adds the columns of keys, times weights, to C-contiguous accumulators in place."""
        _check(accumulators, keys, weights, self.projection_width)
        self._evaluator.add_to_blocks(
            accumulators, keys, weights, self.num_blocks, self._bucket_bits
        )

    def project(self, keys: Words, weights: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the projection of one batch: shape (projection_width,), int64."""
        accumulators = np.zeros(self.projection_width, dtype=np.int64)
        self.add(accumulators, keys, weights)
        return accumulators

    def buckets_and_signs(self, keys: Words) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
        """Returns the bucket and sign of each key in each block, both of shape (n, num_blocks)."""
        _check_keys(keys)
        values = self._evaluator.values(keys)
        buckets, negative = split_values(values, self.num_blocks, self._bucket_bits)
        return buckets, np.where(negative, np.int8(-1), np.int8(1))


def _check_keys(keys: Words) -> None:
    if keys.dtype != np.uint64 or keys.ndim != 1:
        raise InputError("keys", f"{keys.dtype} {keys.shape}", "must be uint64 of shape (n,)")


def _check(
    accumulators: NDArray[np.int64], keys: Words, weights: NDArray[np.int64], width: int
) -> None:
    _check_keys(keys)
    if weights.dtype != np.int64 or weights.shape != keys.shape:
        raise InputError(
            "weights", f"{weights.dtype} {weights.shape}", f"must be int64 of shape {keys.shape}"
        )
    if (
        accumulators.dtype != np.int64
        or accumulators.shape != (width,)
        or not accumulators.flags.c_contiguous
        or not accumulators.flags.writeable
    ):
        raise InputError(
            "accumulators",
            f"{accumulators.dtype} {accumulators.shape}",
            f"must be a writeable contiguous int64 array of shape ({width},)",
        )


def num_buckets(row_width: int) -> int:
    """Returns the number of buckets in the block that is folded into a row."""
    if row_width & (row_width - 1) == 0:
        return row_width
    return 1 << (row_width.bit_length() + 1)


def fold(sums: NDArray[np.int64], num_rows: int, row_width: int) -> NDArray[np.int64]:
    """Returns, for each cell of consecutive rows, the exact sum of its buckets modulo 2^64."""
    buckets = num_buckets(row_width)
    if buckets == row_width:
        return sums
    starts = -(-np.arange(row_width) * buckets // row_width)
    return np.asarray(np.add.reduceat(sums.reshape(num_rows, buckets), starts, axis=1)).ravel()


def cell_of(buckets: NDArray[np.int64], row_width: int) -> NDArray[np.int64]:
    """Returns the cell of each bucket within its row."""
    return buckets * row_width // num_buckets(row_width)


def collisions(row_width: int) -> float:
    """Returns the row width times the probability that two elements share a cell: at most 1.05."""
    buckets = num_buckets(row_width)
    least, larger = divmod(buckets, row_width)
    squares = larger * (least + 1) ** 2 + (row_width - larger) * least**2
    return squares * row_width / buckets**2
