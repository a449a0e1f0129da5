"""Transforms that read committed releases back as rows with a schema, for any sink of Beam.

Rows come from the files of the committed release, never from the step that drew it. A runner may
draw again, so rows from that step could come from several draws, and each draw costs budget.
"""

from __future__ import annotations

import datetime
import itertools
import keyword
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.typehints import Optional  # schemas do not understand ``float | None``
from apache_beam.typehints.row_type import RowTypeConstraint

from beam_dp.domain.attributes import Attribute
from beam_dp.domain.ordered import BinnedAttribute, IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.queries.workload import Workload
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.error_bars import FROM_NOISE
from beam_dp.releases.intervals.release import IntervalRelease, interval_cells, ordered_domain
from beam_dp.releases.kinds import read_release
from beam_dp.releases.synthetic_database.arrow import arrow_type
from beam_dp.releases.synthetic_database.questions import values_of
from beam_dp.releases.synthetic_database.records import avro_names
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.windows.horizon_files import read_horizon, read_window, read_windows
from beam_dp.releases.windows.release import WindowTables
from beam_dp.transforms.reading.records import refuse_windows

Fields = dict[str, Any]  # the types of fields in Python, by name
Rows = Iterator[tuple[Any, ...]]
Directory = str | os.PathLike[str]

_ROWS = 2**14
# The last fields of every row about an answer.
_ANSWER: Fields = {
    "value": float,
    "standard_error": Optional[float],
    "bound": Optional[float],
    "error": Optional[str],
    "reason": Optional[str],
    "draw_id": str,
}


class _ReleasedRows(beam.PTransform):
    """Reads each release in one step, then distributes its rows.

    Input: the start of a pipeline if a directory is given; otherwise the directories of releases.
    Subclasses set ``fields``, and ``rows``, which yields the values of the rows of a directory.
    """

    fields: Fields
    rows: Callable[..., Rows]
    arguments: tuple[Any, ...] = ()  # of ``rows``, after the directory

    def __init__(self, directory: Directory | None) -> None:
        super().__init__()
        self.directory = None if directory is None else os.fspath(directory)

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


class _OfDomain(_ReleasedRows):
    """Rows whose fields follow from a domain: the given one, or that of an existing release."""

    def __init__(self, directory: Directory | None, domain: Domain | None) -> None:
        super().__init__(directory)
        if (directory is None) == (domain is None):
            raise InputError("directory", directory, "must be given, or else the domain")
        if directory is not None:
            domain = _database(directory).domain
        assert domain is not None
        self.domain = domain


class SyntheticRows(_OfDomain):
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
        super().__init__(directory, domain)
        names = field_names(self.domain.names)
        self.fields = dict(zip(names, map(_column_type, self.domain), strict=True))
        self.rows, self.arguments = _record_values, (self.domain,)


class MarginalRows(_OfDomain):
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
        super().__init__(directory, domain)
        names, self.fields = _marginal(self.domain, attributes, {})
        self.rows, self.arguments = _marginal_values, (self.domain, names)


