"""Many marginals of one dense table, by sums that are shared between them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def marginal_tables(
    counts: NDArray[np.int64], names: tuple[str, ...], wanted: Iterable[tuple[str, ...]]
) -> dict[tuple[str, ...], NDArray[np.int64]]:
    """Returns marginals of a table of counts.

    One walk over the attributes serves all marginals: at each attribute those that lack it
    go on with the table summed over it, the others keep it. Marginals that lack the same
    leading attributes share these sums, and a table shrinks before it is summed again: all
    3-way marginals of binary attributes cost about 16 passes over the table, not one each.

    Args:
        counts: one axis a name, records.
        names: the attributes of the axes.
        wanted: sets of attributes, each a subsequence of ``names``.

    Returns:
        For each wanted marginal its table, one axis an attribute.
    """
    found: dict[tuple[str, ...], NDArray[np.int64]] = {}

    def visit(table: NDArray[np.int64], axis: int, sets: set[tuple[str, ...]]) -> None:
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


def _sum_axis(table: NDArray[np.int64], axis: int) -> NDArray[np.int64]:
    """Sums one axis. Adding slices is fast where numpy's reduction is slow: on short inner axes."""
    size = table.shape[axis]
    if size > 16:
        return np.asarray(table.sum(axis=axis))
    slices = np.moveaxis(table, axis, 0)
    total: NDArray[np.int64] = slices[0].copy()
    for code in range(1, size):
        total += slices[code]
    return total
