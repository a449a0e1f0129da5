"""What each value means, written again in plain Python, one value at a time."""

import datetime
import math
import re
from decimal import Decimal

import beam_dp as dp

BLANKS = " \t\n\r\x0b\x0c"


def code_of(attribute, value):
    """The code of one value; -1 where its record is outside the domain."""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            value = object()
    if attribute.nullable and (value is None or _stands_for_null(attribute, value)):
        return attribute.size - 1
    level = None if value is None else _level(attribute, value)
    if level is not None:
        return level
    return attribute.num_levels if attribute.other else -1


def _stands_for_null(attribute, value):
    if _listed(attribute):
        return _place(attribute, value) == "null"
    for null in attribute.null_values:
        meant = _own(attribute, null)
        if meant is None:
            if isinstance(value, str) and _normal(attribute, value) == _normal(
                attribute, str(null)
            ):
                return True
        elif _own(attribute, value) == meant:
            return True
    return False


def _listed(attribute):
    """The declared values with what they mean, where nothing else is read."""
    if isinstance(attribute, dp.CategoricalAttribute):
        levels = [(each, place) for place, each in enumerate(attribute.values)]
    elif isinstance(attribute, dp.BooleanAttribute) and attribute.true_values:
        levels = [(each, 0) for each in attribute.false_values]
        levels += [(each, 1) for each in attribute.true_values]
    else:
        return []
    return levels + [(each, "null") for each in attribute.null_values]


def _place(attribute, value):
    """What the first declared value means that is equal as a text; else as a number."""
    if isinstance(value, bool) and isinstance(attribute, dp.BooleanAttribute):
        return int(value)
    listed = [(_normal(attribute, str(each)), each, meant) for each, meant in _listed(attribute)]
    text = str(value).lower() if isinstance(value, bool) else value
    if isinstance(text, str):
        for form, _, meant in listed:
            if form == _normal(attribute, text):
                return meant
    usual = _plain(_normal(attribute, value)) if isinstance(value, str) else _usual(value)
    for read in (str, _plain):
        for form, _, meant in listed:
            if usual is not None and read(form) == usual:
                return meant
    number = _integer(value)
    for form, each, meant in listed:
        if number is not None and isinstance(each, int) and form == str(number):
            return meant
    return None


def _usual(value):
    """The text of a number: digits if it is whole, else the shortest decimal."""
    if isinstance(value, float) and math.isfinite(value) and value != int(value):
        return repr(value)
    if isinstance(value, Decimal) and value.is_finite() and value != int(value):
        return format(value.normalize(), "f")
    if value in (math.inf, -math.inf):
        return repr(value)
    number = _integer(value)
    return None if number is None else str(number)


def _plain(text):
    """An integer of 64 bits without a final ".0"; None for other texts."""
    if not re.fullmatch(r"0|-?[1-9][0-9]*|-?(0|[1-9][0-9]*)\.0", text):
        return None
    number = int(text.removesuffix(".0"))
    return str(number) if -(2**63) <= number < 2**64 else None


def _own(attribute, value):
    """The value of the attribute's own kind, unless it only has declared ones."""
    if _listed(attribute):
        return None
    if isinstance(attribute, dp.BooleanAttribute):
        if isinstance(value, str) and value.strip(BLANKS).lower() in ("false", "true"):
            return int(value.strip(BLANKS).lower() == "true") if value.isascii() else None
        return _integer(value)
    if isinstance(attribute, dp.IntegerAttribute):
        return _integer(value)
    if isinstance(attribute, dp.NumericAttribute):
        return _number(value)
    time = _time(value)
    if time is None or (time.tzinfo is None) != _naive(attribute):
        return None
    return time.date() if isinstance(attribute, dp.DateAttribute) else time


def _naive(attribute):
    return getattr(attribute.edges[0], "tzinfo", None) is None


def _normal(attribute, text):
    if attribute.trim:
        text = re.sub(r"^[\s\u200b\u2060\ufeff]+|[\s\u200b\u2060\ufeff]+$", "", text)
    return text.casefold() if attribute.case == "ignore" else text


def _level(attribute, value):
    if _listed(attribute):
        return _place(attribute, value)
    own = _own(attribute, value)
    if own is None:
        return None
    if isinstance(attribute, dp.BooleanAttribute):
        return own if own in (0, 1) else None
    if isinstance(attribute, dp.IntegerAttribute):
        low, high = attribute.minimum, attribute.maximum
    else:
        low, high = attribute.edges[0], attribute.edges[-1]
    if isinstance(own, (int, float)) and (own != own or abs(own) > 1.7976931348623157e308):
        return None
    if attribute.clip:
        own = min(max(own, low), high)
    if not low <= own <= high:
        return None
    if isinstance(attribute, dp.IntegerAttribute):
        return own - low
    return max(bin for bin in range(attribute.num_levels) if attribute.edges[bin] <= own)


def _time(value):
    """A date as its midnight; only what Python's own types hold."""
    if isinstance(value, str):
        form = (
            r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d)?(\.\d{1,6})?"
            r"(Z|[+-]\d\d(?::?\d\d)?)?)?"
        )
        match = re.fullmatch(form, value.strip(BLANKS), re.ASCII)
        if not match or (match[4] and not match[3]):
            return None
        day, minute, second, fraction, zone = (part or "" for part in match.groups())
        zone = {"": "", "Z": "+00:00"}.get(zone, f"{zone[:3]}:{zone[3:].lstrip(':') or '00'}")
        text = f"{day}T{minute or '00:00'}{second or ':00'}{(fraction or '.').ljust(7, '0')}{zone}"
        try:
            return datetime.datetime.fromisoformat(text)
        except ValueError:
            return None
    if isinstance(value, datetime.datetime):
        return value
    if isinstance(value, datetime.date):
        return datetime.datetime.combine(value, datetime.time())
    return None


def _integer(value):
    if isinstance(value, str):
        match = re.fullmatch(r"([+-]?[0-9]+)(\.0*)?", value.strip(BLANKS))
        return int(match[1]) if match else None
    if isinstance(value, (bool, int)):
        return int(value)
    if isinstance(value, (float, Decimal)) and math.isfinite(value):
        return int(value) if value == int(value) else None
    return None


def _number(value):
    if isinstance(value, str):
        form = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
        return float(value) if re.fullmatch(form, value.strip(BLANKS)) else None
    if isinstance(value, (bool, int, float, Decimal)):
        return float(value)
    return None
