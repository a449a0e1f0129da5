"""Bounds on the change of inner products by a projection with random signs and r-wise hashing.

Let A be a projection with a column A_y per key y and R nonzero entries per column, x the counts of
keys, and q a query; x and q have no negative values. The error of <Aq, Ax> / R is the distortion

    D = sum over y != z of q_y x_z <A_y, A_z> / R.

A product of p of these terms has 2p columns, each in one row or block, so for 2p <= r the mean of
D^p is the same as for independent hashes: a sum, without negative terms, over graphs with p edges,
no loops, and an even number of edges at each place. If no term decreases, no moment decreases. If a
variable has mean 0 and cumulants c_1, c_2, ..., the moments of the variable follow from m_p = sum_j
(p - 1 choose j - 1) c_j m_(p - j), which grows with each cumulant. Markov's inequality for an even
p then gives the bound; for k queries, p about ln(k / beta) is best, so r = 48 loses little.

Dense signs of T rows. If normal variables replace the signs, no term decreases. Then T D is a sum
over rows of g'Mg, M = (q x' + x q') / 2 without its diagonal, with the cumulants T 2^(j - 1) (j -
1)! tr M^j; the diagonal only adds to these traces. With its diagonal, M has two eigenvalues, (<q,
x> +- |q| |x|) / 2. The sum of their j-th powers grows with |x| and with <q, x>, which is at most
|q| times the norm S of x on the keys of q: S <= min(|x|, sqrt(m) L) for m keys in q and counts up
to L.

Blocks of w cells. All pairs (block, cell) in one connected part of a graph are equal, which has
probability w^(1 - V) for V places. So the cumulants of R D are at most T y_j, where y_j is the same
sum for one cell that contains each key with probability 1 / w, and T = R w.

* Keys of x outside of q: the cell contains a product of two independent sums, of q and of x. Sums
  of even powers are at most m and |x|^2 L^(2i - 2). So sums over Poisson numbers of keys, of means
  m / w and (|x| / L)^2 / w and with values 1 and L, have moments that are not smaller.
* Keys of q: x is at most L on these keys. The n keys in a cell, with W the sum of their signs, add
  L (W^2 - n), whose j-th moment is a linear combination of n(n - 1)...(n - V + 1), V = 2, 3, ...,
  with coefficients that count graphs; for a binomial n, the means of these products are at most
  (m / w)^V.

The norms (E D^p)^(1/p) of both parts add up. If the cells of a folded row have different
probabilities, 1 / w is the largest of these probabilities.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence

from beam_dp.hashing.projections import num_buckets


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
        found = min(math.pow(chances * moments[p], 1 / p) for p in orders if p % 2 == 0)
        return min(float(self.sparsity), found * math.sqrt(mean))

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
    found = []
    for order in range(edges + 1):
        found.append(values[0] // math.factorial(order))
        values = [after - before for before, after in itertools.pairwise(values)]
    return found
