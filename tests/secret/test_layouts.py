"""Columns of every Arrow type and layout are read like their values one by one."""

import decimal
import json
import os
import pathlib
import subprocess
import sys

import pyarrow as pa
import pytest
from declared_packages import undeclared_modules
from every_column import contributions, every_column, everything_read, levels
from hypothesis import given, strategies as st

from beam_dp.secret.encoding.layouts import NO_TIME, seconds_of
from beam_dp.secret.encoding.units import arrow_column


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
    """In an environment that holds nothing but what pyproject.toml requires."""
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
