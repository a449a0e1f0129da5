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
    """One key of an attribute that is open, and what to do about it."""

    attribute: Any
    key: str
    task: str

    def __str__(self) -> str:
        key = self.key if self.key.isidentifier() else shown(self.key)
        return f"attribute {shown(self.attribute)}, {key}: {self.task}"


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
        >>> [str(point) for point in open_points([{"name": "age", "min": {"open": "the least"}}])]
        ["attribute 'age', min: must be filled in: 'the least'"]
    """
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        for key, value in entry.items():
            task = _task(value)
            if task is not None:
                yield OpenPoint(entry.get("name"), str(key), task)


def _task(value: Any) -> str | None:
    if not isinstance(value, dict) or len(value) != 1:
        return None
    if _OPEN in value:
        return f"must be filled in: {shown(value[_OPEN])}"
    if _CONFIRM in value:
        return f"must be confirmed: write {shown(value[_CONFIRM])} itself, if it is public and all"
    return None
