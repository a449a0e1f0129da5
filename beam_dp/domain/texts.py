"""Reading of texts: how declared words are compared, and the forms of numbers and times.

Domain files and columns of records are read by these same functions.
"""

from __future__ import annotations

import datetime
import math
import re

# What surrounds a number, a truth value or a date without a meaning; with ``trim`` any text.
BLANKS = " \t\n\r\v\f"
DAY = 86_400 * 10**9  # nanoseconds

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
# No part of these expressions can match the same text in two ways: junk costs linear time.
_INTEGER = re.compile(rb"\s*([+-]?)([0-9]+)(?:\.0*)?\s*")
_NUMBER = re.compile(rb"\s*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
_TIME = re.compile(
    rb"\s*([0-9]{4})-([0-9]{2})-([0-9]{2})"
    rb"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
    rb"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?\s*"
)
_EPOCH = datetime.date(1970, 1, 1).toordinal()


def normal_form(text: str, *, ignore_case: bool, trim: bool) -> str:
    """Returns what two texts have in common that count as one.

    Args:
        text: any text.
        ignore_case: whether case is ignored: Unicode's full case folding, of no language
            (``str.casefold``); ``"STRASSE"`` is ``"straße"``.
        trim: whether blanks (space, tab, CR, LF, vertical tab, form feed) around it are.

    Example:
        >>> normal_form(" Yes", ignore_case=True, trim=True)
        'yes'
    """
    text = text.strip(BLANKS) if trim else text
    return text.casefold() if ignore_case else text


def integer_of(text: bytes) -> int | float | None:
    """Returns the integer that a text is: ``12``, ``-3``, `` +07 ``, ``5.0``; else None.

    One that no float reaches is infinite, as a number of that size is everywhere.
    """
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    digits = match[2].lstrip(b"0") or b"0"
    # Of few digits, the float need not be asked for.
    is_finite = len(digits) < 300 or (len(digits) < 400 and math.isfinite(float(digits)))
    value = int(digits) if is_finite else math.inf
    return -value if match[1] == b"-" else value


def int64_of(text: bytes) -> int | None:
    """Returns the integer that a text is, if it fits in 64 bits."""
    value = integer_of(text)
    return int(value) if value is not None and _INT64_MIN <= value <= _INT64_MAX else None


def number_of(text: bytes) -> float | None:
    """Returns the number that a text is: ``12``, ``-3.5``, `` .5e3 ``; else None."""
    return float(text) if _NUMBER.fullmatch(text) else None


def time_of(text: bytes) -> tuple[int, bool] | None:
    """Returns the time that an ISO 8601 text is, and whether it has a zone; else None.

    Texts are ``YYYY-MM-DD``, which is its midnight, or that with ``T`` or a space, ``hh:mm``,
    ``:ss`` if need be, a point with up to nine digits, and then a zone: ``Z``, ``+hh``,
    ``+hhmm`` or ``+hh:mm``. Blanks around are ignored.

    Returns:
        Nanoseconds since 1970: of what a clock on the wall shows, or with a zone in UTC.

    Example:
        >>> time_of(b"1970-01-02"), time_of(b"1970-01-01T01:00:00.5+01:00"), time_of(b"1970-13-01")
        ((86400000000000, False), (500000000, True), None)
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
