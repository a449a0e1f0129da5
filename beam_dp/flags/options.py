"""Flags made from the fields of dataclasses, and dataclasses read from flags.

    size: int | None = dataclasses.field(
        default=None, metadata=option("how many records are released", "M", integer)
    )

is the flag ``--size M`` of all programs that take the dataclass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from beam_dp.flags.flag import Flag, Form
from beam_dp.flags.numbers import integer, number

_KEY = "option"


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

    ``name``: that of the flag, if it is not that of the field.
    ``choices``: the valid texts, if only these are valid.
    ``default``: the text that counts if none is given; without one, the default of the field
    counts.
    """
    form: Form = "text"
    word = ""
    number_or_text: Any = read
    if isinstance(read, OrWord):
        number_or_text, word = read.read, read.word
    if number_or_text in (number, integer):
        form = "number" if number_or_text is number else "integer"
    flag = Flag(name, help, metavar, default=default, choices=choices, form=form, word=word)
    return option_of(flag, read)


def option_of(flag: Flag, read: Callable[[str, str], Any] = as_text) -> dict[str, Any]:
    """Returns the metadata of a field that is a given flag."""
    return {_KEY: (flag, read)}


@dataclasses.dataclass(frozen=True)
class OrWord:
    """Reads a number, or one word."""

    read: Callable[[str, str, str], float]
    word: str

    def __call__(self, name: str, text: str) -> float | str:
        """Returns the number or the word."""
        return text if text == self.word else self.read(name, text, f"or {self.word!r}")


def flags_of(*options: type[Any]) -> tuple[Flag, ...]:
    """Returns the flags of dataclasses, in their order, each name once."""
    found: dict[str, Flag] = {}
    for each in options:
        for _, flag, _ in _options(each):
            found.setdefault(flag.name, flag)
    return tuple(found.values())


def values_of(options: type[Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields that flags give, by their own names."""
    return {
        field: read(flag.name, given[flag.name])
        for field, flag, read in _options(options)
        if flag.name in given
    }


def texts_of(options: Any) -> dict[str, str]:
    """Returns the flags that give an object its fields, without those that are None."""
    values = ((flag.name, getattr(options, field)) for field, flag, _ in _options(type(options)))
    return {
        name: f"{value:g}" if isinstance(value, float) else str(value)
        for name, value in values
        if value is not None
    }


def _options(options: type[Any]) -> Iterator[tuple[str, Flag, Callable[[str, str], Any]]]:
    """Yields the fields that are flags, each with its flag and its reader."""
    for field in dataclasses.fields(options):
        if _KEY in field.metadata:
            flag, read = field.metadata[_KEY]
            yield field.name, dataclasses.replace(flag, name=flag.name or field.name), read
