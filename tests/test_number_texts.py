"""Numbers as people type them."""

from __future__ import annotations

import pytest

from beam_dp.domain.ordered import NumericAttribute
from beam_dp.errors import InputError
from beam_dp.flags.numbers import integer, number
from beam_dp.releases.intervals.answer import _level

SHARE = NumericAttribute("share", (0, 0.5, 10))


def test_a_number_is_read_as_it_is_written() -> None:
    assert [number("a", text) for text in ("1", "1e-9", "-2.5")] == [1.0, 1e-9, -2.5]
    assert integer("a", "1e6") == 1_000_000
    # A float would lose the last digit.
    assert integer("a", str(2**63 + 1)) == 2**63 + 1
    assert [_level(SHARE, "10"), _level(SHARE, "0.5")] == [10, 0.5]


@pytest.mark.parametrize("text", ["1_0", "1_0.5", "x", ""])
def test_what_is_no_number_is_refused_and_so_is_an_underscore(text: str) -> None:
    with pytest.raises(InputError, match=r"a: .* is refused; must be a number"):
        number("a", text)
    with pytest.raises(InputError, match="must be a whole number or 'noisy'"):
        integer("a", text, "or 'noisy'")
    with pytest.raises(InputError, match="must be a number"):
        _level(SHARE, text)


@pytest.mark.parametrize("text", ["2.5", "nan", "inf"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="must be a whole number"):
        integer("a", text)
