"""Columns of every Arrow type and layout, and what the package reads out of a column.

The latter is text that two processes compare.
"""

import datetime
import decimal
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from beam_dp.domain.attributes import Attribute, BooleanAttribute, CategoricalAttribute
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.domain.texts import KEY_TYPES
from beam_dp.hashing.keys import HashKey, num_words
from beam_dp.secret.encoding.keys import clamped_numbers, key_elements
from beam_dp.secret.encoding.layouts import seconds_of
from beam_dp.secret.encoding.records import encode_column
from beam_dp.secret.encoding.units import arrow_column, unit_fingerprints

ATTRIBUTES: list[Attribute] = [
    IntegerAttribute("a", 0, 9, nullable=True),
    NumericAttribute("a", (0, 1.5, 8)),
    BooleanAttribute("a"),
    CategoricalAttribute("a", ("1", "7", "x"), other=True),
]
KEY = HashKey(2, np.arange(1, num_words(2) + 1, dtype=np.uint64), b"0123456789abcdef")
HEAVIEST = 100
_DAY = datetime.date(2020, 1, 2)
_NO_ZONE = "Nowhere/Land"  # of which no database of time zones knows
_FINE = 1_600_000_000_000_000_001  # nanoseconds, which Python's own types do not hold
Read = list[tuple[Any, ...]]


def contributions(column: pa.Array) -> Read:
    """What each value is read as: as a unit, as a key of each type, as a weight."""
    units, has_unit = unit_fingerprints(column)
    read: list[Any] = [np.where(has_unit, units[half], 0) for half in (0, 1)] + [has_unit]
    for key_type in KEY_TYPES:
        elements, valid = key_elements(column, key_type, KEY)
        read += [np.where(valid, elements, 0), valid]
    weights, valid = clamped_numbers(column, HEAVIEST)
    read += [np.where(valid, weights, 0), valid]
    return rows(read)


def levels(column: pa.Array, attributes: Sequence[Attribute] = ATTRIBUTES) -> Read:
    """What each value is as a time and as a level of each attribute."""
    return rows([seconds_of(column), *(encode_column(each, column) for each in attributes)])


def rows(columns: list[Any]) -> Read:
    return list(zip(*(each.tolist() for each in columns), strict=True))


def plain_columns() -> list[pa.Array]:
    """Arrays of two values and a null, one of each type that holds no other."""
    integers = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
    numbers = [*integers, pa.float16(), pa.float32(), pa.float64()]
    decimals = [pa.decimal128(5, 1), pa.decimal256(5, 1)]
    texts = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(1)]
    views = [pa.string_view(), pa.binary_view()]
    times = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
    spans = [make(unit) for make in (pa.timestamp, pa.duration) for unit in ("s", "ms", "us", "ns")]
    zoned = [pa.timestamp("us", zone) for zone in ("UTC", "+02:00", _NO_ZONE)]
    fine = [pa.timestamp("ns"), pa.timestamp("ns", _NO_ZONE), pa.duration("ns"), pa.time64("ns")]
    uuids = pa.array([b"u" * 16, None, b"v" * 16], pa.binary(16))
    return [
        pa.nulls(3),
        pa.array([True, None, False]),
        *(pa.array([1, None, 7]).cast(kind) for kind in numbers),
        *(pa.array([decimal.Decimal(1), None, decimal.Decimal("7.5")], kind) for kind in decimals),
        *(pa.array([b"1", None, b"x"]).cast(kind) for kind in (*texts, *views)),
        *(pa.array([_DAY, None, _DAY], kind) for kind in (pa.date32(), pa.date64())),
        *(pa.array([1, None, 7], kind) for kind in (*times, *spans, *zoned)),
        *(pa.array([_FINE % (86_400 * 10**9), None, 1], kind) for kind in fine),
        pa.array([_FINE, None, _FINE + 1], pa.timestamp("ns")),
        pa.array([(1, 2, 3), None, (1, 2, 4)], pa.month_day_nano_interval()),
        pa.ExtensionArray.from_storage(pa.uuid(), uuids),
    ]


def made_of(values: pa.Array) -> list[pa.Array]:
    """The array, and what holds its values in every other way that Arrow has."""
    found = [
        values,
        pa.StructArray.from_arrays([values], ["a"]),
        pa.DictionaryArray.from_arrays(pa.array([0, 2, 1], pa.uint16()), values),
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 4], pa.int32()), values),
        pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [values, pa.array([1, 2, 3])]),
    ]
    if pa.types.is_temporal(values.type):
        ends = pa.array(range(4), pa.int32())
        found += [
            pa.ListArray.from_arrays(ends, values),
            pa.LargeListArray.from_arrays(ends.cast(pa.int64()), values),
            pa.FixedSizeListArray.from_arrays(values, 1),
            pa.MapArray.from_arrays(ends, pa.array(["a", "b", "c"]), values),
        ]
    return found


def every_column() -> list[pa.Array]:
    return [column for values in plain_columns() for column in made_of(values)]


def everything_read() -> dict[str, Any]:
    """What is read out of every column, and out of its values, by the array's type."""
    found: dict[str, Any] = {}
    for number, array in enumerate(every_column()):
        again = contributions(arrow_column(list(array)))
        found[f"{number}: {array.type}"] = [contributions(array), again, levels(array)]
    return found
