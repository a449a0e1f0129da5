"""`EdgesFrom`: the release of interval counts from which edges were computed.

Such edges depend on the records, through a release that was paid for. What is released with them
is about the same people, so it must be paid for from the same budget; this names that budget.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from beam_dp.errors import InputError, shown

_RELEASE = re.compile(r"(?P<dataset_id>.{1,200})/[1-9][0-9]{0,9}")
_DRAW = re.compile("[0-9a-f]{32}")
FORM = 'must be {"ledger_release": "NAME/NUMBER", "draw_id": "32 hexadecimal digits"}'


@dataclass(frozen=True)
class EdgesFrom:
    """Names a release.

    ``ledger_release``: its entry in a ledger, such as ``visits/3``.
    """

    ledger_release: str
    draw_id: str

    @property
    def dataset_id(self) -> str:
        """From whose budget it was paid."""
        return self.ledger_release.rpartition("/")[0]

    def to_json(self) -> dict[str, str]:
        """Returns what a domain file holds."""
        return asdict(self)


def read_edges_from(given: Any) -> EdgesFrom | None:
    """Returns what a domain file or a caller names; None if it has not the form of one.

    Example:
        >>> read_edges_from({"ledger_release": "visits/3", "draw_id": "0f" * 16}).dataset_id
        'visits'
    """
    if isinstance(given, EdgesFrom):
        given = given.to_json()
    if not isinstance(given, Mapping) or set(given) != {"ledger_release", "draw_id"}:
        return None
    release, draw = given["ledger_release"], given["draw_id"]
    if not (isinstance(release, str) and isinstance(draw, str)):
        return None
    if not (release.isprintable() and _RELEASE.fullmatch(release) and _DRAW.fullmatch(draw)):
        return None
    return EdgesFrom(release, draw)


def released_edges(attributes: Iterable[object]) -> Iterator[tuple[str, EdgesFrom]]:
    """Yields the releases that edges of attributes came from, each told in words before."""
    for attribute in attributes:
        origin: EdgesFrom | None = getattr(attribute, "edges_from", None)
        if origin is not None:
            name, release = shown(getattr(attribute, "name", "")), shown(origin.ledger_release)
            yield f"the edges of {name} come from the release {release}", origin


def check_edges_budget(attributes: Iterable[object], dataset_id: str | None) -> None:
    """Refuses edges that came from a release, where another budget pays, or none.

    It is what a transform can tell from its token. Two ledgers may know the same dataset id:
    ``privacy.ledger.check_edges_paid`` tells them apart.

    ``dataset_id``: from whose budget a token paid; None where there is no token.

    Example:
        >>> check_edges_budget([], None)
    """
    for source, origin in released_edges(attributes):
        if dataset_id != origin.dataset_id:
            condition = f"must be of {shown(origin.dataset_id)}: {source}, and budgets add up"
            raise InputError("ledger_token", dataset_id, condition)


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

    ``entries``: parsed JSON, each of one attribute; what is no object has none.

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
