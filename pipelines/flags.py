"""Parses the flags of a program, and opens the ledger and files that flags name.

Beam's own flags are passed on to Beam. If neither Beam nor the program knows a flag, the error
names the nearest known flag; Beam itself would only warn and drop the flag.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from beam_dp.domain.discover import OpenDomain
from beam_dp.domain.files import parse_open_domain
from beam_dp.domain.schemas.file_kinds import content_of, format_name
from beam_dp.domain.universe import Domain, released_edges
from beam_dp.errors import FileError, InputError, ReadError
from beam_dp.flags import shared
from beam_dp.flags.command_line import command_of, importing, parse_own
from beam_dp.flags.flag import Flag
from beam_dp.mechanisms.marginals.plan import StartingRecords
from beam_dp.releases.domain.earlier import check_edges_paid
from beam_dp.releases.domain.release import DomainRelease
from beam_dp.releases.kinds import holds_release, read_release
from beam_dp.releases.parts import view
from beam_dp.releases.release import AnyRelease
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.secret.encoding.layouts import NEED_TIMES
from beam_dp.storage.store import is_url, plain_path
from beam_dp.views import truth
from beam_dp.views.cells import Truth

from .beam_flags import check_beam_flags

if TYPE_CHECKING:
    from beam_dp.transforms.reading.read import ReadRecords

EXIT_BAD_INPUT = 2
EXIT_JOB_FAILED = 1
START_RELEASE = Flag("start_from", "start from this synthetic database of the same domain", "DIR")
START_RECORDS = Flag(
    "start_from",
    "an earlier release of the same domain, or files of public records, which fill in what noise"
    " hides, if noisy counts say that they are close to the data",
    "PATH",
)


def parse(
    flags: Sequence[Flag],
    argv: Sequence[str],
    *,
    program: str,
    description: str | None,
    parsed: tuple[dict[str, str], list[str]] | None = None,
) -> tuple[dict[str, str], list[str]]:
    """Returns our flags as typed, and Beam's: both from ``parsed`` if given, else from ``argv``."""
    if parsed is not None:
        return parsed
    command = command_of(program)
    texts, rest = parse_own(flags, argv, program=command, description=description or "")
    if rest:
        check_beam_flags(program, rest, flags, texts)
    return texts, rest


def typed(argv: Sequence[str]) -> dict[str, str]:
    """Returns the values of a command line by flag, as typed and unchecked."""
    values = {}
    for text, following in zip(argv, [*argv[1:], "--"], strict=True):
        name, equals, value = text.partition("=")
        if name.startswith("--") and (equals or not following.startswith("--")):
            values[name[2:]] = value if equals else following
    return values


def read_text(name: str, path: str) -> str:
    """Returns the text of a file on any filesystem that Beam knows; returns JSON unchanged."""
    if path.lstrip().startswith("{"):
        return path
    try:
        place = plain_path(name, path)
        if is_url(place):
            with importing():
                from beam_dp.transforms.reading.formats import open_file
        with open_file(place, decompress=False) if is_url(place) else open(place, "rb") as file:
            content = content_of(file, place)
            return str(b"".join(iter(lambda: content.read(2**24), b"")), "utf-8-sig")
    except FileError as error:
        raise InputError(name, path, str(error)) from None
    except UnicodeDecodeError as error:
        raise InputError(name, path, f"must be UTF-8 text: byte {error.start} is not") from None
    except Exception as error:
        # Beam's filesystems raise different exceptions, which mean the same thing for the user.
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:300]
        raise InputError(name, path, f"must be a file that can be read: {reason}") from None


def read_records(
    path: str, columns: Sequence[str] | None = None, file_format: str | None = None
) -> ReadRecords:
    """Returns what reads files in this process, as a job does."""
    with importing():
        from beam_dp.transforms.reading.read import ReadRecords
    return ReadRecords(path, columns, file_format)


