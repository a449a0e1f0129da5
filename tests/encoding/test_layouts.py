"""Columns of every Arrow type and layout are read like their values one by one."""

import datetime
import decimal
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from declared_packages import undeclared_modules
from every_column import contributions, every_column, everything_read, levels
from hypothesis import given, strategies as st

from beam_dp.encoding.layouts import NO_TIME, seconds_of
from beam_dp.encoding.units import arrow_column


def dense(codes: list[int], places: list[int], *children: pa.Array) -> pa.UnionArray:
    types = pa.array(codes, pa.int8())
    return pa.UnionArray.from_dense(types, pa.array(places, pa.int32()), list(children))


UNIONS = [
    dense([0] * 6, [0, 1, 2, 3, 4, 5], pa.array([11, 12, 13, 14, 15, 16]), pa.array(["x"])),
    dense(
        [0, 0, 1, 0, 1, 1], [0, 2, 1, 3, 1, 2], pa.array([1, 0, 2, 3]), pa.array(["4", "5", "7"])
    ),
    dense([0, 0, 1, 1], [0, 1, 0, 1], pa.array(["1", "2"], pa.string_view()), pa.array([3, None])),
    pa.UnionArray.from_sparse(
        pa.array([0, 1, 1, 0], pa.int8()), [pa.array([1, 2, 3, 4]), pa.array(["5", "6", "7", "8"])]
    ),
    arrow_column([1, "2", 3.0, b"4", True, None, decimal.Decimal(5)]),
]


def in_dictionary(values: pa.Array) -> pa.DictionaryArray:
    indices = pa.array([0, 1, None, 0, len(values) - 1, 1], pa.int8())
    return pa.DictionaryArray.from_arrays(indices, values)


def in_runs(values: pa.Array) -> pa.RunEndEncodedArray:
    ends = pa.array([2 * place + 1 for place in range(len(values))], pa.int32())
    return pa.RunEndEncodedArray.from_arrays(ends, values)


_TEXTS = ["f", None, "7", "m", "a text of more than fifteen bytes", "7"]
_VALUES = [
    pa.array(_TEXTS),
    pa.array(_TEXTS, pa.large_string()),
    pa.array(_TEXTS, pa.string_view()),
    pa.array(_TEXTS).cast(pa.binary()).cast(pa.binary_view()),
    pa.array([7, None, 8, -9]),
    pa.array([7.0, None, 0.5]),
    UNIONS[2],
    pa.array([{"a": "x"}, None, {"a": "y"}], pa.struct([("a", pa.string_view())])),
    pa.array([[1], None, [2]]),
    in_dictionary(pa.array(_TEXTS, pa.string_view())),
    in_runs(pa.array(_TEXTS, pa.string_view())),
    pa.ExtensionArray.from_storage(pa.json_(), pa.array(["7", None, "8"])),
]
INDIRECT = [wrap(values) for values in _VALUES for wrap in (in_dictionary, in_runs)]


HERE = pathlib.Path(__file__).parent
INDIRECTLY = [*UNIONS, *INDIRECT]
READ_BARELY = """
import json
from declared_packages import forbid_undeclared
forbid_undeclared()
from every_column import everything_read
print(json.dumps(everything_read()))
"""


def test_values_of_a_column_contribute_as_they_do_alone():
    for column in [*INDIRECTLY, *every_column()]:
        alone = [contributions(arrow_column([value]))[0] for value in column]
        assert contributions(column) == alone, column.type


def test_chunks_contribute_like_the_whole_column():
    for column in [*INDIRECTLY, *every_column()]:
        whole = contributions(column)
        chunks = pa.chunked_array([column[1:], column[:1]], column.type)
        assert contributions(chunks) == whole[1:] + whole[:1], column.type
        assert levels(column[1:]) == levels(column)[1:], column.type
    assert contributions(pa.chunked_array([], pa.string())) == []


@pytest.mark.part
@pytest.mark.parametrize("read", [contributions, levels])
def test_every_slice_of_a_column_is_read_like_its_values(read):
    for column in [*INDIRECTLY, *every_column()]:
        whole = read(column)
        for start in range(len(column) + 1):
            for stop in range(start, len(column) + 1):
                assert read(column[start:stop]) == whole[start:stop], (column.type, start, stop)


def test_undeclared_packages_include_those_of_tests_only():
    assert {"pytest", "hypothesis"} <= undeclared_modules()
    assert not {"numpy", "pyarrow", "apache_beam", "grpc", "yaml"} & undeclared_modules()


