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

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence

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


# Bounds on the change of inner products by a projection with random signs and r-wise hashing.
#
# Let A be a projection with a column A_y per key y and R nonzero entries per column, x the counts
# of keys, and q a query; x and q have no negative values. The error of <Aq, Ax> / R is the
# distortion
#
# D = sum over y != z of q_y x_z <A_y, A_z> / R.
#
# A product of p of these terms has 2p columns, each in one row or block, so for 2p <= r the mean of
# D^p is the same as for independent hashes: a sum, without negative terms, over graphs with p
# edges, no loops, and an even number of edges at each place. If no term decreases, no moment
# decreases. If a variable has mean 0 and cumulants c_1, c_2, ..., the moments of the variable
# follow from m_p = sum_j (p - 1 choose j - 1) c_j m_(p - j), which grows with each cumulant.
# Markov's inequality for an even p then gives the bound; for k queries, p about ln(k / beta) is
# best, so r = 48 loses little.
#
# Dense signs of T rows. If normal variables replace the signs, no term decreases. Then T D is a sum
# over rows of g'Mg, M = (q x' + x q') / 2 without its diagonal, with the cumulants T 2^(j - 1) (j -
# 1)! tr M^j; the diagonal only adds to these traces. With its diagonal, M has two eigenvalues, (<q,
# x> +- |q| |x|) / 2. The sum of their j-th powers grows with |x| and with <q, x>, which is at most
# |q| times the norm S of x on the keys of q: S <= min(|x|, sqrt(m) L) for m keys in q and counts up
# to L.
#
# Blocks of w cells. All pairs (block, cell) in one connected part of a graph are equal, which has
# probability w^(1 - V) for V places. So the cumulants of R D are at most T y_j, where y_j is the
# same sum for one cell that contains each key with probability 1 / w, and T = R w.
#
# * Keys of x outside of q: the cell contains a product of two independent sums, of q and of x. Sums
# of even powers are at most m and |x|^2 L^(2i - 2). So sums over Poisson numbers of keys, of means
# m / w and (|x| / L)^2 / w and with values 1 and L, have moments that are not smaller. * Keys of q:
# x is at most L on these keys. The n keys in a cell, with W the sum of their signs, add L (W^2 -
# n), whose j-th moment is a linear combination of n(n - 1)...(n - V + 1), V = 2, 3, ..., with
# coefficients that count graphs; for a binomial n, the means of these products are at most (m /
# w)^V.
#
# The norms (E D^p)^(1/p) of both parts add up. If the cells of a folded row have different
# probabilities, 1 / w is the largest of these probabilities.


