"""Writes the tables of flags from their declarations.

`make generated` writes docs/flags.md and beam_dp/flags/*_flags.json.
Tests fail while what is committed is not what this makes.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys
from collections.abc import Iterable, Iterator

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))  # for what is in this checkout

from beam_dp.cli.main import PIPELINES, command_parsers, flags_of_command
from beam_dp.flags.command_line import BEAM_FLAGS_FILE, FLAGS_FILE, PROGRAMS, import_program
from beam_dp.flags.flag import Flag

ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / "docs" / "flags.md"
HEAD = """# Flags

This page is generated from the programs; `beam-dp NAME --help` shows the same. The fields of
[Beam YAML](yaml.md) have the same names.

Programs that run a job pass Beam's own flags (`--runner`, `--direct_num_workers`, ...) on to Beam.
On this machine, `--num_threads` limits the threads of a job: by default, one for each core.
Without `--runner`, a job runs on this machine, on Beam's FnApiRunner. A bad argument is reported in
one line, with exit code 2, before any worker starts. For an unknown flag, this line names the
nearest known one. A job that fails later has exit code 1.
"""
_WINDOWS = "[release-windows](#beam-dp-release-windows)"
_TABLE = ["| flag | meaning | needed |", "| --- | --- | --- |"]


def page() -> str:
    """Returns the page, as Markdown."""
    lines = [HEAD]
    whole, commands = command_parsers()
    helps = {each.dest: each.help or "" for each in _helps(whole)}
    # Read from the programs, because the generated file may be out of date.
    programs = {name: import_program(program).FLAGS for name, program in PIPELINES.items()}
    jobs = {
        name: [*map(_row, flags)]
        for name, flags in programs.items()
        if any(flag.name == "epsilon" for flag in flags)
    }
    first, *others = jobs.values()
    shared = [row for row in first if all(row in each for each in others)]
    of_all = _sentence(f"flags of {_list(jobs)}")
    lines += ["## Every release", "", of_all, "", *_TABLE, *shared, ""]
    for command in (*PIPELINES, *(name for name in commands if name not in PIPELINES)):
        lines += [f"## beam-dp {command}", "", _sentence(helps[command]), "", *_TABLE]
        flags = programs.get(command) or flags_of_command(command)
        same = [flag for flag in flags if _is_of_windows(flag, programs["release-windows"])]
        rows = [_row(flag) for flag in flags if flag not in same]
        if same:
            names = ", ".join(f"`--{flag.name}`" for flag in same)
            rows.append(f"| {names} | with --windows: as in {_WINDOWS} |  |")
        if command in jobs:
            rows = [row for row in rows if row not in shared]
            rows += ["", "It also has the flags of [every release](#every-release)."]
        lines += [*rows, ""]
    return "\n".join(lines).rstrip() + "\n"


def _list(names: Iterable[str]) -> str:
    """Returns names of commands as a list in a sentence."""
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} and {last}"


def kept_flags() -> str:
    """Returns what `beam-dp` knows of the programs without importing them, as JSON."""
    programs = []
    for name in PROGRAMS:
        program = import_program(name)
        description = json.dumps((program.__doc__ or "").partition("\n")[0])
        flags = ",\n".join(_kept(flag) for flag in program.FLAGS)
        more = ""
        if options := getattr(program, "OPTIONS", None):
            names = {kind: [flag.name for flag in taken] for kind, taken in options.items()}
            more = f', "options": {json.dumps(names)}, "needed": {json.dumps(program.NEEDED)}'
        programs.append(f'"{name}": {{"description": {description}{more}, "flags": [\n{flags}]}}')
    return "{" + ",\n".join(programs) + "}\n"


def kept_beam_flags() -> str:
    """Returns the flags, runners and version of the installed Beam, as JSON."""
    beam = import_program("installed_beam").installed_beam()
    flags = beam.pop("flags").items()
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(fields)}" for name, fields in flags)
    return f'{json.dumps(beam)[:-1]}, "flags": {{\n{lines}}}}}\n'


def _kept(flag: Flag) -> str:
    """Returns a flag as one line of JSON, without the fields that have their defaults."""
    fields = {
        field.name: getattr(flag, field.name)
        for field in dataclasses.fields(flag)
        if getattr(flag, field.name) != field.default
    }
    return json.dumps(fields, ensure_ascii=False)


def _helps(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yields what the help of a parser says about each of its commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action._choices_actions


def _row(flag: Flag) -> str:
    """Returns a flag as a row of the table."""
    value = "" if flag.is_switch else flag.metavar or ""
    meaning = flag.help
    if flag.choices and not flag.is_positional:
        value, meaning = "", f"{', '.join(f'`{each}`' for each in flag.choices)}: {meaning}"
    need = f"`{flag.default}`" if flag.default else ""
    if flag.required or (flag.is_positional and flag.default is None):
        need = "required"
    name = value if flag.is_positional else f"--{flag.name} {value}".strip()
    written = name.replace("|", "\\|")
    return f"| `{written}` | {meaning.replace('|', chr(92) + '|')} | {need} |"


def _is_of_windows(flag: Flag, windows: Iterable[Flag]) -> bool:
    """Returns whether a flag repeats one of release-windows, for use with --windows."""
    return any(
        flag.name == each.name and flag.help == f"with --windows: {each.help}" for each in windows
    )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


if __name__ == "__main__":
    FLAGS_FILE.write_text(kept_flags(), encoding="utf-8")
    BEAM_FLAGS_FILE.write_text(kept_beam_flags(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
    print(*(path.relative_to(ROOT) for path in (PAGE, FLAGS_FILE, BEAM_FLAGS_FILE)), sep="\n")
