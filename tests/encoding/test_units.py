from __future__ import annotations

import datetime
import decimal
import itertools
import math
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dp.domain import (
    Attribute,
    BooleanAttribute,
    CategoricalAttribute,
    IntegerAttribute,
    NumericAttribute,
)
from beam_dp.encoding.columns import encode_column
from beam_dp.encoding.units import arrow_column, canonical_bytes, mix, unit_fingerprints

D = decimal.Decimal
UTC = datetime.UTC


def fingerprints(column: pa.Array) -> list[tuple[int, int] | None]:
    found, valid = unit_fingerprints(column)
    assert found.shape == (2, len(column))
    return [
        tuple(pair) if there else None
        for pair, there in zip(found.T.tolist(), valid.tolist(), strict=True)
    ]


SAME = [
    [7, 7.0, "7", b"7", D("7.00"), np.int8(7)],
    [0, -0.0, "0", D("-0"), False],
    [1, True, "1"],
    [10**15, float(10**15), str(10**15)],
    [-(10**14), "-100000000000000"],
    [-(2**63), str(-(2**63)), D(-(2**63))],
    [2**64 + 3, str(2**64 + 3)],
    [1.5, "1.5", D("1.50")],
    ["a" * 40, b"a" * 40],
    ["é", "é".encode()],
    [None, math.nan, D("nan")],
]
DIFFERENT = ["007", "7", "7.0", "+7", " 7", "", "0", "a" * 15, "a" * 16, "a" * 15 + "\0", "\0"]
DIFFERENT += ["1000000000000000", "01000000000000000", "999999999999999", "x" * 100, "-1"]


@pytest.mark.parametrize("values", SAME)
def test_a_unit_is_the_same_however_it_is_stored(values: list[Any]) -> None:
    found = {fingerprints(arrow_column([value]))[0] for value in values}
    assert len(found) == 1
    assert len({canonical_bytes(value) for value in values}) == 1


def test_different_texts_are_different_units() -> None:
    assert len(set(fingerprints(pa.array(DIFFERENT)))) == len(DIFFERENT)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.none(),
            st.integers(),
            st.integers(-(2**63), 2**63 - 1),
            st.floats(),
            st.text(),
            st.text(min_size=14, max_size=17),
            st.binary(max_size=20),
            st.decimals(),
            st.booleans(),
            st.datetimes(),
        ),
        max_size=12,
    )
)
def test_fingerprints_are_equal_exactly_where_texts_are(values: list[Any]) -> None:
    texts = [canonical_bytes(value) for value in values]
    together = fingerprints(arrow_column(values))
    alone = [fingerprints(arrow_column([value]))[0] for value in values]
    assert together == alone
    pairs = list(zip(texts, alone, strict=True))
    for (text, one), (other_text, other) in itertools.combinations(pairs, 2):
        assert (text == other_text) == (one == other)


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.decimal128(21, 2)),
        *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()),
        pa.dictionary(pa.int8(), pa.string()),
    ],
    ids=str,
)
def test_every_arrow_type_gives_the_same_unit(kind: pa.DataType) -> None:
    values: list[Any] = [7, None, 12, 7]
    if pa.types.is_dictionary(kind):
        column = pa.array(["7", None, "12", "7"]).dictionary_encode()
    elif "string" in str(kind) or "binary" in str(kind):
        column = pa.array([None if v is None else str(v) for v in values]).cast(kind)
    else:
        column = pa.array(values).cast(kind)
    expected = fingerprints(pa.array(values))
    assert expected[1] is None
    assert fingerprints(column) == expected
    assert fingerprints(column.slice(1)) == expected[1:]
    assert fingerprints(column.slice(2, 1)) == expected[2:3]


