"""A record contributes by its own values alone: no other record of its bundle changes it.

Otherwise one record could change what all others count for, and no noise would hide it.
"""

import array
import collections
import datetime
import decimal
import enum
import fractions
import functools
import importlib.util
import pickle
import uuid
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from apache_beam.utils.timestamp import Duration, Timestamp
from every_column import Read, contributions, levels

from beam_dp.domain.attributes import Attribute, BooleanAttribute, CategoricalAttribute
from beam_dp.domain.dates import DateAttribute, DatetimeAttribute
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.secret.encoding.records import encode_column
from beam_dp.secret.encoding.tables import frame_batch
from beam_dp.secret.encoding.units import arrow_column
from beam_dp.transforms.reading.records import _batch


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


class NotComparable:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __ne__ = __bool__ = __repr__ = __str__ = __len__ = __array__ = __float__ = __eq__  # type: ignore[assignment]
    __hash__ = __int__ = __index__ = __iter__ = __getattr__ = __eq__  # type: ignore[assignment]


class FloatWithoutComparison(float):
    __ne__ = __eq__ = NotComparable.__eq__  # type: ignore[assignment]
    __hash__ = float.__hash__


class DecimalWithoutComparison(decimal.Decimal):
    __ne__ = __eq__ = is_nan = NotComparable.__eq__  # type: ignore[assignment]
    __hash__ = decimal.Decimal.__hash__


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
    "signalling NaN": D("sNaN"),
    "not comparable": NotComparable(),
    "float without comparison": FloatWithoutComparison(1),
    "decimal without comparison": DecimalWithoutComparison(1),
    "complex NaN": complex("nan"),
    "datetime of the first year": datetime.datetime(1, 1, 1, tzinfo=datetime.UTC),
    "datetime of another zone": DAY.replace(
        tzinfo=datetime.timezone(datetime.timedelta(hours=-23))
    ),
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
    KINDS["pandas Interval"] = pd.Interval(0, 1)
    KINDS["pandas Series"] = pd.Series([1])
    KINDS["pandas frame"] = pd.DataFrame({"a": [1]})
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