@dataclasses.dataclass(frozen=True)
class Distortion:
    """Tail bounds of a projection with a uniform hash key, independent of queries and data."""

    projection_width: int
    num_blocks: int  # R, the number of blocks (entries per column); T for dense signs
    independence: int  # r, the independence of the hash; at least 4
    sparsity: int  # m, the maximum number of keys in a query; their values are between 0 and 1
    num_queries: int

    def bound(self, norm: float, largest: float, failure_probability: float) -> float:
        """Returns a bound on the distortion of all queries, with probability 1 - beta.

        ``norm``: an upper bound on the L2 norm of the counts.
        ``largest``: an upper bound on the largest count; values above ``norm`` act like ``norm``.
        ``failure_probability``: beta, in (0, 1), over the hash key.
        """
        largest = min(largest, norm)
        within = min(norm, math.sqrt(self.sparsity) * largest)
        root = math.sqrt(self.sparsity)
        if self._is_dense:
            # Treats both parts as one variable, whose eigenvalues are sums of the two norms.
            plus, minus = (1 + within / norm) / 2, (within / norm - 1) / 2
            cumulants = [
                2 ** (j - 1)
                * math.factorial(j - 1)
                * (plus**j + minus**j)
                * self.projection_width ** (1 - j / 2)
                for j in self._orders
            ]
            cumulants[0] = 0.0  # the mean is 0, because M has no diagonal
            scale = root * norm / math.sqrt(self.projection_width)
            return scale * self._markov([_moments(cumulants)], [1.0], failure_probability)
        apart = _moments(self._cumulants_apart(norm, largest))
        together = _moments(self._cumulants_together())
        scales = [root * norm * self._per_root, self.sparsity * largest * self._per_root]
        by_moments = self._markov([apart, together], scales, failure_probability)
        # The variances of both parts are known exactly.
        squares = self.sparsity * (norm**2 + within**2) * self._per_root**2
        return min(by_moments, math.sqrt(squares * self.num_queries / failure_probability))

    def coefficient(self, failure_probability: float) -> float:
        """Returns a bound on the distortion for any counts, divided by the norm of the counts.

        For blocks, the bound follows from the variance alone, because one key may have all records.
        """
        if self._is_dense:
            return self.bound(1.0, 1.0, failure_probability)
        chances = self.num_queries / failure_probability
        return math.sqrt(2 * self.sparsity * chances) * self._per_root

    def squared_norm(self, failure_probability: float) -> float:
        """Returns a bound on |Aq|^2 / R for all queries, with probability 1 - beta."""
        m = self.sparsity
        if self._is_dense:
            return m + self.bound(math.sqrt(m), 1.0, failure_probability)
        together = _moments(self._cumulants_together())
        away = self._markov([together], [m * self._per_root], failure_probability)
        squares = 2.0 * m**2 * self._per_root**2
        return m + min(away, math.sqrt(squares * self.num_queries / failure_probability))

    def largest_entry(self, failure_probability: float) -> float:
        """Returns a bound on the entries of Aq for all queries, with probability 1 - beta.

        Uses the moments of one entry, up to the r-th, and a union bound over k T entries.

        Reference: Blum and Roth (2011), Lemma 4.6, corrected.
        """
        mean = float(self.sparsity) if self._is_dense else self.sparsity / self._cells
        orders = range(1, self.independence // 2 * 2 + 1)
        powers = [0.0 if j % 2 else mean ** (1 - j / 2) for j in orders]
        if self._is_dense:
            powers = [1.0 if j == 2 else 0.0 for j in orders]
        moments = _moments(powers)
        chances = self.num_queries * self.projection_width / failure_probability
        bound = min(math.pow(chances * moments[p], 1 / p) for p in orders if p % 2 == 0)
        return min(float(self.sparsity), bound * math.sqrt(mean))

    @property
    def _is_dense(self) -> bool:
        return self.num_blocks == self.projection_width

    @property
    def _orders(self) -> range:
        """The orders of moments for which the hash behaves like independent signs."""
        return range(1, self.independence // 2 + 1)

    @property
    def _cells(self) -> float:
        """The number w of cells per block: the inverse of the largest probability of a cell."""
        width = self.projection_width // self.num_blocks
        buckets = num_buckets(width)
        return buckets / math.ceil(buckets / width)

    @property
    def _per_root(self) -> float:
        """1 / sqrt(R w)."""
        return 1 / math.sqrt(self.num_blocks * self._cells)

    def _cumulants_apart(self, norm: float, largest: float) -> list[float]:
        """Returns cumulants of the distortion from keys outside a query, in standard deviations."""
        of_query, of_counts = (
            _moments([0.0 if j % 2 else mean ** (1 - j / 2) for j in self._orders])
            for mean in (self.sparsity / self._cells, (norm / largest) ** 2 / self._cells)
        )
        total = self.num_blocks * self._cells
        return [total ** (1 - j / 2) * of_query[j] * of_counts[j] for j in self._orders]

    def _cumulants_together(self) -> list[float]:
        """Returns cumulants for a query's keys, all with count 1, in units of m / sqrt(R w)."""
        mean, total = self.sparsity / self._cells, self.num_blocks * self._cells
        return [
            total ** (1 - j / 2)
            * sum(float(g) * mean ** (v - j) for v, g in enumerate(_graphs(j)) if g)
            for j in self._orders
        ]

    def _markov(
        self,
        parts: Sequence[Sequence[float]],
        scales: Sequence[float],
        failure_probability: float,
    ) -> float:
        """Returns a bound that the sum of the parts rarely exceeds, by the best moment."""
        chances = self.num_queries / failure_probability
        return min(
            math.pow(chances, 1 / p)
            * sum(s * math.pow(m[p], 1 / p) for s, m in zip(scales, parts, strict=True))
            for p in self._orders
            if p % 2 == 0
        )


def _moments(cumulants: Sequence[float]) -> list[float]:
    """Returns the moments, starting with the 0-th, for cumulants starting with the first."""
    moments = [1.0]
    for p in range(1, len(cumulants) + 1):
        terms = (
            math.comb(p - 1, j - 1) * cumulants[j - 1] * moments[p - j] for j in range(1, p + 1)
        )
        moments.append(sum(terms))
    return moments


@functools.cache
def _graphs(edges: int) -> list[int]:
    """Returns g with E (W_n^2 - n)^j = sum_V g_V n (n - 1) ... (n - V + 1), j = ``edges``.

    W_n is the sum of n signs. Computed by Newton's forward differences at n = 0, in integers.
    """
    values = []
    for n in range(edges + 1):
        total = sum(math.comb(n, k) * ((n - 2 * k) ** 2 - n) ** edges for k in range(n + 1))
        values.append(total >> n)
    graphs = []
    for order in range(edges + 1):
        graphs.append(values[0] // math.factorial(order))
        values = [after - before for before, after in itertools.pairwise(values)]
    return graphs
