"""`EdgesFrom`: the release of interval counts from which edges were computed.

Such edges depend on the records, through a release that was paid for. What is released with them
is about the same people, so it must be paid for from the same budget; this names that budget.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from beam_dp.errors import InputError, shown

_RELEASE = re.compile(r"(?P<dataset_id>.{1,200})/[1-9][0-9]{0,9}")
_DRAW = re.compile("[0-9a-f]{32}")
FORM = 'must be {"ledger_release": "NAME/NUMBER", "draw_id": "32 hexadecimal digits"}'


@dataclass(frozen=True)
class EdgesFrom:
    """Names a release.

    Args:
        ledger_release: its entry in a ledger, such as ``visits/3``.
        draw_id: of its noise, on its card and in that entry.
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

    Args:
        attributes: of what is to be released.
        dataset_id: from whose budget a token paid; None where there is no token.

    Raises:
        InputError: naming ``ledger_token``.

    Example:
        >>> check_edges_budget([], None)
    """
    for source, origin in released_edges(attributes):
        if dataset_id != origin.dataset_id:
            condition = f"must be of {shown(origin.dataset_id)}: {source}, and budgets add up"
            raise InputError("ledger_token", dataset_id, condition)
