"""What each value means, written again in plain Python, one value at a time."""

import re
from decimal import Decimal

from beam_dp.domain import (
    BooleanAttribute,
    CategoricalAttribute,
    IntegerAttribute,
    NumericAttribute,
)

JUNK = object()
BLANKS = " \t\n\r\x0b\x0c"


def code_of(attribute, value):
    """The code of one value; -1 where its record is outside the domain."""
    if value is None and attribute.nullable:
        return attribute.size - 1
    level = None if value is None else _level(attribute, value)
    if level is not None:
        return level
    return attribute.num_levels if attribute.other else -1


def _level(attribute, value):
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return None
    if isinstance(attribute, BooleanAttribute):
        if isinstance(value, str) and value.strip(BLANKS).lower() in ("false", "true"):
            if not value.isascii():
                return None
            return int(value.strip(BLANKS).lower() == "true")
        number = _integer(value)
        return number if number in (0, 1) else None
    if isinstance(attribute, IntegerAttribute):
        number = _integer(value)
        if number is None or not attribute.minimum <= number <= attribute.maximum:
            return None
        return number - attribute.minimum
    if isinstance(attribute, NumericAttribute):
        number = _number(value)
        edges = attribute.edges
        if number is None or not edges[0] <= number <= edges[-1]:
            return None
        return max(bin for bin in range(len(edges) - 1) if edges[bin] <= number)
    assert isinstance(attribute, CategoricalAttribute)
    texts = [str(each) for each in attribute.values]
    if isinstance(value, bool) and str(value).lower() in texts:
        return texts.index(str(value).lower())
    if isinstance(value, str):
        if value in texts:
            return texts.index(value)
        number = _integer(value)
        return attribute.values.index(number) if number in attribute.values else None
    number = _integer(value)
    return texts.index(str(number)) if number is not None and str(number) in texts else None


def _integer(value):
    if isinstance(value, str):
        match = re.fullmatch(r"([+-]?[0-9]+)(\.0*)?", value.strip(BLANKS))
        return int(match[1]) if match else None
    if isinstance(value, (bool, int)):
        return int(value)
    if isinstance(value, (float, Decimal)) and value == value and abs(value) < 1e30:
        return int(value) if value == int(value) else None
    return None


def _number(value):
    if isinstance(value, str):
        form = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
        return float(value) if re.fullmatch(form, value.strip(BLANKS)) else None
    if isinstance(value, (bool, int, float, Decimal)):
        return float(value)
    return None
