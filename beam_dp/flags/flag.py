"""Flags of command lines: their declaration, parsing and one-line refusals.

A flag may also be declared as a field of a dataclass:

    size: int | None = dataclasses.field(
        default=None, metadata=option("how many records are released", "M", integer)
    )

This field is the flag ``--size M`` of all programs that use the dataclass.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import functools
import json
import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from beam_dp.checks import checked_integer, checked_number
from beam_dp.errors import InputError, invalid, shown


class FlagError(Exception):
    """A one-line message for the user about one flag."""


def refused(flag: str, value: object, condition: str) -> FlagError:
    """Returns the error for an invalid value of a flag, whose name has no dashes here."""
    return FlagError(invalid(f"--{flag}", value, condition))


def number(name: str, text: str, or_word: str = "") -> float:
    """Returns the float in a string; checks the form of the number, not the range."""
    # Refuses ``1_000``, which Python accepts, because it may be a typing error.
    try:
        if "_" not in text:
            return float(text)
    except ValueError:
        pass
    raise InputError(name, text, f"must be a number {or_word}".rstrip())


def integer(name: str, text: str, or_word: str = "") -> int:
    """Returns the integer in a string: digits, or a whole float such as 1e6."""
    try:
        if "_" not in text:
            return int(text)
    except ValueError:
        pass
    try:
        value = number(name, text)
    except InputError:
        value = math.nan
    if not value.is_integer():
        raise InputError(name, text, f"must be a whole number {or_word}".rstrip())
    return int(value)


Form = Literal["text", "number", "integer", "object", "file", "files"]


@dataclass(frozen=True)
class Flag:
    """One flag, or positional argument, of a command.

    ``form`` is checked without other flags: ``file`` is an existing file, or content in place of a
    file; ``files`` is a glob that matches an existing file; ``object`` is one of JSON.
    """

    name: str  # without dashes
    help: str  # the text for ``--help``
    metavar: str | None = None  # the value's name in the help, one word per value; default: choices
    required: bool = False
    default: str | None = None  # the value, as typed, if the flag is not given
    choices: tuple[str, ...] = ()  # the valid values, if they are fixed
    is_switch: bool = False  # whether the flag has no value
    form: Form = "text"
    word: str = ""  # a word that a number flag also accepts, such as ``noisy``
    repeats: bool = False  # whether it may be given several times; the value is then a list
    is_positional: bool = False  # whether the value is given without the name
    # The range of a number, as ``checked_integer`` or ``checked_number`` takes it.
    limits: Mapping[str, Any] | None = dataclasses.field(default=None, hash=False)

    def check(self, value: object, name: str = "") -> None:
        """Refuses a number that is not in the range; ``name``: that of the message, if another."""
        if self.limits is not None and value is not None and value != self.word:
            checked = checked_number if self.form == "number" else checked_integer
            checked(name or self.name, value, **self.limits)


# Flags whose values are numbers.
integer_flag = functools.partial(Flag, form="integer")
number_flag = functools.partial(Flag, form="number")

JSON = Flag("json", "print JSON", is_switch=True)
DIRECTORY = Flag("directory", "directory with a release", "DIR", is_positional=True)

# Beginnings of argparse's messages, and our messages, in which {} is the rest of the message.
_REQUIRED = "the following arguments are required"
_SAID = {
    "ignored explicit argument ": ": this flag takes no value, but {} follows it",
    "invalid int value: ": ": {} is not valid: must be a whole number",  # for Beam's flags
    "invalid loads value: ": ": {} is not valid: must be JSON",
    "expected one argument": " needs a value{}",
    "expected 2 arguments": " needs two values{}",
}


class HelpFormatter(argparse.HelpFormatter):
    """Breaks no line within a flag or the name of a command."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(self._split_lines(text, width - len(indent)))


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises instead of exiting, and refuses abbreviations."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": HelpFormatter, **named})
        if self.add_help:
            self.add_argument(
                "--version",
                action=_ShowVersion,
                nargs=0,
                default=argparse.SUPPRESS,
                help="show the version and exit",
            )
        # -1e-9 is a number and not a flag; the check of numbers refuses it.
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def error(self, message: str) -> NoReturn:
        """Raises argparse's message, reworded."""
        # The message "argument --epsilon: expected one argument" contains the name of the flag.
        name, colon, text = message.removeprefix("argument ").partition(": ")
        if name == _REQUIRED:
            is_command = text == "COMMAND"
            raise FlagError(
                f"No command given. Try {self.prog} --help" if is_command else f"{text} is required"
            )
        for words, form in _SAID.items():
            if text.startswith(words):
                raise FlagError(name + form.format(text.removeprefix(words)))
        raise FlagError(f"{name}{colon}{text}")

    def add_flags(self, flags: Iterable[Flag]) -> None:
        """Adds flags, whose values are strings; the value of a switch is "true"."""
        for flag in flags:
            text = flag.help.replace("%", "%%")  # argparse uses the help as a format string
            metavars = (flag.metavar or "|".join(flag.choices)).split(" ")
            if flag.is_positional:
                nargs = None if flag.default is None else "?"
                self.add_argument(
                    flag.name, help=text, metavar=flag.metavar, nargs=nargs, default=flag.default
                )
            elif flag.is_switch:
                self.add_argument(f"--{flag.name}", help=text, action="store_const", const="true")
            else:
                self.add_argument(
                    f"--{flag.name}",
                    help=text,
                    metavar=metavars[0] if len(metavars) == 1 else tuple(metavars),
                    nargs=None if len(metavars) == 1 else len(metavars),
                    default=flag.default,
                    action="append" if flag.repeats else _Once,
                )


