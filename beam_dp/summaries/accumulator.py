"""The interface of everything that the distributed pass computes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

Batch = TypeVar("Batch", contravariant=True)
State = TypeVar("State")
Summary = TypeVar("Summary", covariant=True)


class Accumulator(Protocol[Batch, State, Summary]):
    """Reduces batches of records to a summary of exact integers.

    Every implementation obeys these laws, which ``tests/laws/test_accumulators.py`` checks:
    the summary depends on the multiset of records alone, never on how they were split into
    batches, ordered or sent as shards; and no batch at all gives a summary of the same shape.

    A state travels between workers as shards: pairs of a block number and bytes (``shards.py``)
    that are added block by block, in any order. How many blocks there can be is public.
    A state that was passed to ``add_batch`` must not be used again.
    """

    def create(self) -> State:
        """Returns the state of no records."""

    def add_batch(self, state: State, batch: Batch) -> State:
        """Returns the state with the batch added."""

    def to_shards(self, state: State) -> Iterator[tuple[int, bytes]]:
        """Yields the state block by block; blocks without records may be left out."""

    def from_shards(self, shards: Iterable[tuple[int, bytes]]) -> Summary:
        """Returns the summary of all shards; a block may come any number of times, or never."""
