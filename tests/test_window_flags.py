"""The flags of releases of windows: what they describe, and what is refused by which name."""

import pytest

from beam_dp.flags import windows
from beam_dp.flags.flag import FlagError
from beam_dp.flags.windows import read_horizon, read_measured, read_window_unit
from beam_dp.windows.horizon import Horizon, WindowUnit

WEEK = {"start": "2026-11-23T00:00Z", "window": "1h", "num_windows": "168", "grace": "30m"}
PEOPLE = {
    "privacy_unit": "person_id",
    "max_records_per_unit": "3",
    "max_windows_per_unit": "7",
    "protected_windows": "168",
}


def test_reads_horizon_from_required_flags():
    assert read_horizon(WEEK) == Horizon("2026-11-23T00:00Z", 3600, 168, 1800)
    assert {flag.name for flag in windows.HORIZON} == set(WEEK)
    assert all(flag.required for flag in windows.HORIZON)


def test_reads_protected_unit_from_flags():
    assert read_window_unit(PEOPLE) == WindowUnit("person_id", 3, 7, 168)


def test_record_unit_has_one_window_by_default():
    assert read_window_unit({"privacy_unit": "record"}) == WindowUnit("record", 1, 1, 1)


@pytest.mark.parametrize("name", [*PEOPLE][1:])
def test_unit_flags_have_no_defaults(name):
    given = {flag: text for flag, text in PEOPLE.items() if flag != name}
    with pytest.raises(FlagError, match=rf"^--{name} is required.* --privacy_unit person_id: "):
        read_window_unit(given)


def test_reads_questions_and_block_for_the_planner():
    assert read_measured({}) == {}
    given = {"questions": "one, trailing:24,running", "block": "12"}
    assert read_measured(given) == {"questions": ("one", "trailing:24", "running"), "block": 12}
