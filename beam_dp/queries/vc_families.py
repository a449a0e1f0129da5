"""VC dimensions of families of queries in closed form.

``P`` below is the argument for products: let n >= 3 cells be shattered by products of sets of
codes, one set an attribute. For each of these cells some product holds all others and not it, so
that some attribute's set does. If an attribute's sets are intervals, such a cell alone has the
least code among the n, or the largest: of one attribute 2 cells at most, and one if it has two
codes. If they are prefixes, it has the largest: one cell. If they are any sets, its code is its
own: of s codes at most s - 1, unless n is s and all cells differ there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

from beam_dp.checks import check_choice, checked_integer
from beam_dp.errors import InputError
from beam_dp.queries.disjunction import Disjunction, negation
from beam_dp.queries.linear import LinearQuery, Product

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
    ``products``               any set of codes of each, none of them empty      sum of s - 1
    ``conjunctions``           of any number of d yes/no attributes, each as it  d
                               is or negated; ``disjunctions`` likewise
    ``monotone_conjunctions``  of those as they are; ``monotone_disjunctions``   d
                               likewise
    ``cells``                  of the marginal of all attributes                 min(1, cells - 1)
    ``parities``               of any number of d yes/no attributes, none of     d
                               them included
    =========================  ================================================  ==================

    Prefixes, intervals and sets are not empty; each may be all codes.

    Proof for products. No fewer: take the cell with the code 0 everywhere, or 1 where intervals of
    three codes or more are chosen; and, for each attribute and each code beyond it on which the sum
    counts (both neighbours of 1; 1 next to 0; all but 0), the cell that differs there. To leave any
    of these cells out, an attribute's set leaves out its codes; it always holds the first cell's.
    No more: by P for n >= 3, since another attribute of two codes makes the sum at least s, and
    without one the product that holds none of n = s cells is empty. For n = 2 <= sum there is
    nothing to prove; if the sum is 1, prefixes are a chain, and other products are 3: two codes
    and both. Conjunctions are products over two codes (none of them a contradiction), monotone
    ones those of suffixes, and disjunctions have the complements of these as queries, which
    shatter the same cells.
    Cells are disjoint, so that no query holds two of them. Parities are a linear space of 2^d
    functions: no more than lg of that, and they shatter the d cells with a single yes.

    Args:
        family: one of these.
        sizes: s >= 1 of each attribute; 2 for conjunctions, disjunctions and parities.

    Raises:
        InputError: if one is out of range.

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


def short_conjunctions_vc_bounds(
    num_attributes: int, max_literals: int, *, monotone: bool = False
) -> tuple[int, int]:
    """Returns bounds on the VC dimension of conjunctions of at most w of d yes/no attributes.

    The dimension itself is an open problem: monotone ones shatter n cells if d sets can be chosen
    so that every set of n things is the union of w of them or fewer (Frein, Leveque and Sebo
    conjecture how many sets that takes). At most: lg of the number of queries, and d, as without a
    limit. At least: divide n cells into w blocks as even as can be, and let an attribute be no at
    each non-empty set of cells of one block: one literal a block leaves out any cells. With
    negation and w = 1 half of all sets are enough. Both bounds are the same for w = 1 and w >= d.
    Disjunctions have the same dimension, as complements.

    Args:
        num_attributes: d >= 1.
        max_literals: w >= 1; a conjunction may have none.
        monotone: whether no literal may be negated.

    Raises:
        InputError: if one is out of range.

    Reference: Frein, Leveque and Sebo (2008).

    Example:
        >>> short_conjunctions_vc_bounds(16, 3), short_conjunctions_vc_bounds(16, 16)
        ((7, 12), (16, 16))
    """
    d = checked_integer("num_attributes", num_attributes, 1)
    w = min(checked_integer("max_literals", max_literals, 1), d)
    signs = 1 if monotone else 2
    num_queries = sum(math.comb(d, each) * signs**each for each in range(w + 1))
    most = min(d, num_queries.bit_length() - 1)
    least = 0 if monotone else d.bit_length()

    def sets_needed(cells: int) -> int:
        each, rest = divmod(cells, w)
        return ((w + rest) << each) - w

    while sets_needed(least + 1) <= d:
        least += 1
    return least, most


def products_bound(queries: Sequence[LinearQuery]) -> int | None:
    """Returns what the VC dimension of queries does not exceed because all are products.

    Of disjunctions, and single literals beside them, the negations are.

    It is the sum over the attributes of what ``family_vc_dimension`` counts for the sets of codes
    that each needs: prefixes or suffixes, intervals, or any. The proof holds for a mixture.

    Returns:
        The bound; None where a query is neither, or both kinds are there.

    Example:
        >>> from beam_dp.domain.files import read_domain
        >>> from beam_dp.queries.linear_workload import parse_linear_workload
        >>> domain = read_domain('{"age": 100, "sex": 2}')
        >>> [products_bound(parse_linear_workload(form, domain).queries)
        ...  for form in ("prefixes:age", "intervals:age", "conjunctions:1")]
        [1, 2, 100]
    """
    sets = sets_of_products(queries)
    if sets is None:
        return None
    return sum(_most_of(kind, queries[0].shape[axis]) for axis, kind in sets.items())


def sets_of_products(queries: Sequence[LinearQuery]) -> dict[int, Sets] | None:
    """Returns, for each attribute that queries concern, which sets of its codes they hold.

    Returns:
        By position of the attribute; None where a query is no product.
    """
    if any(isinstance(query, Disjunction) for query in queries):
        # Complements shatter the same cells; that of one literal is one literal.
        if not all(isinstance(each, Disjunction) or _is_literal(each) for each in queries):
            return None
        queries = [negation(query) for query in queries]
    found: dict[int, Sets] = {}
    ranges: dict[int, set[tuple[tuple[int, int], ...]]] = {}
    for query in queries:
        if not isinstance(query, Product):
            return None
        for axis, listed in zip(query.axes, query.ranges, strict=True):
            ranges.setdefault(axis, set()).add(listed)
    for axis, sets in ranges.items():
        size = queries[0].shape[axis]
        if any(len(listed) > 1 for listed in sets):
            found[axis] = "any"
        elif all(start == 0 for ((start, _),) in sets) or all(end == size for ((_, end),) in sets):
            found[axis] = "prefixes"
        else:
            found[axis] = "intervals"
    return found


def _most_of(sets: Sets, size: int) -> int:
    """How many cells of a shattered set an attribute of so many codes accounts for."""
    limits = {"prefixes": 1, "intervals": 2, "any": size}
    return min(limits[sets], size - 1)


def _is_literal(query: LinearQuery) -> bool:
    return isinstance(query, Product) and len(query.axes) == 1
