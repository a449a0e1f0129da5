"""The command `beam-dp`: its parser, and the modules of its subcommands."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Collection, Mapping, Sequence

from beam_dp.errors import InputError, invalid
from beam_dp.flags import command_line
from beam_dp.flags.flag import Flag, FlagError, Parser, listed, nearest, one_of
from beam_dp.flags.output import code_of_lost, lasting_output
from beam_dp.installed import missing_part

EXIT_BAD_INPUT = 2
PIPELINES = {program.replace("_", "-"): program for program in command_line.PROGRAMS}
# The commands that are no programs on Beam: module (each has COMMANDS) and purpose.
_MODULES = {
    "init": ("init", "draft a domain file from the columns of a table, or from a schema"),
    "release": ("release", "make a private copy of a table"),
    "plan": ("plan", "compare mechanisms for a job before any data is read"),
    "describe": ("releases", "show what a release contains and how accurate it is"),
    "answer": ("releases", "answer questions from a release, with error bars"),
    "sample": ("sample", "draw new records from a release, also with a condition"),
    "impute": ("sample", "draw what given rows lack from a release"),
    "report": ("releases", "write an HTML page about a release"),
    "attack": ("releases", "attack a release with its confidential records, as a gate"),
    "verify": ("releases", "recompute the privacy loss of a release from its card"),
    "diff": ("releases", "compare the counts of two releases"),
    "doctor": ("doctor", "check the installation"),
    "finish": ("releases", "clean up after a job that was killed"),
    "ledger": ("ledger", "declare privacy budgets, and show what was spent"),
    "completion": ("main", "print a completion script for bash, zsh or fish"),
}
# The order in which the help shows the commands.
_GROUPS = {
    "most used": ("init", "release", "answer", "report", "verify"),
    "jobs": ("plan", "check-domain", *(name for name in PIPELINES if name != "check-domain")),
    "releases": ("describe", "sample", "impute", "diff", "attack", "finish"),
    "budgets and this machine": ("ledger", "doctor", "completion"),
}
_SHELLS = ("bash", "zsh", "fish")
_WIDTH = 28  # of the column of names
_FILES = ("FILE", "GLOB", "SPEC", "URL")  # metavars of flags whose values may be files


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code: 0, or 2 for refused input.

    `doctor`, `verify`, `attack` and the programs also return other exit codes. ``argv``: the
    arguments without the program's name; by default those of the process.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:  # only this command uses Beam in this process
        command_line.leave_out(arguments)
    with lasting_output() as output:
        code = _main(arguments)
        output.flush()
        is_job = bool(arguments) and arguments[0] in (*PIPELINES, "release")
        return code if code or is_job else code_of_lost(output)


def _main(arguments: list[str]) -> int:
    if not arguments:
        command_parsers(())[0].print_help(sys.stderr)
        return EXIT_BAD_INPUT
    if arguments[0] == "help":
        arguments = [*arguments[1:], "--help"]
    flags: tuple[Flag, ...] = ()
    try:
        if arguments and arguments[0] in PIPELINES:
            flags = command_line.flags_of_program(PIPELINES[arguments[0]])
            return _run_pipeline(PIPELINES[arguments[0]], flags, arguments[1:])
        options = _parse(arguments)
        chosen = command(options.command)
        flags = chosen.flags
        return chosen.run(options) or 0
    except (FlagError, InputError) as error:
        print(f"error: {command_line.in_words_of_flags(error, flags)}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except ModuleNotFoundError as error:
        cure = missing_part(error)
        if cure is None:
            raise
        print(f"error: {arguments[0]}: {cure}", file=sys.stderr)
        return EXIT_BAD_INPUT


def command(name: str) -> command_line.Command:
    """Returns a command that does not run on Beam; imports its module."""
    module = importlib.import_module(f"beam_dp.cli.{_MODULES[name][0]}")
    chosen: command_line.Command = module.COMMANDS[name]
    return chosen


def flags_of_command(name: str) -> tuple[Flag, ...]:
    """Returns the flags of any command."""
    return (
        command_line.flags_of_program(PIPELINES[name]) if name in PIPELINES else command(name).flags
    )


class _Grouped(argparse.RawDescriptionHelpFormatter):
    """Shows commands only where the description groups them."""

    def add_argument(self, action: argparse.Action) -> None:
        if not isinstance(action, argparse._SubParsersAction):
            super().add_argument(action)


def command_parsers(
    names: Collection[str] = (*_MODULES, *PIPELINES),
) -> tuple[Parser, Mapping[str, argparse.ArgumentParser]]:
    """Returns the main parser and the commands' parsers; imports the commands in ``names``."""
    helps = {name: text for name, (_, text) in _MODULES.items()}
    helps |= {name: command_line.PROGRAMS[program] for name, program in PIPELINES.items()}
    groups = [
        "\n".join((f"{title}:", *(f"  {name:<{_WIDTH}}{helps[name]}" for name in members)))
        for title, members in _GROUPS.items()
    ]
    parser = Parser(
        prog="beam-dp",
        usage="beam-dp COMMAND ...",
        description="\n\n".join(["Make and read private copies of tables.", *groups]),
        epilog="`beam-dp help COMMAND` lists the flags of a command.",
        formatter_class=_Grouped,
    )
    commands = parser.add_subparsers(
        prog="beam-dp",
        dest="command",
        required=True,
        metavar="COMMAND",
        parser_class=Parser,
    )
    for name, text in helps.items():
        about = f"{text[0].upper()}{text[1:]}."
        added = commands.add_parser(name, help=text, description=about, add_help=name in names)
        if name in names:
            added.add_flags(flags_of_command(name))
            added.epilog = None if name in PIPELINES else command(name).epilog
    return parser, commands.choices


