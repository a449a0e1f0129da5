"""Completes rows with missing columns or values, from the fitted distribution of a release."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from beam_dp.checks import check_is
from beam_dp.domain.attributes import Attribute
from beam_dp.errors import InputError
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.synthetic_database.sampling import drawn_codes, drawn_table
from beam_dp.secret.encoding.records import encode_column
from beam_dp.secret.encoding.tables import Table

_PURPOSE = "impute"


def impute(rows: Any, release: SyntheticDatabase, *, seed: int = 0) -> pa.Table:
    """Returns rows whose missing values are drawn from the fitted distribution of a release.

    Privacy: reads the release as post-processing, which spends nothing. The result contains the
    given rows, so it is as secret as they are: it is a release only if the rows are public.

    Accuracy: each row gets an independent draw of everything that it lacks, with exactly the
    conditional distribution given the row's known values, as in ``SyntheticDatabase.sample``. A
    release without a hypothesis completes a row only from records with the same known values.

    Args:
        rows: a pandas or polars frame, an Arrow table, or any object with
            ``__arrow_c_stream__``, with at least one column of the release. A column that the
            table lacks is missing in every row. Null is a missing value, unless it is a level of
            the attribute. Other columns are kept.
        release: the release to draw from.
        seed: another seed draws other values; the same seed draws the same ones again.

    Returns:
        The columns of the rows in their order, with drawn values in place of missing ones, and then
        the missing columns, in the types of ``SyntheticDatabase.to_arrow``. Known values are
        unchanged.

    Raises:
        InputError: if an argument is invalid, if a known value is outside the domain, or if the
            fitted distribution gives a row's known values the weight 0. The message names the first
            such row, not its values.

    Cost: for each combination of known values, one pass over the junction tree of the others.

    Example:
        >>> impute(customers[["age", "sex"]], release).to_pandas()  # doctest: +SKIP
    """
    check_is("release", release, SyntheticDatabase)
    table = _read(rows, release)
    columns: dict[str, NDArray[np.int64]] = {}
    missing: dict[str, NDArray[np.bool_]] = {}
    for attribute in release.domain:
        if attribute.name in table.column_names:
            given = table[table.column_names.index(attribute.name)]
            columns[attribute.name], missing[attribute.name] = _known(attribute, given)
        else:
            columns[attribute.name] = np.zeros(table.num_rows, np.int64)
            missing[attribute.name] = np.ones(table.num_rows, np.bool_)
    codes = _completed(release, [*columns.values()], np.stack([*missing.values()], axis=1), seed)
    drawn = drawn_table(release.domain, release.positions, release.draw_id, codes, _PURPOSE, seed)
    for name, is_missing in missing.items():
        if name not in table.column_names:
            table = table.append_column(name, drawn[name])
        elif is_missing.any():
            place = table.column_names.index(name)
            filled = _filled(name, table[place], drawn[name], is_missing)
            table = table.set_column(place, name, filled)
    return table


def _read(rows: Any, release: SyntheticDatabase) -> pa.Table:
    """Returns the rows as an Arrow table; refuses a table without a column of the release."""
    try:
        given = Table(rows)
    except InputError as error:
        raise InputError("rows", error.value, error.condition) from None
    names = [*given.types]
    columns = [attribute for attribute in release.domain if attribute.name in given.types]
    if not columns:
        condition = f"must have a column of the release, such as {release.domain.names[0]}"
        raise InputError("rows", names[:3], condition)
    for attribute in columns:
        given.check_column("rows", attribute.name, attribute)
    batches = list(given.batches(names))
    if not sum(batch.num_rows for batch in batches):
        raise InputError("rows", 0, "must have at least one row")
    return pa.Table.from_batches(batches)


def _known(
    attribute: Attribute, column: pa.ChunkedArray
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Returns the code of each value, and which values are missing; refuses values outside."""
    codes = encode_column(attribute, column).astype(np.int64)
    missing = np.zeros(len(codes), np.bool_)
    if attribute.null_code is None:
        missing = column.is_null().to_numpy().astype(np.bool_)
    outside = np.flatnonzero((codes < 0) & ~missing)
    if len(outside):
        condition = "must be in the domain, or null to be drawn; rows are counted from 0"
        raise InputError(f"rows, {attribute.name}", f"row {outside[0]}", condition)
    return codes, missing


def _completed(
    release: SyntheticDatabase,
    columns: list[NDArray[np.int64]],
    missing: NDArray[np.bool_],  # shape (num_rows, num_attributes)
    seed: int,
) -> list[NDArray[np.int64]]:
    """Returns all codes, drawn where they are missing; rows that lack the same go together."""
    patterns, pattern_of = np.unique(missing, axis=0, return_inverse=True)
    codes = [column.copy() for column in columns]
    wrong: list[int] = []
    for number, lacks in enumerate(patterns):
        rows = np.flatnonzero(pattern_of == number)
        if not lacks.any():
            continue
        given = {axis: columns[axis][rows] for axis in np.flatnonzero(~lacks).tolist()}
        purpose = f"{_PURPOSE} {number}"
        drawn, possible = drawn_codes(
            release.fitted, release.draw_id, {}, given, len(rows), purpose, seed
        )
        wrong += rows[~possible].tolist()
        for axis in np.flatnonzero(lacks):
            codes[axis][rows] = drawn[axis]
    if wrong:
        condition = "must be possible: the fitted distribution gives its known values the weight 0"
        raise InputError("rows", f"row {min(wrong)}", condition)
    return codes


def _filled(
    name: str,
    given: pa.ChunkedArray,
    drawn: pa.ChunkedArray,
    missing: NDArray[np.bool_],
) -> pa.ChunkedArray:
    """Returns the given values, with drawn ones in place of missing ones, in the drawn type."""
    try:
        given = given.cast(drawn.type)
    except pa.ArrowException:
        condition = f"must be {drawn.type}, the type of drawn values, as some are missing"
        raise InputError(f"rows, {name}", str(given.type), condition) from None
    return pc.if_else(pa.array(missing), drawn, given)
