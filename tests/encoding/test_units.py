import datetime
import decimal
import itertools
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from beam_dp.encoding.canonical import canonical_bytes
from beam_dp.encoding.units import arrow_column, short_values, unit_fingerprints

D = decimal.Decimal
UTC = datetime.UTC


def fingerprints(column: pa.Array) -> list[tuple[int, int] | None]:
    found, valid = unit_fingerprints(column)
    assert found.shape == (2, len(column))
    return [
        tuple(pair) if there else None
        for pair, there in zip(found.T.tolist(), valid.tolist(), strict=True)
    ]


@settings(max_examples=100)
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
def test_fingerprints_are_equal_exactly_if_texts_are_equal(values):
    texts = [canonical_bytes(value) for value in values]
    together = fingerprints(arrow_column(values))
    alone = [fingerprints(arrow_column([value]))[0] for value in values]
    assert together == alone
    pairs = list(zip(texts, alone, strict=True))
    for (text, one), (other_text, other) in itertools.combinations(pairs, 2):
        assert (text == other_text) == (one == other)


TEXT_TYPES = [
    *(pa.string(), pa.large_string(), pa.string_view()),
    *(pa.binary(), pa.large_binary(), pa.binary_view()),
]


@pytest.mark.parametrize("length", [1, 13, 14, 15, 18, 19, 20, 40])
def test_integer_written_as_float_is_the_same_unit_in_every_text_type(length):
    digits = "987654321098765432109876543210987654321098765432"[:length]
    expected = fingerprints(pa.array([digits, None, f"-{digits}", "0", "x"]))
    written = pa.array([f"{digits}.0", None, f"-{digits}.0", "-0.0", "x"])
    for kind in TEXT_TYPES:
        column = written.cast(pa.binary()).cast(kind)
        layouts = [column, pa.concat_arrays([column, column])[5:], column.dictionary_encode()]
        layouts.append(pa.RunEndEncodedArray.from_arrays([1, 2, 3, 4, 5], column))
        for layout in layouts:
            assert fingerprints(layout) == expected, layout.type
    fixed = pa.array([f"{digits}.0".encode()], pa.binary(length + 2))
    assert fingerprints(fixed) == expected[:1]


def test_nested_time_is_exact_in_every_resolution_and_zone():
    moment = datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)
    units, zones = ("s", "ms", "us", "ns"), (None, "UTC", "+02:00", "Nowhere/Land")
    columns = [
        pa.array([[moment]], pa.list_(pa.timestamp(unit, zone))) for unit in units for zone in zones
    ]
    assert {fingerprints(each)[0] for each in (*columns, arrow_column([[moment]]))} == {
        fingerprints(columns[0])[0]
    }
    for kind in (pa.timestamp("ns"), pa.duration("ns"), pa.time64("ns")):
        column = pa.array([[1], [2], [1000], None]).cast(pa.list_(kind))
        assert (
            len({*fingerprints(column), *fingerprints(arrow_column(column.to_pylist()[2:]))}) == 4
        )
        assert fingerprints(arrow_column([*column])) == fingerprints(column)


