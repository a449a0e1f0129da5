"""The transform that reads released interval counts back as rows with a schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_dp.domain.attributes import Attribute
from beam_dp.domain.ordered import BinnedAttribute, IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.releases.error_bars import FROM_NOISE
from beam_dp.releases.intervals.release import IntervalRelease, interval_cells, ordered_domain
from beam_dp.releases.kinds import read_release
from beam_dp.transforms.reading.released_rows import ANSWER, Directory, ReleasedRows, Rows


class IntervalRows(ReleasedRows):
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
        self.fields = {"low": end, "high": end, **ANSWER}
        self.rows, self.arguments = _interval_values, (counted, cells)


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