def test_a_moment_is_one_unit_in_every_resolution() -> None:
    moment = datetime.datetime(2020, 1, 2, 3, 4, 5)
    columns = [pa.array([moment, None], pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")]
    columns.append(pa.array([moment.replace(tzinfo=UTC), None], pa.timestamp("us", "UTC")))
    found = {tuple(fingerprints(column)) for column in columns}
    assert len(found) == 1
    assert canonical_bytes(moment) == canonical_bytes(moment.replace(tzinfo=UTC))


@pytest.mark.parametrize(
    "column",
    [
        pa.nulls(3),
        pa.array([[1], None, [2, 3]]),
        pa.array([{"a": 1}, None, {"a": 2}]),
        pa.array([datetime.date(2020, 1, 1), None, datetime.date(1, 1, 1)]),
        pa.array([2**62, None, -(2**62)], pa.timestamp("s")),
        pa.array([1, None, 2], pa.duration("ns")),
        pa.array([], pa.string()),
        pa.array([], pa.int64()),
        pa.array(["a", None, "b"]).dictionary_encode(),
        pa.array([None, None], pa.dictionary(pa.int8(), pa.string())),
        pa.chunked_array([["a"], ["b", None]]),
        pa.chunked_array([], pa.string()),
    ],
    ids=lambda column: str(column.type),
)
def test_no_type_raises(column: pa.Array) -> None:
    found, valid = unit_fingerprints(column)
    assert valid.tolist() == column.is_valid().to_pylist()
    present = found.T[valid].tolist()
    assert len({tuple(pair) for pair in present}) == len(present)


@pytest.mark.parametrize(
    "values",
    [
        ["a", 1],
        [1, 2.5],
        [2**70, 1],
        ["\ud800", "a"],
        [object(), 1],
        [b"x", "y"],
        [{}, 1],
        [True, 2],
        [datetime.datetime(2000, 1, 1), 0],
    ],
    # Not their repr: an object's address differs between the processes of pytest-xdist.
    ids=lambda values: type(values[0]).__name__,
)
def test_values_of_mixed_types_make_a_column(values: list[Any]) -> None:
    assert len(arrow_column(values)) == len(values)


ODD = [
    None,
    True,
    False,
    1,
    5.0,
    0.5,
    math.nan,
    math.inf,
    2**70,
    2**63,
    -(2**63),
    D("5.0"),
    D("nan"),
]
ODD += [
    "a",
    "5",
    "\udcff",
    b"a",
    b"\xff",
    [1],
    [2.5],
    {"a": 1},
    {"b": 1},
    uuid.UUID(int=5),
    complex(1),
]
ODD += [datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1), datetime.time(1)]
ODD += [
    datetime.timedelta(1),
    np.float32(5),
    np.int8(5),
    np.datetime64("2020-01-01"),
    np.bool_(True),
]
ANY: list[Attribute] = [
    BooleanAttribute("x", other=True, nullable=True),
    CategoricalAttribute("x", ("a", "5", "true", "date:18262"), other=True, nullable=True),
    IntegerAttribute("x", 0, 9, other=True, nullable=True),
    NumericAttribute("x", (0, 1, 5, 10), other=True, nullable=True),
]


def test_what_a_value_is_read_as_does_not_depend_on_its_neighbours() -> None:
    for value in ODD:
        alone = arrow_column([value])
        codes = [encode_column(attribute, alone)[0] for attribute in ANY]
        for neighbour in ODD:
            both = arrow_column([value, neighbour])
            assert fingerprints(both)[0] == fingerprints(alone)[0], (value, neighbour)
            assert [encode_column(each, both)[0] for each in ANY] == codes, (value, neighbour)


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (pa.date32(), [18262, 2**31 - 1]),
        (pa.date64(), [18262 * 86_400_000, 2**62]),
        (pa.duration("ns"), [10**9, 1]),
        (pa.time64("ns"), [10**9, 1]),
        (pa.timestamp("s"), [0, 2**62]),
    ],
    ids=str,
)
def test_a_time_that_python_cannot_hold_is_a_unit_and_leaves_its_neighbours(
    kind: pa.DataType, raw: list[int]
) -> None:
    column = pa.array(raw, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    found = fingerprints(column)
    assert None not in found
    assert found[0] != found[1]
    assert found[0] == fingerprints(arrow_column([column[0].as_py()]))[0]


def test_a_unit_that_cannot_be_read_is_none_and_leaves_its_neighbours() -> None:
    texts = pa.array([b"ok", b"\xff"]).view(pa.string())
    for column in (texts.cast(pa.string_view()), pa.StructArray.from_arrays([texts], ["a"])):
        found = fingerprints(column)
        assert found[0] == fingerprints(column.slice(0, 1))[0] is not None
        assert found[1] is None or found[1] != found[0]


def test_mixing_is_a_bijection_with_even_bits() -> None:
    mixed = mix(np.arange(2**16, dtype=np.uint64))
    assert len(set(mixed.tolist())) == 2**16
    ones = np.unpackbits(mixed.view(np.uint8)).mean()
    assert abs(ones - 0.5) < 0.01
