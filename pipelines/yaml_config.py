"""Values of a YAML mapping as texts of flags, so that one place says what is valid."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from beam_dp.errors import InputError
from beam_dp.flags.flag import Flag, FlagError, check_texts, nearest

_READ_AS_JSON = ("domain", "workload", "queries")


class ConfigError(ValueError):
    """One line about one field of a configuration; public."""


def texts_of(
    flags: Sequence[Flag], config: Mapping[str, object], elsewhere: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Returns what flags would hold that say the same as a configuration.

    Args:
        flags: of a program, whose names are the fields.
        config: the fields: texts, numbers, booleans for switches; for ``domain`` also a mapping,
            for ``workload`` and ``queries`` also a list of mappings.
        elsewhere: flags that are no fields, and what is valid instead.

    Returns:
        The texts of the fields that were given or have a default.

    Raises:
        FlagError: a field is unknown, missing, empty or outside its choices.
        InputError: a field has another type.

    Example:
        >>> texts_of([Flag("epsilon", "privacy parameter, > 0")], {"epsilon": 0.5})
        {'epsilon': '0.5'}
    """
    elsewhere = elsewhere or {}
    fields = [flag for flag in flags if flag.name not in elsewhere]
    known = {flag.name: flag for flag in fields}
    texts: dict[str, str | None] = {flag.name: flag.default for flag in fields}
    for name, value in config.items():
        if name in known:
            texts[name] = _text(known[name], value)
        elif name in elsewhere and name in {flag.name for flag in flags}:
            raise InputError(name, value, elsewhere[name])
        else:
            raise FlagError(
                f"{name}: unknown field; must be one of {', '.join(known)};"
                f" the nearest is {nearest(str(name), list(known))!r}"
            )
    check_texts(fields, texts)
    return {name: text for name, text in texts.items() if text is not None}


def without_dashes(text: str, flags: Sequence[Flag]) -> str:
    """Returns a text about flags as one about fields.

    Example:
        >>> without_dashes("--delta: missing; --runner", [Flag("delta", "")])
        'delta: missing; --runner'
    """
    names = "|".join(flag.name for flag in flags)
    return re.sub(rf"--({names})\b", r"\1", text)


def _text(flag: Flag, value: object) -> str | None:
    """The text of a flag that says the same as a value; None where it would not be given."""
    if flag.is_switch:
        if not isinstance(value, bool):
            raise InputError(flag.name, value, "must be true or false")
        return "true" if value else None
    if value is None:
        return ""  # a field with nothing behind its colon
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    if flag.name == "domain" and isinstance(value, Mapping):
        return _json(flag, value)
    if flag.name in _READ_AS_JSON[1:] and isinstance(value, Sequence):
        if value and all(isinstance(each, Mapping) for each in value):
            return "\n".join(_json(flag, each) for each in value)
        raise InputError(flag.name, value, "must be a list of mappings, or a text")
    kinds = "a text or a mapping" if flag.name == "domain" else "a text or a number"
    raise InputError(flag.name, value, f"must be {kinds}")


def _json(flag: Flag, value: Mapping[str, object]) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except TypeError:
        # YAML reads an unquoted 2024-01-01 as a date.
        condition = "must hold texts, numbers, true, false and null only: quote dates"
        raise InputError(flag.name, value, condition) from None
