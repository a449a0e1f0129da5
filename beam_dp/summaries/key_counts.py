"""Exact counts of keys of any universe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from beam_dp.queries.sparse import Element

_KINDS = frozenset((str, bytes, int))


@dataclass(frozen=True, eq=False, repr=False)
class KeyCounts:
    """Exact counts by key. Secret, its keys too: only a mechanism may read it.

    Args:
        counts: the number of records of each key that has any: text, bytes or integers.
    """

    counts: Mapping[Element, int]

    def __repr__(self) -> str:
        return "KeyCounts()"

    @classmethod
    def of(cls, keys: Iterable[Any]) -> KeyCounts:
        """Returns the counts of records, given by their keys; those of other types are left out.

        Cost: O(1) a record, memory by distinct keys.
        """
        # Refusing a record would tell that it is there.
        return cls(dict(Counter(key for key in keys if type(key) in _KINDS)))

    @property
    def num_records(self) -> int:
        """The number of records; secret."""
        return sum(self.counts.values())
