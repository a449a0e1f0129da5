"""Polynomial hash families over a field of characteristic two.

Write F = GF(2^s), r the independence. A key holds the coefficients c_ij in F, i + j < r, of a
polynomial of two variables. Polynomial number b of the family is

    p_b(x) = sum_j c_j(b) x^j,   c_j(b) = sum_i c_ij beta_b^i,   beta_b = b, all distinct,

and its value at x is read as s bits.

Theorem. For a uniform key the bits at any r distinct triples (b, bit, x) are independent and fair.
Proof. The triples lie at k <= r distinct points (b, x) of F^2. For each of them, the product over
the others of an affine form that vanishes there but not here has total degree below r, so the map
from keys to the k values is linear and onto: the values are uniform on F^k. The bits of a uniform
word are independent and fair. QED
The bits of one word, or of several polynomials that are drawn separately, are covered by the same
argument. ``tests/hashing/test_independence.py`` proves it again by exhaustion over GF(2^4).

Reference: Carter and Wegman (1979) for one polynomial; Blum and Roth (2011), Remark 4.4, for the
use. Degree r - 1, not r, is enough.
"""

from __future__ import annotations

import functools

import numpy as np

from beam_dp.hashing.field import BinaryField, Words
from beam_dp.hashing.keys import num_words

_WINDOW = 4  # bits looked up at a time: the tables of 64 polynomials stay in the nearest cache
_TILE_WORDS = 2**15  # values at a time
_POWER_KEYS = 4096  # keys whose powers are computed at a time


class PolynomialFamily:
    """The polynomials p_0, ..., p_(num_polynomials - 1) of one key.

    Args:
        field: F; every x and every b must be below its size.
        independence: r, >= 1.
        words: shape (r (r + 1) / 2,), uint64: c_ij, as ``HashKey`` orders them.
        num_polynomials: >= 1.
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
        """c_j(b): shape (num_polynomials, r), uint64. Cost: r^2 products a polynomial, once."""
        r = self.independence
        beta = np.arange(self.num_polynomials, dtype=np.uint64)[:, np.newaxis]
        total = np.zeros((self.num_polynomials, r), dtype=np.uint64)
        for i in reversed(range(r)):
            total = self.field.multiply(total, beta)
            start = num_words(r) - num_words(r - i)
            total[:, : r - i] ^= self._words[start : start + r - i]
        return total

    def values(self, keys: Words) -> Words:
        """Returns p_b(x): shape (len(keys), num_polynomials), uint64.

        The powers x^o, x^(2 o), x^(4 o), ... are linear functions over GF(2) of x^o, and so is
        their sum with coefficients. For each odd o below r that one function is tabulated, four
        bits of its argument at a time, which leaves an exclusive or of r / 2 * s / 4 table rows.

        Cost: that, about 0.1 microseconds a word at r = 48; tables of 50 KB a polynomial, made
        once at about 100 times the time of a key.
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
        """Returns x, x^3, x^5, ... below x^r: shape (r // 2, len(keys))."""
        size = self.independence // 2
        powers = keys[np.newaxis][:size]
        step = keys
        # Twice as many each time: a call of numpy costs as much as hundreds of products.
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
        """Shape (odd powers, windows, 2^4, polynomials): values of the linear functions."""
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
