"""Arithmetic in finite fields of characteristic two."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]


@dataclass(frozen=True)
class BinaryField:
    """GF(2^degree): polynomials over GF(2) modulo t^degree + modulus.

    Bit i of a word is the coefficient of t^i. Addition is exclusive or. Everything built on a
    field takes it as a parameter, so that independence can be proved by exhaustion where the
    field is small.

    ``modulus``: the lower coefficients of an irreducible polynomial, as a word.
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
