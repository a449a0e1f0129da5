"""What a hypothesis starts from: an earlier release, or public records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.flags.flag import Flag
from beam_dp.mechanisms.marginals.released_records import StartingRecords
from beam_dp.releases.kinds import read_release
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.transforms import ReadRecords
from beam_dp.transforms.errors import ReadError
from beam_dp.transforms.reading.formats import format_of

if TYPE_CHECKING:
    pass

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
    """Returns the release that a flag names, if it does.

    Raises:
        InputError: if there is none of the same domain.
    """
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
    """Returns the records of the release, or of the public files, that a flag names, if it does.

    Raises:
        InputError: if there are none of the same domain.
    """
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