def read_domain(given: dict[str, str]) -> Domain:
    """Returns the domain that the flags name."""
    # Raises FlagError if the ledger or the dataset id is missing, and InputError if the file is not
    # a domain, or another budget paid for its released edges.
    domain = read_open_domain(given)
    if isinstance(domain, OpenDomain):
        raise domain.refusal(given["domain"])
    return domain


def read_open_domain(given: dict[str, str]) -> Domain | OpenDomain:
    """Returns the domain that the flags name, which may have attributes to discover."""
    domain = domain_at(given["domain"])
    ledger = shared.read_ledger(given)
    declared = domain.declared if isinstance(domain, OpenDomain) else domain
    if declared is not None and any(released_edges(declared)):
        check_edges_paid(declared, ledger, given.get("dataset_id", ""))
    return domain


def domain_at(path: str) -> Domain | OpenDomain:
    """Returns the domain of a file or of a text, or the one that a release in a folder found."""
    is_folder = not path.lstrip().startswith("{") and not path.endswith(".json")
    if is_folder and holds_release(path):
        return read_release(path, kind=DomainRelease).domain
    return parse_open_domain(read_text("domain", path), source=path)


def start_release(given: dict[str, str], domain: Domain) -> SyntheticDatabase | None:
    """Returns the release to start from; None if the flags name no release."""
    path = given.get("start_from")
    if path is None:
        return None
    try:
        release = read_release(path)
    except InputError as error:
        raise InputError("start_from", path, error.condition) from None
    condition = "must be a synthetic database of the same domain"
    if not isinstance(release, SyntheticDatabase):
        raise InputError("start_from", path, condition)
    domain.check_same(release.domain, "start_from", path, condition)
    return release


def start_records(given: dict[str, str], domain: Domain) -> StartingRecords | None:
    """Returns the records of a release or of public files to start from; None without flags."""
    path = given.get("start_from")
    if path is None or format_name(path) is None:
        release = start_release(given, domain)
        return None if release is None else StartingRecords.of(release, domain)
    try:
        reader = read_records(path, domain.names)
        for attribute in domain:
            reader.check_column("column", attribute.name, attribute)
        return StartingRecords.of_batches(reader.batches(domain.names, domain), domain)
    except InputError as error:
        column = f"column {error.value!r} " if error.name == "column" else ""
        raise InputError("start_from", path, f"{column}{error.condition}") from None
    except ReadError as error:
        raise InputError("start_from", path, str(error)) from None


def read_rows(path: str, file_format: str | None, domain: Domain) -> pa.Table:
    """Returns all columns of files, in this process; columns of the domain must be readable."""
    reader = read_records(path, file_format=file_format)
    names, columns = next(iter(reader.schemas.values())), {column.name: column for column in domain}
    for name in names:
        reader.check_column("input", name, columns.get(name))
    try:
        tables = [pa.Table.from_batches([batch]) for batch in reader.batches(names, domain, names)]
        if tables:
            return pa.concat_tables(tables, promote_options="permissive")
    except ReadError as error:
        raise InputError("input", path, str(error)) from None
    except pa.ArrowException:
        raise InputError("input", path, "must have the same types of columns in all") from None
    raise InputError("input", path, "must have at least one row")


def read_truth(release: AnyRelease, path: str, **limit: int) -> Truth:
    """Returns the original records of a release, read from files; ``limit``: of ``truth_of``."""
    exact = view("window_truth") if release.KIND == "horizon" else truth
    domain, columns = truth.truth_domain(release, path), exact.truth_columns(release, path)
    reader = read_records(path)
    for attribute in domain:
        reader.check_column("domain", attribute.name, attribute)
    for argument, column in columns.items():
        if column != shared.FILE_TIME:
            reader.check_column(argument, column)
    times = [columns[argument] for argument in NEED_TIMES if argument in columns]
    names = list(dict.fromkeys((*domain.names, *columns.values())))
    try:
        batches = reader.batches(names, domain, times)
        originals: Truth = exact.truth_of(release, domain, batches, **limit)
        missing = [name for name in next(iter(reader.schemas.values())) if name not in names]
        return replace(originals, missing=missing)
    except ReadError as error:
        raise InputError("against", path, str(error)) from None