class _ShowVersion(argparse.Action):
    """Prints the version of the package, and exits the program."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        """Prints the version, and raises SystemExit."""
        import importlib.metadata

        try:
            version = importlib.metadata.version("beam_dp")
        except importlib.metadata.PackageNotFoundError:
            version = "of a checkout that is not installed"
        sys.stdout.write(f"beam-dp {version}\n")
        parser.exit()


class _Once(argparse.Action):
    """Stores a value; rejects a repeated flag instead of guessing which value was meant."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        """Stores the value."""
        earlier = getattr(namespace, self.dest)
        if earlier is not self.default:
            before = shown(_without_secrets(earlier))
            now = shown(_without_secrets(values))
            raise FlagError(f"--{self.dest} is given twice: {before} and {now}")
        if isinstance(values, list):  # argparse turns "--" into an empty list
            raise refused(self.dest, "--", "must be a value")
        setattr(namespace, self.dest, values)


def _without_secrets(value: object) -> object:
    """Hides user names, passwords and query options of an unparsed URL."""
    if not isinstance(value, str) or "://" not in value:
        return value
    return re.sub(r"\?.*=.*", "?***", re.sub(r"://.*@", "://***@", value, flags=re.DOTALL))


def check_texts(flags: Iterable[Flag], texts: Mapping[str, str | None]) -> None:
    """Refuses values that are missing, empty, not a number if required, or not a valid choice."""
    for flag in flags:
        value = texts[flag.name]
        if value is None:
            if flag.required:
                raise FlagError(f"--{flag.name} is required: {flag.help}")
        elif not value:
            raise refused(flag.name, value, f"must be given: {flag.help}")
        elif flag.choices and value not in flag.choices:
            raise refused(flag.name, value, one_of(value, flag.choices))
        elif flag.form == "object":
            _check_object(flag, value)
        else:
            _check_number(flag, value)


def _check_object(flag: Flag, value: str) -> None:
    """Refuses a text that is not a JSON object."""
    try:
        is_object = isinstance(json.loads(value), dict)
    except ValueError:
        is_object = False
    if not is_object:
        raise refused(flag.name, value, "must be a JSON object")


def _check_number(flag: Flag, value: str) -> None:
    """Refuses a value that must be a number and is not a number, or is outside its range."""
    try:
        if flag.form in ("number", "integer") and value != flag.word:
            read = number if flag.form == "number" else integer
            flag.check(read(flag.name, value, flag.word and f"or {flag.word!r}"))
    except InputError as error:
        raise refused(flag.name, error.value, error.condition) from None


def check_mechanism(
    given: Mapping[str, str],
    flags_of: Mapping[str, Iterable[Flag]],
    needed: Mapping[str, Iterable[Sequence[str]]],
) -> None:
    """Refuses flags of other mechanisms than the chosen one, and the lack of one that it needs."""
    # ``flags_of``: the flags of each mechanism. Flags that are not listed apply to all mechanisms.
    # ``needed``: per mechanism, groups of flags of which one must be given.
    chosen = given["mechanism"]
    named = {flag.name: flag for flags in flags_of.values() for flag in flags}
    names = {flag.name for flag in flags_of[chosen]}
    for name, text in given.items():
        if name in named and name not in names and text != named[name].default:
            takers = [kind for kind, flags in flags_of.items() if name in {f.name for f in flags}]
            raise FlagError(f"--{name} applies only to --mechanism {listed(takers)}")
    for name, *others in needed.get(chosen, ()):
        if not {name, *others} & given.keys():
            also = "".join(f", or --{other}" for other in others)
            raise FlagError(f"--{name} is required with --mechanism {chosen}{also}")


def check_together(given: Mapping[str, object], *pairs: tuple[str, str]) -> None:
    """Refuses the first flag of a pair if the second flag is missing; None counts as missing."""
    for name, other in pairs:
        if given.get(name) is not None and given.get(other) is None:
            raise FlagError(f"--{other} is required with --{name}")


def one_of(value: str, choices: Sequence[str]) -> str:
    """Returns the condition that a value must be in ``choices``, with the nearest choice."""
    return f"must be one of {', '.join(choices)}; the nearest is {nearest(value, choices)!r}"


def listed(names: Sequence[str], word: str = "and") -> str:
    """Returns names joined by commas and a final word, such as ``a, b and c``."""
    *others, last = names
    return f"{', '.join(others)} {word} {last}" if others else last


def nearest(name: str, choices: Sequence[str]) -> str:
    """Returns the known name that begins so, or is most similar to the given name."""
    longer = [text for text in choices if name and text.startswith(name)]
    return (longer or difflib.get_close_matches(name, choices, n=1, cutoff=0.0))[0]


_KEY = "option"


def as_text(name: str, text: str) -> str:
    """Returns the string unchanged; it is one of the flag's choices."""
    return text


