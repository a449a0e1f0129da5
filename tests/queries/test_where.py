"""Conditions of analysts: what they match, and one-line errors for everything else."""

import numpy as np
import pytest

from beam_dp.domain.attributes import BooleanAttribute, CategoricalAttribute
from beam_dp.domain.dates import DateAttribute
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.domain.universe import Domain
from beam_dp.queries.where import read_condition

TICKETS = Domain((IntegerAttribute("class", 1, 3), CategoricalAttribute("from", ("class", "a"))))
DOMAIN = Domain(
    (
        IntegerAttribute("hours", -2, 3, nullable=True),
        NumericAttribute("age", (0, 20, 40.5, 100)),
        CategoricalAttribute("sex", ("F", "M"), other=True),
        BooleanAttribute("in/out of bed", nullable=True),
        DateAttribute("day", ("2020-01-01", "2020-02-01", "2020-03-01")),
        CategoricalAttribute("it's `odd`", ("a`b", "'")),
    )
)


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("hours == 1", {"hours": [3]}),
        ("1 == hours", {"hours": [3]}),
        ("hours != 1", {"hours": [0, 1, 2, 4, 5, 6]}),
        ("hours < 0", {"hours": [0, 1]}),
        ("hours >= 0.5", {"hours": [3, 4, 5]}),
        ("-1 <= hours < 2", {"hours": [1, 2, 3]}),
        ("hours == null", {"hours": [6]}),
        ("hours is None", {"hours": [6]}),
        ("hours is not null", {"hours": [0, 1, 2, 3, 4, 5]}),
        ("hours in (1, -2, null)", {"hours": [0, 3, 6]}),
        ("hours not in [1, 2]", {"hours": [0, 1, 2, 5, 6]}),
        ("hours in ((0, 2), (3, 3))", {"hours": [2, 3, 4, 5]}),
        ("not hours < 0", {"hours": [2, 3, 4, 5, 6]}),
        ("hours < 0 or hours > 2", {"hours": [0, 1, 5]}),
        ("age < 20", {"age": [0]}),
        ("20 <= age", {"age": [1, 2]}),
        ("age > 100 or age < 20", {"age": [0]}),
        ("20 <= age < 40.5", {"age": [1]}),
        ("sex == 'F'", {"sex": [0]}),
        ('sex == "other"', {"sex": [2]}),
        ("`in/out of bed`", {"in/out of bed": [1]}),
        ("not `in/out of bed`", {"in/out of bed": [0, 2]}),
        ("`in/out of bed` == false", {"in/out of bed": [0]}),
        ("day >= '2020-02-01'", {"day": [1]}),
        ("hours == 1 and (sex == 'M' and age < 20)", {"hours": [3], "sex": [1], "age": [0]}),
        ("hours < 2 and hours > 0", {"hours": [3]}),
        ("age <= 100", {}),
    ],
)
def test_condition_selects_the_expected_levels(text, held):
    found = read_condition(DOMAIN, text)
    assert {
        DOMAIN.names[axis]: np.flatnonzero(mask).tolist() for axis, mask in found.items()
    } == held


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("class in (1, 2)", {0: [0, 1]}),
        ("`class` == 1 and from == 'class'", {0: [0], 1: [0]}),
        ("1 < class", {0: [1, 2]}),
    ],
)
def test_python_keywords_can_be_attribute_names(text, held):
    """The example from an error message."""
    found = read_condition(TICKETS, text)
    assert {axis: np.flatnonzero(mask).tolist() for axis, mask in found.items()} == held
