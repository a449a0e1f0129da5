"""Open points of a domain file: what a schema does not say, and people must.

A draft holds an object in the place of a value: ``{"open": "what to fill in"}``, or ``{"confirm":
[...]}`` around what a schema declares and nobody has read yet. Neither is a value of any key, so a
draft is no domain until all of them are replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from beam_dp.errors import shown

_OPEN, _CONFIRM = "open", "confirm"


class OpenPoint(NamedTuple):
    """One key of an attribute that is open."""

    attribute: Any
    key: str
    is_declared: bool
    told: Any

    @property
    def task(self) -> str:
        """What to do, in a few words that the file may have chosen."""
        if not self.is_declared:
            return str(self.told)
        return f"confirm {shown(self.told)}: public, and true of every value?"

    def __str__(self) -> str:
        key = self.key if self.key.isidentifier() else shown(self.key)
        place = f"attribute {shown(self.attribute)}, {key}"
        if self.is_declared:
            condition = "if it is public, and true of every value"
            return f"{place} is not confirmed: write {shown(self.told)} itself {condition}"
        return f"{place} is open: {shown(self.told)}"


def to_fill_in(what: str) -> dict[str, Any]:
    """Returns what stands in the place of a value that people must fill in.

    Example:
        >>> to_fill_in("the smallest possible value")
        {'open': 'the smallest possible value'}
    """
    return {_OPEN: what}


def to_confirm(value: Any) -> dict[str, Any]:
    """Returns what stands in the place of a value that a schema declares, until it is confirmed."""
    return {_CONFIRM: value}


def open_points(entries: Iterable[Any]) -> Iterator[OpenPoint]:
    """Yields the open points of the attributes of a domain file.

    Args:
        entries: parsed JSON, each of one attribute; what is no object has none.

    Example:
        >>> [str(point) for point in open_points([{"name": "age", "min": to_fill_in("the least")}])]
        ["attribute 'age', min is open: 'the least'"]
    """
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        for key, value in entry.items():
            if isinstance(value, dict) and len(value) == 1:
                for mark in value.keys() & {_OPEN, _CONFIRM}:
                    yield OpenPoint(entry.get("name"), str(key), mark == _CONFIRM, value[mark])
