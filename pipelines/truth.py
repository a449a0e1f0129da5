"""The records that a report compares a release with, read as a job reads them."""

from __future__ import annotations

from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import RECORD
from beam_dp.releases.release import AnyRelease
from beam_dp.reports.truth import Truth, truth_domain, truth_of
from beam_dp.transforms import ReadError, ReadRecords


def read_truth(release: AnyRelease, path: str) -> Truth:
    """Returns the records that a release is about.

    Raises:
        InputError: if the release is of another kind, or a file can't be read, lacks a column of
            the domain or of the unit, or has one of a type without levels.
    """
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
