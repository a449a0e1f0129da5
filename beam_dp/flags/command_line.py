"""Command lines of programs that run on Beam, parsed and checked without importing Beam.

The flags of programs are declared next to the mechanisms that use the flags, and Beam's flags are
declared in Beam. Importing mechanisms or Beam is slow, so `make generated` writes all flags to
files, which this module reads; tests compare the files with the declarations. The messages are in
``flag.check_texts`` for missing and invalid values, and in ``unknown_flag`` for mistyped names.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import gc
import glob
import importlib
import importlib.util
import json
import logging
import os
import pathlib
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from beam_dp.errors import InputError
from beam_dp.flags import flag as own_flags
from beam_dp.flags.flag import Flag, FlagError, Parser, check_texts, listed, nearest, refused

FLAGS_FILE = pathlib.Path(__file__).with_name("program_flags.json")
BEAM_FLAGS_FILE = pathlib.Path(__file__).with_name("beam_flags.json")

# The purpose of each program.
PROGRAMS = {
    "answer_queries": "answer linear queries one by one, or from a file",
    "check_domain": "test a domain on public or made-up rows",
    "release_intervals": "release counts of all intervals of an ordered column",
    "release_projection": "count many keys, such as e-mail addresses, in one small file",
    "release_windows": "release each window of a stream when it closes",
    "release_synthetic_database": "release synthetic records",
    "run_yaml": "run a Beam YAML pipeline, with one-line error messages",
}
# Beam imports these only where they are installed. A local job with local files needs none of them.
_ELSEWHERE = (
    "apache_beam.io.aws.s3filesystem",
    "apache_beam.io.azure.blobstoragefilesystem",
    "apache_beam.io.gcp.bigquery",
    "apache_beam.io.gcp.gcsfilesystem",
    "bson",
    "pandas",
)
_left_out: tuple[str, ...] = ()
# A name that is at least this similar to one of our flags is a misspelling. A test checks that
# Beam's flags are less similar.
SLIP = 0.85
# Python and Beam agree on these patterns. Other patterns, [a-z] and **, are checked by Beam only.
_PLAIN_PATTERN = re.compile(r"(?!.*\*\*)[^\[\]{}\\]*")


@dataclass(frozen=True)
class Command:
    """A command that does not run on Beam; ``run`` returns an exit code, or None for 0."""

    flags: tuple[Flag, ...]
    run: Callable[[argparse.Namespace], int | None]
    epilog: str | None = None


def parse_own(
    flags: Sequence[Flag], argv: Sequence[str], *, program: str, description: str
) -> tuple[dict[str, str], list[str]]:
    """Returns our flags as typed or by default, and Beam's own flags."""
    parser = Parser(prog=program, description=description.partition("\n")[0])
    parser.epilog = "Beam's own flags, such as --runner and --direct_num_workers, pass through."
    parser.add_flags(flags)
    values, rest = parser.parse_known_args(argv)
    _check_slips(rest, flags, argv)
    texts: dict[str, str | None] = vars(values)
    check_texts(flags, texts)
    return {name: text for name, text in texts.items() if text is not None}, rest


def in_words_of_flags(error: InputError | FlagError, flags: Sequence[Flag]) -> str:
    """Returns an error as one line, with dashes before the names of flags."""
    text = " ".join(str(error).split())
    if not isinstance(error, InputError):
        return text
    # The package's messages name arguments; on a command line the arguments are flags.
    for flag in flags:
        if flag.is_switch:
            text = text.replace(f"unless {flag.name} is", f"unless --{flag.name} is")
    if error.name not in {flag.name for flag in flags if not flag.is_positional}:
        return text
    if error.value is None:
        text = text.replace(f"{error.name}: None is not valid", f"{error.name} is required", 1)
    return f"--{text}"


def unknown_flag(name: str, names: Sequence[str]) -> FlagError:
    """Returns the error for an unknown flag, with the flags that begin so, or the nearest one."""
    near = [flag for flag in names if flag.startswith(name)] or [nearest(name, names)]
    if name == "--percentile":
        near = ["--quantile 0.5 --of COLUMN"]
    return FlagError(f"{name} is not a flag. Did you mean {listed(near, 'or')}?")


def no_flag(
    text: str, argv: Sequence[str], columns: Sequence[str] = (), patterns: Sequence[str] = ()
) -> FlagError:
    """Returns the error for an argument without a flag, with a hint about the likely mistake."""
    message, flag, values = f"Unexpected argument {text!r}.", "", list[str]()
    for word in argv:
        if word.startswith("--"):
            if text in values[1:]:
                break
            name, _, value = word.partition("=")
            flag, values = name.removeprefix("--"), [value] if value else []
        else:
            values.append(word)
    if text in values[1:] and flag in columns:
        message += f" Separate columns by commas: --{flag} {shlex.quote(','.join(values))}"
    if text in values[1:] and flag in patterns:
        message += f" Put the pattern in quotes: --{flag} '*.csv'"
    return FlagError(message)


