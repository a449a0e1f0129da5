"""The command `beam-dp`: its parser, and which module runs which subcommand."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_dp.cli.answer_flags import COLUMN_FLAGS, add_answer, check_answer
from beam_dp.cli.completion import add_completion, run_completion
from beam_dp.cli.diff import add_diff, run_diff
from beam_dp.cli.doctor import add_doctor, run_doctor
from beam_dp.cli.finish import add_finish, run_finish
from beam_dp.cli.init import add_init, run_init
from beam_dp.cli.ledger import add_ledger, run_ledger
from beam_dp.cli.plan import add_plan, run_plan
from beam_dp.cli.programs import (
    PROGRAMS,
    check_beam_names,
    command_of,
    description_of_program,
    flags_of_program,
    import_program,
)
from beam_dp.cli.report import add_report, run_report
from beam_dp.cli.verify import add_verify, run_verify
from beam_dp.errors import InputError
from beam_dp.flags.command_line import in_words_of_flags, no_flag, parse_own
from beam_dp.flags.files import check_files
from beam_dp.flags.flag import Flag, FlagError, Parser, listed, nearest, refused
from beam_dp.installed import missing_part

EXIT_BAD_INPUT = 2
PIPELINES = {program.replace("_", "-"): program for program in PROGRAMS}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code: 0, or 2 for input that was refused.

    `doctor`, `verify` and the programs have exit codes of their own, too.

    Args:
        argv: the arguments without the program's name; those of the process by default.

    Returns:
        The exit code.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments:
        command_parsers()[0].print_help(sys.stderr)
        return EXIT_BAD_INPUT
    if arguments[0] == "help":
        arguments = [*arguments[1:], "--help"]
    try:
        if arguments and arguments[0] in PIPELINES:
            return _run_pipeline(PIPELINES[arguments[0]], arguments[1:])
        options = _parse(arguments)
        run: dict[str, Callable[[argparse.Namespace], int | None]] = {
            "plan": run_plan,
            "describe": _describe,
            "answer": _answer,
            "report": run_report,
            "verify": run_verify,
            "diff": run_diff,
            "doctor": run_doctor,
            "finish": run_finish,
            "init": run_init,
            "ledger": run_ledger,
            "completion": lambda options: run_completion(options, command_parsers),
        }
        return run[options.command](options) or 0
    except (FlagError, InputError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except ModuleNotFoundError as error:
        cure = missing_part(error)
        if cure is None:
            raise
        print(f"error: {arguments[0]}: {cure}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough; Python must not complain while it closes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def command_parsers() -> tuple[Parser, dict[str, argparse.ArgumentParser]]:
    """Returns the parser of the command line, and that of each command by its name."""
    parser = Parser(
        prog="beam-dp",
        description="Plan, make and read private releases.",
        epilog="`beam-dp help COMMAND` lists the flags of a command.",
    )
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=Parser
    )
    add_init(commands)
    add_plan(commands)
    _add_readers(commands)
    add_report(commands)
    add_verify(commands)
    add_diff(commands)
    add_doctor(commands)
    add_finish(commands)
    add_ledger(commands)
    add_completion(commands)
    for name, program in PIPELINES.items():
        commands.add_parser(name, help=PROGRAMS[program]).add_flags(flags_of_program(program))
    return parser, dict(commands.choices)


def _add_readers(commands: Any) -> None:
    """Adds the commands that read a release."""
    describe = commands.add_parser(
        "describe", help="what was promised, and how wrong the answers can be"
    )
    describe.add_argument("directory", metavar="DIR", help="directory that holds a release")
    describe.add_argument("--json", action="store_true", help="JSON for machines")
    add_answer(commands)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser, commands = command_parsers()
    known_commands = [*commands]
    if arguments and not arguments[0].startswith("-") and arguments[0] not in known_commands:
        told = f"{arguments[0]!r} is not a command; did you mean"
        if longer := [name for name in known_commands if name.startswith(f"{arguments[0]}-")]:
            raise FlagError(f"{told} {listed(longer, 'or')}?")
        near = nearest(arguments[0], known_commands)
        raise FlagError(f"{told} {near}? Commands: {', '.join(known_commands)}")
    options, unknown = parser.parse_known_args(arguments)
    if unknown and not unknown[0].startswith("-"):
        raise no_flag(unknown[0], arguments, COLUMN_FLAGS)
    if unknown:
        command = commands[options.command]
        flags = [option for action in command._actions for option in action.option_strings]
        raise FlagError(f"{unknown[0]}: unknown; the nearest flag is {nearest(unknown[0], flags)}")
    return options


def _run_pipeline(module: str, arguments: list[str]) -> int:
    """Refuses what shows in the command line alone, and only then imports the program, and Beam."""
    flags = flags_of_program(module)
    given, rest = parse_own(
        flags, arguments, program=command_of(module), description=description_of_program(module)
    )
    check_beam_names(rest, flags)
    check_files(flags, given)
    _check_guarantee(flags, given)
    code: int = import_program(module).main(arguments)
    return code


def _check_guarantee(flags: Sequence[Flag], given: Mapping[str, str]) -> None:
    """Refuses a guarantee that nothing could keep: the program would say so seconds later."""
    if "epsilon" not in given:
        return
    from beam_dp.flags.shared import read_guarantee

    try:
        read_guarantee(given)
    except InputError as error:
        raise FlagError(in_words_of_flags(error, flags)) from None


def _describe(options: argparse.Namespace) -> None:
    from rich.console import Console

    from beam_dp.releases.files.card import CARD, HORIZON
    from beam_dp.releases.kinds import of_kind, read_any
    from beam_dp.storage.of_url import store_for

    release: Any = read_any(options.directory)
    is_horizon = release.KIND == "horizon"
    if not options.json:
        Console().print(of_kind("describe", release))
        return
    # All of the release was verified when it was read, so this is its card.
    text = store_for(options.directory, "release").read(HORIZON if is_horizon else CARD).decode()
    if is_horizon:
        found = {"windows": [*release.windows], "blocks": [*release.blocks]}
        text = json.dumps({**json.loads(text), "released": found}, ensure_ascii=False) + "\n"
    print(text, end="")


def _answer(options: argparse.Namespace) -> None:
    from beam_dp.releases.kinds import of_kind, read_any

    check_answer(options)
    if options.limit < 1:
        raise refused("limit", options.limit, "must be >= 1")
    of_kind("answer", read_any(options.directory), options)


if __name__ == "__main__":
    sys.exit(main())
