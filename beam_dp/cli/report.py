"""The command `beam-dp report`: a page for people, from a release and, for their owner, records."""

from __future__ import annotations

import argparse
import os
import pathlib
from typing import TYPE_CHECKING

from beam_dp.errors import InputError
from beam_dp.flags.command_line import Command
from beam_dp.flags.flag import DIRECTORY, Flag
from beam_dp.storage.store import write_new_file

if TYPE_CHECKING:
    from beam_dp.privacy.ledger.entries import Entry
    from beam_dp.releases.release import AnyRelease
    from beam_dp.reports.truth import Truth
    from beam_dp.verification.verdict import Verification


def _run(options: argparse.Namespace) -> None:
    """Writes the report of a release; prints its path and whether it is public."""
    flags = {name: getattr(options, name) for name in ("output", "ledger", "against")}
    output = report(options.directory, **flags)
    is_private = options.against is not None
    whose = "PRIVATE: holds exact counts of records" if is_private else "public, as the release is"
    print(f"{output} ({whose})")


def report(
    directory: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    ledger: str | None = None,
    against: str | os.PathLike[str] | None = None,
) -> pathlib.Path:
    """Writes one HTML page for people: what a release promises, its answers and their errors.

    Privacy: the page follows from the release and is as public, unless ``against`` is given: then
    it is as private as these records.

    Args:
        directory: the directory of a release, of any kind.
        output: the page, which must not exist yet; by default the directory's name with ``.html``.
        ledger: URL of the ledger that paid; the page shows its entry.
        against: Parquet, CSV or Avro files of the records to compare with: a path or a glob.

    Returns:
        The page's path.

    Raises:
        InputError: if an argument is refused, there is no release, or a damaged one.

    Example:
        >>> report("out/visits")  # doctest: +SKIP
        PosixPath('out/visits.html')
    """
    from beam_dp.cli.releases import verdict
    from beam_dp.releases.kinds import of_kind, read_any, verify_release
    from beam_dp.reports.page import Beside, report_page

    place = os.fspath(directory)
    page = pathlib.Path(_page_next_to(place) if output is None else output)
    _check_output(page)
    release = read_any(place)
    try:
        truth = None if against is None else _truth(release, os.fspath(against))
    except InputError as error:
        raise InputError("against", error.value, error.condition) from None
    verification: Verification | None = None
    try:
        verification = verify_release(release)
        words = verdict(verification)
    except InputError as error:
        words = str(error)
    beside = Beside(
        details=of_kind("describe", release),
        verdict=words,
        verification=verification,
        entry=None if ledger is None else _entry(ledger, release),
        truth=truth,
    )
    text = report_page(release, beside).encode()
    # A page with counts of records is readable for its owner alone.
    write_new_file(page, text, is_private=truth is not None)
    return page


def _truth(release: AnyRelease, path: str) -> Truth:
    from beam_dp.flags.command_line import import_program  # loads readers of files only here

    truth: Truth = import_program("flags").read_truth(release, path)
    return truth


def _page_next_to(directory: str) -> str:
    name = directory.rstrip("/")
    if "://" in name or not os.path.basename(name).strip("."):
        raise InputError("output", None, "must be given: the file to write")
    return f"{name}.html"


def _check_output(output: pathlib.Path) -> None:
    """Refuses, before anything is computed, a page that could not be written at the end."""
    if output.exists() or output.is_symlink():
        raise InputError("output", str(output), "must not exist: nothing is overwritten")
    if not output.parent.is_dir():
        raise InputError("output", str(output), "must be in a directory that exists")


def _entry(url: str, release: AnyRelease) -> Entry:
    """Returns the entry of a ledger that paid for a release; refuses a ledger that has none."""
    from beam_dp.privacy.ledger.ledger import Ledger
    from beam_dp.reports.page import paid_by

    ledger, named, own = Ledger(url), paid_by(release), release.id
    entries = [each for data in ledger.datasets() for each in ledger.entries(data.dataset_id)]
    for entry in entries:
        ids = (entry.draw_id, entry.parameters.get("horizon_id"))
        if entry.release_id == named or own in ids:
            return entry
    condition = "must be the ledger that paid; it has no entry of this release"
    raise InputError("ledger", ledger.name, condition)


_FLAGS = (
    DIRECTORY,
    Flag("output", "the page, which must not exist yet (default: DIR.html)", "FILE"),
    Flag("ledger", "the ledger that paid: shows its entry", "URL"),
    Flag(
        "against",
        "for the owner of the records: compares with these Parquet, CSV or Avro files; the page is"
        " then private",
        "GLOB",
    ),
)
COMMANDS = {"report": Command(_FLAGS, _run)}
