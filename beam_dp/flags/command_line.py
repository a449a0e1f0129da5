"""The command line of a program that runs on Beam, as far as it can be judged without Beam."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence

from beam_dp.errors import InputError
from beam_dp.flags.flag import Flag, FlagError, Parser, check_texts

# So alike are two names only if one is a slip of the other: no flag of Beam's is so near to one of
# ours, which a test holds.
SLIP = 0.85


def parse_own(
    flags: Sequence[Flag], argv: Sequence[str], *, program: str, description: str
) -> tuple[dict[str, str], list[str]]:
    """Returns the values of our flags as text, and what is left: Beam's flags, unless refused.

    Args:
        flags: the flags of the program.
        argv: the command line, without the program's name.
        program: what the user typed to start it; ``--help`` shows it.
        description: of the program; its first line is that of ``--help``.

    Returns:
        The text of each flag that was given or has a default ("true" for a switch), and what may
        be flags of Beam's.

    Raises:
        FlagError: a flag is repeated, missing, incomplete or misspelt, or a value is no number or
            not among a flag's choices.
    """
    parser = Parser(prog=program, description=description.partition("\n")[0])
    parser.epilog = "Beam's own flags, such as --runner and --direct_num_workers, pass through."
    parser.add_flags(flags)
    values, rest = parser.parse_known_args(argv)
    _check_slips(rest, flags, argv)
    texts: dict[str, str | None] = vars(values)
    check_texts(flags, texts)
    return {name: text for name, text in texts.items() if text is not None}, rest


def in_words_of_flags(error: InputError | FlagError, flags: Sequence[Flag]) -> str:
    """Returns a refusal in one line, in which arguments that are flags have their dashes."""
    text = " ".join(str(error).split())
    if not isinstance(error, InputError):
        return text
    # The package names arguments; here they are flags, also the switch that a condition names.
    for flag in flags:
        if flag.is_switch:
            text = text.replace(f"unless {flag.name} is", f"unless --{flag.name} is")
    if error.name not in {flag.name for flag in flags}:
        return text
    if error.value is None:
        text = text.replace(f"{error.name}: None is refused", f"{error.name}: missing", 1)
    return f"--{text}"


def unknown_flag(name: str, near: str) -> FlagError:
    """Returns the line about a flag that nobody knows, with the nearest one that is known."""
    return FlagError(
        f"{name}: unknown flag; must be one of this program or of Beam; the nearest is {near}"
    )


def no_flag(
    text: str, argv: Sequence[str], columns: Sequence[str] = (), patterns: Sequence[str] = ()
) -> FlagError:
    """Returns the line about an argument without a flag, with what was probably meant.

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