class IntervalRows(_ReleasedRows):
    """Returns released interval counts as rows with a schema.

    The rows are post-processing of the release, as those of ``MarginalRows``.

    Args:
        directory: the directory of an existing release; None for releases that the pipeline writes.
        domain: the domain of the releases that the pipeline writes; None if a directory is given.
        attribute: the counted attribute of the domain; None if a directory is given.
        intervals: pairs (low, high) as for ``IntervalRelease.cells``; by default every cell: one
            integer, or one bin.

    Raises:
        InputError: if neither or both of directory and domain are given, the attribute is unknown
            or not ordered, an interval is invalid, or a release has another attribute.
        ReleaseError: if the release is missing, damaged, or does not contain interval counts.

    Input: as for ``SyntheticRows``.

    Output: one ``beam.Row`` per interval. ``low`` and ``high`` are the ends: integers (both
    included), edges of bins, or ISO 8601 strings. The other fields are as for ``MarginalRows``; all
    bounds of one release are true together, except with probability 0.05.

    Example:
        >>> rows = pipeline | IntervalRows("out/ages", intervals=[(18, 64)])  # doctest: +SKIP
    """

    def __init__(
        self,
        directory: Directory | None = None,
        *,
        domain: Domain | None = None,
        attribute: str | None = None,
        intervals: Sequence[tuple[Any, Any]] | None = None,
    ) -> None:
        super().__init__(directory)
        if directory is not None and domain is None and attribute is None:
            counted = read_release(directory, kind=IntervalRelease).attribute
        elif directory is None and domain is not None and attribute is not None:
            (counted,) = ordered_domain(domain, attribute).attributes
        else:
            condition = "must be given, or else the domain and the attribute"
            raise InputError("directory", directory, condition)
        cells = None
        if intervals is not None:
            cells = [interval_cells(counted, low, high) for low, high in intervals]
        of_numbers: dict[str, type] = {"integer": int, "numeric": float}
        end = of_numbers.get(counted.kind, str)
        self.fields = {"low": end, "high": end, **_ANSWER}
        self.rows, self.arguments = _interval_values, (counted, cells)


class AnswerRows(_ReleasedRows):
    """Returns released answers to queries as rows with a schema.

    The rows are post-processing of the release, as those of ``MarginalRows``.

    Args:
        directory: the directory of existing answers; None for answers that the pipeline writes.

    Raises:
        InputError: when applied, if the answers are a stream, which has no committed release.
        ReleaseError: if the release is missing, damaged, or does not contain answers.

    Input: the start of a pipeline if a directory is given; otherwise the directories that
    ``WriteAnswers`` returns, which all workers must be able to access.

    Output: one ``beam.Row`` per query, in any order: ``id`` (None if the query has none), ``query``
    (as JSON), and the fields of ``MarginalRows``. ``error`` is "from the noise alone" if the
    answer has noise of its own, else None. For a refused query, ``value`` is None and ``reason`` is
    the error.

    Example:
        >>> rows = answers | WriteAnswers("out/answers", plan) | AnswerRows()  # doctest: +SKIP
    """

    def __init__(self, directory: Directory | None = None) -> None:
        super().__init__(directory)
        if directory is not None:
            read_release(directory, kind=AnswersRelease)
        self.fields = {"id": Optional[str], "query": str, **_ANSWER, "value": Optional[float]}
        self.rows = _answer_values


class WindowRows(_ReleasedRows):
    """Returns the counts of a marginal in each released window of a horizon as rows with a schema.

    The rows are post-processing of the releases, as those of ``MarginalRows``. A job that continues
    a horizon returns the rows of earlier windows again, with the same draw ids.

    Args:
        directory: the directory of the horizon, begun with ``begin_windows``, which all workers
            must be able to access.
        attributes: the names of the attributes to count by, all in one released marginal.

    Raises:
        InputError: if an attribute is unknown, or no released marginal has all of them.
        ReleaseError: if the horizon or a window is missing or damaged.

    Input: the output of ``ReleaseWindows``; or the start of a pipeline, for the windows that have
    been released when the pipeline runs.

    Output: one ``beam.Row`` per window and cell: ``window`` (its number), ``start`` and ``end`` (as
    ISO 8601 strings in UTC), and the fields of ``MarginalRows``. Blocks of windows have no rows.

    Example:
        >>> rows = released | WindowRows("out/week-48", attributes=["city"])  # doctest: +SKIP
    """

    directory: str

    def __init__(self, directory: Directory, *, attributes: Sequence[str]) -> None:
        super().__init__(directory)
        workload = read_horizon(directory)[1].workload
        place: Fields = {"window": int, "start": str, "end": str}
        names, self.fields = _marginal(workload.domain, attributes, place)
        if not any(set(names) <= set(each) for each in workload):
            raise InputError("attributes", list(names), "must all be in one released marginal")
        self.rows, self.arguments = _window_values, (self.directory, names)

    def expand(self, released: Any) -> beam.PCollection[Any]:
        """Reads each released window in one step, then distributes its rows."""
        if isinstance(released, beam.pvalue.PBegin):
            start = released | "Directory" >> beam.Create([self.directory])
            released = start | "Windows" >> beam.FlatMap(_windows).with_output_types(Any)
        return self._spread(released)


