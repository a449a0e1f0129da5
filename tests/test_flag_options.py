"""Fields that are flags: the flag, its value, what it applies to; and the flags of windows."""

import dataclasses
import itertools
import re

import pytest

from beam_dp.flags import shared, windows
from beam_dp.flags.flag import (
    Flag,
    FlagError,
    OrWord,
    check_applies,
    flags_of,
    integer,
    number,
    option,
    texts_of,
    values_of,
)
from beam_dp.flags.windows import read_horizon, read_measured, read_window_unit
from beam_dp.mechanisms.registry import ANSWERS, SKETCHES, SYNTHETIC, options_of
from beam_dp.queries.sparse import KEY_TYPES
from beam_dp.windows.horizon import Horizon, WindowUnit
from pipelines import answer_queries, release_projection, release_synthetic_database

TABLES = {
    release_synthetic_database: SYNTHETIC,
    release_projection: SKETCHES,
    answer_queries: ANSWERS,
}


@dataclasses.dataclass(frozen=True)
class Choice:
    width: int = dataclasses.field(default=3, metadata=option("how wide", "W", integer, name="w"))
    share: float | None = dataclasses.field(default=None, metadata=option("a part", "A", number))
    kind: str = dataclasses.field(default="a", metadata=option("of two", choices=("a", "b")))
    hidden: int = 5


def test_field_becomes_flag_of_the_same_or_another_name():
    assert flags_of(Choice) == (
        Flag("w", "how wide", "W", form="integer"),
        Flag("share", "a part", "A", form="number"),
        Flag("kind", "of two", choices=("a", "b")),
    )


def test_texts_and_fields_round_trip():
    given = {"w": "7", "kind": "b", "epsilon": "1"}
    assert values_of(Choice, given) == {"width": 7, "kind": "b"}
    made = Choice(**values_of(Choice, given))
    assert texts_of(made) == {"w": "7", "kind": "b"}
    assert Choice(**values_of(Choice, texts_of(Choice(share=0.25)))) == Choice(share=0.25)


def test_text_of_a_number_or_a_word_is_read():
    size = OrWord(integer, "all")
    assert (size("size", "all"), size("size", "9")) == ("all", 9)


def test_refuses_value_if_the_flag_does_not_apply():
    flags = {
        "one": (Flag("mode", "", default="a"),),
        "two": (),
        "three": (Flag("mode", "", default="a"),),
    }
    check_applies({"mode": "a", "epsilon": "1"}, "two", flags)
    check_applies({"mode": "b"}, "one", flags)
    with pytest.raises(FlagError, match=r"^--mode applies only to --mechanism one and three$"):
        check_applies({"mode": "b"}, "two", flags)


@pytest.mark.parametrize("program", TABLES, ids=lambda program: program.PROGRAM)
def test_programs_accept_every_option_of_their_mechanisms(program):
    flags = program.FLAGS  # type: ignore[attr-defined]
    assert len({flag.name for flag in flags}) == len(flags)
    (mechanism,) = (flag for flag in flags if flag.name == "mechanism")
    table = options_of(TABLES[program])  # type: ignore[index]
    assert set(table) <= set(mechanism.choices)
    for name, options in table.items():
        assert {flag.name for flag in options} <= {flag.name for flag in flags}, name


def test_refuses_flag_of_another_mechanism():
    table = options_of(SYNTHETIC)
    for name, flag in itertools.product(SYNTHETIC, flags_of(*SYNTHETIC.values())):
        if flag.name not in {each.name for each in table[name]}:
            pattern = rf"^--{flag.name} applies only to --mechanism [\w, ]+$"
            with pytest.raises(FlagError, match=pattern) as refused:
                check_applies({flag.name: "1"}, name, table)
            assert not re.search(rf"\b{name}\b", str(refused.value))


def test_key_type_flag_offers_every_key_type():
    assert shared.KEY_TYPE.choices == KEY_TYPES  # which takes numpy to import


WEEK = {"start": "2026-11-23T00:00Z", "window": "1h", "num_windows": "168", "grace": "30m"}
PERSON = {
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
    assert read_window_unit(PERSON) == WindowUnit("person_id", 3, 7, 168)


def test_record_unit_has_one_window_by_default():
    assert read_window_unit({"privacy_unit": "record"}) == WindowUnit("record", 1, 1, 1)


def test_flags_of_a_unit_of_windows_have_no_defaults():
    for name in [*PERSON][1:]:
        given = {flag: text for flag, text in PERSON.items() if flag != name}
        with pytest.raises(FlagError, match=rf"^--{name} is required.* --privacy_unit person_id: "):
            read_window_unit(given)


def test_reads_questions_and_block_for_the_planner():
    assert read_measured({}) == {}
    given = {"questions": "one, trailing:24,running", "block": "12"}
    assert read_measured(given) == {"questions": ("one", "trailing:24", "running"), "block": 12}
