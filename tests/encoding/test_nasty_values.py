"""One value of any kind, in one record of a frame or a list, changes nothing for the others."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from value_kinds import ATTRIBUTES, DAY, DECLARED, KINDS

from beam_dp.encoding.columns import encode_column
from beam_dp.encoding.records import seconds_of
from beam_dp.encoding.tables import frame_batch
from beam_dp.encoding.units import unit_fingerprints
from beam_dp.transforms.reading.records import _batch

# Columns of values of one type each, as they are before one value becomes another.
PLAIN: dict[str, list[Any]] = {
    "integers": [0, 1, 7],
    "floats": [0.5, 1.0, 1e18],
    "booleans": [True, False, True],
    "texts": ["1", "true", ""],
    "bytes": [b"a", b"1", b"\xff"],
    "dates": [datetime.date(2020, 1, day) for day in (1, 2, 3)],
    "datetimes": [DAY + datetime.timedelta(days=each) for each in range(3)],
    "nulls": [None] * 3,
    "mixed": ["a", 1, DAY],
}
PLACE = 1


def read(column: pa.Array) -> list[tuple[Any, ...]]:
    """What each value is as a unit, as a time and as a level of each attribute."""
    units, has_unit = unit_fingerprints(column)
    found: list[Any] = [np.where(has_unit, units[half], 0) for half in (0, 1)]
    found += [has_unit, seconds_of(column)]
    found += [encode_column(each, column) for each in (*ATTRIBUTES, *DECLARED)]
    return list(zip(*(each.tolist() for each in found), strict=True))


def of_frame(values: list[Any]) -> pa.RecordBatch:
    held = pd.Series([None] * len(values), dtype=object)
    for place, value in enumerate(values):
        held.iat[place] = value
    batch = frame_batch(pd.DataFrame({"other": range(len(values)), "x": held}), ["x", "other"])
    assert batch.column("other").to_pylist() == list(range(len(values)))
    return batch


def of_index(values: list[Any]) -> pa.RecordBatch:
    frame = pd.DataFrame({"other": range(len(values))})
    return frame_batch(frame.set_index(pd.Index(values, dtype=object, name="x")), ["x"])


def of_categories(values: list[Any]) -> pa.RecordBatch:
    column = pd.Series(values, dtype=object).astype("category")
    return frame_batch(pd.DataFrame({"x": column}), ["x"])


def fits_categories(values: list[Any]) -> bool:
    """Whether pandas makes categories of these values that are the same values."""
    try:
        column = pd.Series(values, dtype=object).astype("category")
    except Exception:
        return False
    held = column.astype(object).tolist()
    return all(type(one) is type(other) for one, other in zip(held, values, strict=True))


def of_rows(values: list[Any]) -> pa.RecordBatch:
    return _batch([{"x": value} for value in values], ["x"])


MAKERS: dict[str, Callable[[list[Any]], pa.RecordBatch]] = {
    "frame": of_frame,
    "index": of_index,
    "categories": of_categories,
    "rows": of_rows,
}


@pytest.mark.mostly_slow(one_in=9, start=6)
@pytest.mark.parametrize("column", PLAIN)
@pytest.mark.parametrize("maker", MAKERS)
def test_a_nasty_value_leaves_all_other_records_as_they_are(maker: str, column: str) -> None:
    make, plain = MAKERS[maker], PLAIN[column]
    expected = read(make(plain).column("x"))
    for name, value in KINDS.items():
        values = [*plain[:PLACE], value, *plain[PLACE + 1 :]]
        if maker == "categories" and not fits_categories(values):
            continue
        found = read(make(values).column("x"))
        assert len(found) == len(plain), name
        assert found[:PLACE] + found[PLACE + 1 :] == expected[:PLACE] + expected[PLACE + 1 :], name
