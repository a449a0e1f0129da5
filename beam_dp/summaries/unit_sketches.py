"""Limits on the L2 norm of each unit's own sketch, by leaving out records, in exact integers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from beam_dp.encoding.key_batch import KeyBatch
from beam_dp.hashing.folding import cell_of
from beam_dp.hashing.projections import BlockSigns


def within_squared_norm(
    batch: KeyBatch,
    unit_of: NDArray[np.int64],
    signs: BlockSigns,
    row_width: int,
    max_squared_norm: int,
) -> KeyBatch:
    """Returns the records of each unit up to the first that takes its sketch over a limit.

    The records of a unit must come together in one batch, in an order that its own records alone
    decide, such as by their encoded values: what is kept of it then depends on nothing else.

    Guarantee: the sum of the squares of the sketch of what is kept of each unit is at most the
    limit: adding or removing the unit moves the sketch of all data by at most its root in L2 norm,
    replacing it by twice that.

    Args:
        batch: weights not negative.
        unit_of: shape (n,), which unit a record is of; equal numbers stand together.
        signs: the public projection.
        row_width: cells of a row, into which its buckets are folded.
        max_squared_norm: of the sketch of a unit.

    Returns:
        The records that are kept, without units.

    Cost: a step of Python for each record.

    Example:
        >>> from beam_dp.hashing.keys import HashKey
        >>> batch = KeyBatch(np.array([5, 5, 5], np.uint64), np.array([1, 1, 1]))
        >>> signs = BlockSigns(HashKey.draw(4), 6, 3)
        >>> len(within_squared_norm(batch, np.zeros(3, np.int64), signs, 2, 12).keys)
        2
    """
    buckets, entries = signs.buckets_and_signs(batch.keys)
    cells_of_rows = cell_of(buckets, row_width) + np.arange(signs.num_blocks) * row_width
    places = cells_of_rows.tolist()
    added = (entries * batch.weights[:, None]).tolist()
    kept = np.zeros(len(batch.keys), np.bool_)
    unit, cells, squared = None, dict[int, int](), 0
    for record, owner in enumerate(unit_of.tolist()):
        if owner != unit:
            unit, cells, squared = owner, {}, 0
        if squared > max_squared_norm:
            continue
        for place, change in zip(places[record], added[record], strict=True):
            before = cells.get(place, 0)
            cells[place] = before + change
            squared += change * (2 * before + change)
        # Once over the limit, none of the unit's further records is looked at.
        kept[record] = squared <= max_squared_norm
    return KeyBatch(batch.keys[kept], batch.weights[kept])
