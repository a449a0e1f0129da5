"""Workloads of linear queries, and families of queries such as conjunctions and intervals.

Each family is a function in this module, with an entry in ``FORMS``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_is
from beam_dp.domain.attributes import nearest_known
from beam_dp.domain.texts import json_text, parsed_lines
from beam_dp.domain.universe import Axes, Domain
from beam_dp.errors import InputError, magnitude, shown
from beam_dp.queries import linear
from beam_dp.queries.dense_tables import (
    Number,
    QueryBatch,
    batches_of,
    marginal_tables,
    sum_of_tables,
)
from beam_dp.queries.linear import Disjunction
from beam_dp.queries.reader import MAX_QUERIES, LinearQueries
from beam_dp.queries.workload import parse_workload

# The largest number of values of all explicit queries together: 256 MiB of memory.
MAX_VALUES = 2**26
# Answers, in units of 2^-16, are clipped at this value.
MAX_ANSWER = 2**62
MAX_MATRIX_VALUES = 2**24  # the values of all queries at all cells: 128 MiB


@dataclass(frozen=True)
class LinearWorkload:
    """A sequence of linear queries over the cells of one domain. Immutable.

    The workload keeps the order of queries. Repeated queries are kept, and increase sensitivities.

    Args:
        domain: the universe, of at most 2^26 cells.
        queries: from 1 to 2^18 queries; explicit queries have at most 2^26 values together.

    Raises:
        InputError: if there are no queries, too many queries, or queries for another domain.

    Example:
        >>> from beam_dp.domain.files import read_domain
        >>> workload = parse_linear_workload("prefixes:age", read_domain('{"age": 3, "sex": 2}'))
        >>> len(workload), workload.counts(np.array([5, 0, 2, 0, 1, 1])).tolist()
        (3, [327680, 458752, 589824])
    """

    domain: Domain
    queries: tuple[linear.LinearQuery, ...]

    def __post_init__(self) -> None:
        check_is("domain", self.domain, Domain)
        object.__setattr__(self, "queries", tuple(self.queries))
        if self.domain.num_cells > linear.MAX_QUERY_CELLS:
            condition = (
                f"must have at most 2^26 = {linear.MAX_QUERY_CELLS:,} cells for linear queries"
            )
            raise InputError("domain", f"{magnitude(self.domain.num_cells)} cells", condition)
        if not 1 <= len(self.queries) <= MAX_QUERIES:
            condition = f"must have from 1 to {MAX_QUERIES:,} queries"
            raise InputError("workload", len(self.queries), condition)
        for query in self.queries:
            if not isinstance(query, linear.LinearQuery) or query.shape != self.domain.shape:
                condition = f"must be a linear query over a domain of shape {self.domain.shape}"
                raise InputError("query", query, condition)
        _check_values(len(self.explicit), self.domain, "queries")

    def __len__(self) -> int:
        return len(self.queries)

    def __iter__(self) -> Iterator[linear.LinearQuery]:
        return iter(self.queries)

    @cached_property
    def num_distinct(self) -> int:
        """The number of queries as written; equivalent forms of one query count separately."""
        return len(set(self.queries))

    def means(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the mean of every query under a distribution, in [0, 1].

        ``weights``: the probability of each cell, shape (num_cells,), float64.
        """
        means = np.empty(len(self))
        for batch, tables in self._tables(weights):
            means[batch.positions] = batch.answers(tables)
        for position, query in self.explicit:
            means[position] = query.mean(weights)
        # Rounding may have moved means slightly outside [0, 1].
        return np.clip(means, 0.0, 1.0)

    def counts(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns 2^16 times the sum of every query over records, exactly up to 2^62.

        A larger sum is clipped to 2^62. Clipping never increases the change of an answer by a
        record.

        ``counts``: the number of records per cell, shape (num_cells,), int64, >= 0, sum <= 2^61.
        """
        sums = np.empty(len(self), np.int64)
        for batch, tables in self._tables(counts):
            answers = np.minimum(batch.answers(tables), MAX_ANSWER >> linear.VALUE_BITS)
            sums[batch.positions] = answers << linear.VALUE_BITS
        for position, query in self.explicit:
            sums[position] = min(query.count(counts), MAX_ANSWER)
        return sums

    def weighted_sum(self, weights: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns, for every cell, 2^16 times the exact weighted sum of all queries.

        ``weights``: one weight per query, int64; the sum of absolute values is below 2^44.
        """
        total = np.zeros(self.domain.num_cells, np.int64)
        for part in self._batches:
            tables: dict[Axes, NDArray[np.int64]] = {}
            for batch in part:
                for axes, table in zip(batch.axes, batch.spread(weights), strict=True):
                    tables[axes] = tables[axes] + table if axes in tables else table
            shared = sum_of_tables(
                tables, tuple(range(self.domain.num_attributes)), self.domain.shape
            )
            total.reshape(self.domain.shape)[...] += shared << linear.VALUE_BITS
        for position, query in self.explicit:
            total += weights[position] * query.table
        return total

    @cached_property
    def _batches(self) -> tuple[tuple[QueryBatch, ...], ...]:
        return batches_of(self.queries)

    @cached_property
    def explicit(self) -> tuple[tuple[int, linear.Explicit], ...]:
        """The explicit queries with their positions in the workload."""
        return tuple(
            (position, query)
            for position, query in enumerate(self.queries)
            if isinstance(query, linear.Explicit)
        )

    def _tables(
        self, table: NDArray[Number]
    ) -> Iterator[tuple[QueryBatch, Mapping[Axes, NDArray[Number]]]]:
        """Yields every batch of queries with the tables for the batch."""
        full = table.reshape(self.domain.shape)
        for part in self._batches:
            wanted = {axes for batch in part for axes in batch.axes}
            tables = marginal_tables(full, tuple(range(self.domain.num_attributes)), wanted)
            for batch in part:
                yield batch, tables

    def to_json(self) -> list[dict[str, Any]]:
        """Returns the queries as JSON values, one per line of a query file."""
        return [query.to_json() for query in self.queries]


def query_matrix(workload: LinearWorkload) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Returns the indices of the possible cells, the integer values of queries, and the unit."""
    # The matrix has shape (num_queries, num_possible) and int64 values from 0 to the unit, which
    # represents 1.
    cells = np.flatnonzero(workload.domain.possible())
    # The values are multiples of 2^-16, so this conversion is exact.
    rows = [np.rint(query.values()[cells] * 2.0**linear.VALUE_BITS) for query in workload.queries]
    matrix = np.array(rows).astype(np.int64)
    common = math.gcd(int(np.gcd.reduce(matrix, axis=None)), 1 << linear.VALUE_BITS)
    return cells, matrix // common, (1 << linear.VALUE_BITS) // common


def names_workload(spec: str) -> bool:
    """Returns whether a workload is a named form or a matrix, not a file of JSON lines."""
    form, colon, _ = spec.partition(":")
    return bool(colon) and (form in FORMS or form == "matrix")


def parse_linear_workload(spec: str, domain: Domain) -> LinearWorkload:
    """Reads a workload of linear queries from a command-line value or a file.

    ============================  ====================================================
    ``marginals:2``               every cell of every marginal of two attributes
    ``marginals:age,sex;age``     every cell of these marginals
    ``conjunctions:2``            every conjunction of two literals on two attributes; a
                                  literal is "is this level" or "is not this level"
    ``disjunctions:2``            the same with "or" instead of "and"
    ``monotone_conjunctions:2``   "both attributes have their last level", for every two
                                  attributes; all must have two levels
    ``monotone_disjunctions:2``   "at least one attribute has its last level"; two levels
    ``parities:2``                "exactly one attribute has its last level"; two levels
    ``intervals:age``             every interval of the levels of an attribute
    ``prefixes:age``              every interval that begins with the first level
    ``matrix:FILE.npy``           an array of shape (num_queries, num_cells) with values
                                  from 0 to 1, rounded to multiples of 2^-16
    a path                        a file of JSON lines, or the lines themselves. A line is
                                  an argument of ``LinearQueries.from_json``, or
                                  ``{"marginal": [...]}``, which means one query per cell
    ============================  ====================================================

    Levels are ordered by their codes. "other" and null do not belong to any interval.

    Raises:
        InputError: if ``spec`` has another form, does not fit the domain or is too large, or if the
            domain has more than 2^26 cells. The error is raised before any query is built.

    Example:
        >>> from beam_dp.domain.files import read_domain
        >>> domain = read_domain('{"a": 2, "b": 2, "c": 2}')
        >>> [len(parse_linear_workload(f"{form}:2", domain))
        ...  for form in ("marginals", "conjunctions", "monotone_conjunctions", "parities")]
        [12, 12, 3, 3]
    """
    make = LinearQueries(domain)
    if not isinstance(spec, str):
        raise InputError("workload", spec, f"must be a string; {_KNOWN_FORMS}")
    form, colon, rest = spec.partition(":")
    if colon and form in FORMS:
        return LinearWorkload(domain, tuple(FORMS[form](domain, rest, spec)))
    if colon and form == "matrix":
        return LinearWorkload(domain, _read_matrix(rest, spec, domain))
    text = json_text("workload", spec, f"; {_KNOWN_FORMS}")
    return LinearWorkload(domain, tuple(_read_lines(text, spec, make)))


def _read_matrix(path: str, spec: str, domain: Domain) -> tuple[linear.LinearQuery, ...]:
    """Reads the values of explicit queries; never reads more of the file than the limits allow."""
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = getattr(error, "strerror", None) or "not an array of numbers"
        raise InputError("workload", spec, f"cannot be read as a .npy file ({reason})") from None
    shape = getattr(matrix, "shape", None)
    if shape is None or len(shape) != 2 or shape[1] != domain.num_cells or not shape[0]:
        condition = f"must be of shape (num_queries, {domain.num_cells}), and is {shape}"
        raise InputError("workload", spec, condition)
    check_num_queries(shape[0], spec)
    _check_values(shape[0], domain, spec)
    if matrix.dtype.kind not in "biuf":
        raise InputError("workload", spec, f"must contain real numbers, not {matrix.dtype}")
    make = LinearQueries(domain)
    queries = []
    for number, row in enumerate(matrix):
        try:
            queries.append(make.explicit(row))
        except InputError as error:
            condition = f"row {number}: {shown(error.value)}: {error.condition}"
            raise InputError("workload", spec, condition) from None
    return tuple(queries)


def _read_lines(text: str, source: str, make: LinearQueries) -> Iterator[linear.LinearQuery]:
    """Reads JSON lines; skips blank lines."""
    domain = make.domain
    num_queries = num_explicit = 0
    for number, parsed in parsed_lines("workload", source, text):
        queries: list[linear.LinearQuery] = []
        try:
            if isinstance(parsed, dict) and set(parsed) == {"marginal"}:
                names = parsed["marginal"] if isinstance(parsed["marginal"], list) else []
                # The code below refuses every value except a list of known names.
                valid = [name for name in names if isinstance(name, str) and name in domain]
                cells = math.prod(domain[name].size for name in set(valid))
                check_num_queries(num_queries + cells, source)
                queries.extend(make.marginal_cells(parsed["marginal"]))
            else:
                queries.append(make.from_json(parsed))
        except InputError as error:
            condition = f"line {number}: {shown(error.value)}: {error.condition}"
            raise InputError("workload", source, condition) from None
        num_queries += len(queries)
        num_explicit += isinstance(queries[0], linear.Explicit)
        check_num_queries(num_queries, source)
        _check_values(num_explicit, domain, source)
        yield from queries


def _check_values(num_explicit: int, domain: Domain, spec: str) -> None:
    if num_explicit * domain.num_cells > MAX_VALUES:
        condition = (
            f"has {num_explicit} queries with a value for each of {domain.num_cells:,} cells;"
            f" must have at most 2^26 = {MAX_VALUES:,} values together"
        )
        raise InputError("workload", spec, condition)


Literal = tuple[linear.Range, ...]
Form = Callable[[Domain, str, str], Iterator[linear.LinearQuery]]


def check_num_queries(num_queries: int, spec: str) -> None:
    """Refuses a workload that has too many queries."""
    if num_queries > MAX_QUERIES:
        condition = f"has {magnitude(num_queries)} queries; must have at most {MAX_QUERIES:,}"
        raise InputError("workload", spec, condition)


def marginal_queries(domain: Domain, rest: str, spec: str) -> Iterator[linear.LinearQuery]:
    """Yields one query for every cell of the marginals, in order."""
    tables = parse_workload(f"marginals:{rest}", domain)
    check_num_queries(tables.num_cells(), spec)
    make = LinearQueries(domain)
    return (query for names in tables for query in make.marginal_cells(names))


def conjunctions(domain: Domain, rest: str, spec: str) -> Iterator[linear.LinearQuery]:
    """Yields every conjunction of literals of exactly K attributes.

    The literals of an attribute with two levels are the levels. An attribute with s > 2 levels has
    2 s literals: "is this level" and "is not this level". An attribute with a single level has no
    literals.
    """
    return _of_exactly(linear.Product, domain, _literals(domain), rest, spec)


def disjunctions(domain: Domain, rest: str, spec: str) -> Iterator[linear.LinearQuery]:
    """Yields every disjunction of literals of exactly K attributes; see ``conjunctions``."""
    return _of_exactly(Disjunction, domain, _literals(domain), rest, spec)


def monotone_conjunctions(domain: Domain, rest: str, spec: str) -> Iterator[linear.LinearQuery]:
    """Yields "all have their last level" for every K attributes with two levels."""
    return _of_exactly(linear.Product, domain, _last_levels(domain, spec), rest, spec)


def monotone_disjunctions(domain: Domain, rest: str, spec: str) -> Iterator[linear.LinearQuery]:
    """Yields "at least one has its last level" for every K attributes with two levels."""
    return _of_exactly(Disjunction, domain, _last_levels(domain, spec), rest, spec)


def parities(domain: Domain, rest: str, spec: str) -> Iterator[linear.LinearQuery]:
    """Yields "an odd number have their last level" for every K attributes with two levels."""
    literals = _last_levels(domain, spec)
    ways = _ways(literals, rest, spec)
    check_num_queries(math.comb(len(literals), ways), spec)
    return (
        linear.Parity(domain.shape, axes, tuple(literals[axis][0] for axis in axes))
        for axes in combinations(literals, ways)
    )


def intervals(domain: Domain, rest: str, spec: str) -> Iterator[linear.LinearQuery]:
    """Yields all intervals of levels, by first and last level; without "other" and null."""
    axis = _axis(domain, rest, spec)
    size = domain.attributes[axis].num_levels
    check_num_queries(size * (size + 1) // 2, spec)
    pairs = combinations(range(size + 1), 2)
    return (linear.Product.of(domain.shape, {axis: (pair,)}) for pair in pairs)


def prefixes(domain: Domain, rest: str, spec: str) -> Iterator[linear.LinearQuery]:
    """Yields the intervals that begin with an attribute's first level, shortest first."""
    axis = _axis(domain, rest, spec)
    size = domain.attributes[axis].num_levels
    check_num_queries(size, spec)
    return (linear.Product.of(domain.shape, {axis: ((0, stop),)}) for stop in range(1, size + 1))


def _of_exactly(
    kind: type[linear.Product | Disjunction],
    domain: Domain,
    literals: dict[int, list[Literal]],
    rest: str,
    spec: str,
) -> Iterator[linear.LinearQuery]:
    """Yields the conjunctions or disjunctions of K literals, on exactly K attributes."""
    ways = _ways(literals, rest, spec)
    check_num_queries(_symmetric_sum([len(literal) for literal in literals.values()], ways), spec)
    return (
        kind.of(domain.shape, dict(zip(axes, ranges, strict=True)))
        for axes in combinations(literals, ways)
        for ranges in product(*(literals[axis] for axis in axes))
    )


def _literals(domain: Domain) -> dict[int, list[Literal]]:
    """Returns the literals of every attribute with two or more levels: "is", then "is not"."""
    literals: dict[int, list[Literal]] = {}
    for axis, size in enumerate(domain.shape):
        if size >= 2:
            literals[axis] = [((code, code + 1),) for code in range(size)]
        if size > 2:
            literals[axis] += [linear.complement([(code, code + 1)], size) for code in range(size)]
    return literals


def _symmetric_sum(sizes: Sequence[int], ways: int) -> int:
    """Returns the sum, over all choices of ``ways`` sizes, of the product of the sizes."""
    sums = [1] + [0] * ways
    for size in sizes:
        for taken in range(ways, 0, -1):
            sums[taken] += size * sums[taken - 1]
    return sums[ways]


def _last_levels(domain: Domain, spec: str) -> dict[int, list[Literal]]:
    """Returns, for each attribute, the literal "has its last level"."""
    for attribute in domain:
        if attribute.size != 2:
            condition = (
                f"needs attributes of two levels, and {shown(attribute.name)} has"
                f" {attribute.size}: use conjunctions, or a file of queries"
            )
            raise InputError("workload", spec, condition)
    return {axis: [((1, 2),)] for axis in range(domain.num_attributes)}


def _ways(literals: dict[int, list[Literal]], rest: str, spec: str) -> int:
    """Returns the number K of attributes."""
    limit = len(literals)
    ways = int(rest) if rest.isascii() and rest.isdecimal() and len(rest) < 10 else 0
    if not 1 <= ways <= limit:
        condition = f"the number of attributes must be an integer from 1 to {limit}"
        if not limit:
            condition = "no attribute of the domain has two levels"
        raise InputError("workload", spec, condition)
    return ways


def _axis(domain: Domain, rest: str, spec: str) -> int:
    name = rest if rest in domain else rest.strip()
    if name not in domain:
        condition = f"{shown(name)} is not an attribute; {nearest_known(name, domain.names)}"
        raise InputError("workload", spec, condition)
    return domain.axes((name,))[0]


# The families by the name before the colon. The arguments of a family's function are the domain,
# the text after the colon, and the whole text.
FORMS: dict[str, Form] = {
    "marginals": marginal_queries,
    "conjunctions": conjunctions,
    "disjunctions": disjunctions,
    "monotone_conjunctions": monotone_conjunctions,
    "monotone_disjunctions": monotone_disjunctions,
    "parities": parities,
    "intervals": intervals,
    "prefixes": prefixes,
}
_KNOWN_FORMS = (
    "known are 'marginals:2' for all pairs, 'marginals:age,sex;age', 'conjunctions:2',"
    " 'disjunctions:2', 'monotone_conjunctions:2', 'monotone_disjunctions:2', 'parities:2',"
    " 'intervals:age', 'prefixes:age', 'matrix:FILE.npy' and a file of JSON lines"
)
