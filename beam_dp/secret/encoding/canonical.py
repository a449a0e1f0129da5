"""Canonical texts of Python values, by which privacy units and keys are compared."""

from __future__ import annotations

import datetime
import decimal
import enum
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from beam_dp.domain.texts import plain_integer

NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_SPANS = {**NANOSECONDS, "D": 86_400 * 10**9, "W": 7 * 86_400 * 10**9}
_UNIX_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


class Time(NamedTuple):
    """A date or time in nanoseconds since 1970: UTC if the time has a zone, else local time."""

    nanoseconds: int
    has_zone: bool
    is_date: bool


def time_of_object(value: Any) -> Time | None:
    """Returns the date or time in a Python, numpy, pandas or Beam value; None for other values."""
    try:
        if isinstance(value, datetime.datetime):
            has_zone = value.utcoffset() is not None
            aware = value if has_zone else value.replace(tzinfo=datetime.UTC)
            microseconds = (aware - _UNIX_EPOCH) // _MICROSECOND
            nanoseconds = microseconds * 1000 + getattr(value, "nanosecond", 0)
            return Time(nanoseconds, has_zone, is_date=False)
        if isinstance(value, datetime.date):
            days = value.toordinal() - _UNIX_EPOCH.toordinal()
            return Time(days * _SPANS["D"], has_zone=False, is_date=True)
        if isinstance(value, np.datetime64) and not np.isnat(value):
            unit, count = np.datetime_data(value.dtype)
            if unit in ("Y", "M", "W", "D"):
                days = int(value.astype("datetime64[D]").astype(np.int64))
                return Time(days * _SPANS["D"], has_zone=False, is_date=True)
            nanoseconds = int(value.astype(np.int64)) * count * _SPANS[unit]
            return Time(nanoseconds, has_zone=False, is_date=False)
        if type(value).__name__ == "Timestamp" and isinstance(value.micros, int):  # Beam's own
            return Time(value.micros * 1000, has_zone=True, is_date=False)
    except Exception:  # a user's class raised, or the unit is finer than Arrow's units
        pass
    return None


def canonical_bytes(value: object) -> bytes | None:
    """Returns the canonical text of a value as bytes; None for null, NaN and unsupported values.

    Equal values have the same text in every process, and mappings in any order of keys. An integer
    has the same text as strings that mean the integer (``plain_integer``). Supports numbers,
    strings, bytes, dates, times, durations (including numpy's and Beam's types), UUIDs, enumeration
    members, and lists, tuples and dictionaries of supported values. Other objects are unsupported,
    because ``str`` may return a memory address.
    """
    try:
        return _text(value)
    except Exception:  # an unsupported value, or a user's class that fails
        return None


def _text(value: Any) -> bytes | None:
    """Returns the text of a value, None for null; raises for unsupported values."""
    if value is None:
        return None
    if isinstance(value, str):
        return plain_integer(str.encode(value, "utf-8", "surrogatepass"))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return plain_integer(bytes(value))
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else _text_of_time(value)
    if isinstance(value, np.timedelta64):
        return _text_of_numpy_duration(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return b"%d" % int(value) if value.is_integer() else float.__repr__(value).encode()
    if isinstance(value, decimal.Decimal):
        return _text_of_decimal(value)
    if isinstance(value, (list, tuple)):
        return b"list:" + _joined(map(_text, value))
    if isinstance(value, dict):
        pairs = [_joined((_text(key), _text(inner))) for key, inner in value.items()]
        return b"map:" + _joined(sorted(pairs))
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}:".encode() + value.name.encode()
    kind = type(value)
    if (kind.__module__, kind.__name__) == ("uuid", "UUID"):  # avoids importing a random source
        return plain_integer(value.bytes)  # as in Arrow
    return _text_of_time(value)


def _joined(texts: Iterable[bytes | None]) -> bytes:
    """Joins texts with length prefixes, so that different lists have different results."""
    return b",".join(b"null" if text is None else b"%d:%b" % (len(text), text) for text in texts)


def _text_of_decimal(value: decimal.Decimal) -> bytes | None:
    if value.is_nan():
        return None
    if not value.is_finite() or abs(value.adjusted()) > 400:
        return str(value).encode()
    text = format(value, "f") if value else "0"
    return (text.rstrip("0").rstrip(".") if "." in text else text).encode()


def _text_of_time(value: Any) -> bytes:
    """Returns the text of a date, time or duration of Python, pandas (nanoseconds) or Beam."""
    if (time := time_of_object(value)) is not None:
        if time.is_date:
            return b"date:%d" % (time.nanoseconds // _SPANS["D"])
        return b"timestamp:%d" % time.nanoseconds
    if isinstance(value, datetime.timedelta):
        microseconds = value // _MICROSECOND
        return b"duration:%d" % (microseconds * 1000 + getattr(value, "nanoseconds", 0))
    if isinstance(value, datetime.time):
        since_midnight = datetime.datetime.combine(_UNIX_EPOCH, value, datetime.UTC) - _UNIX_EPOCH
        return b"time:%d" % (since_midnight // _MICROSECOND * 1000)
    name, micros = type(value).__name__, getattr(value, "micros", None)
    if name == "Duration" and isinstance(micros, int):  # Beam's own
        return b"duration:%d" % (micros * 1000)
    raise TypeError(f"a {name} has no text")


def _text_of_numpy_duration(value: np.timedelta64) -> bytes | None:
    if np.isnat(value):
        return None
    unit, count = np.datetime_data(value.dtype)
    # Raises for months and for units finer than nanoseconds.
    return b"duration:%d" % (int(value.astype(np.int64)) * count * _SPANS[unit])
