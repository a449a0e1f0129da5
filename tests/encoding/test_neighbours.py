"""What a record contributes is a function of its own values: no neighbour changes it.

Else one record could change what all others of its bundle count for, and no noise would hide it.
"""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import enum
import fractions
import importlib.util
import uuid
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.utils.timestamp import Duration, Timestamp

from beam_dp.domain import (
    Attribute,
    BooleanAttribute,
    CategoricalAttribute,
    DateAttribute,
    DatetimeAttribute,
    IntegerAttribute,
    NumericAttribute,
)
from beam_dp.encoding.columns import encode_column
from beam_dp.encoding.keys import clamped_numbers, key_elements
from beam_dp.encoding.units import arrow_column, unit_fingerprints
from beam_dp.hashing import HashKey
from beam_dp.queries.sparse import KEY_TYPES


class Whole(enum.IntEnum):
    ONE = 1


class Letter(enum.StrEnum):
    A = "a"


class Colour(enum.Enum):
    RED = 1


class Plain:
    pass


class OwnInteger(int):
    pass


class OwnText(str):
    pass


class OwnFloat(float):
    pass


class OwnBytes(bytes):
    pass


class Unreadable(int):
    def __index__(self) -> int:
        raise RuntimeError

    __le__ = __lt__ = __ge__ = __gt__ = __int__ = __index__  # type: ignore[assignment]


Pair = collections.namedtuple("Pair", "a b")
D = decimal.Decimal
DAY = datetime.datetime(2020, 1, 1)
KINDS: dict[str, Any] = {
    "null": None,
    **{str(each): each for each in (True, 0, 1, 7, 2**53 + 1, 2**63, 2**64, -(2**63))},
    "below int64": -(2**63) - 1,
    "longer than Python writes": 10**5000,
    **{f"float {each}": each for each in (0.0, 0.5, 1.0, 2.0**53, 1e20)},
    "infinite": float("inf"),
    "not a number": float("nan"),
    **{f"text {each}": each for each in ("0", "1", "a", "true", "", "0.5", "0x1", "nan", "2.")},
    **{f"text {each}": each for each in (" A\t", "inf", "1e999", "9" * 30, "9" * 400, "\u212a")},
    **{f"text {each}": each for each in ("2020-01-01", "1970-01-01T00:00:00.5Z", "2020-13-01")},
    "text of 2^63": str(2**63),
    "surrogate": "\udcff",
    "text with a zero": "a\0",
    **{f"bytes {each!r}": each for each in (b"1", b"a", b"\xff", b"a\0")},
    "bytearray": bytearray(b"a"),
    "bytearray of a digit": bytearray(b"1"),
    "memoryview": memoryview(b"a"),
    **{f"decimal {each}": D(each) for each in ("1", "0.5", "nan", "inf", "1e50", "1e900")},
    "date": DAY.date(),
    "datetime": DAY,
    "aware datetime": DAY.replace(tzinfo=datetime.UTC),
    "datetime of the last year": datetime.datetime(9999, 12, 31),
    "time": datetime.time(1),
    "timedelta": datetime.timedelta(1),
    "Timestamp": Timestamp(5),
    "Duration": Duration(5),
    "small UUID": uuid.UUID(int=3),
    "large UUID": uuid.UUID(int=2**127),
    "Enum": Colour.RED,
    "IntEnum": Whole.ONE,
    "text Enum": Letter.A,
    "own integer": OwnInteger(1),
    "own text": OwnText("a"),
    "own float": OwnFloat(1),
    "own bytes": OwnBytes(b"a"),
    "unreadable integer": Unreadable(1),
    "int64": np.int64(1),
    "int8": np.int8(1),
    "uint64": np.uint64(2**64 - 1),
    "float64": np.float64(0.5),
    "float32": np.float32(0.1),
    "float16": np.float16(0.1),
    "longdouble": np.longdouble(0.5),
    "bool_": np.bool_(True),
    "str_": np.str_("a\0"),
    "bytes_": np.bytes_(b"a\0"),
    **{f"datetime64[{unit}]": np.datetime64("2020-01-01", unit) for unit in ("Y", "D", "s", "ns")},
    **{f"timedelta64[{unit}]": np.timedelta64(1, unit) for unit in ("M", "D", "s", "ns")},
    "timedelta64": np.timedelta64(1),
    "datetime64 far away": np.datetime64(2**62, "s"),
    "datetime64 NaT": np.datetime64("NaT"),
    "numpy record": np.zeros(1, [("a", int)])[0],
    "numpy array": np.array([1, 2]),
    "numpy array of no dimension": np.array(1),
    "list": [1],
    "tuple": (1, 2),
    "named tuple": Pair(1, 2),
    "dict": {"a": 1},
    "Row": beam.Row(a=1),
    "set": {1},
    **{f"scalar {each!r}": pa.scalar(each) for each in ("a", 1, True, 0.5, b"a", [1], DAY)},
    "null scalar": pa.scalar(None, pa.string()),
    "scalar that is no text": pa.array([b"\xff"]).view(pa.string())[0],
    "array": array.array("b", [1]),
    "fraction": fractions.Fraction(1, 2),
    "complex": 1j,
    "range": range(3),
    "object": Plain(),
    "class": Plain,
}
if importlib.util.find_spec("pandas"):  # which nothing here requires
    import pandas as pd

    KINDS["pandas Timestamp"] = pd.Timestamp("2020-01-01")
    KINDS["nanosecond"] = pd.Timestamp(1)
    KINDS["pandas NA"] = pd.NA
    KINDS["pandas NaT"] = pd.NaT
    KINDS["pandas Timedelta"] = pd.Timedelta(1)
    KINDS["pandas Period"] = pd.Period("2020")
