"""Files that flags name: the domain, public records, an earlier release, the true records."""

from __future__ import annotations

from beam_dp.domain.edges import released_edges
from beam_dp.domain.files import parse_domain
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.flags.flag import Flag
from beam_dp.mechanisms.marginals.released_records import StartingRecords
from beam_dp.privacy.guarantee import RECORD
from beam_dp.privacy.ledger.ledger import check_edges_paid
from beam_dp.releases.kinds import read_release
from beam_dp.releases.release import AnyRelease
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.reports.truth import Truth, truth_domain, truth_of
from beam_dp.transforms import ReadError, ReadRecords
from beam_dp.transforms.errors import FileError
from beam_dp.transforms.reading.formats import format_of, open_file
from beam_dp.transforms.reading.listing import plain_path

from .flags import read_ledger


def read_text(name: str, path: str) -> str:
    """Returns the text of a file on any filesystem that Beam knows, or JSON that stands for one."""
    if path.lstrip().startswith("{"):
        return path
    try:
        with open_file(plain_path(name, path), decompress=True) as file:
            return str(b"".join(iter(lambda: file.read(2**24), b"")), "utf-8-sig")
    except FileError as error:
        raise InputError(name, path, str(error)) from None
    except UnicodeDecodeError as error:
        raise InputError(name, path, f"must be UTF-8 text: byte {error.start} is not") from None
    except Exception as error:
        # Each of Beam's filesystems raises its own errors; all mean the same to the user.
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not found"
        raise InputError(name, path, f"must be a file that can be read: {reason}") from None


def read_domain(given: dict[str, str]) -> Domain:
    """Returns the domain that flags name, of a release that is paid for as they say.

    Raises:
        FlagError: the ledger or the dataset id is missing.
        InputError: it is no domain, or its edges come from a release that another budget paid for.
    """
    domain = parse_domain(read_text("domain", given["domain"]), source=given["domain"])
    ledger = read_ledger(given)
    if any(released_edges(domain)):
        check_edges_paid(domain, ledger, given.get("dataset_id", ""))
    return domain


RELEASE = Flag(
    "start_from", "directory of a synthetic database of the same domain to start from", "DIR"
)
RECORDS = Flag(
    "start_from",
    "what the fit may start from, if that seems to help: the directory of an earlier release of the"
    " same domain, or files of public records",
    "PATH",
)


def start_release(given: dict[str, str], domain: Domain) -> SyntheticDatabase | None:
    """Returns the release that a flag names, if it does."""
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
    """Returns the records of the release, or of the public files, that a flag names, if it does."""
    path = given.get("start_from")
    if path is None or format_of(path) is None:
        release = start_release(given, domain)
        return None if release is None else StartingRecords.of(release, domain)
    try:
        reader = ReadRecords(path, domain.names)
        for attribute in domain:
            reader.check_column("column", attribute.name, attribute)
        return StartingRecords.of_batches(reader.batches(domain.names, domain), domain)
    except InputError as error:
        column = f"column {error.value!r} " if error.name == "column" else ""
        raise InputError("start_from", path, f"{column}{error.condition}") from None
    except ReadError as error:
        raise InputError("start_from", path, str(error)) from None


def read_truth(release: AnyRelease, path: str) -> Truth:
    """Returns the records that a release is about."""
    domain, unit = truth_domain(release, path), release.guarantee.privacy_unit
    reader = ReadRecords(path)
    for attribute in domain:
        reader.check_column("domain", attribute.name, attribute)
    columns = list(domain.names)
    if unit != RECORD:
        reader.check_column("privacy_unit", unit)
        columns = list(dict.fromkeys((*columns, unit)))
    try:
        return truth_of(release, domain, reader.batches(columns, domain))
    except ReadError as error:
        raise InputError("against", path, str(error)) from None
