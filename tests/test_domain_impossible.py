"""Combinations that no record has: how they are written, refused, kept and used."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from beam_dp.domain.attributes import BooleanAttribute, CategoricalAttribute
from beam_dp.domain.files import domain_from_json, parse_domain
from beam_dp.domain.impossible import Impossible, any_impossible
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.domain.universe import Domain

DOMAIN = Domain(
    (
        NumericAttribute("age", (0, 16, 25, 65, 120), other=True, nullable=True),
        IntegerAttribute("hours", 0, 99, other=True),
        CategoricalAttribute("sex", ("Female", "Male")),
        CategoricalAttribute("relationship", ("Husband", "Wife", "other kin", 7), nullable=True),
        BooleanAttribute("married", nullable=True),
    )
)


def declared(*combinations):
    return json.dumps({**DOMAIN.to_json(), "impossible": combinations})


@pytest.mark.parametrize(
    ("levels", "axes", "ranges"),
    [
        ({"sex": ["Male"], "relationship": ["Wife"]}, (2, 3), [[(1, 2)], [(1, 2)]]),
        ({"relationship": ["Husband"], "sex": ["Female"]}, (2, 3), [[(0, 1)], [(0, 1)]]),
        ({"age": [[0, 16]], "married": [True]}, (0, 4), [[(0, 1)], [(1, 2)]]),
        ({"age": [[0, 25], None], "married": [True]}, (0, 4), [[(0, 2), (5, 6)], [(1, 2)]]),
        ({"age": ["[0, 16)", "[16, 25)"], "hours": [[60, 99]]}, (0, 1), [[(0, 2)], [(60, 100)]]),
        ({"age": [[0, 16], "other"], "hours": [3, 1, 2]}, (0, 1), [[(0, 1), (4, 5)], [(1, 4)]]),
        ({"hours": ["other", [90, 99]], "married": [None]}, (1, 4), [[(90, 101)], [(2, 3)]]),
        ({"relationship": [7, None], "married": [False]}, (3, 4), [[(3, 5)], [(0, 1)]]),
        ({"relationship": ["7"], "married": ["true"]}, (3, 4), [[(3, 4)], [(1, 2)]]),
        (
            {"age": [[65, 120]], "sex": ["Male"], "married": [True, False]},
            (0, 2, 4),
            [[(3, 4)], [(1, 2)], [(0, 2)]],
        ),
    ],
)
def test_reads_and_writes_levels_as_users_write_them(levels, axes, ranges):
    domain = parse_domain(declared(levels))
    expected = Impossible(axes, tuple(map(tuple, ranges)))
    assert domain.impossible == (expected,)
    assert domain.attributes == DOMAIN.attributes and domain != DOMAIN
    assert domain == DOMAIN.with_impossible([levels])
    assert domain_from_json(json.loads(json.dumps(domain.to_json()))) == domain
    assert hash(domain) == hash(domain_from_json(domain.to_json()))


MALE_WIFE = {"sex": ["Male"], "relationship": ["Wife"]}


def test_short_form_may_have_a_column_named_impossible():
    assert parse_domain('{"impossible": 2, "a": 3}').names == ("impossible", "a")


def test_combinations_are_added_to_those_declared_before():
    first = DOMAIN.with_impossible([MALE_WIFE])
    both = first.with_impossible([{"age": [[0, 16]], "married": [True]}])
    assert both.impossible[:1] == first.impossible and len(both.impossible) == 2
    assert both.with_impossible([MALE_WIFE]) == both and Domain(both.attributes) == DOMAIN


def test_marginal_keeps_combinations_of_its_attributes():
    domain = DOMAIN.with_impossible([MALE_WIFE, {"age": [[0, 16]], "married": [True]}])
    kept = domain.restrict(("married", "relationship", "sex"))
    assert kept.impossible == (Impossible((1, 2), (((1, 2),), ((1, 2),))),)
    assert domain.restrict(("married", "sex")).impossible == ()
    assert domain.restrict(domain.names) == domain


SMALL = Domain(
    (
        IntegerAttribute("i", -1, 2, other=True),
        NumericAttribute("n", (0, 1, 2.5), nullable=True),
        CategoricalAttribute("c", ("x", 3), other=True, nullable=True),
    )
)
ranges_of = {
    axis: st.sets(st.integers(0, size - 1), min_size=1, max_size=size - 1)
    for axis, size in enumerate(SMALL.shape)
}


@given(st.data())
@settings(max_examples=100)
def test_masks_matches_and_json_agree_with_the_definition(data):
    axes = sorted(data.draw(st.sets(st.integers(0, 2), min_size=2)))
    chosen = {axis: data.draw(ranges_of[axis]) for axis in axes}
    combination = Impossible(
        tuple(axes),
        tuple(
            tuple(
                (run[0][1], run[-1][1] + 1)
                for _, each in itertools.groupby(
                    enumerate(sorted(chosen[axis])), lambda pair: pair[1] - pair[0]
                )
                for run in [list(each)]
            )
            for axis in axes
        ),
    )
    domain = Domain(SMALL.attributes, (combination,))
    assert domain_from_json(json.loads(json.dumps(domain.to_json()))) == domain
    mask = combination.mask(SMALL.shape)
    for cell in itertools.product(*(range(SMALL.shape[axis]) for axis in axes)):
        assert mask[cell] == all(code in chosen[axis] for axis, code in zip(axes, cell))  # noqa: B905
    cells = np.arange(SMALL.num_cells)
    codes = [column.astype(np.uint8) for column in SMALL.codes(cells)]
    expected = [all(column[cell] in chosen[axis] for axis, column in enumerate(codes)
                    if axis in chosen) for cell in cells]  # fmt: skip
    assert combination.matches(codes).tolist() == expected
    found = any_impossible(domain.impossible, codes)
    assert (found is None and not any(expected)) or found.tolist() == expected


def test_record_matches_a_combination_with_many_ranges_of_codes():
    ranges = tuple((2 * i, 2 * i + 1) for i in range(50))
    combination = Impossible((0, 1), (ranges, ((0, 1),)))
    codes = np.array([-1, 0, 1, 98, 99, 300], np.int16)
    found = combination.matches([codes, np.zeros(6, np.uint8)])
    assert found[1:].tolist() == [True, False, True, False, False]
