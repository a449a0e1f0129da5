"""Flags made from the fields of dataclasses, and dataclasses read from flags.

    size: int | None = dataclasses.field(
        default=None, metadata=option("how many records are released", "M", integer)
    )

is the flag ``--size M`` of all programs that take the dataclass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from beam_dp.flags.flag import Flag
from beam_dp.flags.numbers import integer

_KEY = "option"


@dataclasses.dataclass(frozen=True)
class _Option:
    flag: Flag
    read: Callable[[str, str], Any]


def as_text(name: str, text: str) -> str:
    """Returns a text as it is: one of a flag's choices."""
    return text


def option(
    help: str,
    metavar: str | None = None,
    read: Callable[[str, str], Any] = as_text,
    *,
    name: str = "",
    choices: tuple[str, ...] = (),
    default: str | None = None,
) -> dict[str, Any]:
    """Returns the metadata of a field that is a flag.

    Args:
        help: of the flag.
        metavar: what stands for its value in the help; by default its choices.
        read: gives the value of a text; it gets the flag's name for its refusal, and the text.
        name: of the flag, where it is not that of the field.
        choices: the texts that are valid, where only these are.
        default: the text that counts where none is given; where there is none, programs leave the
            field to the dataclass.
    """
    return option_of(Flag(name, help, metavar, default=default, choices=choices), read)


def option_of(flag: Flag, read: Callable[[str, str], Any] = as_text) -> dict[str, Any]:
    """Returns the metadata of a field that is a given flag."""
    return {_KEY: _Option(flag, read)}


def integer_or(word: str) -> Callable[[str, str], int | str]:
    """Returns what reads a whole number, or one word."""

    def read(name: str, text: str) -> int | str:
        return text if text == word else integer(name, text, f"or {word!r}")

    return read


def flags_of(*options: type[Any]) -> tuple[Flag, ...]:
    """Returns the flags of dataclasses, in their order; each name once, as it stands first."""
    found: dict[str, Flag] = {}
    for each in options:
        for _, made in _options(each):
            found.setdefault(made.flag.name, made.flag)
    return tuple(found.values())


def values_of(options: type[Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields that flags give, by their own names.

    Args:
        options: the dataclass.
        given: the texts of the flags that were given.

    Raises:
        InputError: if a text is no such value, naming the flag.
    """
    return {
        field: made.read(made.flag.name, given[made.flag.name])
        for field, made in _options(options)
        if made.flag.name in given
    }


def texts_of(options: Any) -> dict[str, str]:
    """Returns the flags that give an object its fields; those without a value are left out."""
    values = ((made.flag.name, getattr(options, field)) for field, made in _options(type(options)))
    return {
        name: f"{value:g}" if isinstance(value, float) else str(value)
        for name, value in values
        if value is not None
    }


def _options(options: type[Any]) -> list[tuple[str, _Option]]:
    """The fields that are flags."""
    found = []
    for field in dataclasses.fields(options):
        made = field.metadata.get(_KEY)
        if made is not None:
            named = dataclasses.replace(made.flag, name=made.flag.name or field.name)
            found.append((field.name, _Option(named, made.read)))
    return found
