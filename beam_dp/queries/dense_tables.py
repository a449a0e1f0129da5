"""Many marginals of one dense table by shared sums, and the reverse."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Name = TypeVar("Name", bound=Hashable)
Number = TypeVar("Number", np.int64, np.float64)


def marginal_tables(
    counts: NDArray[Number], names: tuple[Name, ...], wanted: Iterable[tuple[Name, ...]]
) -> dict[tuple[Name, ...], NDArray[Number]]:
    """Returns marginals of a table.

    One walk over the attributes serves all marginals: at each attribute those that lack it
    go on with the table summed over it, the others keep it. Marginals that lack the same
    leading attributes share these sums, and a table shrinks before it is summed again: all
    3-way marginals of binary attributes cost about 16 passes over the table, not one each.

    ``counts``: one axis a name, records or weights; sums of int64 are exact.
    ``names``: the attributes of the axes, by name or number.

    Returns:
        For each wanted marginal its table, one axis an attribute.
    """
    found: dict[tuple[Name, ...], NDArray[Number]] = {}

    def visit(table: NDArray[Number], axis: int, sets: set[tuple[Name, ...]]) -> None:
        # The first axes of ``table`` are kept by all sets; the rest are names[axis:].
        if not sets:
            return
        if axis == len(names):
            (attributes,) = sets
            found[attributes] = np.asarray(table, order="C")
            return
        keeping = {attributes for attributes in sets if names[axis] in attributes}
        num_kept = table.ndim - (len(names) - axis)
        if len(keeping) < len(sets):
            visit(_sum_axis(table, num_kept), axis + 1, sets - keeping)
        visit(table, axis + 1, keeping)

    visit(counts, 0, set(wanted))
    return found


def sum_of_tables(
    tables: Mapping[tuple[Name, ...], NDArray[Number]],
    names: tuple[Name, ...],
    shape: tuple[int, ...],
) -> NDArray[Number]:
    """Returns, for each cell, the sum of what marginal tables hold for it.

    The transpose of ``marginal_tables``: the same walk in the other direction.

    ``tables``: for each set of attributes, a subsequence of ``names``, a table with one axis an
    attribute; at least one.
    ``names``: the attributes of the result's axes.

    Returns:
        one axis a name; it may be a read-only view of a smaller table.
    """

    def visit(num_kept: int, axis: int, sets: set[tuple[Name, ...]]) -> NDArray[Number]:
        # The sum over the sets, which all hold the first kept axes, with a size of 1 along the
        # attributes of names[axis:] that none of them holds.
        if axis == len(names):
            (attributes,) = sets
            return tables[attributes]
        keeping = {attributes for attributes in sets if names[axis] in attributes}
        parts = []
        if keeping:
            parts.append(visit(num_kept + 1, axis + 1, keeping))
        if len(keeping) < len(sets):
            without = visit(num_kept, axis + 1, sets - keeping)
            parts.append(without[(*(slice(None),) * num_kept, None)])
        return parts[0] + parts[1] if len(parts) == 2 else parts[0]

    return np.broadcast_to(visit(0, 0, set(tables)), shape)


def _sum_axis(table: NDArray[Number], axis: int) -> NDArray[Number]:
    """Sums one axis. Adding slices is fast where numpy's reduction is slow: on short inner axes."""
    size = table.shape[axis]
    if size > 16:
        return np.asarray(table.sum(axis=axis))
    # By plain indices: np.moveaxis takes longer than the sum of a small table.
    before: tuple[Any, ...] = (slice(None),) * axis
    total: NDArray[Number] = table[(*before, 0)]
    if size > 1:
        total = np.add(total, table[(*before, 1)])
    for code in range(2, size):
        total += table[(*before, code)]
    return total
