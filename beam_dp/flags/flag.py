"""Flags of command lines: how they are read, and how a bad one is refused in one line."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from beam_dp.errors import InputError, shown
from beam_dp.flags.numbers import integer, number


class FlagError(Exception):
    """One line about one flag, ready to be printed."""


def refused(flag: str, value: object, condition: str) -> FlagError:
    """Returns the line about a bad value of a flag, named without dashes.

    Example:
        >>> str(refused("epsilon", "x", "must be a number"))
        "--epsilon: 'x' is refused; must be a number"
    """
    return FlagError(f"--{flag}: {shown(value)} is refused; {condition}")


Form = Literal["text", "number", "integer", "file", "files"]


@dataclass(frozen=True)
class Flag:
    """One flag, or positional argument, of a command.

    Args:
        name: without dashes.
        help: what it is for.
        metavar: the placeholder of its value in the help; by default its choices. A flag with
            several values has one placeholder each, separated by spaces.
        required: whether it must be given.
        default: the text that counts if none is given.
        choices: the valid texts, if only these are valid.
        is_switch: whether it is given without a value.
        form: what its text must be, as far as that shows without any other flag: an existing file,
            or text in place of one; a glob that matches an existing file.
        word: what a flag that is a number also accepts, such as ``noisy``.
        repeats: whether it may be given several times; its value is then a list.
        is_positional: whether its value is given without its name.
    """

    name: str
    help: str
    metavar: str | None = None
    required: bool = False
    default: str | None = None
    choices: tuple[str, ...] = ()
    is_switch: bool = False
    form: Form = "text"
    word: str = ""
    repeats: bool = False
    is_positional: bool = False


JSON = Flag("json", "JSON for machines", is_switch=True)
DIRECTORY = Flag("directory", "directory that holds a release", "DIR", is_positional=True)

# The start of argparse's messages, and ours: {} is replaced by the rest.
_REQUIRED = "the following arguments are required"
_SAID = {
    "ignored explicit argument ": "{} is refused; must be given alone: this flag takes no value",
    "invalid int value: ": "{} is refused; must be a whole number",  # of Beam's flags
    "expected one argument": "must be followed by a value{}",
    "expected 2 arguments": "must be followed by two values{}",
}


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises where argparse would print its usage and exit.

    Abbreviations are refused: which flag one means can change with a version.
    """

    def __init__(self, **named: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **named})
        if self.add_help:
            self.add_argument(
                "--version",
                action=_ShowVersion,
                nargs=0,
                default=argparse.SUPPRESS,
                help="show the version and exit",
            )
        # -1e-9 is a number too, which its own check refuses, and not a flag.
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def error(self, message: str) -> NoReturn:
        """Raises what argparse would print."""
        # "argument --epsilon: expected one argument" names the flag; the rest is our form.
        name, colon, text = message.removeprefix("argument ").partition(": ")
        if name == _REQUIRED:
            raise FlagError(f"{text}: missing; must be given")
        for words, form in _SAID.items():
            if text.startswith(words):
                text = form.format(text.removeprefix(words))
        raise FlagError(f"{name}{colon}{text}")

    def add_flags(self, flags: Iterable[Flag]) -> None:
        """Adds flags, whose values are texts; that of a switch is "true"."""
        for flag in flags:
            text = flag.help.replace("%", "%%")  # argparse takes it for a format
            metavars = (flag.metavar or "|".join(flag.choices)).split(" ")
            if flag.is_positional:
                self.add_argument(flag.name, help=text, metavar=flag.metavar)
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
    """Looks up and prints the version of the package, and ends the program."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Prints, and raises SystemExit."""
        import importlib.metadata

        try:
            version = importlib.metadata.version("beam_dp")
        except importlib.metadata.PackageNotFoundError:
            version = "of a checkout that is not installed"
        sys.stdout.write(f"beam-dp {version}\n")
        parser.exit()


class _Once(argparse.Action):
    """Stores a value; rejects a repeated flag instead of guessing which value was meant."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Stores the value."""
        earlier = getattr(namespace, self.dest)
        if earlier is not self.default:
            before = shown(_without_secrets(earlier))
            condition = f"must be given once (before: {before})"
            raise refused(self.dest, _without_secrets(values), condition)
        if isinstance(values, list):  # argparse makes an empty list of "--"
            raise refused(self.dest, "--", "must be a value")
        setattr(namespace, self.dest, values)


def _without_secrets(value: object) -> object:
    """Hides user names, passwords and query options of an unparsed URL.

    Example:
        >>> _without_secrets("postgresql://bob:a@b@localhost/db?password=c")
        'postgresql://***@localhost/db?***'
    """
    if not isinstance(value, str) or "://" not in value:
        return value
    return re.sub(r"\?.*=.*", "?***", re.sub(r"://.*@", "://***@", value, flags=re.DOTALL))


def check_texts(flags: Iterable[Flag], texts: Mapping[str, str | None]) -> None:
    """Refuses texts that are missing, empty, not a required number, or outside the choices."""
    for flag in flags:
        value = texts[flag.name]
        if value is None:
            if flag.required:
                raise FlagError(f"--{flag.name}: missing; must be given: {flag.help}")
        elif not value:
            raise refused(flag.name, value, f"must be given: {flag.help}")
        elif flag.choices and value not in flag.choices:
            raise refused(flag.name, value, one_of(value, flag.choices))
        else:
            _check_number(flag, value)


def _check_number(flag: Flag, value: str) -> None:
    """Refuses a text that is not a required number; its range is checked where it is used."""
    try:
        if flag.form in ("number", "integer") and value != flag.word:
            read = number if flag.form == "number" else integer
            read(flag.name, value, flag.word and f"or {flag.word!r}")
    except InputError as error:
        raise refused(flag.name, value, error.condition) from None


def check_applies(
    given: Mapping[str, str], chosen: str, flags_of: Mapping[str, Iterable[Flag]]
) -> None:
    """Refuses flags that apply only to mechanisms other than the chosen one.

    ``flags_of``: the flags that apply to each mechanism. Flags in none of them apply to all.

    Example:
        >>> flags = {"mwem": (Flag("num_rounds", ""),), "small_db": (Flag("size", ""),)}
        >>> check_applies({"size": "5"}, "mwem", flags)
        Traceback (most recent call last):
        beam_dp.flags.flag.FlagError: --size applies only to --mechanism small_db
    """
    known = {flag.name: flag for flags in flags_of.values() for flag in flags}
    own = {flag.name for flag in flags_of[chosen]}
    for name, text in given.items():
        if name in known and name not in own and text != known[name].default:
            takers = [each for each, flags in flags_of.items() if name in {f.name for f in flags}]
            raise FlagError(f"--{name} applies only to --mechanism {listed(takers)}")


def one_of(value: str, known: Sequence[str]) -> str:
    """Returns the condition that a value must be one of ``known``, with the nearest of these."""
    return f"must be one of {', '.join(known)}; the nearest is {nearest(value, known)!r}"


def listed(names: Sequence[str], word: str = "and") -> str:
    """Returns names as people list them.

    Example:
        >>> listed(["a"]), listed(["a", "b", "c"]), listed(["a", "b"], "or")
        ('a', 'a, b and c', 'a or b')
    """
    *others, last = names
    return f"{', '.join(others)} {word} {last}" if others else last


def nearest(name: str, known: Sequence[str]) -> str:
    """Returns the known name that looks most like the given one.

    Example:
        >>> nearest("--epsilom", ["--delta", "--epsilon"])
        '--epsilon'
    """
    return difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