def _marginal(
    domain: Domain, attributes: Sequence[str], before: Fields
) -> tuple[tuple[str, ...], Fields]:
    """Returns the names of attributes, in domain order, and the fields of rows about them."""
    (names,) = Workload(domain, (tuple(attributes),))
    fixed = (*before, *_ANSWER)
    keys = field_names((*fixed, *names))[len(fixed) :]
    kinds = {key: _level_type(domain[name]) for key, name in zip(keys, names, strict=True)}
    return names, {**before, **kinds, **_ANSWER}


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
    return _cells(_database(directory, domain), names)


def _cells(release: SyntheticDatabase | WindowTables, names: Sequence[str]) -> Rows:
    """Yields the levels of each cell, and the values of ``_ANSWER``."""
    if isinstance(release, SyntheticDatabase):
        columns = [*release.query().group_by(*names).count().columns.items()]
        levels, measured = columns[: len(names)], dict(columns[len(names) :])
        stated = ("count", "standard_error", "bound", "error", "reason")
        answers = [measured[name] for name in stated]
        for *row, reason in zip(*(each for _, each in levels), *answers, strict=True):
            yield *row, reason or None, release.draw_id
        return
    (answer,) = release.answer(Workload(release.domain, (tuple(names),)))
    attributes = [release.domain[name] for name in names]
    cells = itertools.product(*(values_of(each, range(each.size)) for each in attributes))
    errors = answer.standard_error, answer.bound, FROM_NOISE, None, release.draw_id
    for cell, value in zip(cells, answer.values.ravel().tolist(), strict=True):
        yield *cell, value, *errors


def _interval_values(
    directory: str, attribute: Attribute, cells: Sequence[tuple[int, int]] | None
) -> Rows:
    release = read_release(directory, kind=IntervalRelease)
    if release.attribute != attribute:
        condition = f"must contain counts of the given attribute {attribute.name!r}"
        raise InputError("directory", directory, condition)
    lows: Sequence[Any]
    highs: Sequence[Any]
    every = np.arange(release.num_leaves)
    first, last = (every, every) if cells is None else np.array(cells, np.int64).reshape(-1, 2).T
    answers = release.answer(first, last, all_at_once=True)
    if isinstance(attribute, BinnedAttribute):
        edges = attribute.edges_to_json()
        lows, highs = edges[:-1], edges[1:]
    else:
        assert isinstance(attribute, IntegerAttribute)
        lows = highs = range(attribute.minimum, attribute.maximum + 1)
    ends = [lows[place] for place in first], [highs[place] for place in last]
    columns = (answers.values, answers.standard_errors, answers.bounds)
    for row in zip(*ends, *(column.tolist() for column in columns), strict=True):
        yield *row, FROM_NOISE, None, release.draw_id


def _answer_values(directory: str) -> Rows:
    release = read_release(directory, kind=AnswersRelease)
    for row in release.rows:
        value, error, bound = row["value"], row["standard_error"], row["bound"]
        kind = None if error is None else FROM_NOISE
        yield row["id"], row["query"], value, error, bound, kind, row["error"], release.draw_id


def _windows(directory: str) -> Iterator[tuple[str, int]]:
    return (("window", number) for number in read_windows(directory).released)


def _window_values(released: tuple[str, int], directory: str, names: Sequence[str]) -> Rows:
    level, number = released
    if level == "window":
        release, times = read_window(directory, number)
        start, end = (datetime.datetime.fromtimestamp(each, datetime.UTC) for each in times)
        for row in _cells(release, names):
            yield number, start.isoformat(), end.isoformat(), *row


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
