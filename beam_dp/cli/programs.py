"""Names, flags and import paths of the programs that need Beam, installed or in a checkout.

Their flags stand beside the mechanisms that take them: to ask the programs costs seconds. So they
are kept in a file, which `make generated` makes from the programs, and a test holds to be so.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import pathlib
from types import ModuleType
from typing import Any

from beam_dp.flags.flag import Flag

FLAGS_FILE = pathlib.Path(__file__).with_name("program_flags.json")

# Each with what it is for, in a few words.
PROGRAMS = {
    "answer_queries": "answer linear queries one after the other, or a file of them at once",
    "check_domain": "what a domain makes of each value of public or made-up rows",
    "release_intervals": "release counts of every interval of one ordered column",
    "release_projection": "release one artifact for sparse queries over a huge universe of keys",
    "release_windows": "release the windows of a stream, each once it closes",
    "release_synthetic_database": "release synthetic records that answer a workload",
    "run_yaml": "run a pipeline of Beam YAML: what is refused costs one line",
}


def command_of(program: str) -> str:
    """Returns what a user types to run a program.

    Example:
        >>> command_of("release_intervals")
        'beam-dp release-intervals'
    """
    return f"beam-dp {program.replace('_', '-')}"


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
    """Returns the first line of what a program says of itself, without importing it."""
    return str(_kept()[program]["description"])


@functools.cache
def _kept() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FLAGS_FILE.read_text("utf-8"))
    return found


def import_program(name: str) -> ModuleType:
    """Imports a module of ``pipelines/``.

    Args:
        name: of the module.

    Raises:
        ModuleNotFoundError: if the package is neither installed nor in a checkout.
    """
    beside = pathlib.Path(__file__).parents[2] / "pipelines" / "__init__.py"
    found = importlib.util.find_spec("pipelines")
    # Others may have a package of that name too.
    is_checkout = found is not None and found.origin == str(beside)
    package = "pipelines" if is_checkout else "beam_dp.pipelines"
    return importlib.import_module(f"{package}.{name}")
