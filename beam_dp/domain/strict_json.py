"""A JSON parser that refuses an object with a repeated key."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


class RepeatedKeyError(ValueError):
    """An object that gives one key twice."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def parse_json(text: str, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """Returns what JSON text holds.

    Args:
        text: the text.
        parse_constant: called for NaN and infinities, as in ``json.loads``.

    Raises:
        RepeatedKeyError: if an object repeats a key.
        ValueError: if it is not JSON, with ``json.JSONDecodeError``, or holds too long a number.
        RecursionError: if it is nested too deeply.

    Example:
        >>> parse_json('{"age": 3}')
        {'age': 3}
    """
    return json.loads(text, object_pairs_hook=_once, parse_constant=parse_constant)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise RepeatedKeyError(key)
        found[key] = value
    return found