KEY = HashKey.draw(4)
TEXTS = ("0", "1", "a", "0.5", "true", "True", "1.0", "", str(2**63), "a\0")
ATTRIBUTES: list[Attribute] = [
    CategoricalAttribute("x", TEXTS),
    CategoricalAttribute("x", ("a",), other=True, nullable=True),
    IntegerAttribute("x", 0, 9),
    BooleanAttribute("x", nullable=True),
    NumericAttribute("x", (0.0, 0.5, 1.0, 2.0, 1e18)),
]
DECLARED: list[Attribute] = [
    CategoricalAttribute("x", ("A", "1", "TRUE"), case="ignore", trim=True),
    BooleanAttribute("x", true_values=("a", 1), false_values=("0.5", 0), case="ignore"),
    IntegerAttribute("x", 1, 9, clip=True, nullable=True, null_values=("a", "", 0)),
    NumericAttribute("x", (0.5, 1.0, 7.0), clip=True, nullable=True, null_values=("A", 0.1, 1e20)),
    DateAttribute("x", ("2020-01-01", "2020-01-02"), nullable=True, null_values=("0.5", "a")),
    DateAttribute("x", ("1970-01-01", "1970-01-02"), clip=True),
    DatetimeAttribute("x", ("1970-01-01", "2020-01-01"), clip=True, other=True),
    DatetimeAttribute("x", ("1970-01-01T00:00Z", "2021-01-01T00:00Z"), other=True),
]


def contributions(values: list[Any]) -> list[tuple[Any, ...]]:
    """What each value is read as: as a unit, as a key of each type, as a weight, as a level."""
    column = arrow_column(values)
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


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_a_value_is_read_alike_beside_every_other(
    name: str, alone: dict[str, tuple[Any, ...]]
) -> None:
    for other, neighbour in KINDS.items():
        assert contributions([KINDS[name], neighbour]) == [alone[name], alone[other]], other


def levels(values: list[Any]) -> list[tuple[int, ...]]:
    """What each value is read as by attributes that declare what texts mean, or dates."""
    column = arrow_column(values)
    read = [encode_column(attribute, column).tolist() for attribute in DECLARED]
    return list(zip(*read, strict=True))


@pytest.fixture(scope="module")
def level_alone() -> dict[str, tuple[int, ...]]:
    return {name: levels([value])[0] for name, value in KINDS.items()}


def test_a_value_has_its_level_beside_all_others_at_once(
    level_alone: dict[str, tuple[int, ...]],
) -> None:
    assert levels(list(KINDS.values())) == list(level_alone.values())
    assert levels(list(KINDS.values())[::-1]) == list(level_alone.values())[::-1]


# Texts, and dates, of one kind make a column of one type, which others may decide how to read.
@pytest.mark.mostly_slow(one_in=3)
@pytest.mark.parametrize("name", [name for name in KINDS if "text" in name or "date" in name])
def test_a_text_or_a_time_has_its_level_beside_every_other(
    name: str, level_alone: dict[str, tuple[int, ...]]
) -> None:
    for other in KINDS:
        if type(KINDS[other]) is type(KINDS[name]):
            assert levels([KINDS[name], KINDS[other]]) == [level_alone[name], level_alone[other]]


def test_one_fraction_does_not_change_what_a_thousand_booleans_are() -> None:
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
def test_values_of_other_libraries_are_read_as_the_ones_they_stand_for(
    kind: str, same_as: Any
) -> None:
    if kind not in KINDS:
        pytest.skip("needs pandas")
    assert contributions([KINDS[kind]])[0] == contributions([same_as])[0]