@pytest.mark.job
def test_reads_columns_of_every_type_without_undeclared_packages():
    """In an environment that holds nothing but what setup.py requires."""
    folders = (HERE.parent.parent, HERE.parent, HERE)
    result = subprocess.run(
        [sys.executable, "-c", READ_BARELY],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
    )
    assert result.returncode == 0, result.stderr
    bare, here = json.loads(result.stdout), json.loads(json.dumps(everything_read()))
    assert [name for name in here if bare[name] != here[name]] == []


MOMENT = datetime.datetime(2026, 11, 23, 1, 2, 3, 999_999)
SECONDS = 1_795_395_723
BERLIN = datetime.timezone(datetime.timedelta(hours=1))
VALUES: dict[str, tuple[Any, int]] = {
    "without a zone": (MOMENT, SECONDS),
    "with a zone": (MOMENT.replace(tzinfo=BERLIN), SECONDS - 3600),
    "day": (MOMENT.date(), SECONDS - 3723),
    "text": ("2026-11-23T01:02:03.999", SECONDS),
    "text with a zone": ("2026-11-23 01:02:03+01:00", SECONDS - 3600),
    "bytes": (b"2026-11-23", SECONDS - 3723),
    "integer": (SECONDS, SECONDS),
    "fraction": (SECONDS + 0.999, SECONDS),
    "before 1970": (-0.5, -1),
    "a time before 1970": (datetime.datetime(1969, 12, 31, 23, 59, 59, 1), -1),
    "text of an integer": (f" {SECONDS} ", SECONDS),
    "decimal": (decimal.Decimal(f"{SECONDS}.999"), SECONDS),
    "decimal before 1970": (decimal.Decimal("-0.5"), -1),
    "text of an integer too large": ("9" * 20, NO_TIME),
    "text of a fraction": ("-1.5", -2),
    "text of two numbers": ("1 5", NO_TIME),
    "null": (None, NO_TIME),
    "no text of a time": ("tomorrow", NO_TIME),
    "no date": ("2026-02-30", NO_TIME),
    "not a number": (float("nan"), NO_TIME),
    "infinite": (float("inf"), NO_TIME),
    "too large": (1e300, NO_TIME),
    "an integer too large": (2**64 - 1, NO_TIME),
    "boolean": (True, NO_TIME),
    "duration": (datetime.timedelta(1), NO_TIME),
    "list": ([1], NO_TIME),
}


def test_value_has_expected_seconds_since_1970():
    for name, (value, seconds) in VALUES.items():
        assert seconds_of(arrow_column([value])).tolist() == [seconds], name
        found = seconds_of(arrow_column([value, None, value])).tolist()
        assert found == [seconds, NO_TIME, seconds], name
    values, expected = zip(*VALUES.values(), strict=True)
    assert seconds_of(arrow_column(list(values))).tolist() == list(expected)


@given(st.lists(st.none() | st.integers(-(2**40), 2**40), max_size=20), st.data())
def test_reads_times_in_every_layout(values, data):
    expected = [NO_TIME if each is None else each for each in values]
    per_second = {"s": 1, "ms": 10**3, "us": 10**6}
    unit = data.draw(st.sampled_from(list(per_second)))
    part = data.draw(st.integers(0, per_second[unit] - 1))
    ticks = [None if each is None else each * per_second[unit] + part for each in values]
    column = pa.array(ticks, pa.int64()).view(
        pa.timestamp(unit, data.draw(st.sampled_from([None, "UTC"])))
    )
    assert seconds_of(column).tolist() == expected
    assert seconds_of(column.dictionary_encode()).tolist() == expected
    assert seconds_of(pa.concat_arrays([column, column])[len(column) :]).tolist() == expected


def test_decimals_and_dates_of_all_years_are_read_as_seconds():
    fractions = [None, decimal.Decimal("1.999"), decimal.Decimal("-0.5")]
    days = [2**31 - 1, -(2**31)]
    for column, seconds in (
        (pa.array(fractions, pa.decimal128(9, 3)), [NO_TIME, 1, -1]),
        (pa.array(days, pa.int32()).view(pa.date32()), [86400 * day for day in days]),
        (pa.array([86_399_999, -1]).view(pa.date64()), [86_399, -1]),
    ):
        assert seconds_of(column).tolist() == seconds, column.type


def test_column_without_values_has_no_times():
    for kind in (pa.null(), pa.timestamp("ns"), pa.string(), pa.float16(), pa.decimal128(5, 2)):
        assert seconds_of(pa.nulls(3, kind)).tolist() == [NO_TIME] * 3
        assert seconds_of(pa.nulls(0, kind)).dtype == np.int64
