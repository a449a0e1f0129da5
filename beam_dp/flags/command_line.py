"""Command lines of programs that run on Beam, checked without importing Beam."""

from __future__ import annotations

import argparse
import difflib
import errno
import glob
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from beam_dp.errors import InputError
from beam_dp.flags.flag import Flag, FlagError, Parser, check_texts, refused

# Names at least this similar are slips of each other: no flag of Beam's is so near to one of ours,
# as a test checks.
SLIP = 0.85
# Python's patterns without these mean what Beam's do; others, such as [a-z] and **, Beam decides.
_PLAIN_PATTERN = re.compile(r"(?!.*\*\*)[^\[\]{}\\]*")


@dataclass(frozen=True)
class Command:
    """A command of `beam-dp` that does not run on Beam.

    ``run``: runs it on the parsed flags; returns an exit code, or None for 0.
    """

    flags: tuple[Flag, ...]
    run: Callable[[argparse.Namespace], int | None]
    epilog: str | None = None


def parse_own(
    flags: Sequence[Flag], argv: Sequence[str], *, program: str, description: str
) -> tuple[dict[str, str], list[str]]:
    """Returns the text of each of our flags that is given or has a default, and Beam's flags."""
    parser = Parser(prog=program, description=description.partition("\n")[0])
    parser.epilog = "Beam's own flags, such as --runner and --direct_num_workers, pass through."
    parser.add_flags(flags)
    values, rest = parser.parse_known_args(argv)
    _check_slips(rest, flags, argv)
    texts: dict[str, str | None] = vars(values)
    check_texts(flags, texts)
    return {name: text for name, text in texts.items() if text is not None}, rest


def in_words_of_flags(error: InputError | FlagError, flags: Sequence[Flag]) -> str:
    """Returns a refusal in one line, with dashes before arguments that are flags."""
    text = " ".join(str(error).split())
    if not isinstance(error, InputError):
        return text
    # The package names arguments; here these are flags, also a switch in a condition.
    for flag in flags:
        if flag.is_switch:
            text = text.replace(f"unless {flag.name} is", f"unless --{flag.name} is")
    if error.name not in {flag.name for flag in flags if not flag.is_positional}:
        return text
    if error.value is None:
        text = text.replace(f"{error.name}: None is refused", f"{error.name}: missing", 1)
    return f"--{text}"


def unknown_flag(name: str, near: str) -> FlagError:
    """Returns the line about an unknown flag, with the nearest known one."""
    return FlagError(
        f"{name}: unknown flag; must be one of this program or of Beam; the nearest is {near}"
    )


def no_flag(
    text: str, argv: Sequence[str], columns: Sequence[str] = (), patterns: Sequence[str] = ()
) -> FlagError:
    """Returns the line about an argument without a flag, with the probable intention.

    Example:
        >>> str(no_flag("b", ["--group_by", "a", "b"], columns=["group_by"]))
        "unexpected argument 'b'; separate columns by commas: --group_by a,b"
    """
    told, flag, values = f"unexpected argument {text!r}", "", list[str]()
    for word in argv:
        if word.startswith("--"):
            if text in values[1:]:
                break
            name, _, value = word.partition("=")
            flag, values = name.removeprefix("--"), [value] if value else []
        else:
            values.append(word)
    if text in values[1:] and flag in columns:
        told += f"; separate columns by commas: --{flag} {shlex.quote(','.join(values))}"
    if text in values[1:] and flag in patterns:
        told += f"; put the pattern in quotes, so that the shell passes it on: --{flag} '*.csv'"
    return FlagError(told)


def _check_slips(rest: Sequence[str], flags: Sequence[Flag], argv: Sequence[str]) -> None:
    if rest and not rest[0].startswith("-"):
        patterns = [flag.name for flag in flags if flag.form == "files"]
        raise no_flag(rest[0], argv, patterns=patterns)
    known = [f"--{flag.name}" for flag in flags]
    for text in rest:
        name = text.partition("=")[0]
        if near := difflib.get_close_matches(name, known, n=1, cutoff=SLIP):
            raise unknown_flag(name, near[0])


def check_files(flags: Iterable[Flag], texts: Mapping[str, str | None]) -> None:
    """Refuses local files that do not exist."""
    for flag in flags:
        text = texts.get(flag.name)
        # With a colon it is in another place, or a workload that needs no file.
        if text is None or ":" in text or text.lstrip().startswith("{"):
            continue
        if flag.form == "file" and not os.path.exists(text):
            condition = (
                f"must be a file that can be read ({os.strerror(errno.ENOENT)}): {flag.help}"
            )
            raise refused(flag.name, text, condition)
        if flag.form == "files" and not _may_match(text):
            raise refused(flag.name, text, "must match a file")


def _may_match(pattern: str) -> bool:
    """Returns whether a pattern may match a file of this machine.

    Example:
        >>> _may_match(__file__), _may_match(__file__ + ".no*.such?"), _may_match("no/such/[a-z]")
        (True, False, True)
    """
    if _PLAIN_PATTERN.fullmatch(pattern) is None:
        return True
    return next(glob.iglob(pattern, include_hidden=True), None) is not None
