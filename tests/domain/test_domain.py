import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import beam_dp as dp
from beam_dp.domain.discover import LARGEST, number_leaves
from beam_dp.domain.files import domain_from_json, parse_domain
from beam_dp.domain.impossible import Impossible, any_impossible


@pytest.mark.parametrize("code", [-1, 5])
def test_rejects_codes_outside_the_attribute(code):
    with pytest.raises(IndexError):
        FAMILY["relationship"].decode([code])
    with pytest.raises(IndexError):
        FAMILY["relationship"].label(code)


@given(st.lists(st.integers(1, 7), min_size=1, max_size=6), st.data())
def test_cell_index_equals_ravel_multi_index_and_has_an_inverse(shape, data):
    domain = dp.Domain(tuple(dp.IntegerAttribute(f"a{i}", 0, s - 1) for i, s in enumerate(shape)))
    cells = np.array(data.draw(st.lists(st.integers(0, domain.num_cells - 1), max_size=20)), int)
    expected = np.unravel_index(cells, shape)
    actual = domain.codes(cells)
    assert all(np.array_equal(a, b) for a, b in zip(expected, actual, strict=True))
    assert np.array_equal(domain.cell_index(actual), cells)


def test_domain_has_an_index_up_to_2_to_the_62_cells():
    at_limit = dp.Domain((dp.IntegerAttribute("a", 0, 2**61 - 1), dp.BooleanAttribute("b")))
    assert at_limit.has_index
    last = at_limit.cell_index([[2**61 - 1], [1]])
    assert last.tolist() == [2**62 - 1]
    assert [code.tolist() for code in at_limit.codes(last)] == [[2**61 - 1], [1]]
    beyond = dp.Domain((*at_limit.attributes, dp.BooleanAttribute("c")))
    assert beyond.num_cells == 2**63 and not beyond.has_index


def test_invalid_codes_raise_instead_of_returning_another_cell():
    domain = dp.Domain((dp.IntegerAttribute("a", 0, 2), dp.IntegerAttribute("b", 0, 2)))
    with pytest.raises(IndexError):
        domain.cell_index([[0], [3]])
    with pytest.raises(IndexError):
        domain.cell_index([[-1], [0]])
    with pytest.raises(IndexError):
        domain.codes([9])
    with pytest.raises(ValueError, match="1 columns for 2 attributes"):
        domain.cell_index([[0]])


@given(
    st.lists(
        st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=9, unique=True
    ).map(sorted)
)
def test_midpoint_of_a_bin_lies_in_the_bin(edges):
    attribute = dp.NumericAttribute("x", tuple(edges))
    for low, high, middle in zip(edges[:-1], edges[1:], attribute.midpoints, strict=True):
        assert low <= middle < high


FAMILY = dp.Domain(
    (
        dp.NumericAttribute("age", (0, 16, 25, 65, 120), other=True, nullable=True),
        dp.IntegerAttribute("hours", 0, 99, other=True),
        dp.CategoricalAttribute("sex", ("Female", "Male")),
        dp.CategoricalAttribute("relationship", ("Husband", "Wife", "other kin", 7), nullable=True),
        dp.BooleanAttribute("married", nullable=True),
    )
)


def declared(*combinations):
    return json.dumps({**FAMILY.to_json(), "impossible": combinations})


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
    assert domain.attributes == FAMILY.attributes and domain != FAMILY
    assert domain == FAMILY.with_impossible([levels])
    assert domain_from_json(json.loads(json.dumps(domain.to_json()))) == domain
    assert hash(domain) == hash(domain_from_json(domain.to_json()))


MALE_WIFE = {"sex": ["Male"], "relationship": ["Wife"]}


def test_short_form_may_have_a_column_named_impossible():
    assert parse_domain('{"impossible": 2, "a": 3}').names == ("impossible", "a")


def test_combinations_are_added_to_those_declared_before():
    first = FAMILY.with_impossible([MALE_WIFE])
    both = first.with_impossible([{"age": [[0, 16]], "married": [True]}])
    assert both.impossible[:1] == first.impossible and len(both.impossible) == 2
    assert both.with_impossible([MALE_WIFE]) == both and dp.Domain(both.attributes) == FAMILY


def test_marginal_keeps_combinations_of_its_attributes():
    domain = FAMILY.with_impossible([MALE_WIFE, {"age": [[0, 16]], "married": [True]}])
    kept = domain.restrict(("married", "relationship", "sex"))
    assert kept.impossible == (Impossible((1, 2), (((1, 2),), ((1, 2),))),)
    assert domain.restrict(("married", "sex")).impossible == ()
    assert domain.restrict(domain.names) == domain


SMALL = dp.Domain(
    (
        dp.IntegerAttribute("i", -1, 2, other=True),
        dp.NumericAttribute("n", (0, 1, 2.5), nullable=True),
        dp.CategoricalAttribute("c", ("x", 3), other=True, nullable=True),
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
    domain = dp.Domain(SMALL.attributes, (combination,))
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


ENDS = st.floats(-1e15, 1e15) | st.integers(-1000, 1000).map(float)


def check_widths(edges: tuple[float, ...], low: float, high: float) -> None:
    assert edges[0] == low and edges[-1] == high
    below, above = np.array(edges[:-1]), np.array(edges[1:])
    assert (below < above).all()
    near = max(abs(low), abs(high)) * 1.05e-7
    widths, distance = above - below, np.maximum(np.minimum(abs(below), abs(above)), near)
    assert (widths <= 0.0010001 * distance).sum() >= len(widths) - 2  # but for those next to 0
    assert widths.max() <= (high - low) / 1000 * (1 + 1e-9)


@given(ENDS, ENDS)
@settings(max_examples=20)
def test_leaves_are_narrow_relative_to_the_range_and_to_their_distance_from_zero(one, other):
    low, high = min(one, other), max(one, other)
    if high - low > 1e-9 * max(abs(low), abs(high)):
        edges = number_leaves(low, high)
        check_widths(edges, low, high)
        assert len(edges) <= 160_000


@given(st.integers(-(2**52), 2**52), st.integers(1, 2**52))
@settings(max_examples=20)
def test_leaves_of_whole_numbers_have_whole_edges(low, length):
    edges = number_leaves(low, low + length, whole=True)
    assert edges[0] == low and edges[-1] == low + length
    assert all(each.is_integer() for each in edges) and edges == tuple(sorted(set(edges)))
    if length <= 1000:
        assert edges == tuple(range(low, low + length + 1))


def test_range_without_ends_reaches_far_on_both_sides_of_zero():
    edges = number_leaves(None, None)
    assert edges[0] == -LARGEST and edges[-1] == LARGEST
    assert edges == tuple(sorted(-each for each in edges))
    assert min(each for each in edges if each > 0) == 0.001
    assert (
        number_leaves(None, None, whole=True)[-5000:]
        == tuple(each for each in edges if each.is_integer())[-5000:]
    )


@pytest.mark.parametrize(
    ("low", "high"),
    [(0.0, 2.0**1022), (-(2.0**1022), 2.0**1022), (0.0, 5e-324), (1.0, math.nextafter(1.0, 2.0))],
)
def test_extreme_ranges_have_leaves(low, high):
    edges = number_leaves(low, high)
    assert edges[0] == low and edges[-1] == high and edges == tuple(sorted(set(edges)))
