"""Names, flags and import paths of the programs that need Beam, installed or in a checkout.

Their flags are declared next to the mechanisms that take them, and Beam's in Beam: importing either
takes long. So they are kept in files, which `make generated` makes and tests compare.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import pathlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from beam_dp.flags.command_line import unknown_flag
from beam_dp.flags.flag import Flag, nearest

FLAGS_FILE = pathlib.Path(__file__).with_name("program_flags.json")
BEAM_FLAGS_FILE = pathlib.Path(__file__).with_name("beam_flags.json")

# Each with its purpose.
PROGRAMS = {
    "answer_queries": "answer linear queries one after the other, or a file of them at once",
    "check_domain": "how the domain maps each value in a public or made-up sample",
    "release_intervals": "release counts of every interval of one ordered column",
    "release_projection": "release one artifact for sparse queries over a huge universe of keys",
    "release_windows": "release the windows of a stream, each once it closes",
    "release_synthetic_database": "release synthetic records that answer a workload",
    "run_yaml": "run a Beam YAML pipeline, with one-line error messages",
}


def command_of(program: str) -> str:
    """Returns what a user types to run a program.

    Example:
        >>> command_of("release_intervals")
        'beam-dp release-intervals'
    """
    return f"beam-dp {program.replace('_', '-')}"


@functools.cache
def flags_of_program(program: str) -> tuple[Flag, ...]:
    """Returns the flags of a program, without importing it.

    Example:
        >>> flags_of_program("check_domain")[0].name
        'domain'
    """
    return tuple(
        Flag(**{**fields, "choices": tuple(fields.get("choices", ()))})
        for fields in _kept()[program]["flags"]
    )


def description_of_program(program: str) -> str:
    """Returns the first line of the documentation of a program, without importing it."""
    return str(_kept()[program]["description"])


def check_beam_names(rest: Sequence[str], own: Sequence[Flag]) -> None:
    """Refuses a flag that Beam does not know, without importing Beam.

    Only if the installed Beam has the version whose flags were kept.

    Example:
        >>> check_beam_names(["--runner", "DirectRunner", "--direct_num_workers=2"], [])
    """
    names = [text.partition("=")[0] for text in rest if text.startswith("--")]
    kept: dict[str, Any] = json.loads(BEAM_FLAGS_FILE.read_text("utf-8"))
    unknown = [name for name in names if name not in kept["flags"]]
    if not unknown:
        return
    import importlib.metadata  # takes as long as everything else for help and refusals

    if importlib.metadata.version("apache-beam") == kept["version"]:
        known = [*(f"--{flag.name}" for flag in own), *kept["flags"]]
        raise unknown_flag(unknown[0], nearest(unknown[0], known))


@functools.cache
def _kept() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FLAGS_FILE.read_text("utf-8"))
    return found


def import_program(name: str) -> ModuleType:
    """Imports a module of ``pipelines/``."""
    beside = pathlib.Path(__file__).parents[2] / "pipelines" / "__init__.py"
    found = importlib.util.find_spec("pipelines")
    # Others may have a package of that name too.
    is_checkout = found is not None and found.origin == str(beside)
    package = "pipelines" if is_checkout else "beam_dp.pipelines"
    return importlib.import_module(f"{package}.{name}")
