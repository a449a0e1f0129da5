"""Parsing of command-line flags, and the flags that all programs share.

Beam's own flags pass through. A flag that neither Beam nor the program knows is refused with the
nearest known one, where Beam itself would only warn and drop it; abbreviations are refused too,
because the flag that one of them means can change with a version.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from apache_beam.options import pipeline_options

from beam_dp.errors import InputError
from beam_dp.flags.numbers import integer as integer
from beam_dp.flags.numbers import number as number
from beam_dp.queries.sparse import KEY_TYPES

EXIT_BAD_INPUT = 2
EXIT_JOB_FAILED = 1


class FlagError(Exception):
    """One line about one flag, ready to be printed."""


@dataclass(frozen=True)
class Flag:
    """One flag of ours: its name without dashes, its help, and whether it must be given."""

    name: str
    help: str
    metavar: str | None = None
    required: bool = False
    default: str | None = None
    choices: tuple[str, ...] = ()
    is_switch: bool = False


INPUT = Flag("input", "files to read: a glob on any filesystem that Beam knows", "GLOB", True)
INPUT_FORMAT = Flag(
    "input_format",
    "how to read them; by default the extension tells",
    choices=("avro", "parquet", "csv"),
)
DOMAIN = Flag("domain", "JSON file that declares the attributes and their values", "FILE", True)
WORKLOAD = Flag(
    "workload",
    "what to answer: marginals:3, or marginals:age,sex;age,education, or a file of JSON lines",
    "SPEC",
    True,
)
EPSILON = Flag("epsilon", "privacy parameter, > 0", "E", True)
DELTA = Flag("delta", "privacy parameter, 0 <= delta <= 1e-5; 0 is pure privacy", "D", True)
ALLOW_LARGE_DELTA = Flag("allow_large_delta", "admit a delta above 1e-5", is_switch=True)
NEIGHBORING = Flag(
    "neighboring",
    "which change of the data is hidden",
    required=True,
    choices=("add_or_remove_one", "replace_one"),
)
PRIVACY_UNIT = Flag(
    "privacy_unit",
    "what is protected: the column that names a unit (a person, a plane), or the word record",
    "COLUMN|record",
    True,
)
MAX_RECORDS_PER_UNIT = Flag(
    "max_records_per_unit",
    "how many records of a unit are kept, >= 1; required unless the unit is the record",
    "K",
)
NUM_RECORDS = Flag(
    "num_records",
    "the number of records where it is public, or noisy: a noisy count paid from the budget",
    "N|noisy",
    True,
)
CALIBRATION = Flag(
    "calibration",
    "tight is the best that is proved, textbook the mechanism as published",
    default="tight",
    choices=("tight", "textbook"),
)
KEY = Flag("key", "the column of keys", "COLUMN", True)
KEY_TYPE = Flag(
    "key_type",
    "what keys are: numbers are read as their digits for text and bytes, and texts of digits as"
    " numbers for integer; a record whose key is of no such form is left out",
    default="text",
    choices=KEY_TYPES,
)
MAX_SPARSITY = Flag("max_sparsity", "the most keys that a query may name", "M", True)
VALIDATE_ONLY = Flag(
    "validate_only",
    "check everything, print the public part of the card, read no record, write nothing",
    is_switch=True,
)
LEDGER = Flag(
    "ledger",
    "where budgets are kept: a sqlite file, or postgresql://...; needs --dataset_id",
    "URL",
)
DATASET_ID = Flag("dataset_id", "from whose budget in the ledger this release is paid", "NAME")
COUNT_LEFT_OUT = Flag(
    "count_left_out",
    "also release how many records are outside the domain, with noise, by the first attribute that"
    " each fails; takes a twentieth of epsilon",
    is_switch=True,
)
EXPECT_RECORDS = Flag(
    "expect_records",
    "about how many records there should be: a released number far from it is warned of, here"
    " only; neither stored nor released",
    "N",
)
OUTPUT = Flag(
    "output",
    "directory for the release, local, gs:// or s3://; must not hold one yet",
    "DIR",
    True,
)

COMMON = (
    INPUT,
    INPUT_FORMAT,
    DOMAIN,
    WORKLOAD,
    EPSILON,
    DELTA,
    ALLOW_LARGE_DELTA,
    NEIGHBORING,
    PRIVACY_UNIT,
    MAX_RECORDS_PER_UNIT,
    NUM_RECORDS,
    CALIBRATION,
    LEDGER,
    DATASET_ID,
    VALIDATE_ONLY,
    OUTPUT,
)


# What argparse says of the value of a switch.
_IGNORED = "ignored explicit argument "


class _Parser(argparse.ArgumentParser):
    """An argparse parser that raises where argparse would print its usage and exit."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        # Also 1e-9 after a minus is a number, which its own check refuses, and no flag.
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def error(self, message: str) -> NoReturn:
        # "argument --epsilon: expected one argument" names the flag; the rest is our form.
        name, colon, text = message.removeprefix("argument ").partition(": ")
        if text.startswith(_IGNORED):
            value = text.removeprefix(_IGNORED)
            text = f"{value} is refused; must be given alone: this flag takes no value"
        raise FlagError(f"{name}: {text}" if colon and name.startswith("-") else message)


