"""Every small change of a card: fields deleted, added, repeated, scaled and swapped."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from beam_dp.errors import InputError
from beam_dp.releases import Release
from beam_dp.releases.files.commit import Draw
from beam_dp.releases.files.kinds import draw_of, release_from_bytes
from beam_dp.verification import Verification, verify_release

Path = tuple[str | int, ...]
# Names that stand for one another somewhere: each is replaced by the others of its group.
GROUPS = (
    ("discrete_laplace", "discrete_gaussian"),
    ("add_or_remove_one", "replace_one"),
    ("table", "residual"),
    ("permute_and_flip", "exponential_mechanism"),
    ("geometric", "exponential", "permute_and_flip"),
    ("tight", "textbook"),
    ("independent", "levels"),
    ("window", "block"),
    ("measure_all", "rounds", "selection", "small_db", "textbook", "of its own"),
    ("mwem", "laplace", "gaussian", "small_db"),
    ("pure", "zcdp", "textbook"),
    ("dense", "blocks"),
    ("mean", "median", "clipped_mean"),
    ("public", "noisy"),
)
FACTORS = (1e-6, 0.5, 0.99, 1.01, 2.0)
# Random names, checksums and versions of libraries.
_LEFT = ("draw_id", "files", "versions", "schema_version", "kind", "horizon_id")


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every place in JSON values, except what is random or free."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, below in list(items):
        if path or key not in _LEFT:
            yield (*path, key)
            if isinstance(below, dict | list):
                yield from places(below, (*path, key))


def at(card: Any, path: Path) -> Any:
    for key in path:
        card = card[key]
    return card


def forged(card: dict[str, Any]) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """Every change of a card: its place, what was done, and the card."""
    for path in [(), *places(card)]:
        value = at(card, path)
        for label, put in _changes(value, path):
            changed = copy.deepcopy(card)
            holder = at(changed, path[:-1])
            if label == "deleted":
                del holder[path[-1]]
            elif label == "repeated":
                holder.insert(path[-1], copy.deepcopy(value))
            elif label == "renamed":
                holder[put] = holder.pop(path[-1])
            elif not path:
                changed = put
            else:
                holder[path[-1]] = put
            if changed != card:
                yield path, label, changed


def _changes(value: Any, path: Path) -> Iterator[tuple[str, Any]]:
    if path:
        yield "deleted", None
        if isinstance(path[-1], int):
            yield "repeated", None
        for group in GROUPS:
            if path[-1] in group:
                yield from (("renamed", each) for each in group if each != path[-1])
        if value is not None:
            yield "null", None
    if isinstance(value, dict):
        yield "unknown", {**value, "more_noise": [{"scale": 1e-6}]}
    elif isinstance(value, bool):
        yield "swapped", not value
    elif isinstance(value, int):
        yield from ((f"{step:+d}", value + step) for step in (-1, 1, 1000))
        yield "doubled", 2 * value
    elif isinstance(value, float):
        yield from ((f"x{factor:g}", value * factor) for factor in FACTORS)
    elif isinstance(value, str):
        yield "other text", f"{value} and more"
        for group in GROUPS:
            if value in group:
                yield from ((each, each) for each in group if each != value)
    elif value is None:
        yield from (("a number", 1.0), ("a whole number", 1), ("text", "x"))


def verified(release: Release, card: dict[str, Any]) -> Verification | InputError:
    """What is found of a release with this card; or by which error it is refused."""
    payload = draw_of(release).payload
    try:
        return verify_release(
            release_from_bytes(Draw(json.dumps(card).encode(), payload).to_bytes())
        )
    except InputError as error:
        return error


def card_of(release: Release) -> dict[str, Any]:
    return json.loads(draw_of(release).text)