def option(
    help: str,
    metavar: str | None = None,
    read: Callable[[str, str], Any] = as_text,
    *,
    name: str = "",
    choices: tuple[str, ...] = (),
    default: str | None = None,
    limits: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns the metadata for a dataclass field that is a flag."""
    # ``name``: the name of the flag, if it differs from the field's. ``choices``, ``default`` and
    # ``limits`` go to ``Flag``; without a default, the default of the field is used.
    number_or_text, word = (read.read, read.word) if isinstance(read, OrWord) else (read, "")
    forms: dict[Any, Form] = {number: "number", integer: "integer"}
    form = forms.get(number_or_text, "text")
    more: dict[str, Any] = {"default": default, "choices": choices, "limits": limits}
    return option_of(Flag(name, help, metavar, form=form, word=word, **more), read)


def option_of(flag: Flag, read: Callable[[str, str], Any] = as_text) -> dict[str, Any]:
    """Returns the metadata for a dataclass field with a given flag."""
    return {_KEY: (flag, read)}


@dataclass(frozen=True)
class OrWord:
    """Reads a number or a fixed word."""

    read: Callable[[str, str, str], float]
    word: str

    def __call__(self, name: str, text: str) -> float | str:
        """Returns the number or the word."""
        return text if text == self.word else self.read(name, text, f"or {self.word!r}")


def check_options(options: Any) -> None:
    """Refuses a field of a dataclass with a number that is not in the range of its flag."""
    for field, flag, _ in _options(type(options)):
        flag.check(getattr(options, field), field)


def flags_of(*options: type[Any]) -> tuple[Flag, ...]:
    """Returns the flags of dataclasses in order, without repeating a name."""
    flags: dict[str, Flag] = {}
    for kind in options:
        for _, flag, _ in _options(kind):
            flags.setdefault(flag.name, flag)
    return tuple(flags.values())


def values_of(options: type[Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Returns the values of the fields whose flags are given, by field name."""
    return {
        field: read(flag.name, given[flag.name])
        for field, flag, read in _options(options)
        if flag.name in given
    }


def texts_of(options: Any) -> dict[str, str]:
    """Returns the flags, as typed, that would create an object; omits fields that are None."""
    values = ((flag.name, getattr(options, field)) for field, flag, _ in _options(type(options)))
    return {
        name: f"{value:g}" if isinstance(value, float) else str(value)
        for name, value in values
        if value is not None
    }


def _options(options: type[Any]) -> Iterator[tuple[str, Flag, Callable[[str, str], Any]]]:
    """Yields the name, flag and reader of each field that is a flag."""
    for field in dataclasses.fields(options):
        if _KEY in field.metadata:
            flag, read = field.metadata[_KEY]
            yield field.name, dataclasses.replace(flag, name=flag.name or field.name), read
