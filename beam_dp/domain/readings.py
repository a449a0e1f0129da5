"""The readings of values in columns whose type is to be discovered, and the type they vote for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.attributes import CategoricalAttribute

# What a release looks for where nothing is declared; the range of dates is a wide public one.
USUAL_VALUES, USUAL_BINS = 100, 20
_FIRST_DAY, _LAST_DAY = "1900-01-01", "2100-01-01"


def usual_days(time: str = "") -> dict[str, Any]:
    """Returns the bins to discover of dates or, with a time such as ``T00:00``, of times."""
    return {"bins": USUAL_BINS, "min": _FIRST_DAY + time, "max": _LAST_DAY + time}


UNTYPED = "discover"  # the type of a column whose type is to be discovered
# The public list of readings, with the keys of such a column in a domain file; and their codes.
READINGS: dict[str, dict[str, Any]] = {
    "whole number": {"type": "numeric", "whole": True, "discover": {"bins": USUAL_BINS}},
    "number": {"type": "numeric", "discover": {"bins": USUAL_BINS}},
    "date": {"type": "date", "discover": usual_days()},
    "time": {"type": "datetime", "discover": usual_days("T00:00")},
    "time with a zone": {"type": "datetime", "discover": usual_days("T00:00Z")},
    "text": {"type": "categorical", "discover": {"max_values": USUAL_VALUES}},
}
WHOLE, NUMBER, DATE, TIME, MOMENT, TEXT = range(len(READINGS))
# A whole number is also a number, and a date is also a time, midnight.
_NESTED = ([WHOLE, NUMBER], [DATE, TIME], [MOMENT])
# A type may leave so large a share of the values unread, or else what noise hides: so many standard
# errors. At least twice as many values must be read.
_ODD_SHARE, _ERRORS = 0.025, 5.0
LEAST_UNITS = 27.5  # in standard errors: with fewer units, the type of a column is text


def type_of(counts: NDArray[np.float64], standard_error: float) -> str:
    """Returns the type of a column: a reading that clearly nearly all values have, or else text.

    ``counts``: noisy numbers of units by their narrowest reading, shape (len(READINGS),).
    ``standard_error``: of each count.

    Nested readings win if all others have few units, at most max(2.5 % of all units, 5 standard
    errors of their sum), and they themselves at least twice as many. Then the narrower one wins if
    few units have the wider one.

    Accuracy: the noise of a sum is 5 standard errors or more on one side with probability below
    3e-7. So if all units of a column have one reading, and are at least 27.5 standard errors, the
    column gets another type with probability below 1e-6; text needs not so many. In columns of 900
    standard errors and more, 1 % of odd values change no type, and 5 % make it text, as probably.
    """
    names, total = list(READINGS), float(counts.sum())

    def few(codes: list[int]) -> float:
        return max(_ODD_SHARE * total, _ERRORS * standard_error * math.sqrt(len(codes)))

    for nested in _NESTED:
        others = sorted({*range(len(names))} - {*nested})
        inside = counts[nested].sum()
        if total - inside <= few(others) and inside >= 2 * few(others):
            return names[nested[0 if counts[nested[1:]].sum() <= few(nested[1:]) else 1]]
    return names[TEXT]


@dataclass(frozen=True)
class ReadingsAttribute(CategoricalAttribute):
    """A column whose type is to be discovered: the level of a value is its narrowest reading."""

    values: tuple[str | int, ...] = tuple(READINGS)
