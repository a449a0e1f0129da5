"""Independence proved by exhaustion, on the production code over GF(2^4)."""

import itertools
from collections.abc import Callable

import hash_oracle
import numpy as np
import pytest
from numpy.typing import NDArray

from beam_dp.hashing.evaluation import GF64, BinaryField, PolynomialFamily
from beam_dp.hashing.keys import Words, num_words

GF16 = BinaryField(4, 0b0011)
POINTS = np.arange(16, dtype=np.uint64)
Values = Callable[[int, Words, int], Words]


def production(independence: int, words: Words, num_polynomials: int) -> Words:
    """The values at all points: shape (16, num_polynomials)."""
    return PolynomialFamily(GF16, independence, words, num_polynomials).values(POINTS)


def bits(values: Words) -> NDArray[np.bool_]:
    """Every entry of the matrix of signs, as one vector."""
    return ((values[..., np.newaxis] >> np.arange(4, dtype=np.uint64)) & np.uint64(1) == 1).ravel()


def linear_forms(values: Values, independence: int, num_polynomials: int) -> list[int]:
    """Each entry as an exclusive or of key bits, written as a set of bits.

    Checked against random keys: the entries are indeed linear.
    """
    size = num_words(independence)

    def entries(words: list[int]) -> NDArray[np.bool_]:
        return bits(values(independence, np.array(words, dtype=np.uint64), num_polynomials))

    forms = [0] * (16 * num_polynomials * 4)
    for index, bit in itertools.product(range(size), range(4)):
        for entry in np.flatnonzero(entries([bit_of(index, bit, i) for i in range(size)])):
            forms[entry] |= 1 << (4 * index + bit)
    rng = np.random.default_rng(1)
    for _ in range(5):
        words = rng.integers(0, 16, size=size).tolist()
        key = sum(word << (4 * i) for i, word in enumerate(words))
        expected = [(form & key).bit_count() % 2 == 1 for form in forms]
        assert entries(words).tolist() == expected
    return forms


def bit_of(index: int, bit: int, position: int) -> int:
    return 1 << bit if position == index else 0


def smallest_dependent_set(forms: list[int]) -> int | None:
    """The size, up to 4, of the smallest set of forms whose sum is zero."""
    if 0 in forms:
        return 1
    if len(set(forms)) < len(forms):
        return 2
    known = set(forms)
    sums: set[int] = set()
    four = False
    for a, b in itertools.combinations(forms, 2):
        if a ^ b in known:
            return 3
        four |= a ^ b in sums
        sums.add(a ^ b)
    return 4 if four else None


@pytest.mark.parametrize("num_polynomials", [2, 4, pytest.param(16, marks=pytest.mark.part)])
@pytest.mark.parametrize("independence", [2, 3, 4])
def test_entries_of_many_polynomials_from_one_key_are_independent(independence, num_polynomials):
    forms = linear_forms(production, independence, num_polynomials)
    smallest = smallest_dependent_set(forms)
    assert smallest is None or smallest > independence


def test_four_entries_are_dependent_at_independence_three():
    assert smallest_dependent_set(linear_forms(production, 3, 2)) == 4


def mixed_into_the_point(independence: int, words: Words, num_polynomials: int) -> Words:
    """A broken family: one polynomial at the point b XOR x, which is not injective."""
    one = PolynomialFamily(GF16, independence, words, 1)
    return np.stack(
        [one.values(POINTS ^ np.uint64(b))[:, 0] for b in range(num_polynomials)], axis=1
    )


def too_few_coefficients(independence: int, words: Words, num_polynomials: int) -> Words:
    """A broken family: the degree is one too small."""
    words = words.copy()
    last = np.cumsum(np.arange(independence, 0, -1)) - 1
    words[last] = 0  # all c_ij with i + j = r - 1
    return production(independence, words, num_polynomials)


@pytest.mark.parametrize(("broken", "size"), [(mixed_into_the_point, 2), (too_few_coefficients, 4)])
def test_broken_hash_family_has_a_small_dependent_set(broken, size):
    assert smallest_dependent_set(linear_forms(broken, 4, 2)) == size


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
