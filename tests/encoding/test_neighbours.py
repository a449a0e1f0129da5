"""A record contributes by its own values alone: no other record of its bundle changes it.

Otherwise one record could change what all others count for, and no noise would hide it.
"""

from __future__ import annotations

import datetime
import functools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from value_kinds import ATTRIBUTES, DAY, DECLARED, KINDS

from beam_dp.domain.attributes import CategoricalAttribute
from beam_dp.encoding.keys import clamped_numbers, key_elements
from beam_dp.encoding.layouts import seconds_of
from beam_dp.encoding.records import encode_column
from beam_dp.encoding.tables import frame_batch
from beam_dp.encoding.units import arrow_column, unit_fingerprints
from beam_dp.hashing.keys import HashKey
from beam_dp.queries.sparse import KEY_TYPES
from beam_dp.transforms.reading.records import _batch

KEY = HashKey.draw(4)
Read = list[tuple[Any, ...]]


def once(read: Callable[[pa.Array], Read]) -> Callable[[pa.Array], Read]:
    """Remembers what columns are read as: many values make columns of the same type and bytes."""
    known = functools.cache(lambda pickled: read(pickle.loads(pickled)))
    return lambda column: known(pickle.dumps(column))


def contributions(values: list[Any]) -> Read:
    """What each value is read as: as a unit, as a key of each type, as a weight, as a level."""
    return in_every_role(arrow_column(values))


@once
def in_every_role(column: pa.Array) -> Read:
    units, has_unit = unit_fingerprints(column)
    read: list[Any] = [np.where(has_unit, units[half], 0) for half in (0, 1)] + [has_unit]
    for key_type in KEY_TYPES:
        elements, valid = key_elements(column, key_type, KEY)
        read += [np.where(valid, elements, 0), valid]
    weights, valid = clamped_numbers(column, 10)
    read += [np.where(valid, weights, 0), valid]
    read += [encode_column(attribute, column) for attribute in ATTRIBUTES]
    return list(zip(*(each.tolist() for each in read), strict=True))


@pytest.fixture(scope="module")
def alone() -> dict[str, tuple[Any, ...]]:
    return {name: contributions([value])[0] for name, value in KINDS.items()}


@pytest.mark.parametrize("name", KINDS)
def test_value_is_read_the_same_next_to_every_other_value(name, alone):
    for other, neighbour in KINDS.items():
        assert contributions([KINDS[name], neighbour]) == [alone[name], alone[other]], other


def levels(values: list[Any]) -> Read:
    """What each value is read as by attributes that declare what texts mean, or dates."""
    return declared_levels(arrow_column(values))


@once
def declared_levels(column: pa.Array) -> Read:
    read = [encode_column(attribute, column).tolist() for attribute in DECLARED]
    return list(zip(*read, strict=True))


@pytest.fixture(scope="module")
def level_alone() -> dict[str, tuple[int, ...]]:
    return {name: levels([value])[0] for name, value in KINDS.items()}


def test_value_has_the_same_level_among_all_other_values(level_alone):
    assert levels(list(KINDS.values())) == list(level_alone.values())
    assert levels(list(KINDS.values())[::-1]) == list(level_alone.values())[::-1]


# Texts, and dates, of one kind make a column of one type, which others may decide how to read.
@pytest.mark.parametrize("name", [name for name in KINDS if "text" in name or "date" in name])
def test_level_of_a_text_or_date_does_not_depend_on_its_neighbours(name, level_alone):
    for other in KINDS:
        if type(KINDS[other]) is type(KINDS[name]):
            assert levels([KINDS[name], KINDS[other]]) == [level_alone[name], level_alone[other]]


def test_one_fraction_in_a_column_does_not_change_how_booleans_are_read():
    attribute = CategoricalAttribute("smoker", ("true", "false"))
    for values in ([0.5] + [True] * 1000, [True] * 1000 + [0.5], [1, 0.5] + [True] * 1000):
        codes = encode_column(attribute, arrow_column(values))
        assert np.count_nonzero(codes == 0) == 1000


@pytest.mark.parametrize(
    ("kind", "same_as"),
    [
        ("bytearray", b"a"),
        ("memoryview", b"a"),
        ("bytearray of a digit", 1),
        ("scalar 'a'", "a"),
        ("scalar 1", 1),
        ("scalar True", True),
        ("null scalar", None),
        ("IntEnum", 1),
        ("text Enum", "a"),
        ("str_", "a\0"),
        ("bytes_", b"a\0"),
        ("uint64", 2**64 - 1),
        ("datetime64 NaT", None),
        ("datetime64[s]", DAY),
        ("datetime64[ns]", DAY),
        ("pandas Timestamp", DAY),
        ("datetime64[D]", DAY.date()),
        ("timedelta64[D]", datetime.timedelta(1)),
        ("pandas Timedelta", np.timedelta64(1, "ns")),
        ("nanosecond", np.datetime64(1, "ns")),
    ],
)
def test_values_of_other_libraries_are_read_like_python_values(kind, same_as):
    if kind not in KINDS:
        pytest.skip("needs pandas")
    assert contributions([KINDS[kind]])[0] == contributions([same_as])[0]


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


@once
def as_read(column: pa.Array) -> Read:
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
    "rows": of_rows,
    "frame": of_frame,
    "index": of_index,
    "categories": of_categories,
}


@pytest.mark.parametrize("column", PLAIN)
@pytest.mark.parametrize("maker", MAKERS)
def test_unusual_value_affects_no_other_record(maker, column):
    make, plain = MAKERS[maker], PLAIN[column]
    expected = as_read(make(plain).column("x"))
    for name, value in KINDS.items():
        values = [*plain[:PLACE], value, *plain[PLACE + 1 :]]
        if maker == "categories" and not fits_categories(values):
            continue
        found = as_read(make(values).column("x"))
        assert len(found) == len(plain), name
        assert found[:PLACE] + found[PLACE + 1 :] == expected[:PLACE] + expected[PLACE + 1 :], name