def _parse(arguments: list[str]) -> argparse.Namespace:
    names = [*_MODULES, *PIPELINES]
    if arguments and not arguments[0].startswith("-") and arguments[0] not in names:
        # A first word, such as release, stands for all its commands.
        near = nearest(arguments[0], [*(name.partition("-")[0] for name in names), *names])
        meant = [name for name in names if f"{name}-".startswith(f"{near}-")]
        message = f"{arguments[0]!r} is not a command. Did you mean {listed(meant, 'or')}?"
        raise FlagError(message if len(meant) > 1 else f"{message} Commands: {', '.join(names)}")
    parser, commands = command_parsers([name for name in names if name in arguments])
    options, unknown = parser.parse_known_args(arguments)
    if unknown and not unknown[0].startswith("-"):
        columns = [flag.name for flag in flags_of_command(options.command) if flag.metavar == "a,b"]
        raise command_line.no_flag(unknown[0], arguments, columns)
    if unknown:
        actions = commands[options.command]._actions
        flags = [option for action in actions for option in action.option_strings]
        raise command_line.unknown_flag(unknown[0].partition("=")[0], flags)
    return options


def _run_pipeline(module: str, flags: Sequence[Flag], arguments: list[str]) -> int:
    """Checks the command line before it imports the program and Beam."""
    given, rest = command_line.parse_own(
        flags,
        arguments,
        program=command_line.command_of(module),
        description=command_line.description_of_program(module),
    )
    if rest:
        checks = command_line.import_program("beam_flags")
        checks.check_beam_flags(module, rest, flags, given)
    command_line.check_files(flags, given)
    command_line.check_values(module, given)
    code: int = command_line.import_program(module).main(arguments, (given, rest))
    return code


def _complete(options: argparse.Namespace) -> None:
    """Prints the script that completes commands in a shell."""
    if options.shell not in _SHELLS:
        raise FlagError(invalid("SHELL", options.shell, one_of(options.shell, _SHELLS)))
    import shtab

    whole, commands = command_parsers()
    for name, parser in commands.items():
        choices = {flag.name: flag.choices for flag in flags_of_command(name) if flag.choices}
        for action in parser._actions:  # this parser is used only for completion
            action.choices = choices.get(action.dest)
            if action.metavar in _FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif action.metavar == "DIR":
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    print(shtab.complete(whole, shell=options.shell))


_SHELL = Flag("shell", ", ".join(_SHELLS), "SHELL", choices=_SHELLS, is_positional=True)
_HOW_TO_COMPLETE = (
    "For bash: source <(beam-dp completion bash). For zsh, to a folder of $fpath: beam-dp"
    " completion zsh > DIR/_beam-dp. For fish: beam-dp completion fish | source."
)
COMMANDS = {"completion": command_line.Command((_SHELL,), _complete, _HOW_TO_COMPLETE)}
