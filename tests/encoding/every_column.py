"""What the package reads out of columns of every Arrow type, as text that two processes compare."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa

from beam_dp.domain.attributes import Attribute, BooleanAttribute, CategoricalAttribute
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.encoding.keys import clamped_numbers, key_elements
from beam_dp.encoding.records import encode_column
from beam_dp.encoding.units import arrow_column, unit_fingerprints
from beam_dp.hashing.keys import HashKey
from beam_dp.queries.sparse import KEY_TYPES

ATTRIBUTES: list[Attribute] = [
    IntegerAttribute("a", 0, 9, nullable=True),
    NumericAttribute("a", (0, 1.5, 8)),
    BooleanAttribute("a"),
    CategoricalAttribute("a", ("1", "7", "x"), other=True),
]
_DAY = datetime.date(2020, 1, 2)
_NO_ZONE = "Nowhere/Land"  # of which no database of time zones knows
_FINE = 1_600_000_000_000_000_001  # nanoseconds, which Python's own types do not hold


def _plain() -> list[pa.Array]:
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


def _made_of(values: pa.Array) -> list[pa.Array]:
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


def everything_read() -> dict[str, Any]:
    """What is read out of every column: codes, units, weights and keys, by the array's type."""
    key = HashKey.draw(2)
    found: dict[str, Any] = {}
    for number, values in enumerate(_plain()):
        for array in _made_of(values):
            units, has_unit = unit_fingerprints(array)
            again, has_again = unit_fingerprints(arrow_column(list(array)))
            weights, has_weight = clamped_numbers(array, 8)
            is_key = [key_elements(array, kind, key)[1].tolist() for kind in KEY_TYPES]
            found[f"{number}: {array.type}"] = [
                [encode_column(each, array).tolist() for each in ATTRIBUTES],
                [units.tolist(), has_unit.tolist(), again.tolist(), has_again.tolist()],
                [weights.tolist(), has_weight.tolist(), is_key],
            ]
    return found
