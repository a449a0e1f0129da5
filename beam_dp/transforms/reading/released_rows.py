"""Transforms that read committed releases back as rows with a schema, for any sink of Beam.

Rows come from the files of the committed release, never from the step that drew it. A runner may
draw again, so rows from that step could come from several draws, and each draw costs budget.
"""

from __future__ import annotations

import keyword
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.typehints import Optional  # schemas do not understand ``float | None``
from apache_beam.typehints.row_type import RowTypeConstraint

from beam_dp.domain.attributes import Attribute
from beam_dp.domain.ordered import BinnedAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.queries.workload import Workload
from beam_dp.releases.kinds import read_release
from beam_dp.releases.synthetic_database.records import arrow_type, avro_names
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.transforms.reading.records import refuse_windows

Fields = dict[str, Any]  # the types of fields in Python, by name
Rows = Iterator[tuple[Any, ...]]
Directory = str | os.PathLike[str]

_ROWS = 2**14
# The last fields of every row about an answer.
ANSWER: Fields = {
    "value": float,
    "standard_error": Optional[float],
    "bound": Optional[float],
    "error": Optional[str],
    "reason": Optional[str],
    "draw_id": str,
}


class ReleasedRows(beam.PTransform):
    """Reads each release in one step, then distributes its rows.

    Input: the start of a pipeline if a directory is given; otherwise the directories of releases.
    ``rows`` yields the values of the rows of a directory; it also gets the ``arguments``.
    """

    def __init__(
        self,
        directory: Directory | None,
        fields: Fields,
        rows: Callable[..., Rows],
        *arguments: Any,
    ) -> None:
        super().__init__()
        self.directory = None if directory is None else os.fspath(directory)
        self.fields, self.rows, self.arguments = fields, rows, arguments

    def expand(self, directories: Any) -> beam.PCollection[Any]:
        """Reads each release in one step, then distributes its rows."""
        if self.directory is not None:
            if not isinstance(directories, beam.pvalue.PBegin):
                raise InputError("directory", self.directory, "cannot be combined with an input")
            directories = directories | "Directory" >> beam.Create([self.directory])
        elif not isinstance(directories, beam.PCollection):
            condition = "must be the output of WriteRelease or WriteAnswers"
            raise InputError("directories", None, condition)
        refuse_windows(directories)
        return self._spread(directories)

    def _spread(self, elements: beam.PCollection[Any]) -> beam.PCollection[Any]:
        kind = RowTypeConstraint.from_fields(list(self.fields.items()))
        read = beam.FlatMap(_read_rows, self.rows, tuple(self.fields), self.arguments)
        return elements | "Read rows" >> read.with_output_types(kind) | "Spread" >> beam.Reshuffle()


def _read_rows(
    element: Any, rows: Callable[..., Rows], names: Sequence[str], arguments: Sequence[Any]
) -> Iterator[beam.Row]:
    for values in rows(element, *arguments):
        yield beam.Row(**dict(zip(names, values, strict=True)))


def _domain_of(directory: Directory | None, domain: Domain | None) -> Domain:
    """Returns the domain that determines the fields: the given one, or that of a release."""
    if directory is not None and domain is None:
        return _database(directory).domain
    if directory is None and domain is not None:
        return domain
    raise InputError("directory", directory, "must be given, or else the domain")


class SyntheticRows(ReleasedRows):
    """Returns the released records of a synthetic database as rows with a schema.

    The rows are public: using them spends no further budget. The rows come from the committed
    release, so a retried pipeline gets the same rows.

    Args:
        directory: the directory of an existing release; None for releases that the pipeline writes.
        domain: the domain of the releases that the pipeline writes, which determines the schema;
            None if a directory is given.

    Raises:
        InputError: if neither or both are given, or a release has another domain.
        ReleaseError: if the release is missing, damaged, or not a synthetic database.

    Input: the start of a pipeline if a directory is given; otherwise the directories that
    ``WriteRelease`` returns, which all workers must be able to access.

    Output: one ``beam.Row`` per record. Dates and times are ISO 8601 strings; other values are as
    in ``SyntheticDatabase.to_arrow``. Fields have the names of the columns, as far as Beam allows
    (see ``field_names``).

    Example:
        >>> rows = pipeline | SyntheticRows("out/visits")  # doctest: +SKIP
        >>> rows = written | SyntheticRows(domain=domain)  # doctest: +SKIP
    """

    def __init__(self, directory: Directory | None = None, *, domain: Domain | None = None) -> None:
        domain = _domain_of(directory, domain)
        names = field_names(domain.names)
        fields = dict(zip(names, map(_column_type, domain), strict=True))
        super().__init__(directory, fields, _record_values, domain)


