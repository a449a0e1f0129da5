"""Chooses a small database by the exponential mechanism."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_choice, checked_integer
from beam_dp.errors import InputError, magnitude
from beam_dp.mechanisms.choosing import selection_scale
from beam_dp.mechanisms.small_db.enumerated import EnumerationSampler
from beam_dp.mechanisms.small_db.nested import NestedSampler, is_nested, num_products
from beam_dp.mechanisms.small_db.searched import SearchSampler
from beam_dp.mechanisms.small_db.size import MAX_ANSWER, MAX_TARGET, MultisetLaw, num_multisets
from beam_dp.privacy.noise.source import NoiseSource

SamplerName = Literal["auto", "enumeration", "nested", "search"]

MAX_SIZE = 10**4
# Limits on public sizes; work up to a limit takes about 10 to 30 s. The sizes are: multisets times
# queries, counting a multiset itself as 16 queries; products of polynomials; and products times
# bits of a factor.
MAX_COMPARISONS = 10**10
_MULTISET_COST = 16
MAX_PRODUCTS = 4 * 10**6
_MAX_PRODUCT_BITS = 10**10
# The largest exponent N epsilon / (2 k) for the search; for larger exponents the bounds of the
# search are too loose to be useful.
_MAX_EXPONENT = 5 * 10**4
# The largest number of answers kept in memory.
_MAX_ANSWERS = 4 * 10**6
_AnySampler = type[EnumerationSampler] | type[NestedSampler] | type[SearchSampler]
_SAMPLERS: dict[str, _AnySampler] = {
    "enumeration": EnumerationSampler,
    "nested": NestedSampler,
    "search": SearchSampler,
}


@dataclasses.dataclass(frozen=True, eq=False)
class MultisetChoice:
    """The choice of a multiset of cells by the exponential mechanism; all parameters are public.

    Let S(q) be the exact answer, s(q, y) the answer from y, m the size, N the number of records,
    and d k the sensitivity of S. A draw returns a multiset y of m cells with probability
    proportional to exp(-epsilon max over q of |m S(q) - N s(q, y)| / (2 m d k)).

    Privacy: epsilon, pure, and epsilon^2 / 8 zero-concentrated, for add-or-remove-one and for
    replace-one alike, with up to k = ``max_records_per_unit`` records per unit, for any size,
    number of records and queries. Answers are in 0..d, so m S(q) moves by at most m d k, even if a
    replaced record was absent or leaves the universe. The proof needs no other condition.

    Accuracy: with probability 1 - beta no answer N s(q, y) / m is wrong by more than the largest
    error of the best multiset plus (2 k / epsilon) (ln C(U + m - 1, m) + ln(1 / beta)) records,
    where U is the number of cells; ``small_db_size`` bounds the error of the best multiset. Both
    bounds assume N records; if there are n records, add |n - N|.

    Args:
        queries: shape (num_queries, num_cells), integers from 0 to ``denominator``.
        epsilon: finite and > 0.
        num_records: N >= 1; public: the true number, a guess, or a noisy number that was paid for.
        size: m >= 1.
        denominator: d, the integer that represents the answer 1 for one record.
        max_records_per_unit: k.
        sampler: ``auto`` uses the sampler of nested queries if that is feasible, else enumeration.
            ``search`` handles other queries and more multisets; its time depends on the data, so
            ``auto`` never selects it.

    Raises:
        InputError: if a parameter is out of range, or if no sampler is feasible for these sizes.

    Reference: Blum, Ligett and Roth (2013); Dwork and Roth (2014), Algorithm 4 and Theorem 4.5,
    with multisets in place of sequences.

    Example:
        >>> thresholds = np.tri(4, dtype=np.int64)
        >>> mechanism = MultisetChoice(thresholds, epsilon=1.0, num_records=100, size=3)
        >>> mechanism.public["sampler"], mechanism.public["num_multisets"]
        ('nested', 20)
        >>> cells = mechanism.draw(np.array([40, 10, 30, 20]), NoiseSource())
        >>> len(cells), bool((cells < 4).all())
        (3, True)
    """

    queries: NDArray[np.int64]
    epsilon: float
    num_records: int
    size: int
    denominator: int = 1
    max_records_per_unit: int = 1
    sampler: SamplerName = "auto"

    def __post_init__(self) -> None:
        for name in ("num_records", "size", "denominator", "max_records_per_unit"):
            checked_integer(name, getattr(self, name), 1)
        queries = self.queries
        if queries.ndim != 2 or queries.dtype != np.int64 or not queries.size:
            condition = "must be int64, at least one query by at least one cell"
            raise InputError("queries", f"{queries.dtype} {queries.shape}", condition)
        if not (queries.min() >= 0 and queries.max() <= self.denominator):
            condition = f"must be from 0 to the denominator {self.denominator}"
            raise InputError("queries", f"{queries.min()}..{queries.max()}", condition)
        if self.size > MAX_SIZE:
            raise InputError("size", self.size, f"must be <= {MAX_SIZE}")
        if self.num_records * self.size * self.denominator > MAX_ANSWER:
            condition = f"times size times denominator must be at most {magnitude(MAX_ANSWER)}"
            raise InputError("num_records", self.num_records, condition)
        self._scale  # noqa: B018  # raises InputError if the noise does not fit
        self._chosen  # noqa: B018

    @cached_property
    def _distinct(self) -> NDArray[np.int64]:
        # Duplicate queries don't change the loss, which is a maximum over queries.
        return np.unique(self.queries, axis=0)

    @cached_property
    def _types(self) -> tuple[NDArray[np.int64], tuple[NDArray[np.int64], ...]]:
        """The distinct columns of the query matrix, and the cells of each distinct column."""
        columns, kinds = np.unique(self._distinct, axis=1, return_inverse=True)
        order = np.argsort(np.ravel(kinds), kind="stable")
        ends = np.cumsum(np.bincount(np.ravel(kinds)))[:-1]
        return columns, tuple(np.split(order, ends))

    @cached_property
    def _scale(self) -> float:
        sensitivity = self.size * self.denominator * self.max_records_per_unit
        return selection_scale(sensitivity, self.epsilon)

    @property
    def public(self) -> dict[str, Any]:
        """The facts about the choice that the card states: sizes, noise, and the sampler."""
        return {
            "sampler": self._chosen.name,
            "sampler_arithmetic": "exact",
            "sampler_time_depends_on_data": self._chosen is SearchSampler,
            "size": self.size,
            "num_distinct_queries": len(self._distinct),
            "num_distinct_columns": len(self._types[1]),
            "num_multisets": num_multisets(self.queries.shape[1], self.size),
            "selection_scale": self._scale,
        }

    def draw(self, counts: NDArray[np.int64], noise: NoiseSource) -> NDArray[np.int64]:
        """Returns the drawn cells in ascending order, shape (size,): the release.

        ``counts``: the number of records per cell, >= 0, shape (num_cells,); secret.
        """
        return self._chosen(self.law(counts)).draw(noise)

    def law(self, counts: NDArray[np.int64]) -> MultisetLaw:
        """Returns the probability distribution of a draw for these counts; secret."""
        # Python integers can't overflow. Clipping answers never increases their sensitivity.
        exact = self._distinct.astype(object) @ counts.astype(object)
        return MultisetLaw(
            targets=tuple(min(self.size * int(answer), MAX_TARGET) for answer in exact),
            answers=self.num_records * self._types[0],
            members=self._types[1],
            size=self.size,
            scale=Fraction(self._scale),
        )

    @cached_property
    def _chosen(self) -> _AnySampler:
        """The sampler, chosen by public sizes alone."""
        kinds, queries = len(self._types[1]), len(self._distinct)
        multisets = num_multisets(kinds, self.size)
        in_memory = kinds * queries <= _MAX_ANSWERS
        feasible = {
            "nested": in_memory
            and self._counts_fit(queries, self.size)
            and is_nested(self._types[0]),
            "enumeration": in_memory and multisets * (queries + _MULTISET_COST) <= MAX_COMPARISONS,
            "search": in_memory
            and self.num_records * self.epsilon <= 2 * self.max_records_per_unit * _MAX_EXPONENT,
        }
        check_choice("sampler", self.sampler, ("auto", *_SAMPLERS))
        wanted = ["nested", "enumeration"] if self.sampler == "auto" else [self.sampler]
        for name in wanted:
            if feasible[name]:
                return _SAMPLERS[name]
        fits = self._counts_fit(queries, self.size)
        if self.sampler == "nested" and fits and not is_nested(self._types[0]):
            raise InputError("sampler", self.sampler, "needs queries that are disjoint or nested")
        if self.sampler == "search" and in_memory:
            limit = 2 * self.max_records_per_unit * _MAX_EXPONENT / self.num_records
            raise InputError("epsilon", self.epsilon, f"must be <= {limit:g} for the search")
        largest = self._largest_size(kinds, queries)
        counted = bisect_left(
            range(1, self.size + 1), True, key=lambda size: not self._counts_fit(queries, size)
        )
        condition = (
            f"makes {magnitude(multisets)} multisets of {kinds} distinct columns for {queries} "
            f"distinct queries; enumeration is feasible for a size <= {largest}"
        )
        if counted and is_nested(self._types[0]):
            condition += f", and nested, for prefixes or hierarchies, for a size <= {counted}"
        if feasible["search"] and self.sampler == "auto":
            condition += "; sampler 'search' may be feasible"
        raise InputError("size", self.size, condition)

    def _counts_fit(self, queries: int, size: int) -> bool:
        """Whether the sampler of nested queries is feasible, if the queries are nested."""
        products = num_products(queries, size)
        if products > MAX_PRODUCTS:
            return False
        bits = num_multisets(self.queries.shape[1], size).bit_length() * (size + 1)
        return products * bits <= _MAX_PRODUCT_BITS

    def _largest_size(self, kinds: int, queries: int) -> int:
        limit, size = MAX_COMPARISONS // (queries + _MULTISET_COST), 0
        while size < self.size and num_multisets(kinds, size + 1) <= limit:
            size += 1
        return size
