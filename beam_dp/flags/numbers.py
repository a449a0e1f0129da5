"""Parsing of numbers on the command line."""

from __future__ import annotations

import math

from beam_dp.errors import InputError


def number(name: str, text: str, or_word: str = "") -> float:
    """Returns a text as a float; only its form is judged here, not its range.

    ``text``: its value. ``1_000``, which Python reads, is refused: it may be a slip.

    Example:
        >>> number("epsilon", "1e-9")
        1e-09
    """
    try:
        if "_" not in text:
            return float(text)
    except ValueError:
        pass
    raise InputError(name, text, f"must be a number {or_word}".rstrip())


def integer(name: str, text: str, or_word: str = "") -> int:
    """Returns a text as an integer: digits, or a float that is one, such as 1e6.

    Example:
        >>> integer("num_records", "1e6")
        1000000
    """
    try:
        if "_" not in text:
            return int(text)
    except ValueError:
        pass
    try:
        value = number(name, text)
    except InputError:
        value = math.nan
    if not value.is_integer():
        raise InputError(name, text, f"must be a whole number {or_word}".rstrip())
    return int(value)
