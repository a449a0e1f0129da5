"""What a record contributes is a function of its own values: no neighbour changes it.

Else one record could change what all others of its bundle count for, and no noise would hide it.
"""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest
from value_kinds import ATTRIBUTES, DAY, DECLARED, KINDS

from beam_dp.domain.listed import CategoricalAttribute
from beam_dp.encoding.columns import encode_column
from beam_dp.encoding.keys import clamped_numbers, key_elements
from beam_dp.encoding.units import arrow_column, unit_fingerprints
from beam_dp.hashing.keys import HashKey
from beam_dp.queries.sparse import KEY_TYPES

KEY = HashKey.draw(4)


def contributions(values: list[Any]) -> list[tuple[Any, ...]]:
    """What each value is read as: as a unit, as a key of each type, as a weight, as a level."""
    column = arrow_column(values)
    units, has_unit = unit_fingerprints(column)
    read: list[Any] = [np.where(has_unit, units[half], 0) for half in (0, 1)] + [has_unit]
    for key_type in KEY_TYPES:
        elements, valid = key_elements(column, key_type, KEY)
        read += [np.where(valid, elements, 0), valid]
    weights, valid = clamped_numbers(column, 10)
    read += [np.where(valid, weights, 0), valid]
    read += [encode_column(attribute, column) for attribute in ATTRIBUTES]
    return list(zip(*(each.tolist() for each in read), strict=True))


@pytest.fixture(scope="module")
def alone() -> dict[str, tuple[Any, ...]]:
    return {name: contributions([value])[0] for name, value in KINDS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_a_value_is_read_alike_beside_every_other(
    name: str, alone: dict[str, tuple[Any, ...]]
) -> None:
    for other, neighbour in KINDS.items():
        assert contributions([KINDS[name], neighbour]) == [alone[name], alone[other]], other


def levels(values: list[Any]) -> list[tuple[int, ...]]:
    """What each value is read as by attributes that declare what texts mean, or dates."""
    column = arrow_column(values)
    read = [encode_column(attribute, column).tolist() for attribute in DECLARED]
    return list(zip(*read, strict=True))


@pytest.fixture(scope="module")
def level_alone() -> dict[str, tuple[int, ...]]:
    return {name: levels([value])[0] for name, value in KINDS.items()}


def test_a_value_has_its_level_beside_all_others_at_once(
    level_alone: dict[str, tuple[int, ...]],
) -> None:
    assert levels(list(KINDS.values())) == list(level_alone.values())
    assert levels(list(KINDS.values())[::-1]) == list(level_alone.values())[::-1]


# Texts, and dates, of one kind make a column of one type, which others may decide how to read.
@pytest.mark.mostly_slow(one_in=3)
@pytest.mark.parametrize("name", [name for name in KINDS if "text" in name or "date" in name])
def test_a_text_or_a_time_has_its_level_beside_every_other(
    name: str, level_alone: dict[str, tuple[int, ...]]
) -> None:
    for other in KINDS:
        if type(KINDS[other]) is type(KINDS[name]):
            assert levels([KINDS[name], KINDS[other]]) == [level_alone[name], level_alone[other]]


def test_one_fraction_does_not_change_what_a_thousand_booleans_are() -> None:
    attribute = CategoricalAttribute("smoker", ("true", "false"))
    for values in ([0.5] + [True] * 1000, [True] * 1000 + [0.5], [1, 0.5] + [True] * 1000):
        codes = encode_column(attribute, arrow_column(values))
        assert np.count_nonzero(codes == 0) == 1000


@pytest.mark.parametrize(
    ("kind", "same_as"),
    [
        ("bytearray", b"a"),
        ("memoryview", b"a"),
        ("bytearray of a digit", 1),
        ("scalar 'a'", "a"),
        ("scalar 1", 1),
        ("scalar True", True),
        ("null scalar", None),
        ("IntEnum", 1),
        ("text Enum", "a"),
        ("str_", "a\0"),
        ("bytes_", b"a\0"),
        ("uint64", 2**64 - 1),
        ("datetime64 NaT", None),
        ("datetime64[s]", DAY),
        ("datetime64[ns]", DAY),
        ("pandas Timestamp", DAY),
        ("datetime64[D]", DAY.date()),
        ("timedelta64[D]", datetime.timedelta(1)),
        ("pandas Timedelta", np.timedelta64(1, "ns")),
        ("nanosecond", np.datetime64(1, "ns")),
    ],
)
def test_values_of_other_libraries_are_read_as_the_ones_they_stand_for(
    kind: str, same_as: Any
) -> None:
    if kind not in KINDS:
        pytest.skip("needs pandas")
    assert contributions([KINDS[kind]])[0] == contributions([same_as])[0]
