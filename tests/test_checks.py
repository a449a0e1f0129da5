"""Checks of public numbers, as Python passes them and as people type them."""

import beam_dp as dp
from beam_dp.checks import checked_integer, checked_number
from beam_dp.domain.ordered import NumericAttribute
from beam_dp.flags.flag import integer, number
from beam_dp.releases.intervals.answer import _level


def test_inclusive_ends_belong_to_the_range():
    assert [checked_integer("size", end, 1, 9) for end in (1, 9)] == [1, 9]
    assert [checked_number("share", end, least=0, most=1) for end in (0, 1)] == [0.0, 1.0]
    assert [checked_number("error", end, least=1e-9, below=1) for end in (1e-9, 0.5)] == [1e-9, 0.5]


SHARE = NumericAttribute("share", (0, 0.5, 10))


def test_reads_numbers_as_written():
    assert [number("a", text) for text in ("1", "1e-9", "-2.5")] == [1.0, 1e-9, -2.5]
    assert integer("a", "1e6") == 1_000_000
    # A float would lose the last digit.
    assert integer("a", str(2**63 + 1)) == 2**63 + 1
    assert [_level(SHARE, "10"), _level(SHARE, "0.5")] == [10, 0.5]


class Own:
    """A third-party mechanism, which need not inherit from our class."""

    name, answers_linear_queries = "own", False
    plan, release = dp.MWEM().plan, dp.MWEM().release


def test_mechanism_of_another_package_is_accepted():
    domain = dp.parse_domain('{"age": 85}')
    guarantee = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    dp.ReleaseSyntheticDatabase(domain, dp.marginals(domain, ways=1), guarantee, mechanism=Own())
