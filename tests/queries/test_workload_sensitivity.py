"""Sensitivities of workloads: compared with all pairs of columns, closed forms, and limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from test_linear_workload import FORMS, domain_of, workloads

from beam_dp.domain.attributes import BooleanAttribute
from beam_dp.domain.universe import Domain
from beam_dp.queries import sensitivity as sensitivity_module
from beam_dp.queries.linear import Explicit, Product
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.sensitivity import WorkloadSensitivity, workload_sensitivity

ADD, REPLACE = "add_or_remove_one", "replace_one"
UNIT = 2**16


def brute_force(workload: LinearWorkload, neighboring: str) -> tuple[int, int]:
    columns = np.array([np.rint(each.values() * UNIT) for each in workload]).astype(np.int64).T
    columns = np.concatenate([columns, np.zeros((1, len(workload)), np.int64)])  # an absent record
    others = columns[-1:] if neighboring == ADD else columns
    changes = np.abs(columns[:, None, :] - others[None, :, :])
    return int(changes.sum(axis=2).max()), int((changes**2).sum(axis=2).max())


def compare_no_pairs(patch: pytest.MonkeyPatch) -> None:
    for limit in ("_MAX_COLUMNS", "_MAX_VALUES"):
        patch.setattr(sensitivity_module, limit, 0)


@settings(max_examples=80)
@given(workloads(), st.sampled_from([ADD, REPLACE]), st.integers(1, 3))
def test_sensitivity_is_the_largest_change_over_all_pairs(workload, neighboring, most):
    found = workload_sensitivity(workload, neighboring, most)
    l1, l2_squared = brute_force(workload, neighboring)
    assert found == WorkloadSensitivity(most * l1, most**2 * l2_squared, True)


@settings(max_examples=60)
@given(workloads())
def test_sensitivity_with_too_many_pairs_is_exact_or_an_upper_bound(workload):
    with pytest.MonkeyPatch.context() as patch:
        compare_no_pairs(patch)
        found = workload_sensitivity(workload, REPLACE)
    l1, l2_squared = brute_force(workload, REPLACE)
    assert found.l1 >= l1 and found.l2_squared >= l2_squared
    assert not found.is_exact or (found.l1, found.l2_squared) == (l1, l2_squared)
    added = brute_force(workload, ADD)
    assert found.l1 <= 2 * added[0] and found.l2_squared <= 2 * added[1]


@settings(max_examples=40)
@given(workloads())
def test_matrix_product_and_pairwise_comparison_find_the_same_distances(workload):
    structured = [each for each in workload if not isinstance(each, Explicit)]
    if not structured:
        return
    held = LinearWorkload(workload.domain, tuple(structured))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sensitivity_module, "_CHUNK", 2)
        multiplied = sensitivity_module._all_pairs(held)
        patch.setattr(sensitivity_module, "_MAX_COLUMNS", 0)
        assert sensitivity_module._all_pairs(held) == multiplied


@pytest.mark.parametrize(("domain", "spec"), FORMS)
@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
def test_sensitivity_is_exact_for_every_form_of_workload(domain, spec, neighboring):
    workload = parse_linear_workload(spec, domain)
    found = workload_sensitivity(workload, neighboring)
    assert (found.l1, found.l2_squared) == brute_force(workload, neighboring)
    assert found.is_exact


def without_pairs(spec: str, domain: Domain, monkeypatch) -> tuple[float, float]:
    """Its exact sensitivities under both relations, computed without comparing pairs."""
    compare_no_pairs(monkeypatch)
    workload = parse_linear_workload(spec, domain)
    found = [workload_sensitivity(workload, relation) for relation in (ADD, REPLACE)]
    assert all(each.is_exact for each in found)
    assert all(each.l2_squared == each.l1 << 16 for each in found)
    return found[0].l1 / UNIT, found[1].l1 / UNIT


BITS = Domain(tuple(BooleanAttribute(f"x{i}") for i in range(12)))
CLOSED_FORMS = [
    ("marginals:2", BITS, 66, 132),
    ("conjunctions:3", BITS, 220, 440),
    ("monotone_conjunctions:3", BITS, 220, 220),
    ("parities:2", BITS, 36, 36),  # w of 12 attributes true: w (12 - w) pairs are odd
    ("parities:3", BITS, 220, 220),
    ("marginals:1", domain_of((2, 1, 3)), 3, 4),  # the one cell of "a1" holds everybody
    ("prefixes:a0", domain_of((9, 2)), 9, 9),
]


@pytest.mark.parametrize(("spec", "domain", "added", "replaced"), CLOSED_FORMS)
def test_closed_forms_are_exact_without_comparing_pairs(spec, domain, added, replaced, monkeypatch):
    assert without_pairs(spec, domain, monkeypatch) == (added, replaced)


def test_compares_all_pairs_if_bound_and_search_are_inconclusive(monkeypatch):
    """The walk goes from the largest column to the last and back; two others lie farther apart."""
    sets = [(0, 1)] * 3 + [(1,)] * 2 + [(0, 2)] * 3 + [(2,)] * 2 + [(3,)] * 2
    queries = [
        Product((4,), (0,), (((0, 1), (2, 3)) if each == (0, 2) else ((each[0], each[-1] + 1),),))
        for each in sets
    ]
    workload = LinearWorkload(domain_of((4,)), tuple(queries))
    assert workload_sensitivity(workload, REPLACE) == WorkloadSensitivity(
        10 * UNIT, 10 * UNIT**2, True
    )
    compare_no_pairs(monkeypatch)
    bound = workload_sensitivity(workload, REPLACE)
    assert bound == WorkloadSensitivity(12 * UNIT, 12 * UNIT**2, False)


def test_sensitivity_of_conjunctions_of_larger_attributes_is_exact():
    """With s > 2 levels, s literals hold in any cell, and four differ between any two levels."""
    workload = parse_linear_workload("conjunctions:1", domain_of((4, 5, 5)))
    assert workload_sensitivity(workload, ADD).l1 == 14 * UNIT
    assert workload_sensitivity(workload, REPLACE) == WorkloadSensitivity(
        14 * UNIT, 14 * UNIT**2, True
    )


def test_sensitivity_of_intervals_is_exact_and_matches_direct_counts():
    workload = parse_linear_workload("intervals:a0", domain_of((40, 3)))
    covering = [(i + 1) * (40 - i) for i in range(40)]
    apart = [
        covering[i] + covering[j] - 2 * (i + 1) * (40 - j) for i in range(40) for j in range(i, 40)
    ]
    assert workload_sensitivity(workload, ADD).l1 == max(covering) * UNIT
    found = workload_sensitivity(workload, REPLACE)
    assert found.l1 == max(*covering, *apart) * UNIT and found.is_exact


def test_l2_sensitivity_is_rounded_up_to_an_integer():
    assert [WorkloadSensitivity(0, square, True).l2 for square in (0, 1, 2, 4, 5, 2**60 + 1)] == [
        0, 1, 2, 2, 3, 2**30 + 1,
    ]  # fmt: skip


def test_repeated_queries_increase_the_sensitivity():
    one = parse_linear_workload("monotone_conjunctions:1", BITS).queries[0]
    found = workload_sensitivity(LinearWorkload(BITS, (one,) * 4), ADD)
    assert (found.l1, found.l2) == (4 * UNIT, 2 * UNIT)
