"""Hash families written down from their definition, in Python's integers: slow, and independent."""

import hashlib

import numpy as np

from beam_dp.hashing.keys import HashKey, num_words


def multiply(a: int, b: int, degree: int = 64, modulus: int = 0b11011) -> int:
    product = 0
    for bit in range(degree):
        if b >> bit & 1:
            product ^= a << bit
    for bit in reversed(range(degree, 2 * degree)):
        if product >> bit & 1:
            product ^= (1 << bit) ^ (modulus << (bit - degree))
    return product


def power(a: int, exponent: int, degree: int = 64, modulus: int = 0b11011) -> int:
    product = 1
    for _ in range(exponent):
        product = multiply(product, a, degree, modulus)
    return product


def value(key: HashKey, b: int, x: int) -> int:
    """p_b(x) = sum over i + j < r of c_ij b^i x^j."""
    r = key.independence
    words = iter(key.words.tolist())
    total = 0
    b_powers = [power(b, i) for i in range(r)]
    x_powers = [power(x, j) for j in range(r)]
    for i in range(r):
        for j in range(r - i):
            total ^= multiply(next(words), multiply(b_powers[i], x_powers[j]))
    return total


def fixed_key(independence: int) -> HashKey:
    """The same key on every machine."""
    size = num_words(independence)
    stream = b"".join(hashlib.blake2b(b"%d" % i).digest() for i in range(size // 8 + 1))
    words = np.frombuffer(stream, dtype="<u8")[:size].astype(np.uint64)
    return HashKey(independence, words, bytes(range(16)))
