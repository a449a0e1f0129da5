"""Sparse queries over rows of bits, such as long conjunctions.

A row is text of ``0`` and ``1``, its first character being bit 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product

from beam_dp.checks import checked_integer
from beam_dp.errors import InputError
from beam_dp.queries.sparse import SparseQuery

MAX_FREE_BITS = 20


def row_conjunction(num_bits: int, literals: Mapping[int, int]) -> SparseQuery:
    """Returns 1 on the rows where all literals hold.

    Args:
        num_bits: d, of a row.
        literals: 0 or 1 by bit, for all bits but at most 20, k of them.

    Raises:
        InputError: naming the argument that is refused.

    Cost: O(d 2^k), the support being 2^k rows.

    Example:
        >>> row_conjunction(3, {0: 1, 2: 0}).elements
        ('100', '110')
    """
    return SparseQuery.of_list(_rows(num_bits, literals))


def row_disjunction(num_bits: int, literals: Mapping[int, int], bits: Iterable[int]) -> SparseQuery:
    """Returns 1 on the rows where all literals hold and at least one of some bits is 1.

    Args:
        num_bits: d, of a row.
        literals: as of ``row_conjunction``.
        bits: of which one must be 1.

    Raises:
        InputError: naming the argument that is refused.

    Cost: as of ``row_conjunction``.

    Example:
        >>> row_disjunction(3, {0: 1}, [1, 2]).elements
        ('101', '110', '111')
    """
    rows, taken = _rows(num_bits, literals), _checked_bits(num_bits, bits)
    return SparseQuery.of_list(row for row in rows if any(row[bit] == "1" for bit in taken))


def row_parity(num_bits: int, literals: Mapping[int, int], bits: Iterable[int]) -> SparseQuery:
    """Returns 1 on the rows where all literals hold and an odd number of some bits is 1.

    Args:
        num_bits: d, of a row.
        literals: as of ``row_conjunction``.
        bits: whose parity is taken.

    Raises:
        InputError: naming the argument that is refused.

    Cost: as of ``row_conjunction``.

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
    """Checks at once, yields later: the rows where all literals hold."""
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
