from __future__ import annotations

import itertools

import hash_oracle
import numpy as np

from beam_dp.hashing.evaluation import GF64, BinaryField

GF16 = BinaryField(4, 0b0011)
EDGES = [0, 1, 2, 3, 2**63, 2**64 - 1, 0x8000000000000001, 0x123456789ABCDEF0, 27]


def pairs(values: list[int]) -> tuple[list[tuple[int, int]], np.ndarray, np.ndarray]:
    chosen = list(itertools.product(values, repeat=2))
    left, right = np.array(chosen, dtype=np.uint64).T
    return chosen, left, right


def test_64_bit_products_match_the_definition():
    rng = np.random.default_rng(0)
    values = EDGES + rng.integers(0, 2**64, size=20, dtype=np.uint64).tolist()
    chosen, left, right = pairs(values)
    expected = [hash_oracle.multiply(a, b) for a, b in chosen]
    assert GF64.multiply(left, right).tolist() == expected


def test_small_field_satisfies_the_field_axioms():
    chosen, left, right = pairs(list(range(16)))
    products = GF16.multiply(left, right)
    assert products.tolist() == [hash_oracle.multiply(a, b, 4, 3) for a, b in chosen]
    table = products.reshape(16, 16)
    for row in table[1:]:
        assert sorted(row.tolist()) == list(range(16))


def test_large_modulus_is_irreducible():
    """x^(2^64) = x, and x^(2^32) - x is prime to the modulus: Rabin's test for degree 64 = 2^6."""
    x = np.array([2], dtype=np.uint64)
    value = x
    for step in range(1, 65):
        value = GF64.multiply(value, value)
        if step == 32:
            half = int(value[0])
    assert int(value[0]) == 2
    # The greatest common divisor of the modulus and x^(2^32) - x, by Euclid's algorithm.
    a, b = 1 << 64 | 0b11011, half ^ 2
    while b:
        while a.bit_length() >= b.bit_length():
            a ^= b << (a.bit_length() - b.bit_length())
        a, b = b, a
    assert a == 1
