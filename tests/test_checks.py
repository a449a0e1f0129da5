"""Checks of public numbers, as Python passes them and as people type them."""

import fractions
import math

import numpy as np
import pytest

from beam_dp.checks import checked_integer, checked_number
from beam_dp.domain.ordered import NumericAttribute
from beam_dp.errors import InputError
from beam_dp.flags.flag import integer, number
from beam_dp.releases.intervals.answer import _level


@pytest.mark.parametrize("value", [0, 2**31 + 1, 1.0, True, math.nan, "1", None])
def test_rejects_value_that_is_not_an_integer_in_range(value):
    with pytest.raises(
        InputError, match=r"^size: .* must be an integer from 1 to 2\^31 or 'best'$"
    ):
        checked_integer("size", value, 1, 2**31, " or 'best'")


@pytest.mark.parametrize("value", [np.int64(1), np.float32(0.5), fractions.Fraction(1, 2)])
def test_error_names_type_of_a_number_from_another_library(value):
    for check in (checked_integer, checked_number):
        with pytest.raises(InputError, match=r"must be .* >= 0, of Python's own type$"):
            check("share", value, least=0)


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 10**400, True, "0.5", None, 0, 1, -1e-300]
)
def test_rejects_value_that_is_not_a_number_in_range(value):
    with pytest.raises(InputError, match=r"^share: .* must be a number > 0 and < 1$"):
        checked_number("share", value, above=0, below=1)


@pytest.mark.parametrize("value", [math.nan, math.inf, 10**400, 0])
def test_number_without_an_upper_limit_must_be_finite(value):
    with pytest.raises(InputError, match=r"^weight: .* must be a finite number > 0$"):
        checked_number("weight", value, above=0)


def test_inclusive_ends_belong_to_the_range():
    assert [checked_integer("size", end, 1, 9) for end in (1, 9)] == [1, 9]
    assert [checked_number("share", end, least=0, most=1) for end in (0, 1)] == [0.0, 1.0]
    assert [checked_number("error", end, least=1e-9, below=1) for end in (1e-9, 0.5)] == [1e-9, 0.5]


@pytest.mark.parametrize(
    ("ends", "written"),
    [
        ({"least": -(2**62), "most": 2.0**50}, "a number from -2^62 to 2^50"),
        ({"least": 1e-300, "most": 1e6}, "a number from 1e-300 to 1,000,000"),
        ({"least": 1e-9, "below": 1}, "a number >= 1e-09 and < 1"),
        ({"above": 0, "most": 2**19}, "a number > 0 and <= 524,288"),
        ({"least": 0}, "a finite number >= 0"),
        ({"below": 2**31 - 1}, "a number < 2,147,483,647"),
    ],
)
def test_writes_range_in_few_characters(ends, written):
    with pytest.raises(InputError) as refused:
        checked_number("error", math.nan, **ends)  # type: ignore[arg-type]
    assert refused.value.condition == f"must be {written}"


SHARE = NumericAttribute("share", (0, 0.5, 10))


def test_reads_numbers_as_written():
    assert [number("a", text) for text in ("1", "1e-9", "-2.5")] == [1.0, 1e-9, -2.5]
    assert integer("a", "1e6") == 1_000_000
    # A float would lose the last digit.
    assert integer("a", str(2**63 + 1)) == 2**63 + 1
    assert [_level(SHARE, "10"), _level(SHARE, "0.5")] == [10, 0.5]


@pytest.mark.parametrize("text", ["1_0", "1_0.5", "x", ""])
def test_rejects_text_that_is_not_a_number_or_has_underscore(text):
    with pytest.raises(InputError, match=r"a: .* is not valid: must be a number"):
        number("a", text)
    with pytest.raises(InputError, match="must be a whole number or 'noisy'"):
        integer("a", text, "or 'noisy'")
    with pytest.raises(InputError, match="must be a number"):
        _level(SHARE, text)


@pytest.mark.parametrize("text", ["2.5", "nan", "inf", "1e400"])
def test_rejects_text_that_is_not_a_whole_number(text):
    with pytest.raises(InputError, match="must be a whole number"):
        integer("a", text)
