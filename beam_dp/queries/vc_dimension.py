"""The VC dimension of 0/1 queries: bounds from a witness and a search, and Sauer's bound.

Queries shatter a set of cells if, for every subset of the set, some query is 1 on the subset and 0
on the rest of the set. The VC dimension is the size of the largest set that the queries shatter
(Vapnik and Chervonenkis 1971). It is undefined for queries with values other than 0 and 1.

The proofs below call this argument ``P``. Let products of sets of codes, one set per attribute,
shatter n >= 3 cells. For each cell, some product contains all other cells and not this cell, so the
set of some attribute contains the codes of all other cells and not the code of this cell. If the
attribute's sets are intervals, this cell alone has the smallest or the largest code of the n cells:
at most 2 cells per attribute, and one if the attribute has two codes. If the sets are prefixes,
this cell alone has the largest code: one cell. If the sets are arbitrary, this cell alone has its
code: at most s - 1 cells for s codes, unless n = s and the codes of all cells differ.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_choice, check_is, checked_integer
from beam_dp.errors import InputError
from beam_dp.queries.linear import Disjunction, LinearQuery, Product, negation
from beam_dp.queries.linear_workload import MAX_MATRIX_VALUES, LinearWorkload, query_matrix

FoundBy = Literal["search", "products", "queries", "given"]

# This limit takes some tenths of a second. A step checks one cell and one pattern in up to 2^11
# queries.
MAX_STEPS = 2**19
_QUERIES_OF_A_STEP = 2**11
_REASONS = {
    "search": "a search",
    "products": "the form of the queries",
    "queries": "the number of queries",
    "given": "what was given",
}


@dataclass(frozen=True)
class VCDimension:
    """Bounds on the VC dimension of some queries.

    ``shattered``: the cells of a shattered set, ascending.
    ``found_by``: the source of ``most``: ``search`` (of all sets of cells), ``products``
    (``products_bound``), ``queries`` (lg of their number), or ``given`` (by the caller).
    """

    least: int
    most: int
    shattered: tuple[int, ...]
    found_by: FoundBy

    @property
    def is_exact(self) -> bool:
        """Whether the VC dimension is known exactly; ``most`` is then the dimension."""
        return self.least == self.most

    def __str__(self) -> str:
        limit = f"{self.most}, by {_REASONS[self.found_by]}"
        return limit if self.is_exact else f"at most {limit}; at least {self.least}"


def matrix_vc_dimension(
    queries: NDArray[Any], at_most: int | None = None, max_steps: int = MAX_STEPS
) -> VCDimension:
    """Returns the VC dimension of the rows of a 0/1 matrix, or bounds on the dimension.

    Equal queries count once. Shattering v cells takes 2^v queries, so the dimension is at most lg
    (the logarithm to base 2) of the number of queries; the book prints "log". The search over sets
    of cells is depth first. If v cells belong to a shattered set of t cells, every pattern on the v
    cells occurs in at least 2^(t - v) queries, which rules out most cells early. If several cells
    have equal or opposite values in all queries, only one of these cells is searched. The target
    size grows from 1; if the limit of work stops the search, a second search rules out the largest
    sizes from above.

    ``queries``: zeros and ones, shape (num_queries, num_cells); both numbers are at least 1.
    ``max_steps``: the limit of work; the search may use it twice.

    Reference: Vapnik and Chervonenkis (1971); Dwork and Roth (2014), Lemma 4.7, corrected.

    Example:
        >>> intervals = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1]])
        >>> matrix_vc_dimension(intervals)
        VCDimension(least=2, most=2, shattered=(0, 1), found_by='queries')
        >>> str(matrix_vc_dimension(intervals[:3]))
        '1, by the number of queries'
    """
    matrix = _checked_matrix(queries)
    checked_integer("max_steps", max_steps, 0)
    rows = np.unique(np.packbits(matrix, axis=1), axis=0)
    matrix = np.unpackbits(rows, axis=1, count=matrix.shape[1])
    limit = len(matrix).bit_length() - 1
    found_by: FoundBy = "queries"
    if at_most is not None and checked_integer("at_most", at_most, 0) < limit:
        limit, found_by = at_most, "products"
    search = _Search(matrix)
    shattered: tuple[int, ...] = ()
    bounded = limit
    for from_above in (False, True):
        search.steps = max_steps
        try:
            while len(shattered) < limit:
                target = limit if from_above else len(shattered) + 1
                points = search.shattered(target)
                if points is not None:
                    shattered = points
                else:
                    limit = target - 1
        except _OutOfStepsError:
            continue
    if limit < bounded:
        found_by = "search"
    least = len(shattered)
    while sauer_bound(search.num_kinds, least) < len(matrix):
        least += 1
    return VCDimension(least, limit, tuple(sorted(shattered)), found_by)


def workload_vc_dimension(workload: LinearWorkload, max_steps: int = MAX_STEPS) -> VCDimension:
    """Returns the VC dimension of a workload over the cells of its domain, or bounds for it.

    Excludes cells that the domain declares impossible.

    Args:
        workload: queries with the values 0 and 1.
        max_steps: the limit of work for the search; see ``matrix_vc_dimension``.

    Raises:
        InputError: if a query has another value, or queries times cells exceed 2^24.

    Example:
        >>> from beam_dp.domain.files import read_domain
        >>> from beam_dp.queries.linear_workload import parse_linear_workload
        >>> domain = read_domain('{"age": 100, "sex": 2}')
        >>> found = workload_vc_dimension(parse_linear_workload("intervals:age", domain))
        >>> str(found), found.shattered
        ('2, by the form of the queries', (88, 90))
    """
    check_is("workload", workload, LinearWorkload)
    if len(workload) * workload.domain.num_cells > MAX_MATRIX_VALUES:
        raise _too_large(len(workload), workload.domain.num_cells)
    cells, matrix, denominator = query_matrix(workload)
    if denominator != 1:
        raise InputError("queries", f"values in 1 / {denominator}", "must all be 0 or 1")
    dimension = matrix_vc_dimension(matrix, products_bound(workload.queries), max_steps)
    shattered = tuple(cells[list(dimension.shattered)].tolist())
    return dataclasses.replace(dimension, shattered=shattered)


def sauer_bound(num_points: int, dimension: int) -> int:
    """Returns the largest number of 0/1 queries of a VC dimension v that differ on n points.

    The bound is the sum of C(n, i) for i <= v; the class of sets of at most v points attains it.
    Proof by induction: the number of queries that differ on n points is the number of distinct
    restrictions to n - 1 points plus the number of restrictions for which both extensions occur.
    The restrictions with both extensions have a dimension that is smaller by one.

    Reference: Sauer (1972); Vapnik and Chervonenkis (1971).
    """
    checked_integer("num_points", num_points, 0)
    checked_integer("dimension", dimension, 0)
    return sum(math.comb(num_points, size) for size in range(min(dimension, num_points) + 1))


def log_sauer_bound(num_points: int, dimension: int) -> float:
    """Returns the natural logarithm of ``sauer_bound`` to 12 digits, without the integer itself."""
    if num_points <= dimension:
        return num_points * math.log(2)
    steps = np.arange(dimension, dtype=np.float64)
    # Each term is the previous term times (points - i) / (i + 1).
    terms = np.cumsum(np.log((num_points - steps) / (steps + 1)))
    largest = max(0.0, float(terms.max(initial=0.0)))
    return largest + math.log(math.exp(-largest) + float(np.exp(terms - largest).sum()))


class _OutOfStepsError(Exception):
    """The search has reached its limit of work."""


class _Search:
    """Searches for shattered sets; each cell is an integer whose bits are the distinct queries."""

    def __init__(self, matrix: NDArray[np.uint8]) -> None:
        # Flipping all values of a cell does not change which sets are shattered.
        flipped = matrix ^ matrix[:1]
        packed = np.packbits(flipped.T, axis=1)
        first = {column.tobytes(): place for place, column in reversed([*enumerate(packed)])}
        # The most balanced cells come first, because they are shattered most often.
        balance = np.abs(2 * flipped.sum(axis=0, dtype=np.int64) - len(matrix))
        order = sorted(first.values(), key=lambda place: (balance[place], place))
        self._cells = {int.from_bytes(packed[place].tobytes()): place for place in order}
        self._cells.pop(0, None)
        self.num_kinds = len(self._cells)  # the number of distinct cells, up to a flip
        self._everything = int.from_bytes(np.packbits(np.ones(len(matrix), np.uint8)).tobytes())
        self._cost = 1 + len(matrix) // _QUERIES_OF_A_STEP
        self.steps = 0  # remaining steps

    def shattered(self, target: int) -> tuple[int, ...] | None:
        """Returns ``target`` >= 1 cells that are shattered; None if there is no such set."""
        places = self._extended([self._everything], list(self._cells), target)
        return None if places is None else tuple(self._cells[place] for place in places)

    def _extended(
        self, patterns: list[int], candidates: list[int], missing: int
    ) -> tuple[int, ...] | None:
        """Returns cells that extend a shattered set, given its patterns as sets of queries."""
        least = 1 << (missing - 1)
        sized = [(pattern, pattern.bit_count() - least) for pattern in patterns]
        kept = [column for column in candidates if self._splits(column, sized, least)]
        while len(kept) >= missing:
            column = kept.pop(0)
            if missing == 1:
                return (column,)
            halves = [half for bits in patterns for half in (bits & column, bits & ~column)]
            places = self._extended(halves, kept, missing - 1)
            if places is not None:
                return (column, *places)
        return None

    def _splits(self, column: int, sized: list[tuple[int, int]], least: int) -> bool:
        """Returns whether the column splits every pattern into halves of enough queries."""
        for pattern, limit in sized:
            self.steps -= self._cost
            if self.steps < 0:
                raise _OutOfStepsError
            if not least <= (pattern & column).bit_count() <= limit:
                return False
        return True


def _checked_matrix(queries: NDArray[Any]) -> NDArray[np.uint8]:
    """Returns the matrix as uint8."""
    queries = np.asarray(queries)
    if queries.ndim != 2 or not queries.size:
        condition = "must be a matrix of at least one query by at least one cell"
        raise InputError("queries", f"shape {queries.shape}", condition)
    if queries.size > MAX_MATRIX_VALUES:
        raise _too_large(*queries.shape)
    if queries.dtype.kind not in "biuf" or not ((queries == 0) | (queries == 1)).all():
        raise InputError("queries", f"values of {queries.dtype}", "must all be 0 or 1")
    return queries.astype(np.uint8)


def _too_large(num_queries: int, num_cells: int) -> InputError:
    given = f"{num_queries:,} queries times {num_cells:,} cells"
    return InputError("queries", given, f"must be at most {MAX_MATRIX_VALUES:,} values")


VCFamily = Literal[
    "prefixes",
    "rectangles",
    "products",
    "conjunctions",
    "disjunctions",
    "monotone_conjunctions",
    "monotone_disjunctions",
    "cells",
    "parities",
]
Sets = Literal["prefixes", "intervals", "any"]

_SETS: dict[str, Sets] = {
    "prefixes": "prefixes",
    "rectangles": "intervals",
    "products": "any",
    "conjunctions": "any",
    "disjunctions": "any",
    "monotone_conjunctions": "prefixes",
    "monotone_disjunctions": "prefixes",
}
_OF_TWO_CODES = ("conjunctions", "disjunctions", "parities")


def family_vc_dimension(family: VCFamily, sizes: Sequence[int]) -> int:
    """Returns the VC dimension of a whole family of queries over attributes of s codes each.

    =========================  ================================================  ==================
    family                     its queries                                       dimension
    =========================  ================================================  ==================
    ``prefixes``               a prefix of the codes of each attribute           sum of min(1, s-1)
    ``rectangles``             an interval of the codes of each; of one          sum of min(2, s-1)
                               attribute: all intervals
    ``products``               any non-empty set of codes of each attribute      sum of s - 1
    ``conjunctions``           of any number of d yes/no attributes, each        d
                               plain or negated; ``disjunctions`` likewise
    ``monotone_conjunctions``  of plain yes/no attributes only;                  d
                               ``monotone_disjunctions`` likewise
    ``cells``                  of the marginal of all attributes                 min(1, cells - 1)
    ``parities``               of any number of d yes/no attributes, including   d
                               no attributes
    =========================  ================================================  ==================

    Prefixes, intervals and sets are not empty, and may contain all codes.

    Proof for products. At least the sum: let a base cell have the code 1 for attributes whose sets
    are intervals of three or more codes, and the code 0 for other attributes. The shattered cells
    differ from the base cell in one attribute only: there is one cell for each attribute and each
    other code that the sum counts (both neighbours of 1; the code 1 next to 0; all codes except 0).
    A query excludes any of these cells by omitting the cell's code from an attribute's set; every
    set contains the code of the base cell.

    ``sizes``: s >= 1 for each attribute; 2 for conjunctions, disjunctions and parities.

    At most the sum: this follows from P for n >= 3. In the exception of P, n = s, another attribute
    of two or more codes makes the sum at least s; without another such attribute, the product that
    contains none of the n cells would be empty. For n = 2 there is nothing to prove if the sum is
    at least 2. If the sum is 1, prefixes form a chain, and there are only three other products:
    each of two codes, and both. Conjunctions are non-empty products over two codes, monotone
    conjunctions are products of suffixes, and disjunctions are complements of such products, which
    shatter the same cells. Cells are disjoint, so no query of ``cells`` is 1 on two cells. Parities
    form a linear space of 2^d functions, so their dimension is at most d, and parities shatter the
    d cells with a single yes.

    Example:
        >>> family_vc_dimension("rectangles", [100]), family_vc_dimension("rectangles", [100, 2, 9])
        (2, 5)
        >>> family_vc_dimension("conjunctions", [2] * 16)
        16
    """
    check_choice("family", family, get_args(VCFamily))
    for size in sizes:
        checked_integer("sizes", size, 1)
        if family.endswith(_OF_TWO_CODES) and size != 2:
            raise InputError("sizes", size, f"must be 2 for {family}")
    if family == "cells":
        return min(1, math.prod(sizes) - 1)
    if family == "parities":
        return len(sizes)
    return sum(_most_of(_SETS[family], size) for size in sizes)


def products_bound(queries: Sequence[LinearQuery]) -> int | None:
    """Returns an upper bound on the VC dimension of products, or of disjunctions (by negation).

    Returns None for other queries, and for a mixture of both kinds. The bound is a sum over the
    attributes. The term of an attribute is its term in ``family_vc_dimension`` for its kind of sets
    of codes: prefixes or suffixes, intervals, or any sets. The proof also covers mixtures.
    """
    sets = sets_of_products(queries)
    if sets is None:
        return None
    return sum(_most_of(kind, queries[0].shape[axis]) for axis, kind in sets.items())


def sets_of_products(queries: Sequence[LinearQuery]) -> dict[int, Sets] | None:
    """Returns the sets of codes in queries, by attribute; None if a query is not a product."""
    if any(isinstance(query, Disjunction) for query in queries):
        # Complements shatter the same cells. The complement of a query with one literal has one
        # literal.
        if not all(isinstance(each, Disjunction) or _is_literal(each) for each in queries):
            return None
        queries = [negation(query) for query in queries]
    by_axis: dict[int, Sets] = {}
    ranges: dict[int, set[tuple[tuple[int, int], ...]]] = {}
    for query in queries:
        if not isinstance(query, Product):
            return None
        for axis, listed in zip(query.axes, query.ranges, strict=True):
            ranges.setdefault(axis, set()).add(listed)
    for axis, sets in ranges.items():
        size = queries[0].shape[axis]
        if any(len(listed) > 1 for listed in sets):
            by_axis[axis] = "any"
        elif all(start == 0 for ((start, _),) in sets) or all(end == size for ((_, end),) in sets):
            by_axis[axis] = "prefixes"
        else:
            by_axis[axis] = "intervals"
    return by_axis


def _most_of(sets: Sets, size: int) -> int:
    """Returns the largest number of cells that one attribute adds to a shattered set."""
    limits = {"prefixes": 1, "intervals": 2, "any": size}
    return min(limits[sets], size - 1)


def _is_literal(query: LinearQuery) -> bool:
    return isinstance(query, Product) and len(query.axes) == 1
