"""The transform that reads the records of a release as rows."""

from __future__ import annotations

import keyword
import os
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.typehints.row_type import RowTypeConstraint

from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.releases.kinds import read_release
from beam_dp.releases.synthetic_database.arrow import arrow_type
from beam_dp.releases.synthetic_database.records import avro_names
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.transforms.reading.records import refuse_windows

_ROWS = 2**14


class SyntheticRows(beam.PTransform):
    """Returns the released records of a synthetic database as rows with a schema.

    The rows are public: using them spends no further budget. The rows come from the committed
    release, so a retried pipeline gets the same rows.

    Args:
        directory: the directory of an existing release; None for releases that the pipeline writes.
        domain: the domain of the releases that the pipeline writes, which determines the schema;
            None if a directory is given.

    Raises:
        InputError: if neither or both are given, or the release is not a synthetic database.
        ReleaseError: if the release is missing or damaged.

    Input: the start of a pipeline if a directory is given; otherwise the directories that
    ``WriteRelease`` returns, which all workers must be able to access.

    Output: one ``beam.Row`` per record. Dates and times are ISO 8601 strings; other values are as
    in ``SyntheticDatabase.to_arrow``. Fields have the names of the columns, as far as Beam allows
    (see ``field_names``).

    Example:
        >>> rows = pipeline | SyntheticRows("out/visits")  # doctest: +SKIP
        >>> rows = written | SyntheticRows(domain=domain)  # doctest: +SKIP
    """

    def __init__(
        self, directory: str | os.PathLike[str] | None = None, *, domain: Domain | None = None
    ) -> None:
        super().__init__()
        if (directory is None) == (domain is None):
            raise InputError("directory", directory, "must be given, or else the domain")
        self.directory = None if directory is None else os.fspath(directory)
        self.domain = domain if self.directory is None else _database(self.directory).domain

    def expand(self, directories: Any) -> beam.PCollection[Any]:
        """Reads each release in one step, then distributes its rows."""
        if self.directory is not None:
            if not isinstance(directories, beam.pvalue.PBegin):
                raise InputError("directory", self.directory, "cannot be combined with an input")
            directories = directories | "Directory" >> beam.Create([self.directory])
        elif not isinstance(directories, beam.PCollection):
            raise InputError("directories", None, "must be the output of WriteRelease")
        refuse_windows(directories)
        domain = self.domain
        assert domain is not None
        read = beam.FlatMap(_rows, domain).with_output_types(_row_type(domain))
        return directories | "Read rows" >> read | "Spread rows" >> beam.Reshuffle()


def _database(directory: str) -> SyntheticDatabase:
    release = read_release(directory)
    if not isinstance(release, SyntheticDatabase):
        raise InputError("directory", directory, "must contain a synthetic database")
    return release


def _rows(directory: str, domain: Domain) -> Iterator[beam.Row]:
    release = _database(directory)
    condition = "must contain a release of the given domain"
    domain.check_same(release.domain, "directory", directory, condition)
    names = field_names(domain.names)
    for table in release.arrow_tables():
        for start in range(0, len(table), _ROWS):
            for row in _plain(table.slice(start, _ROWS)).rename_columns(names).to_pylist():
                yield beam.Row(**row)


def _plain(table: pa.Table) -> pa.Table:
    """Replaces dates and times with strings, because Beam schemas lack types for them."""
    for place, field in enumerate(table.schema):
        if pa.types.is_temporal(field.type):
            values = [value and value.isoformat() for value in table[place].to_pylist()]
            table = table.set_column(place, field.name, pa.array(values, pa.string()))
    return table


def field_names(names: Sequence[str]) -> list[str]:
    """Returns distinct field names that ``beam.Row`` allows; allowed names stay unchanged.

    Beam converts rows to named tuples, so field names must be valid for named tuples.
    """
    found: list[str] = []
    for name in avro_names(tuple(names)):
        if keyword.iskeyword(name):
            name = f"{name}_"
        elif name.startswith("_"):
            name = f"column{name}"
        while name in found or (name in names and name != names[len(found)]):
            name = f"{name}_"
        found.append(name)
    return found


def _row_type(domain: Domain) -> RowTypeConstraint:
    fields = []
    for attribute, name in zip(domain, field_names(domain.names), strict=True):
        kind = arrow_type(attribute)
        python: Any = {pa.int64(): int, pa.float64(): float, pa.bool_(): bool}.get(kind, str)
        fields.append((name, python | None if attribute.nullable else python))
    return RowTypeConstraint.from_fields(fields)
