"""Reads strings from domain files and records: words, numbers, times and JSON."""

from __future__ import annotations

import datetime
import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from beam_dp.errors import InputError, shown

if TYPE_CHECKING:
    import pyarrow as pa

Element = str | bytes | int  # of a universe of keys
# The type of all keys of one release.
KeyType = Literal["text", "bytes", "integer"]
KEY_TYPES: tuple[KeyType, ...] = ("text", "bytes", "integer")

# Blanks, ignored around a number, a boolean or a date.
BLANKS = " \t\n\r\v\f"
# Ignored around any string with ``trim``: what Unicode calls white space, and zero-width blanks.
_TRIMMED = (
    f"{BLANKS}\x1c\x1d\x1e\x1f\x85\xa0\u1680{''.join(map(chr, range(0x2000, 0x200C)))}"
    "\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
)
DAY = 86_400 * 10**9  # nanoseconds

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
# Each expression matches a string in at most one way, so that invalid input takes linear time.
_INTEGER = re.compile(rb"\s*([+-]?)([0-9]+)(?:\.0*)?\s*")
_NUMBER = re.compile(rb"\s*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
_TIME = re.compile(
    rb"\s*([0-9]{4})-([0-9]{2})-([0-9]{2})"
    rb"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
    rb"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?\s*"
)
_EPOCH = datetime.date(1970, 1, 1).toordinal()


def normal_form(text: str, *, ignore_case: bool, trim: bool) -> str:
    """Returns a canonical form: two strings compare as equal if they have the same form."""
    text = text.strip(_TRIMMED) if trim else text
    return text.casefold() if ignore_case else text


def integer_of(text: bytes) -> int | float | None:
    """Returns the integer in a string such as ``5.0``, or infinity if too large; None otherwise."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    digits = match[2].lstrip(b"0") or b"0"
    is_finite = len(digits) < 300 or (len(digits) < 400 and math.isfinite(float(digits)))
    value = int(digits) if is_finite else math.inf
    return -value if match[1] == b"-" else value


def int64_of(text: bytes) -> int | None:
    """Returns the integer in a string if it fits in 64 bits, else None."""
    value = integer_of(text)
    return int(value) if value is not None and _INT64_MIN <= value <= _INT64_MAX else None


def number_of(text: bytes) -> float | None:
    """Returns the number in a string such as ``12``, ``-3.5`` or `` .5e3 ``; else None."""
    return float(text) if _NUMBER.fullmatch(text) else None


def time_of(text: bytes) -> tuple[int, bool] | None:
    """Returns the nanoseconds since 1970 of an ISO 8601 string, and whether the string has a zone.

    Returns None for other strings. Nanoseconds count UTC for strings with a zone, else local time.
    A string is a date ``YYYY-MM-DD``, which means midnight, or a date, ``T`` or a space, and a
    time ``hh:mm``. Seconds ``:ss`` may follow, then a point with up to nine digits, then a zone:
    ``Z``, ``+hh``, ``+hhmm`` or ``+hh:mm``. Blanks at both ends are ignored.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(match[place] or 0) for place in range(1, 7))
    if hour > 23 or minute > 59 or second > 59:
        return None
    try:
        days = datetime.date(year, month, day).toordinal() - _EPOCH
    except ValueError:
        return None
    fraction = int((match[7] or b"").ljust(9, b"0"))
    nanoseconds = days * DAY + ((hour * 60 + minute) * 60 + second) * 10**9 + fraction
    zone = match[8]
    if zone is None or zone == b"Z":
        return nanoseconds, zone is not None
    offset_hours, offset_minutes = int(zone[1:3]), int(zone[3:].lstrip(b":") or 0)
    if offset_hours > 23 or offset_minutes > 59:
        return None
    offset = (offset_hours * 60 + offset_minutes) * 60 * 10**9
    return nanoseconds - offset if zone.startswith(b"+") else nanoseconds + offset, True


# ``fullmatch`` in Python and ``$`` in Arrow both reject a newline at the end.
_FORM = r"-?(?:0|[1-9][0-9]*)\.0"
_BYTES = re.compile(_FORM.encode())
_ARROW = rf"^{_FORM}$"
_PLAIN_INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,19}")


def plain_integer(text: bytes) -> bytes:
    """Returns ``7`` for a string such as ``7.0``, and any other string (``7.00``) unchanged."""
    if not text.endswith(b".0") or not _BYTES.fullmatch(text):
        return text
    return b"0" if text == b"-0.0" else text[:-2]


def integer_key(text: bytes) -> int | None:
    """Returns the integer in the text of a key if it fits in int64 or uint64; otherwise None."""
    plain = plain_integer(text)
    number = int(plain) if _PLAIN_INTEGER.fullmatch(plain) else 2**64
    return number if -(2**63) <= number < 2**64 else None


def plain_integers(column: pa.Array) -> pa.Array:
    """Applies ``plain_integer`` to each string; returns a column of the same type."""
    import pyarrow.compute as pc

    if not pc.any(pc.ends_with(column, pattern=b".0")).as_py():
        return column
    written_as_float = pc.match_substring_regex(column, _ARROW)
    cut = pc.binary_slice(column, 0, -2)
    # The float -0.0 is the integer 0; the string "-0" is not an integer.
    cut = pc.if_else(pc.equal(cut, b"-0"), b"0", cut)
    return pc.if_else(written_as_float, cut, column).cast(column.type)


def checked_json(name: str, source: str, text: str, line: int | None = None) -> Any:
    """Parses untrusted JSON text; ``line`` is the text's line number if the text is one line."""
    where = "" if line is None else f" at line {line}"

    def refuse(constant: str) -> NoReturn:
        raise InputError(name, source, f"{constant} is not a JSON number{where}")

    def finite(digits: str) -> float:
        if math.isinf(parsed := float(digits)):
            raise InputError(name, source, f"{shown(digits)} is too large a number{where}")
        return parsed

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        for key, value in pairs:
            if key in entries:
                condition = f"the key {shown(key)} must appear once in an object{where}"
                raise InputError(name, source, condition)
            entries[key] = value
        return entries

    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=refuse, parse_float=finite)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno if line is None else line}, column {error.colno}"
        condition = f"is not JSON at {place}: {error.msg}"
    except RecursionError:
        condition = f"is nested too deeply{where}"
    except InputError:
        raise
    except ValueError:  # an integer of thousands of digits
        condition = f"contains a number that is too long{where}"
    raise InputError(name, source, condition)


def parsed_lines(name: str, source: str, text: str) -> Iterator[tuple[int, Any]]:
    """Yields the line number, from 1, and the JSON value of each line that is not blank."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, checked_json(name, source, line, number)


def json_text(name: str, text_or_path: str | os.PathLike[str], otherwise: str = "") -> str:
    """Returns the content of a local file; JSON text is returned unchanged."""
    if isinstance(text_or_path, str) and text_or_path.lstrip().startswith("{"):
        return text_or_path
    if not isinstance(text_or_path, str | os.PathLike):
        raise InputError(name, text_or_path, f"must be a path, or JSON as a string{otherwise}")
    source = os.fspath(text_or_path)
    try:
        return Path(source).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(name, source, f"is not UTF-8 at byte {error.start}{otherwise}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise InputError(name, source, f"cannot be read as a file ({reason}){otherwise}") from None
