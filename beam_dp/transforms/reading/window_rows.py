"""The transform that reads the counts of released windows back as rows with a schema."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam

from beam_dp.errors import InputError
from beam_dp.queries.workload import Workload
from beam_dp.releases.error_bars import FROM_NOISE
from beam_dp.releases.synthetic_database.questions import values_of
from beam_dp.releases.windows.horizon_files import read_horizon, read_window, read_windows
from beam_dp.transforms.reading.released_rows import (
    Directory,
    Fields,
    ReleasedRows,
    Rows,
    marginal_fields,
)


class WindowRows(ReleasedRows):
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
        names, self.fields = marginal_fields(workload.domain, attributes, place)
        if not any(set(names) <= set(each) for each in workload):
            raise InputError("attributes", list(names), "must all be in one released marginal")
        self.rows, self.arguments = _window_values, (self.directory, names)

    def expand(self, released: Any) -> beam.PCollection[Any]:
        """Reads each released window in one step, then distributes its rows."""
        if isinstance(released, beam.pvalue.PBegin):
            start = released | "Directory" >> beam.Create([self.directory])
            released = start | "Windows" >> beam.FlatMap(_windows).with_output_types(Any)
        return self._spread(released)


def _windows(directory: str) -> Iterator[tuple[str, int]]:
    return (("window", number) for number in read_windows(directory).released)


def _window_values(released: tuple[str, int], directory: str, names: Sequence[str]) -> Rows:
    level, number = released
    if level == "window":
        release, times = read_window(directory, number)
        start, end = (datetime.datetime.fromtimestamp(each, datetime.UTC) for each in times)
        (answer,) = release.answer(Workload(release.domain, (tuple(names),)))
        attributes = [release.domain[name] for name in names]
        cells = itertools.product(*(values_of(each, range(each.size)) for each in attributes))
        ends = start.isoformat(), end.isoformat()
        errors = answer.standard_error, answer.bound, FROM_NOISE, None, release.draw_id
        for cell, value in zip(cells, answer.values.ravel().tolist(), strict=True):
            yield number, *ends, *cell, value, *errors
