"""Evaluation of a hash family over GF(2^64) on the active backend."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from beam_dp.hashing.backend import active_backend, kernel
from beam_dp.hashing.field import GF64, Words
from beam_dp.hashing.keys import HashKey
from beam_dp.hashing.polynomials import PolynomialFamily

_BATCH_KEYS = 4096  # numpy's keys at a time


class Evaluator:
    """Values of a family, and the sums of signs that they give."""

    def __init__(self, key: HashKey, num_polynomials: int) -> None:
        self.family = PolynomialFamily(GF64, key.independence, key.words, num_polynomials)

    def values(self, keys: Words) -> Words:
        """Returns shape (len(keys), num_polynomials), uint64."""
        values = np.empty((self.family.num_polynomials, len(keys)), dtype=np.uint64)
        return values.T if self._run(keys, None, values) else self.family.values(keys)

    def add_signs(
        self, accumulators: NDArray[np.int64], keys: Words, weights: NDArray[np.int64]
    ) -> None:
        """Adds weight * (-1)^bit to each of the 64 rows of each polynomial."""
        if self._run(keys, weights, accumulators):
            return
        tile_keys = 255  # a byte counts them
        rows = accumulators.view(np.uint64)  # sums modulo 2^64, also of the weight -2^63
        for start in range(0, len(keys), _BATCH_KEYS):
            values = self.family.values(keys[start : start + _BATCH_KEYS])
            batch = weights[start : start + _BATCH_KEYS]
            values[batch < 0] ^= np.uint64(2**64 - 1)
            magnitudes = np.where(batch < 0, -batch.view(np.uint64), batch.view(np.uint64))
            for shift in range(int(magnitudes.max(initial=0)).bit_length()):
                chosen = values[(magnitudes >> np.uint64(shift)) & np.uint64(1) == 1]
                for first in range(0, len(chosen), tile_keys):
                    tile = chosen[first : first + tile_keys].astype("<u8", copy=False)
                    bits = np.unpackbits(tile.view(np.uint8), axis=1, bitorder="little")
                    ones = np.add.reduce(bits, axis=0, dtype=np.uint8).astype(np.uint64)
                    rows += (np.uint64(len(tile)) - np.uint64(2) * ones) << np.uint64(shift)

    def add_to_blocks(
        self,
        accumulators: NDArray[np.int64],
        keys: Words,
        weights: NDArray[np.int64],
        num_blocks: int,
        bucket_bits: int,
    ) -> None:
        """Adds weight * sign to one row of each block."""
        if self._run(keys, weights, accumulators, num_blocks, bucket_bits):
            return
        blocks = accumulators.reshape(num_blocks, -1)
        for start in range(0, len(keys), _BATCH_KEYS):
            values = self.family.values(keys[start : start + _BATCH_KEYS])
            buckets, negative = split_values(values, num_blocks, bucket_bits)
            batch = weights[start : start + _BATCH_KEYS, np.newaxis]
            signed = np.where(negative, -batch, batch)
            for block in range(num_blocks):
                np.add.at(blocks[block], buckets[:, block], signed[:, block])

    def _run(
        self,
        keys: Words,
        weights: NDArray[np.int64] | None,
        output: NDArray[np.uint64] | NDArray[np.int64],
        num_blocks: int = 0,
        bucket_bits: int = 0,
    ) -> bool:
        """Runs the compiled kernel; False, with nothing done, where numpy is in use."""
        backend = active_backend()
        if kernel is None or backend == "numpy":
            return False
        coefficients, constants = self._compiled_form
        kernel.run(
            backend,
            coefficients,
            constants,
            coefficients.shape[2],
            np.ascontiguousarray(keys),
            None if weights is None else np.ascontiguousarray(weights),
            output,
            num_blocks,
            bucket_bits,
        )
        return True

    @functools.cached_property
    def _compiled_form(self) -> tuple[Words, Words]:
        """The coefficients in chunks of pairs, and Winograd's constants, as _kernel.c wants them.

        Shapes (polynomials, chunks, pairs, 2) and (polynomials, chunks): the highest chunk first,
        in each pair the odd coefficient first.
        """
        family = self.family
        pairs = pairs_per_chunk(family.independence, family.num_polynomials)
        chunks = -(-family.independence // (2 * pairs))
        padded = np.zeros((family.num_polynomials, chunks * pairs * 2), dtype=np.uint64)
        padded[:, : family.independence] = family.coefficients
        chunked = padded.reshape(family.num_polynomials, chunks, pairs, 2)[:, ::-1]
        terms = family.field.multiply(chunked[..., 0], chunked[..., 1])
        constants = np.bitwise_xor.reduce(terms, axis=2)
        return np.ascontiguousarray(chunked[..., ::-1]), np.ascontiguousarray(constants)


def pairs_per_chunk(independence: int, num_polynomials: int) -> int:
    """Returns how many pairs of coefficients meet tabulated powers before a step of Horner's rule.

    Few polynomials are cheapest with few powers (as many as the square root of r, about), many
    with all r powers and no step. The values do not depend on it.

    Example:
        >>> pairs_per_chunk(48, 64), pairs_per_chunk(48, 2)
        (24, 4)
    """
    half = -(-independence // 2)

    def products_and_reductions(pairs: int) -> int:
        chunks = -(-half // pairs)
        return 4 * pairs + num_polynomials * (chunks * pairs + 2 * chunks - 1)

    return min(range(1, half + 1), key=products_and_reductions)


def split_values(
    values: Words, num_blocks: int, bucket_bits: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Returns the bucket of each key in each block, and whether it is negative there.

    A word gives floor(64 / (bucket_bits + 1)) blocks, from its low end on; of each block's bits
    the lowest is the sign.

    Args:
        values: shape (n, polynomials), uint64.
        num_blocks: as many blocks as are wanted of those that the words provide.
        bucket_bits: binary logarithm of the number of buckets of a block.

    Returns:
        shapes (n, num_blocks), int64 and bool.
    """
    per_word = 64 // (bucket_bits + 1)
    block = np.arange(num_blocks)
    shift = (block % per_word * (bucket_bits + 1)).astype(np.uint64)
    fields = values[:, block // per_word] >> shift
    buckets = (fields >> np.uint64(1)) & np.uint64(2**bucket_bits - 1)
    return buckets.astype(np.int64), fields & np.uint64(1) == 1
