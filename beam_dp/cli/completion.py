"""The command `beam-dp completion`, which prints what makes a shell complete the others."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from beam_dp.cli.plan_flags import FLAGS as PLAN_FLAGS
from beam_dp.cli.programs import PROGRAMS, flags_of_program
from beam_dp.flags.flag import Flag, FlagError, one_of

SHELLS = ("bash", "zsh", "fish")
_FILES = ("FILE", "GLOB", "SPEC", "URL")  # what stands in a help for something that may be a file

Parsers = tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]


def add_completion(commands: Any) -> None:
    """Adds the command's arguments to those of `beam-dp`."""
    completion = commands.add_parser(
        "completion",
        help="what makes bash, zsh or fish complete commands, flags, their choices and files",
        epilog="For bash: source <(beam-dp completion bash). For zsh, to a folder of $fpath:"
        " beam-dp completion zsh > DIR/_beam-dp. For fish: beam-dp completion fish | source.",
    )
    completion.add_argument("shell", metavar="SHELL", help=", ".join(SHELLS))


def run_completion(options: argparse.Namespace, parsers: Callable[[], Parsers]) -> None:
    """Prints the script for a shell.

    Args:
        options: of `beam-dp completion`.
        parsers: makes the parser of the command line, and that of each command by its name.

    Raises:
        FlagError: if the shell is not known.
    """
    if options.shell not in SHELLS:
        raise FlagError(f"{options.shell!r} is refused; {one_of(options.shell, SHELLS)}")
    import shtab

    whole, commands = parsers()
    flags = {name.replace("_", "-"): flags_of_program(name) for name in PROGRAMS}
    flags |= {"plan": PLAN_FLAGS, "completion": (Flag("shell", "", choices=SHELLS),)}
    for name, parser in commands.items():
        _tell_values(parser, flags.get(name, ()))
    print(shtab.complete(whole, shell=options.shell))


def _tell_values(parser: argparse.ArgumentParser, flags: Iterable[Flag]) -> None:
    """Says which values each argument of a parser may have; that parser parses nothing any more."""
    import shtab

    choices = {flag.name: flag.choices for flag in flags if flag.choices}
    for action in parser._actions:
        action.choices = choices.get(action.dest)
        if action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar == "DIR":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