def _check_slips(rest: Sequence[str], flags: Sequence[Flag], argv: Sequence[str]) -> None:
    if rest and not rest[0].startswith("-"):
        patterns = [flag.name for flag in flags if flag.form == "files"]
        raise no_flag(rest[0], argv, patterns=patterns)
    names = [f"--{flag.name}" for flag in flags]
    for name in (text.partition("=")[0] for text in rest):
        is_short = len(name) > 2 and any(flag.startswith(name) for flag in names)
        near = difflib.get_close_matches(name, names, n=1, cutoff=SLIP)
        if near or (is_short and name not in _kept(BEAM_FLAGS_FILE)["flags"]):
            raise unknown_flag(name, names)


def check_files(flags: Iterable[Flag], texts: Mapping[str, str | None]) -> None:
    """Refuses local files that do not exist."""
    for flag in flags:
        text = texts.get(flag.name)
        # A value with a colon is a URL, or a workload without a file.
        if text is None or ":" in text or text.lstrip().startswith("{"):
            continue
        if flag.form == "file":
            try:
                os.stat(text)
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or "not a path"
                condition = f"cannot be read as a file ({reason}). Give {flag.help}"
                raise refused(flag.name, text, condition) from None
        if flag.form == "files" and not _may_match(text):
            raise refused(flag.name, text, "must match a file")


def _may_match(pattern: str) -> bool:
    """Returns whether a pattern may match a local file."""
    if _PLAIN_PATTERN.fullmatch(pattern) is None:
        return True
    return next(glob.iglob(pattern, include_hidden=True), None) is not None


def command_of(program: str) -> str:
    """Returns the command that runs a program, such as ``beam-dp release-intervals``."""
    return f"beam-dp {program.replace('_', '-')}"


@functools.cache
def flags_of_program(program: str) -> tuple[Flag, ...]:
    """Returns the flags of a program without importing the program."""
    return tuple(
        Flag(**{**fields, "choices": tuple(fields.get("choices", ()))})
        for fields in _kept()[program]["flags"]
    )


def check_values(program: str, given: Mapping[str, str]) -> None:
    """Refuses an invalid mechanism, guarantee, output or payment, before Beam is imported."""
    kept, named = _kept()[program], {flag.name: flag for flag in flags_of_program(program)}
    if options := kept.get("options"):
        taken = {kind: [named[name] for name in names] for kind, names in options.items()}
        own_flags.check_mechanism(given, taken, kept["needed"])
    if "epsilon" in given:
        from beam_dp.flags import shared
        from beam_dp.storage.open import store_for

        own_flags.check_together(given, *shared.PAIRS.items())
        shared.read_guarantee(given)
        store_for(given["output"], "output")
        shared.read_origin(given)
        if (ledger := shared.read_ledger(given)) is not None:
            ledger.account(given["dataset_id"])


def description_of_program(program: str) -> str:
    """Returns the first line of a program's documentation without importing the program."""
    return str(_kept()[program]["description"])


@functools.cache
def known_beam() -> dict[str, Any]:
    """Returns Beam's flags and runners: from a file, or by importing a Beam of another version."""
    import importlib.metadata  # this import takes as long as all other imports together

    kept = _kept(BEAM_FLAGS_FILE)
    if importlib.metadata.version("apache-beam") == kept["version"]:
        return kept
    described: dict[str, Any] = import_program("installed_beam").installed_beam()
    return described


@functools.cache
def _kept(path: pathlib.Path = FLAGS_FILE) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return kept


def import_program(name: str) -> ModuleType:
    """Imports a module of ``pipelines/``."""
    beside = pathlib.Path(__file__).parents[2] / "pipelines" / "__init__.py"
    spec = importlib.util.find_spec("pipelines")
    # Another distribution may also install a package with the name `pipelines`.
    is_checkout = spec is not None and spec.origin == str(beside)
    package = "pipelines" if is_checkout else "beam_dp.pipelines"
    with importing():
        return importlib.import_module(f"{package}.{name}")


def leave_out(arguments: Sequence[str]) -> None:
    """Halves the time of Beam's import in a process whose only job reads and runs here."""
    global _left_out
    is_here = not any("://" in word or word.startswith("--runner") for word in arguments)
    _left_out = _ELSEWHERE if is_here and "run-yaml" not in arguments else ()


@contextmanager
def importing() -> Iterator[None]:
    """Imports modules in a third less time: no garbage is collected, later none of theirs.

    Beam's first import logs a warning, and so installs a handler on the root logger; not here.
    """
    root, is_enabled, before = logging.getLogger(), gc.isenabled(), len(sys.modules)
    handlers, disabled = root.handlers[:], root.manager.disable
    absent = [module for module in _left_out if module not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]  # as if not installed
    gc.disable()
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        root.handlers[:] = handlers
        for module in absent:
            del sys.modules[module]
        if len(sys.modules) > before:
            gc.freeze()
        if is_enabled:
            gc.enable()
