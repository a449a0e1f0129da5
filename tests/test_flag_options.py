"""Fields that are flags: the flag, its value, what it applies to; and the flags of windows."""

import dataclasses
import itertools
import re

import pytest

from beam_dp.flags.flag import (
    Flag,
    FlagError,
    check_mechanism,
    flags_of,
    integer,
    number,
    option,
    texts_of,
    values_of,
)
from beam_dp.mechanisms.registry import ANSWERS, SKETCHES, SYNTHETIC, options_of
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


def test_refuses_value_if_the_flag_does_not_apply():
    flags = {
        "one": (Flag("mode", "", default="a"),),
        "two": (),
        "three": (Flag("mode", "", default="a"),),
    }
    check_mechanism({"mechanism": "two", "mode": "a", "epsilon": "1"}, flags, {})
    check_mechanism({"mechanism": "one", "mode": "b"}, flags, {})
    with pytest.raises(FlagError, match=r"^--mode applies only to --mechanism one and three$"):
        check_mechanism({"mechanism": "two", "mode": "b"}, flags, {})


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
                check_mechanism({"mechanism": name, flag.name: "1"}, table, {})
            assert not re.search(rf"\b{name}\b", str(refused.value))
