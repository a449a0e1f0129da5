"""A record contributes by its own values alone: no other record of its bundle changes it.

Otherwise one record could change what all others count for, and no noise would hide it.
"""

import datetime
import functools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from every_column import Read, contributions, levels
from value_kinds import ATTRIBUTES, DAY, DECLARED, KINDS

from beam_dp.domain.attributes import CategoricalAttribute
from beam_dp.encoding.records import encode_column
from beam_dp.encoding.tables import frame_batch
from beam_dp.encoding.units import arrow_column
from beam_dp.transforms.reading.records import _batch

NAMES = [*KINDS]


@functools.cache
def plainly(pickled: bytes) -> Read:
    """As a unit, a key, a weight, a time, and a level of attributes that declare no texts."""
    column = pickle.loads(pickled)
    both = zip(contributions(column), levels(column, ATTRIBUTES), strict=True)
    return [(*one, *other) for one, other in both]


@functools.cache
def as_declared(pickled: bytes) -> Read:
    """As a level of attributes that declare what texts mean, or of dates."""
    return levels(pickle.loads(pickled), DECLARED)


Role = Callable[[bytes], Read]


def read(values: list[Any], role: Role = plainly) -> Read:
    """Many values make columns of the same type and bytes, which are read once."""
    return role(pickle.dumps(arrow_column(values)))


@functools.cache
def alone(name: str, role: Role = plainly) -> tuple[Any, ...]:
    return read([KINDS[name]], role)[0]


def check_neighbours(name: str, other: str, role: Role = plainly) -> None:
    found = read([KINDS[name], KINDS[other]], role)
    assert found == [alone(name, role), alone(other, role)], (name, other)


@pytest.mark.part
@pytest.mark.parametrize("name", KINDS)
def test_value_is_read_the_same_next_to_every_other_value(name):
    for other in KINDS:
        check_neighbours(name, other)


def test_value_is_read_the_same_next_to_some_other_values(fresh_seed):
    for name, other in np.random.default_rng(fresh_seed).choice(NAMES, (80, 2)).tolist():
        check_neighbours(name, other)
        check_neighbours(name, other, as_declared)


@pytest.mark.part
def test_text_or_date_is_read_the_same_next_to_those_of_its_type():
    """They make a column of one type, which others may decide how to read."""
    for name in NAMES:
        if "text" in name or "date" in name:
            for other in NAMES:
                if type(KINDS[other]) is type(KINDS[name]):
                    check_neighbours(name, other, as_declared)


def test_value_is_read_the_same_among_all_other_values():
    for role in (plainly, as_declared):
        for names in (NAMES, NAMES[::-1]):
            expected = [alone(name, role) for name in names]
            assert read([KINDS[name] for name in names], role) == expected


def test_one_fraction_in_a_column_does_not_change_how_booleans_are_read():
    attribute = CategoricalAttribute("smoker", ("true", "false"))
    for values in ([0.5] + [True] * 1000, [True] * 1000 + [0.5], [1, 0.5] + [True] * 1000):
        codes = encode_column(attribute, arrow_column(values))
        assert np.count_nonzero(codes == 0) == 1000


SAME = [
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
]


def test_values_of_other_libraries_are_read_like_python_values():
    for kind, same_as in SAME:
        if kind in KINDS:  # pandas may not be here
            assert read([KINDS[kind]]) == read([same_as]), kind


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


def as_read(batch: pa.RecordBatch) -> Read:
    pickled = pickle.dumps(batch.column("x"))
    both = zip(plainly(pickled), as_declared(pickled), strict=True)
    return [(*one, *other) for one, other in both]


def check_makers(names: list[str], maker: str, column: str) -> None:
    make, plain = MAKERS[maker], PLAIN[column]
    expected = as_read(make(plain))
    for name in names:
        values = [*plain[:PLACE], KINDS[name], *plain[PLACE + 1 :]]
        if maker == "categories" and not fits_categories(values):
            continue
        found = as_read(make(values))
        assert len(found) == len(plain), name
        assert found[:PLACE] + found[PLACE + 1 :] == expected[:PLACE] + expected[PLACE + 1 :], name


@pytest.mark.part
@pytest.mark.parametrize("column", PLAIN)
@pytest.mark.parametrize("maker", MAKERS)
def test_unusual_value_affects_no_other_record(maker, column):
    check_makers(NAMES, maker, column)


def test_some_unusual_values_affect_no_other_record(fresh_seed):
    generator = np.random.default_rng(fresh_seed)
    for maker in MAKERS:
        for column in PLAIN:
            check_makers(generator.choice(NAMES, 2, replace=False).tolist(), maker, column)
