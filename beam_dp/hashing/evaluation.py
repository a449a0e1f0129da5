"""Polynomial hash families over GF(2^s), and their evaluation over GF(2^64) on the active backend.

Let F = GF(2^s), and let r be the independence. A key contains the coefficients c_ij in F,
i + j < r, of a polynomial in two variables. Polynomial number b of the family is

    p_b(x) = sum_j c_j(b) x^j,   c_j(b) = sum_i c_ij beta_b^i,   beta_b = b, all distinct,

and its value at x is read as s bits.

Theorem. For a uniform key the bits at any r distinct triples (b, bit, x) are independent and fair.
Proof. The triples belong to k <= r distinct points (b, x) of F^2. For each point, multiply affine
forms, one for every other point: each form is 0 at that other point but not at this one. The
product has total degree below r, so the map from keys to the k values is linear and onto: the
values are uniform on F^k. The bits of a uniform word are independent and fair. QED
The same argument covers the bits of one word, and of several polynomials that are drawn separately.
``tests/hashing/test_independence.py`` proves it again by exhaustion over GF(2^4).

Reference: Carter and Wegman (1979) for one polynomial; Blum and Roth (2011), Remark 4.4, for the
use. Degree r - 1, not r, is enough.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from beam_dp.errors import InputError
from beam_dp.hashing.keys import HashKey, Words, num_words

# Chooses the hashing backend, a compiled kernel or numpy. The backends differ only in speed.


ENVIRONMENT_VARIABLE = "BEAM_DP_HASHING_BACKEND"

kernel: ModuleType | None
try:
    kernel = importlib.import_module("beam_dp.hashing._kernel")
except ImportError:
    kernel = None
    # Warn once per process: without the kernel a worker is 100 to 200 times slower, with no error.
    logging.getLogger(__name__).warning(
        "beam_dp was installed without its compiled hashing kernel (no C compiler?): "
        "projections give the same results, about 100 times slower"
    )


def available_backends() -> tuple[str, ...]:
    """Returns the backends that this machine and installation can run, fastest first."""
    # ``vpclmulqdq512``, ``vpclmulqdq256`` and ``pclmulqdq`` are named after CPU instructions,
    # ``portable`` is plain C, and ``numpy`` is always available.
    compiled: tuple[str, ...] = kernel.backends() if kernel else ()
    return (*compiled, "numpy")


def active_backend() -> str:
    """Returns the backend in use: BEAM_DP_HASHING_BACKEND if set, otherwise the fastest."""
    # If this returns ``numpy`` on a machine with a compiler, the extension was not built.
    available = available_backends()
    chosen = os.environ.get(ENVIRONMENT_VARIABLE) or available[0]
    if chosen not in available:
        raise InputError(
            ENVIRONMENT_VARIABLE, chosen, f"must be one of {', '.join(available)} on this machine"
        )
    return chosen


_BATCH_KEYS = 4096  # keys per batch in numpy


@dataclass(frozen=True)
class BinaryField:
    """GF(2^degree): polynomials over GF(2) modulo t^degree + modulus, which is irreducible.

    Bit i of a word is the coefficient of t^i. Addition is exclusive or. The field of a family is a
    parameter, so tests can prove independence by exhaustion over a small field.
    """

    degree: int
    modulus: int

    def multiply(self, left: Words, right: Words) -> Words:
        """Returns the products, element by element; shapes broadcast."""
        one, top = np.uint64(1), np.uint64(self.degree - 1)
        modulus, mask = np.uint64(self.modulus), np.uint64(2**self.degree - 1)
        shape = np.broadcast_shapes(left.shape, right.shape)
        product = np.zeros(shape, dtype=np.uint64)
        scratch = np.empty(shape, dtype=np.uint64)
        # Horner's rule over the bits of `right`: product = product * t + left * bit.
        for bit in reversed(range(int(right.max(initial=0)).bit_length())):
            np.right_shift(product, top, out=scratch)
            np.multiply(scratch, modulus, out=scratch)
            np.left_shift(product, one, out=product)
            np.bitwise_and(product, mask, out=product)
            np.bitwise_xor(product, scratch, out=product)
            np.multiply(left, (right >> np.uint64(bit)) & one, out=scratch)
            np.bitwise_xor(product, scratch, out=product)
        return product


GF64 = BinaryField(64, 0b11011)
"""GF(2^64) modulo t^64 + t^4 + t^3 + t + 1, the lightest irreducible polynomial of its degree."""


class Evaluator:
    """Computes the values of a family, and sums of the signs from these values."""

    def __init__(self, key: HashKey, num_polynomials: int) -> None:
        self.family = PolynomialFamily(GF64, key.independence, key.words, num_polynomials)

    def values(self, keys: Words) -> Words:
        """Returns the values of all polynomials, shape (len(keys), num_polynomials), uint64."""
        values = np.empty((self.family.num_polynomials, len(keys)), dtype=np.uint64)
        return values.T if self._run(keys, None, values) else self.family.values(keys)

    def add_signs(
        self, accumulators: NDArray[np.int64], keys: Words, weights: NDArray[np.int64]
    ) -> None:
        """Adds weight * (-1)^bit to the 64 rows of each polynomial."""
        if self._run(keys, weights, accumulators):
            return
        tile_keys = 255  # at most 255 keys, so that a byte can count the keys
        rows = accumulators.view(np.uint64)  # sums modulo 2^64, even for the weight -2^63
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
        """Adds weight * sign to one row per block."""
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
        """Runs the compiled kernel; returns False and does nothing if numpy is in use."""
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
        """The coefficients in chunks of pairs, and Winograd's constants, in the form for _kernel.c.

        Shapes (polynomials, chunks, pairs, 2) and (polynomials, chunks). The highest chunk comes
        first; in each pair, the odd coefficient comes first.
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
    """Returns how many pairs of coefficients use tabulated powers per step of Horner's rule.

    A few polynomials are fastest with few powers (about the square root of r); many polynomials are
    fastest with all r powers and no step of Horner's rule. The result only affects the speed.
    """
    half = -(-independence // 2)

    def products_and_reductions(pairs: int) -> int:
        chunks = -(-half // pairs)
        return 4 * pairs + num_polynomials * (chunks * pairs + 2 * chunks - 1)

    return min(range(1, half + 1), key=products_and_reductions)


def split_values(
    values: Words, num_blocks: int, bucket_bits: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Returns, for each key and block, the bucket and whether the sign is negative."""
    # A word is cut into floor(64 / (bucket_bits + 1)) blocks, from its low end; the lowest bit of
    # each block is the sign. ``values``: shape (n, polynomials); results: shape (n, num_blocks).
    per_word = 64 // (bucket_bits + 1)
    block = np.arange(num_blocks)
    shift = (block % per_word * (bucket_bits + 1)).astype(np.uint64)
    fields = values[:, block // per_word] >> shift
    buckets = (fields >> np.uint64(1)) & np.uint64(2**bucket_bits - 1)
    return buckets.astype(np.int64), fields & np.uint64(1) == 1


_WINDOW = 4  # bits per table look-up: the tables of 64 polynomials fit in the L1 cache
_TILE_WORDS = 2**15  # values per tile
_POWER_KEYS = 4096  # keys per batch of powers


class PolynomialFamily:
    """The polynomials p_0, ..., p_(num_polynomials - 1) of one key.

    ``field``: F; every x and every b must be smaller than the size of F.
    ``words``: c_ij in the order of ``HashKey``, shape (r (r + 1) / 2,), uint64.
    """

    def __init__(
        self, field: BinaryField, independence: int, words: Words, num_polynomials: int
    ) -> None:
        self.field = field
        self.independence = independence
        self.num_polynomials = num_polynomials
        self._words = words

    @functools.cached_property
    def coefficients(self) -> Words:
        """c_j(b), shape (num_polynomials, r), uint64. Cost: r^2 products per polynomial, once."""
        r = self.independence
        beta = np.arange(self.num_polynomials, dtype=np.uint64)[:, np.newaxis]
        total = np.zeros((self.num_polynomials, r), dtype=np.uint64)
        for i in reversed(range(r)):
            total = self.field.multiply(total, beta)
            start = num_words(r) - num_words(r - i)
            total[:, : r - i] ^= self._words[start : start + r - i]
        return total

    def values(self, keys: Words) -> Words:
        """Returns p_b(x), shape (len(keys), num_polynomials), uint64.

        The powers x^o, x^(2 o), x^(4 o), ... are linear functions over GF(2) of x^o, and so is any
        sum of these powers with coefficients. For each odd o below r, this function is tabulated
        for four bits of its argument at a time. A value is the exclusive or of r / 2 * s / 4 rows.

        Reference: the Method of Four Russians (Arlazarov et al. 1970).
        """
        values = np.empty((len(keys), self.num_polynomials), dtype=np.uint64)
        tile_keys = max(1, _TILE_WORDS // self.num_polynomials)
        for start in range(0, len(keys), _POWER_KEYS):
            powers = self._odd_powers(keys[start : start + _POWER_KEYS])
            for first in range(0, powers.shape[1], tile_keys):
                tile = values[start + first : start + min(first + tile_keys, powers.shape[1])]
                self._look_up(powers[:, first : first + tile_keys], tile)
        return values

    def _odd_powers(self, keys: Words) -> Words:
        """Returns the powers x, x^3, x^5, ... below x^r, shape (r // 2, len(keys))."""
        size = self.independence // 2
        powers = keys[np.newaxis][:size]
        step = keys
        # Doubles the powers per call: a numpy call takes as long as hundreds of products.
        while len(powers) < size:
            step = self.field.multiply(step, step)
            more = self.field.multiply(powers[: size - len(powers)], step)
            powers = np.concatenate([powers, more])
        return powers

    def _look_up(self, powers: Words, values: Words) -> None:
        """Fills `values` (keys, polynomials) from `powers` (odd powers, keys)."""
        values[:] = self.coefficients[:, 0]
        row = np.empty_like(values)
        mask = np.uint64(2**_WINDOW - 1)
        for tables, power in zip(self._tables, powers, strict=True):
            for window, table in enumerate(tables):
                index = ((power >> np.uint64(_WINDOW * window)) & mask).astype(np.intp)
                # The mode "clip" only avoids a copy: no index is out of range.
                np.take(table, index, axis=0, out=row, mode="clip")
                np.bitwise_xor(values, row, out=values)

    @functools.cached_property
    def _tables(self) -> Words:
        """Returns tables of the linear functions, shape (odd powers, windows, 2^4, polynomials)."""
        degree = self.field.degree
        windows = -(-degree // _WINDOW)
        basis = np.uint64(1) << np.arange(degree, dtype=np.uint64)
        images = np.zeros(
            (self.independence // 2, windows * _WINDOW, self.num_polynomials), dtype=np.uint64
        )
        for exponent in range(1, self.independence):
            odd, doublings = exponent, 0
            while odd % 2 == 0:
                odd, doublings = odd // 2, doublings + 1
            argument = basis
            for _ in range(doublings):
                argument = self.field.multiply(argument, argument)
            images[odd // 2, :degree] ^= self.field.multiply(
                argument[:, np.newaxis], self.coefficients[:, exponent]
            )
        shape = (len(images), windows, _WINDOW, self.num_polynomials)
        tables = np.zeros((*shape[:2], 2**_WINDOW, self.num_polynomials), dtype=np.uint64)
        for bit in range(_WINDOW):
            image = images.reshape(shape)[:, :, bit, np.newaxis]
            tables[:, :, 2**bit : 2 ** (bit + 1)] = tables[:, :, : 2**bit] ^ image
        return tables
