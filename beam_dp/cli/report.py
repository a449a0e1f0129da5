"""The command `beam-dp report`: a page for people, from a release alone, or beside its records."""

from __future__ import annotations

import argparse
import os
import pathlib
from typing import TYPE_CHECKING, Any

from beam_dp.errors import InputError
from beam_dp.flags.flag import FlagError, Once, refused
from beam_dp.storage.new_file import write_new_file

if TYPE_CHECKING:
    from beam_dp.privacy.ledger import Entry
    from beam_dp.releases import HorizonRelease, Release
    from beam_dp.verification import Verification


def add_report(commands: Any) -> None:
    """Adds the command to the parser of `beam-dp`."""
    parser = commands.add_parser("report", help="one HTML page: promise, pictures, error bars")
    parser.add_argument("directory", metavar="DIR", help="directory that holds a release")
    parser.add_argument(
        "--output",
        metavar="FILE",
        action=Once,
        help="the page, which must not exist yet (default: DIR.html)",
    )
    parser.add_argument(
        "--ledger", metavar="URL", action=Once, help="the ledger that paid: shows its entry"
    )
    parser.add_argument(
        "--against",
        metavar="TABLE",
        action=Once,
        help="for the owner of the records: compares with this Parquet, CSV or Avro file; the page"
        " is then private",
    )


def run_report(options: argparse.Namespace) -> None:
    """Writes the report of a release.

    Raises:
        FlagError: if a flag is refused.
        InputError: if there is no release, or a damaged one.
    """
    from beam_dp.cli.kinds import described
    from beam_dp.releases import holds_horizon, read_release, read_windows
    from beam_dp.reports import Beside, read_truth, report_page

    output = pathlib.Path(_output(options))
    _check_output(output)
    is_horizon = holds_horizon(options.directory)
    release = (read_windows if is_horizon else read_release)(options.directory)
    try:
        truth = None if options.against is None else read_truth(release, options.against)
    except InputError as error:
        raise refused("against", error.value, error.condition) from None
    try:
        entry = None if options.ledger is None else _entry(options.ledger, release)
    except InputError as error:
        raise refused("ledger", error.value, error.condition) from None
    verification, verdict = _verified(release)
    beside = Beside(described(release), verdict, verification, entry, truth)
    page = report_page(release, beside).encode()
    try:
        # What compares with records is for nobody else's eyes.
        write_new_file(output, page, is_private=truth is not None)
    except InputError as error:
        raise refused("output", error.value, error.condition) from None
    whose = "PRIVATE: holds exact counts of records" if truth else "public, as the release is"
    print(f"{output} ({whose})")


def _output(options: argparse.Namespace) -> str:
    if options.output is not None:
        return str(options.output)
    name = options.directory.rstrip("/")
    if "://" in name or not os.path.basename(name).strip("."):
        raise FlagError("--output: missing; must be given: the file to write")
    return f"{name}.html"


def _check_output(output: pathlib.Path) -> None:
    """Refuses, before anything is computed, what could not be written at the end."""
    if output.exists() or output.is_symlink():
        raise refused("output", str(output), "must not exist: nothing is overwritten")
    if not output.parent.is_dir():
        raise refused("output", str(output), "must be in a directory that exists")


def _verified(release: Release | HorizonRelease) -> tuple[Verification | None, str]:
    """Returns what `beam-dp verify` finds, and what it says last, or why it refuses the card."""
    from beam_dp.cli.verify import verdict
    from beam_dp.verification import verify_release

    try:
        found = verify_release(release)
    except InputError as error:
        return None, str(error)
    return found, verdict(found)


def _entry(url: str, release: Release | HorizonRelease) -> Entry:
    """Returns the entry of a ledger that paid for a release.

    Raises:
        FlagError: if the ledger has none.
        InputError: if it can't be read.
    """
    from beam_dp.privacy.ledger import Ledger
    from beam_dp.reports import name_of, paid_by

    ledger, named, own = Ledger(url), paid_by(release), name_of(release)
    entries = [each for data in ledger.datasets() for each in ledger.entries(data.dataset_id)]
    for entry in entries:
        ids = (entry.draw_id, entry.parameters.get("horizon_id"))
        if entry.release_id == named or own in ids:
            return entry
    condition = "must be the ledger that paid; it has no entry of this release"
    raise refused("ledger", ledger.name, condition)