class _Once(argparse.Action):
    """Stores a value, and refuses a second one: which of two epsilons is meant is no guess."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        earlier = getattr(namespace, self.dest)
        if earlier is not self.default:
            raise FlagError(
                f"--{self.dest}: {values!r} is refused; must be given once (before: {earlier!r})"
            )
        setattr(namespace, self.dest, values)


def parse(
    flags: Sequence[Flag], argv: Sequence[str], *, program: str, description: str
) -> tuple[dict[str, str], list[str]]:
    """Returns the values of our flags as text, and what is left: Beam's own flags.

    Args:
        flags: the flags of the program.
        argv: the command line, without the program's name.
        program: what the user typed to start it; `--help` shows it.
        description: of the program; its first line is that of `--help`.

    Returns:
        The text of each flag that was given or has a default ("true" for a switch), and the flags
        for Beam's PipelineOptions.

    Raises:
        FlagError: an unknown, abbreviated, repeated, missing or incomplete flag, or a value that is
            not among a flag's choices.
    """
    first_line = description.partition("\n")[0]
    ours = _Parser(prog=program, description=first_line, allow_abbrev=False)
    ours.epilog = "Beam's own flags, such as --runner and --direct_num_workers, pass through."
    for flag in flags:
        text = flag.help.replace("%", "%%")  # argparse takes it for a format
        if flag.is_switch:
            ours.add_argument(f"--{flag.name}", help=text, action="store_const", const="true")
        else:
            ours.add_argument(
                f"--{flag.name}",
                help=text,
                metavar=flag.metavar or "|".join(flag.choices),
                default=flag.default,
                action=_Once,
            )
    values, rest = ours.parse_known_args(argv)
    _check_beam_flags(rest, [f"--{flag.name}" for flag in flags])
    texts: dict[str, str | None] = vars(values)
    check_texts(flags, texts)
    return {name: text for name, text in texts.items() if text is not None}, rest


def check_texts(flags: Sequence[Flag], texts: Mapping[str, str | None]) -> None:
    """Refuses what is missing, empty or outside a flag's choices.

    Args:
        flags: of a program.
        texts: the text of each flag; None where it was not given.

    Raises:
        FlagError: naming the flag.
    """
    for flag in flags:
        value = texts[flag.name]
        if value is None:
            if flag.required:
                raise FlagError(f"--{flag.name}: missing; must be given: {flag.help}")
        elif not value:
            raise FlagError(f"--{flag.name}: '' is refused; must be given: {flag.help}")
        elif flag.choices and value not in flag.choices:
            raise FlagError(
                f"--{flag.name}: {value!r} is refused; must be one of {', '.join(flag.choices)};"
                f" the nearest is {nearest(value, flag.choices)!r}"
            )


def _check_beam_flags(rest: Sequence[str], our_options: Sequence[str]) -> None:
    """Refuses what Beam does not know either, and what Beam knows but cannot read."""
    beam = _Parser(allow_abbrev=False, add_help=False, conflict_handler="resolve")
    # Beam marks options that a job template fills in later by a method of its own parser.
    beam.add_value_provider_argument = beam.add_argument  # type: ignore[attr-defined]
    for options in pipeline_options.PipelineOptions.__subclasses__():
        if options.__module__.startswith("apache_beam."):
            options._add_argparse_args(beam)
    # A lone "--" ends the flags for argparse, and would hide everything behind it.
    _, unknown = (None, ["--"]) if "--" in rest else beam.parse_known_args(rest)
    if not unknown:
        return
    name = unknown[0].partition("=")[0]
    if not name.startswith("-"):
        raise FlagError(f"{name!r} is refused; must be a flag, or follow one")
    known = [
        *our_options,
        *(option for action in beam._actions for option in action.option_strings),
    ]
    raise FlagError(
        f"{name}: unknown flag; must be one of this program or of Beam;"
        f" the nearest is {nearest(name, known)}"
    )


def typed(argv: Sequence[str]) -> dict[str, str]:
    """Returns the values of a command line by flag, as they were typed, checked or not.

    Example:
        >>> typed(["--input=a.csv", "--output", "out", "--validate_only"])
        {'input': 'a.csv', 'output': 'out'}
    """
    values = {}
    for text, following in zip(argv, [*argv[1:], "--"], strict=True):
        name, equals, value = text.partition("=")
        if name.startswith("--") and (equals or not following.startswith("--")):
            values[name[2:]] = value if equals else following
    return values


def nearest(name: str, known: Sequence[str]) -> str:
    """Returns the known name that looks most like the given one.

    Example:
        >>> nearest("--epsilom", ["--delta", "--epsilon"])
        '--epsilon'
    """
    return difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]


def one_line(error: InputError | FlagError, flags: Sequence[Flag]) -> str:
    """Returns the line for the user: `error: --epsilon: 0.0 is refused; must be ...`."""
    text = " ".join(str(error).split())
    if not isinstance(error, InputError):
        return f"error: {text}"
    # The package names arguments; here they are flags, also the switch that a condition names.
    for flag in flags:
        if flag.is_switch:
            text = text.replace(f"unless {flag.name} is", f"unless --{flag.name} is")
    dashes = error.name in {flag.name for flag in flags}
    return f"error: {'--' if dashes else ''}{text}"
