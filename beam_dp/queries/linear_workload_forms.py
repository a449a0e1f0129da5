"""Families of linear queries over a domain: conjunctions, parities, intervals and others.

A form of workload is a function here, decorated by ``_form``: nothing else lists them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product

from beam_dp.domain.attributes import nearest_known
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError, magnitude, shown
from beam_dp.queries.disjunction import Disjunction
from beam_dp.queries.linear import LinearQuery, Parity, Product, Range, complement
from beam_dp.queries.reader import LinearQueries
from beam_dp.queries.workload import parse_workload

MAX_QUERIES = 2**18

Literal = tuple[Range, ...]
Form = Callable[[Domain, str, str], Iterator[LinearQuery]]

# By the name before the colon. Each is given the domain, the text behind the colon, and all of it.
FORMS: dict[str, Form] = {}
# One of each form, or more, to show what may be typed.
EXAMPLES: list[str] = []


def _form(*examples: str) -> Callable[[Form], Form]:
    """Makes a function a form, named by what stands before the colon of its examples."""

    def added(function: Form) -> Form:
        FORMS[examples[0].partition(":")[0]] = function
        EXAMPLES.extend(examples)
        return function

    return added


def check_num_queries(num_queries: int, spec: str) -> None:
    """Refuses a workload that has too many queries.

    Raises:
        InputError: naming the workload.
    """
    if num_queries > MAX_QUERIES:
        condition = f"has {magnitude(num_queries)} queries; must have at most {MAX_QUERIES:,}"
        raise InputError("workload", spec, condition)


@_form("marginals:2", "marginals:age,sex;age")
def marginal_queries(domain: Domain, rest: str, spec: str) -> Iterator[LinearQuery]:
    """Yields a query for every cell of marginals, in their order."""
    tables = parse_workload(f"marginals:{rest}", domain)
    check_num_queries(tables.num_cells(), spec)
    make = LinearQueries(domain)
    return (query for names in tables for query in make.marginal_cells(names))


@_form("conjunctions:2")
def conjunctions(domain: Domain, rest: str, spec: str) -> Iterator[LinearQuery]:
    """Yields every conjunction of literals of exactly K attributes.

    The literals of an attribute of two levels are these; those of a larger one are "is this
    level" and "is not this level", for each of its levels: 2 s for s levels. An attribute of one
    level has none.
    """
    return _of_exactly(Product, domain, _literals(domain), rest, spec)


@_form("disjunctions:2")
def disjunctions(domain: Domain, rest: str, spec: str) -> Iterator[LinearQuery]:
    """Yields every disjunction of literals of exactly K attributes: see ``conjunctions``."""
    return _of_exactly(Disjunction, domain, _literals(domain), rest, spec)


@_form("monotone_conjunctions:2")
def monotone_conjunctions(domain: Domain, rest: str, spec: str) -> Iterator[LinearQuery]:
    """Yields, for every K attributes, "each is at its last level"; all must have two levels."""
    return _of_exactly(Product, domain, _last_levels(domain, spec), rest, spec)


@_form("monotone_disjunctions:2")
def monotone_disjunctions(domain: Domain, rest: str, spec: str) -> Iterator[LinearQuery]:
    """Yields, for every K attributes, "one is at its last level"; all must have two levels."""
    return _of_exactly(Disjunction, domain, _last_levels(domain, spec), rest, spec)


@_form("parities:2")
def parities(domain: Domain, rest: str, spec: str) -> Iterator[LinearQuery]:
    """Yields, for every K attributes, "an odd number are at their last level", of two each."""
    literals = _last_levels(domain, spec)
    ways = _ways(literals, rest, spec)
    check_num_queries(math.comb(len(literals), ways), spec)
    return (
        Parity(domain.shape, axes, tuple(literals[axis][0] for axis in axes))
        for axes in combinations(literals, ways)
    )


@_form("intervals:age")
def intervals(domain: Domain, rest: str, spec: str) -> Iterator[LinearQuery]:
    """Yields every interval of an attribute's levels, by its first and then its last level.

    Neither "other" nor null lies in an order: they are in no interval.
    """
    axis = _axis(domain, rest, spec)
    size = domain.attributes[axis].num_levels
    check_num_queries(size * (size + 1) // 2, spec)
    pairs = combinations(range(size + 1), 2)
    return (Product.of(domain.shape, {axis: (pair,)}) for pair in pairs)


@_form("prefixes:age")
def prefixes(domain: Domain, rest: str, spec: str) -> Iterator[LinearQuery]:
    """Yields the intervals of an attribute's levels that begin with the first, shortest first."""
    axis = _axis(domain, rest, spec)
    size = domain.attributes[axis].num_levels
    check_num_queries(size, spec)
    return (Product.of(domain.shape, {axis: ((0, stop),)}) for stop in range(1, size + 1))


def _of_exactly(
    kind: type[Product | Disjunction],
    domain: Domain,
    literals: dict[int, list[Literal]],
    rest: str,
    spec: str,
) -> Iterator[LinearQuery]:
    """Yields the conjunctions, or disjunctions, of one literal each of exactly K attributes."""
    ways = _ways(literals, rest, spec)
    check_num_queries(_symmetric_sum([len(each) for each in literals.values()], ways), spec)
    return (
        kind.of(domain.shape, dict(zip(axes, ranges, strict=True)))
        for axes in combinations(literals, ways)
        for ranges in product(*(literals[axis] for axis in axes))
    )


def _literals(domain: Domain) -> dict[int, list[Literal]]:
    """For each attribute of two levels or more its literals: "is this level", "is not"."""
    literals: dict[int, list[Literal]] = {}
    for axis, size in enumerate(domain.shape):
        if size >= 2:
            literals[axis] = [((code, code + 1),) for code in range(size)]
        if size > 2:
            literals[axis] += [complement([(code, code + 1)], size) for code in range(size)]
    return literals


def _symmetric_sum(sizes: Sequence[int], ways: int) -> int:
    """The sum, over all choices of so many sizes, of their product."""
    sums = [1] + [0] * ways
    for size in sizes:
        for taken in range(ways, 0, -1):
            sums[taken] += size * sums[taken - 1]
    return sums[ways]


def _last_levels(domain: Domain, spec: str) -> dict[int, list[Literal]]:
    """For each attribute the literal that it is at its last level."""
    for attribute in domain:
        if attribute.size != 2:
            condition = (
                f"needs attributes of two levels, and {shown(attribute.name)} has"
                f" {attribute.size}: use conjunctions, or a file of queries"
            )
            raise InputError("workload", spec, condition)
    return {axis: [((1, 2),)] for axis in range(domain.num_attributes)}


def _ways(literals: dict[int, list[Literal]], rest: str, spec: str) -> int:
    """The number K of attributes."""
    most = len(literals)
    ways = int(rest) if rest.isascii() and rest.isdecimal() and len(rest) < 10 else 0
    if not 1 <= ways <= most:
        condition = f"the number of attributes must be an integer from 1 to {most}"
        if not most:
            condition = "no attribute of the domain has two levels"
        raise InputError("workload", spec, condition)
    return ways


def _axis(domain: Domain, rest: str, spec: str) -> int:
    name = rest if rest in domain else rest.strip()
    if name not in domain:
        condition = f"{shown(name)} is not an attribute; {nearest_known(name, domain.names)}"
        raise InputError("workload", spec, condition)
    return domain.axes((name,))[0]
