"""The command `beam-dp doctor`: checks the installation, and explains how to get missing parts.

It does not use the network, except for a ledger on a server.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import platform
import sys
import textwrap
from collections.abc import Iterable, Iterator
from itertools import starmap
from typing import Literal, NamedTuple

from beam_dp.errors import InputError
from beam_dp.flags.command_line import Command, import_program
from beam_dp.flags.flag import Flag
from beam_dp.installed import MAKING, READING

EXIT_BROKEN = 1
_OLDEST_PYTHON = (3, 11)
_LEDGER_SECONDS = 5.0


# The extras of pyproject.toml for users, each with a module and the purpose of the extra.
EXTRAS = {
    "gcs": ("google.cloud.storage", "releases in Google Cloud Storage"),
    "kafka": ("confluent_kafka", "streams from Kafka"),
    "notebooks": ("nbclient", "running the notebooks of examples/notebooks"),
    "postgresql": ("psycopg", "a ledger that a team shares"),
    "s3": ("boto3", "releases in Amazon S3"),
    "sql": ("sqlglot", "beam-dp init from a CREATE TABLE"),
}


class Finding(NamedTuple):
    """The result of one check; ``detail``: a version, or a purpose and how to install the part."""

    state: Literal["works", "missing", "broken"]
    what: str
    detail: str


def _run(options: argparse.Namespace) -> int:
    """Prints the findings; returns 1 if a part that releases need is broken."""
    package = Finding("works", "beam_dp", _version("beam_dp") or "a checkout that is not installed")
    core = [_python(), package, *starmap(_loaded, (READING | MAKING).items()), _kernel()]
    local, *others = _runners()
    core.append(local)
    _print("needed to make a release", core)
    if others:
        _print("other runners", others)
    _print("optional", [*_extras()])
    if options.ledger is not None:
        _print("ledger", [_ledger(options.ledger)])
    broken = {finding.what for finding in core if finding.state != "works"}
    if not broken:
        print("You can make and read releases here.")
        return 0
    if not broken & {"Python", *READING}:
        print("You can read releases here.")
    print("To make releases, fix the broken parts above.")
    return EXIT_BROKEN


def _python() -> Finding:
    oldest = ".".join(map(str, _OLDEST_PYTHON))
    is_new = sys.version_info >= _OLDEST_PYTHON
    version = platform.python_version() + ("" if is_new else f": must be {oldest} or newer")
    return Finding("works" if is_new else "broken", "Python", version)


def _loaded(package: str, module: str) -> Finding:
    """Checks that a package is installed and can be loaded."""
    version = _version(package)
    if version is None:
        return Finding("broken", package, f"not installed: pip install {package}")
    try:
        if module == "apache_beam":
            import_program("runners")  # imports Beam without warnings
        importlib.import_module(module)
    except Exception as error:
        cure = f"pip install --force-reinstall {package}"
        return Finding("broken", package, f"{version} can't be loaded ({error}): {cure}")
    return Finding("works", package, version)


def _kernel() -> Finding:
    """Checks whether compiled code hashes keys, which affects only the speed."""
    try:
        from beam_dp.hashing.evaluation import active_backend

        backend = active_backend()
    except (ImportError, InputError) as error:
        return Finding("broken", "hashing kernel", str(error))
    if backend != "numpy":
        return Finding("works", "hashing kernel", f"compiled, {backend}")
    text = "numpy: the same results, but about 100 times slower; install a C compiler, then beam_dp"
    return Finding("works", "hashing kernel", f"{text} again")


def _runners() -> list[Finding]:
    """Returns the findings for the local runner and, if Beam can be loaded, all other runners."""
    try:
        return list(import_program("runners").runner_findings())
    except Exception as error:
        return [Finding("broken", "FnApiRunner", f"can't be started: {error}")]


def _extras() -> Iterator[Finding]:
    for extra, (module, purpose) in EXTRAS.items():
        try:
            is_there = importlib.util.find_spec(module) is not None
        except ImportError:  # raised by a missing parent package
            is_there = False
        cure = "" if is_there else f": pip install 'beam_dp[{extra}]'"
        yield Finding("works" if is_there else "missing", extra, purpose + cure)


def _ledger(url: str) -> Finding:
    from beam_dp.privacy.ledger.ledger import Ledger

    try:
        ledger = Ledger(url, wait_seconds=_LEDGER_SECONDS)
        num_datasets = len(ledger.datasets())
    except InputError as error:
        return Finding("broken", "ledger", str(error))  # this message hides the password
    return Finding("works", ledger.name, f"answers; dataset ids: {num_datasets:,}")


def _version(package: str) -> str | None:
    import importlib.metadata  # slow to load

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _print(title: str, findings: Iterable[Finding]) -> None:
    """Prints a section without ``rich``, which may itself be broken."""
    print(f"{title}:")
    for finding in findings:
        start = f"  {finding.state:<8} {finding.what:<16} "
        text = "".join(letter if letter.isprintable() else "?" for letter in finding.detail)
        lines = textwrap.wrap(
            text,
            80,
            initial_indent=start,
            subsequent_indent=" " * 28,
            break_long_words=False,
            break_on_hyphens=False,
        )
        print("\n".join(lines))
    print()


_LEDGER = Flag("ledger", "also check this ledger: a SQLite file, or postgresql://...", "URL")
COMMANDS = {"doctor": Command((_LEDGER,), _run)}