class MarginalRows(ReleasedRows):
    """Returns the counts of a marginal of a synthetic database as rows with a schema.

    The rows are post-processing of the release: they are public, and spend no further budget. They
    come from the committed release, so all rows of a retried pipeline have one draw id.

    Args:
        directory: the directory of an existing release; None for releases that the pipeline writes.
        attributes: the names of the attributes to count by, with at most 65,536 cells together.
        domain: the domain of the releases that the pipeline writes, which determines the schema;
            None if a directory is given.

    Raises:
        InputError: if neither or both of directory and domain are given, an attribute is unknown,
            or a release has another domain.
        ReleaseError: if the release is missing, damaged, or not a synthetic database.

    Input: as for ``SyntheticRows``.

    Output: one ``beam.Row`` per cell. First a field for each attribute, in domain order, with the
    value as in ``query().group_by(...).count()``: bins are labels, and null is None. Then ``value``
    (the number of records), ``standard_error``, ``bound`` (all bounds of one marginal are true
    together, except with probability 0.05), ``error`` (its kind: see ``Estimate``), ``reason`` (why
    there is no error bar) and ``draw_id``. An attribute with one of these names gets
    ``_`` at the end of its name.

    Example:
        >>> rows = written | MarginalRows(attributes=["age"], domain=domain)  # doctest: +SKIP
    """

    def __init__(
        self,
        directory: Directory | None = None,
        *,
        attributes: Sequence[str],
        domain: Domain | None = None,
    ) -> None:
        domain = _domain_of(directory, domain)
        names, fields = marginal_fields(domain, attributes, {})
        super().__init__(directory, fields, _marginal_values, domain, names)


def marginal_fields(
    domain: Domain, attributes: Sequence[str], before: Fields
) -> tuple[tuple[str, ...], Fields]:
    """Returns the names of attributes, in domain order, and the fields of rows about them."""
    (names,) = Workload(domain, (tuple(attributes),))
    fixed = (*before, *ANSWER)
    keys = field_names((*fixed, *names))[len(fixed) :]
    kinds = {key: _level_type(domain[name]) for key, name in zip(keys, names, strict=True)}
    return names, {**before, **kinds, **ANSWER}


def _database(directory: Directory, domain: Domain | None = None) -> SyntheticDatabase:
    release = read_release(directory, kind=SyntheticDatabase)
    if domain is not None:
        condition = "must contain a release of the given domain"
        domain.check_same(release.domain, "directory", os.fspath(directory), condition)
    return release


def _record_values(directory: str, domain: Domain) -> Rows:
    for table in _database(directory, domain).arrow_tables():
        for start in range(0, len(table), _ROWS):
            columns = _plain(table.slice(start, _ROWS)).columns
            yield from zip(*(column.to_pylist() for column in columns), strict=True)


def _plain(table: pa.Table) -> pa.Table:
    """Replaces dates and times with strings, because Beam schemas lack types for them."""
    for place, field in enumerate(table.schema):
        if pa.types.is_temporal(field.type):
            values = [value and value.isoformat() for value in table[place].to_pylist()]
            table = table.set_column(place, field.name, pa.array(values, pa.string()))
    return table


def _marginal_values(directory: str, domain: Domain, names: Sequence[str]) -> Rows:
    release = _database(directory, domain)
    columns = [*release.query().group_by(*names).count().columns.items()]
    levels, measured = columns[: len(names)], dict(columns[len(names) :])
    answers = [measured[name] for name in ("count", "standard_error", "bound", "error", "reason")]
    for *row, reason in zip(*(values for _, values in levels), *answers, strict=True):
        yield *row, reason or None, release.draw_id


def field_names(names: Sequence[str]) -> list[str]:
    """Returns distinct field names that ``beam.Row`` allows; allowed names stay unchanged.

    Beam converts rows to named tuples, so field names must be valid for named tuples.
    """
    fields: list[str] = []
    for name in avro_names(tuple(names)):
        if keyword.iskeyword(name):
            name = f"{name}_"
        elif name.startswith("_"):
            name = f"column{name}"
        while name in fields or (name in names and name != names[len(fields)]):
            name = f"{name}_"
        fields.append(name)
    return fields


def _column_type(attribute: Attribute) -> Any:
    """Returns the type of a column of released records, in Python."""
    kind = arrow_type(attribute)
    python: Any = {pa.int64(): int, pa.float64(): float, pa.bool_(): bool}.get(kind, str)
    return Optional[python] if attribute.nullable else python


def _level_type(attribute: Attribute) -> Any:
    """Returns the type of the levels that ``values_of`` returns."""
    if isinstance(attribute, BinnedAttribute):
        return Optional[str] if attribute.nullable else str
    return _column_type(attribute)
