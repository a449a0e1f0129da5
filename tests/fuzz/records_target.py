"""Files of records in every format, with values within bins or without, damaged anywhere."""

from __future__ import annotations

from functools import cache

from fuzz.choices import Choices
from fuzz.mutations import mutate_bytes, raised_by
from noise_sources import Seeded
from releases.release_examples import DOMAIN, release_of

from beam_dp.mechanisms.draw_database import with_bin_values
from beam_dp.releases.synthetic_database.files import Records, read_records, records_bytes
from beam_dp.releases.synthetic_database.records import RECORDS_FORMATS, checked_values
from beam_dp.releases.synthetic_database.records_columns import columns_bytes, read_columns
from beam_dp.storage.store import DamagedFileError

_NUM_RECORDS = 40


@cache
def _good(records_format: str, is_drawn: bool) -> bytes:
    release = release_of(num_records=_NUM_RECORDS, potentials=[], records_format=records_format)
    if is_drawn:
        release = with_bin_values(release, Seeded(0))
    return records_bytes(release) if records_format == "avro" else columns_bytes(release)


def read_records_target(data: bytes) -> None:
    """What is read has values in its bins, or is refused in one way."""
    choices = Choices(data)
    records_format = choices.one_of(RECORDS_FORMATS)
    is_drawn = bool(choices.number(2))
    damaged = mutate_bytes(_good(records_format, is_drawn), choices)
    raised_by(lambda: _use(_read(damaged, records_format, is_drawn)), DamagedFileError)


def _read(data: bytes, records_format: str, is_drawn: bool) -> Records:
    if records_format == "avro":
        return read_records(data, DOMAIN, _NUM_RECORDS, is_drawn=is_drawn)
    return read_columns(data, DOMAIN, _NUM_RECORDS, records_format, is_drawn=is_drawn)


def _use(records: Records) -> None:
    assert int(records.counts.sum()) == _NUM_RECORDS
    for column, size in zip(records.codes, DOMAIN.shape, strict=True):
        assert len(column) == len(records.counts) and (column < size).all()
    checked_values(DOMAIN, records.codes, records.counts, records.bin_values)