def test_time_outside_pythons_range_is_a_unit():
    for kind, raw in (
        (pa.date32(), [18262, 2**31 - 1]),
        (pa.date64(), [18262 * 86_400_000, 2**62]),
        (pa.duration("ns"), [10**9, 1]),
        (pa.time64("ns"), [10**9, 1]),
        (pa.timestamp("s"), [0, 2**62]),
    ):
        column = pa.array(raw, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
        found = fingerprints(column)
        assert None not in found and found[0] != found[1], kind
        assert found[0] == fingerprints(arrow_column([column[0].as_py()]))[0], kind


def test_unreadable_unit_affects_no_other_record():
    texts = pa.array([b"ok", b"\xff"]).view(pa.string())
    for column in (texts.cast(pa.string_view()), pa.StructArray.from_arrays([texts], ["a"])):
        found = fingerprints(column)
        assert found[0] == fingerprints(column.slice(0, 1))[0] is not None
        assert found[1] is None or found[1] != found[0]


class Person:
    def __init__(self, name: object) -> None:
        self.name = name


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


def test_value_without_canonical_text_is_not_a_unit():
    nested = [Person(1), [Person(1)], {"person": Person(1)}, {1, 2}, np.arange(3)]
    for value in [ENDLESS, *nested, 10**5000, np.timedelta64(1, "M"), type, len]:
        assert canonical_bytes(value) is None
        assert fingerprints(arrow_column([value, "a", value]))[::2] == [None, None]


def test_mapping_is_the_same_unit_in_any_order_of_keys():
    values = [{"a": 1, "b": [2, None]}, {"b": [2, None], "a": 1}, {"b": (2.0, None), "a": "1"}]
    assert len(set(fingerprints(arrow_column(values)))) == 1
    different = [[], [[]], [None], ["null"], ["a", "b"], ["a,1:b"], {"a": "b"}, {"a": None}, {}]
    assert len({canonical_bytes(each) for each in different} - {None}) == len(different)
    kind = pa.map_(pa.string(), pa.int8())
    one, other, twice = fingerprints(
        pa.array([[("a", 1), ("b", 2)], [("b", 2), ("a", 1)], [("a", 1), ("a", 2)]], kind)
    )
    assert one == other == fingerprints(arrow_column([{"a": 1, "b": 2}]))[0]
    assert twice is None
    nested = pa.array(
        [[[("a", 1), ("b", 2)]], [[("b", 2), ("a", 1)]], [[]], [None]], pa.list_(kind)
    )
    one, other, empty, null = fingerprints(nested)
    assert one == other == fingerprints(arrow_column([[{"a": 1, "b": 2}]]))[0]
    assert len({one, empty, null, None}) == 4


def test_uuid_is_the_same_unit_in_python_and_arrow():
    values = [uuid.UUID(int=5), uuid.UUID(int=2**100), None]
    stored = pa.array([value and value.bytes for value in values], pa.binary(16)).cast(pa.uuid())
    assert fingerprints(stored) == fingerprints(arrow_column(values))


ADDRESSES = pa.array([number.to_bytes(8, "little") for number in range(9)], pa.binary(8))


def test_addresses_in_memory_are_not_units():
    """One person's objects have as many addresses as there are objects."""
    numbers = range(2**40, 2**40 + 9)
    for column in (
        ADDRESSES,
        ADDRESSES.dictionary_encode(),
        pa.StructArray.from_arrays([ADDRESSES], ["id"]),
        pa.FixedSizeListArray.from_arrays(ADDRESSES, 1),
        pa.array([f"<a.Visit object at {hex(number)}>" for number in numbers]),
        pa.array([f"<function f at {hex(number)}>".encode() for number in numbers]),
        pa.array([f"<Visit at 0x{number:016X}>" for number in numbers]).dictionary_encode(),
    ):
        _, has_unit = unit_fingerprints(column)
        assert not has_unit.any(), column.type


def test_fingerprints_of_short_values_contain_them():
    texts = [b"", b"a", b"\0", b"a\0", b"x" * 14, b"x" * 15, b"\xff" * 15, b"7", b"-12", b"\xc3"]
    long = [b"x" * 16, b"1" * 18, b"-" + b"9" * 17, b"y" * 300]
    for size in range(len(texts) + 1):
        mixed = [*texts[:size], *long, *texts[size:]]
        names, _ = unit_fingerprints(pa.array(mixed, pa.binary()))
        found = short_values(names)
        found.validate(full=True)
        assert found.type == pa.large_binary()
        assert found.to_pylist() == [text if len(text) <= 15 else None for text in mixed]
    assert short_values(np.zeros((2, 0), np.uint64)).to_pylist() == []
