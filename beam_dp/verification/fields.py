"""Cards state what this version knows, all of it, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from beam_dp.checks import is_number
from beam_dp.errors import InputError
from beam_dp.releases.release import Release, plain_json

# Fields of every card that say nothing about the noise.
_HEAD = ("schema_version", "kind", "draw_id", "files", "versions")
# Numbers that follow from others agree to this share.
AGREEMENT = 1e-9


def check_fields(
    name: str, stated: object, needed: Collection[str], optional: Collection[str] = ()
) -> None:
    """Refuses a JSON object with a field that is missing, or one that no check would charge.

    Raises:
        InputError: naming the first such field.
    """
    if not isinstance(stated, Mapping):
        raise InputError(name, stated, "must be a JSON object")
    for field in needed:
        if field not in stated:
            raise InputError(f"{name}.{field}", None, "must be stated")
    for field in stated:
        if field not in needed and field not in optional:
            condition = "is no field that this version knows, so that nothing is charged for it"
            raise InputError(f"{name}.{field}", stated[field], condition)


def differences(stated: Any, found: Any, place: str = "") -> Iterator[str]:
    """Yields where a card states other values than were read from it: fractions to 1e-9."""
    if isinstance(stated, Mapping) and isinstance(found, Mapping):
        for name in {**stated, **found}:
            below = f"{place}.{name}".lstrip(".")
            if name in stated and name in found:
                yield from differences(stated[name], found[name], below)
            else:
                yield f"{below} is {'unknown' if name in stated else 'missing'}"
    elif isinstance(stated, list) and isinstance(found, list) and len(stated) == len(found):
        for number, pair in enumerate(zip(stated, found, strict=True)):
            yield from differences(*pair, f"{place}.{number}")
    elif is_number(stated) and is_number(found):
        is_whole = isinstance(stated, int) and isinstance(found, int)
        if stated != found and (is_whole or not math.isclose(stated, found, rel_tol=AGREEMENT)):
            yield f"{place} is {stated!r}; must be {found!r}"
    elif stated != found or isinstance(stated, bool) != isinstance(found, bool):
        yield f"{place} is {_short(stated)}; must be {_short(found)}"


def _short(value: Any) -> str:
    if isinstance(value, Mapping | list):
        return f"{len(value)} entries"
    return repr(value)


def misread(release: Release) -> list[str]:
    """Returns where the card of a release states other things than were read from it.

    Reading takes what it needs, and computes what follows from that again. So whatever else a card
    states, twice or wrongly, is found by writing the card once more.
    """
    if release.read_from is None:
        return []
    stated, found = (
        {name: value for name, value in fields.items() if name not in _HEAD}
        for fields in (release.read_from, release.card)
    )
    return [f"card: {each}" for each in differences(stated, plain_json(found))]
