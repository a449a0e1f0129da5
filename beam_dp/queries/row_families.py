"""Sparse queries over rows of bits, and families of all conjunctions of a given length.

A row is a string of ``0`` and ``1``; its first character is bit 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

from beam_dp.checks import checked_integer
from beam_dp.errors import InputError, magnitude
from beam_dp.queries.linear_workload import MAX_QUERIES
from beam_dp.queries.sparse import SparseQuery

# Limit on the rows in the supports of all conjunctions of a family; the rows are kept in memory.
MAX_ROWS = 2**22
MAX_BITS = 1024

_FORM, _MONOTONE_FORM = ROW_FORMS = "row_conjunctions", "monotone_row_conjunctions"


@dataclass(frozen=True)
class RowConjunctions:
    """All conjunctions of exactly w literals on w different bits of rows of d bits.

    A conjunction is true on 2^k of the 2^d rows, with k = d - w. There are C(d, k) 2^w
    conjunctions: each choice of w bits has 2^w patterns of signs, which are true on disjoint rows.
    With ``is_monotone``, literals are not negated ("these bits are all 1"), so there are C(d, k)
    conjunctions.

    A conjunction is written with one character per bit: 1 or 0 for a literal, ``*`` for any bit.

    Args:
        num_bits: d, the number of bits per row, at most 1,024.
        num_literals: w, from 1 to d, and at least d - 20.

    Raises:
        InputError: if there are more than 2^18 conjunctions, or more than 2^22 rows in total.

    Reference: Blum and Roth (2011), Definition 3.9.

    Example:
        >>> family = RowConjunctions(3, 2, is_monotone=True)
        >>> list(family), family.sparsity
        (['11*', '1*1', '*11'], 2)
        >>> len(RowConjunctions(3, 2))
        12
    """

    num_bits: int
    num_literals: int
    is_monotone: bool = False

    def __post_init__(self) -> None:
        checked_integer("num_bits", self.num_bits, 1, MAX_BITS)
        checked_integer("num_literals", self.num_literals, 1, self.num_bits)
        num_free = self.num_bits - self.num_literals
        if num_free > MAX_FREE_BITS:
            condition = f"must leave at most {MAX_FREE_BITS} of {self.num_bits} bits out"
            raise InputError("num_literals", self.num_literals, condition)
        for number, what, limit in (
            (self._number, "conjunctions", MAX_QUERIES),
            (self._number * self.sparsity, "rows in all conjunctions", MAX_ROWS),
        ):
            if number > limit:
                condition = f"makes {magnitude(number)} {what}; must make at most {limit:,}"
                raise InputError("num_literals", self.num_literals, condition)

    @property
    def sparsity(self) -> int:
        """The number of rows on which each conjunction is true: 2^k."""
        return 1 << (self.num_bits - self.num_literals)

    def __len__(self) -> int:
        return self._number

    @property
    def _number(self) -> int:
        """The number of conjunctions, which may be larger than ``len`` can return."""
        signs = 1 if self.is_monotone else 1 << self.num_literals
        return math.comb(self.num_bits, self.num_literals) * signs

    def __iter__(self) -> Iterator[str]:
        signs = ["1"] if self.is_monotone else ["0", "1"]
        for bits in combinations(range(self.num_bits), self.num_literals):
            for literals in product(signs, repeat=self.num_literals):
                text = ["*"] * self.num_bits
                for bit, literal in zip(bits, literals, strict=True):
                    text[bit] = literal
                yield "".join(text)

    def to_json(self) -> list[dict[str, Any]]:
        """Returns the conjunctions as JSON values, one per line of a query file."""
        return [{"row_conjunction": text} for text in self]


def conjunction_of_text(text: Any) -> SparseQuery:
    """Returns the conjunction for a string of 0, 1 and at most 20 ``*``, one character per bit."""
    if not isinstance(text, str) or not text or not set(text) <= set("01*"):
        condition = "a row_conjunction must be a string of 0, 1 and *, one per bit"
        raise InputError("query", text, condition)
    literals = {bit: int(letter) for bit, letter in enumerate(text) if letter != "*"}
    return row_conjunction(len(text), literals)


def names_row_conjunctions(spec: str) -> bool:
    """Returns whether ``spec`` names a family of conjunctions over rows, rather than a file."""
    return spec.partition(":")[0] in ROW_FORMS and ":" in spec


def parse_row_conjunctions(spec: str) -> RowConjunctions:
    """Reads ``row_conjunctions:D,W`` or ``monotone_row_conjunctions:D,W`` from a command line."""
    form, _, numbers = spec.partition(":")
    given = [text.strip() for text in numbers.split(",")]
    if len(given) != 2 or not all(text.isascii() and text.isdecimal() for text in given):
        condition = f"must be {form}:D,W, of W literals over D bits, such as {form}:12,10"
        raise InputError("workload", spec, condition)
    try:
        return RowConjunctions(int(given[0]), int(given[1]), form == _MONOTONE_FORM)
    except InputError as error:
        raise InputError("workload", spec, f"{error.name}: {error.condition}") from None


MAX_FREE_BITS = 20


def row_conjunction(num_bits: int, literals: Mapping[int, int]) -> SparseQuery:
    """Returns the query that is 1 on the rows where all literals are true.

    Args:
        num_bits: d, the number of bits per row.
        literals: the value 0 or 1 for each bit; k <= 20 bits may be omitted.

    Cost: O(d 2^k): the support has 2^k rows.

    Example:
        >>> row_conjunction(3, {0: 1, 2: 0}).elements
        ('100', '110')
    """
    return SparseQuery.of_list(_rows(num_bits, literals))


def row_disjunction(num_bits: int, literals: Mapping[int, int], bits: Iterable[int]) -> SparseQuery:
    """Returns the query that is 1 if all literals are true and at least one of ``bits`` is 1.

    The other arguments, the errors and the cost are those of ``row_conjunction``.

    Example:
        >>> row_disjunction(3, {0: 1}, [1, 2]).elements
        ('101', '110', '111')
    """
    rows, taken = _rows(num_bits, literals), _checked_bits(num_bits, bits)
    return SparseQuery.of_list(row for row in rows if any(row[bit] == "1" for bit in taken))


def row_parity(num_bits: int, literals: Mapping[int, int], bits: Iterable[int]) -> SparseQuery:
    """Returns the query that is 1 if all literals are true and an odd number of ``bits`` is 1.

    The other arguments, the errors and the cost are those of ``row_conjunction``.

    Example:
        >>> row_parity(3, {0: 1}, [1, 2]).elements
        ('101', '110')
    """
    rows, taken = _rows(num_bits, literals), _checked_bits(num_bits, bits)
    return SparseQuery.of_list(row for row in rows if sum(row[bit] == "1" for bit in taken) % 2)


def _checked_bits(num_bits: int, bits: Iterable[int]) -> list[int]:
    taken = list(bits)
    for bit in taken:
        checked_integer("bits", bit, 0, num_bits - 1)
    if len(set(taken)) < len(taken):
        raise InputError("bits", taken, "must name each bit once")
    return taken


def _rows(num_bits: int, literals: Mapping[int, int]) -> Iterator[str]:
    """Returns the rows where all literals are true; checks the arguments immediately."""
    checked_integer("num_bits", num_bits, 1)
    if not isinstance(literals, Mapping):
        raise InputError("literals", literals, "must be 0 or 1 by bit")
    for bit, value in literals.items():
        checked_integer("literals", bit, 0, num_bits - 1)
        if isinstance(value, bool) or value not in (0, 1):
            raise InputError("literals", value, f"bit {bit} must be 0 or 1")
    num_free = num_bits - len(literals)
    if num_free > MAX_FREE_BITS:
        condition = f"must fix all of {num_bits} bits but at most {MAX_FREE_BITS}"
        raise InputError("literals", f"{len(literals)} bits", condition)
    choices = [str(literals[bit]) if bit in literals else "01" for bit in range(num_bits)]
    return map("".join, product(*choices))
