"""The exact hashed projection of a universe, and the norm limit on the sketch of each unit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from beam_dp.errors import InputError, magnitude
from beam_dp.hashing.projections import BlockSigns, DenseSigns, cell_of
from beam_dp.secret.encoding.batch import KeyBatch, merged_keys
from beam_dp.secret.summaries.shards import read_shards, write_shards

Signs = DenseSigns | BlockSigns

# A worker keeps all sums in memory: at most 512 MiB.
MAX_PROJECTION_WIDTH = 2**26
# The hash is fastest on thousands of keys per call; larger batches contain more repeated keys.
_PENDING_KEYS = 2**18


@dataclass(frozen=True, eq=False, repr=False)
class Projection:
    """Exact int64 sums of the unscaled projections of all records. Secret: only for mechanisms."""

    sums: NDArray[np.int64]

    def __repr__(self) -> str:
        return f"Projection(width={len(self.sums)})"


class ProjectionState:
    """The sums for the keys hashed so far, and the pending keys, which will be hashed together."""

    def __init__(self) -> None:
        self.sums: NDArray[np.int64] | None = None
        self.keys: list[NDArray[np.uint64]] = []
        self.weights: list[NDArray[np.int64]] = []
        self.num_pending = 0

    def __repr__(self) -> str:
        return "ProjectionState(secret)"


class ProjectionAccumulator:
    """Adds up the projections of records (an ``Accumulator`` of ``KeyBatch``).

    Sums are 64-bit integers: exact while the sum of all weights is below 2^63, and exact modulo
    2^64 otherwise. The hash key of ``signs`` is drawn before any record is read.
    """

    def __init__(self, signs: Signs) -> None:
        if signs.projection_width > MAX_PROJECTION_WIDTH:
            raise InputError(
                "projection_width",
                magnitude(signs.projection_width),
                "a projection that is summed must have at most 2^26 rows",
            )
        self.signs = signs

    def create(self) -> ProjectionState:
        """Returns the state before any record is added."""
        return ProjectionState()

    def add_batch(self, state: ProjectionState, batch: KeyBatch) -> ProjectionState:
        """Returns the state with the batch added."""
        state.keys.append(batch.keys)
        state.weights.append(batch.weights)
        state.num_pending += len(batch.keys)
        if state.num_pending >= _PENDING_KEYS:
            self._hash_pending(state)
        return state

    def to_shards(self, state: ProjectionState) -> Iterator[tuple[int, bytes]]:
        """Yields (block, shard) for each block whose sums are not all zero."""
        self._hash_pending(state)
        if state.sums is not None:
            yield from write_shards(state.sums)

    def from_shards(self, shards: Iterable[tuple[int, bytes]]) -> Projection:
        """Returns the projection, summed over all shards."""
        return Projection(read_shards(shards, self.signs.projection_width))

    def _hash_pending(self, state: ProjectionState) -> None:
        if state.num_pending:
            if state.sums is None:
                state.sums = np.zeros(self.signs.projection_width, np.int64)
            pending = KeyBatch(np.concatenate(state.keys), np.concatenate(state.weights))
            batch = merged_keys(pending)
            self.signs.add(state.sums, batch.keys, batch.weights)
        state.keys, state.weights, state.num_pending = [], [], 0


def within_squared_norm(
    batch: KeyBatch,
    unit_of: NDArray[np.int64],
    signs: BlockSigns,
    row_width: int,
    max_squared_norm: int,
) -> KeyBatch:
    """Returns the records of each unit before the first record that takes the sketch over a limit.

    All records of a unit must be in one batch, in an order that depends only on the unit's own
    records, such as sorted by encoded values. With such an order, the kept records of a unit depend
    only on the records of that unit.

    ``unit_of``: the number of each record's unit, shape (n,); equal numbers are adjacent.

    Guarantee: for each unit, the squared L2 norm of the sketch of its kept records is at most the
    limit. Adding or removing the unit changes the sketch of all data by at most the limit's square
    root in L2 norm, and replacing the unit by at most twice that.
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
        # Once a unit exceeds the limit, its further records are skipped.
        kept[record] = squared <= max_squared_norm
    return KeyBatch(batch.keys[kept], batch.weights[kept])
