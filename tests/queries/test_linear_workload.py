"""Workloads of linear queries, and their sensitivities: compared with each query alone."""

import json
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tiny import domain_of

import beam_dp as dp
from beam_dp.queries import (
    linear_workload as linear_workload_module,
    sensitivity as sensitivity_module,
)
from beam_dp.queries.linear import Disjunction, Explicit, Parity, Product
from beam_dp.queries.sensitivity import WorkloadSensitivity, workload_sensitivity

MIXED = dp.Domain(
    (
        dp.BooleanAttribute("member"),
        dp.IntegerAttribute("age", 0, 3, other=True, nullable=True),
        dp.CategoricalAttribute("degree", ("HS", "BA", "MA")),
        dp.IntegerAttribute("only", 5, 5),
    )
)
BINARY = dp.Domain(tuple(dp.BooleanAttribute(name) for name in "abcde"))


@st.composite
def queries_over(draw, shape):
    kind = draw(st.sampled_from(["product", "product", "parity", "disjunction", "explicit"]))
    if kind == "explicit":
        values = draw(st.lists(st.integers(0, 2**16), min_size=1, max_size=4))
        numerators = np.resize(np.array(values, "<i4"), int(np.prod(shape)))
        return Explicit(shape, numerators.tobytes())
    least = 1 if kind == "parity" else 0
    axes = draw(st.sets(st.integers(0, len(shape) - 1), min_size=least))
    ranges = []
    for axis in sorted(axes):
        codes = st.sets(st.integers(0, shape[axis]), min_size=2).map(sorted)
        ends = draw(codes)
        ends = ends[: len(ends) // 2 * 2]
        ranges.append(tuple(zip(ends[::2], ends[1::2], strict=True)))
    if kind == "disjunction" and axes:
        return Disjunction.of(shape, dict(zip(sorted(axes), ranges, strict=True)))
    made = Parity if kind == "parity" else Product
    return made(shape, tuple(sorted(axes)), tuple(ranges))


@st.composite
def workloads(draw):
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    queries = draw(st.lists(queries_over(shape), min_size=1, max_size=12))
    return dp.LinearWorkload(domain_of(*shape), tuple(queries))


def check_against_each(workload: dp.LinearWorkload, seed: int) -> None:
    generator = np.random.default_rng(seed)
    # At most 256 cells: fewer in total than the 2^46 records beyond which answers are clipped.
    counts = generator.integers(0, 2**38, workload.domain.num_cells)
    weights = counts / counts.sum()
    assert workload.counts(counts).tolist() == [each.count(counts) for each in workload]
    means = [each.mean(weights) for each in workload]
    np.testing.assert_allclose(workload.means(weights), means, rtol=0, atol=1e-13)
    factors = generator.integers(-9, 10, len(workload))
    matrix = np.array([np.rint(each.values() * 2**16).astype(np.int64) for each in workload])
    assert workload.weighted_sum(factors).tolist() == (factors @ matrix).tolist()


@settings(max_examples=60)
@given(workloads(), st.integers(0, 100))
def test_evaluating_all_queries_matches_each_query_alone(workload, seed):
    check_against_each(workload, seed)


@pytest.mark.parametrize("limit", [1, 2**12])
def test_splitting_the_work_changes_no_answers(limit, monkeypatch):
    for name in ("_BATCH_CELLS", "_PART_CELLS", "_STEP_CELLS"):
        monkeypatch.setattr(f"beam_dp.queries.dense_tables.{name}", limit)
    generator = np.random.default_rng(1)
    shape = (9, 8, 2)
    queries = []
    for _ in range(300):
        ends = [sorted(generator.choice(size + 1, 2, replace=False).tolist()) for size in shape]
        axes = tuple(sorted(generator.choice(3, generator.integers(1, 4), replace=False).tolist()))
        ranges = {int(axis): (tuple(ends[axis]),) for axis in axes}
        if generator.random() < 0.3:
            queries.append(Parity(shape, axes, tuple(ranges.values())))
        else:
            queries.append(generator.choice([Product, Disjunction]).of(shape, ranges))
    workload = dp.LinearWorkload(domain_of(*shape), tuple(queries))
    check_against_each(workload, 2)
    if limit == 1:
        assert len(workload._batches) > 1


FORMS = [
    (MIXED, "marginals:2"),
    (MIXED, "marginals:age,member;degree"),
    (MIXED, "conjunctions:2"),
    (BINARY, "conjunctions:3"),
    (BINARY, "monotone_conjunctions:2"),
    (MIXED, "disjunctions:1"),
    (MIXED, "disjunctions:2"),
    (BINARY, "disjunctions:3"),
    (BINARY, "monotone_disjunctions:2"),
    (BINARY, "parities:3"),
    (MIXED, "intervals:age"),
    (MIXED, "prefixes:degree"),
]


@pytest.mark.parametrize(("domain", "spec"), FORMS)
def test_every_form_of_workload_matches_its_individual_queries(domain, spec):
    check_against_each(dp.parse_linear_workload(spec, domain), 3)


def test_conjunctions_cover_all_choices_of_literals():
    written = []
    levels = {
        "member": [False, True],
        "age": [0, 1, 2, 3, "other", None],
        "degree": ["HS", "BA", "MA"],
    }
    literals = {
        name: [*values, *({"not": each} for each in values if name != "member")]
        for name, values in levels.items()
    }
    for one, other in combinations(literals, 2):
        written += [
            {"conjunction": {one: first, other: second}}
            for first in literals[one]
            for second in literals[other]
        ]
    make = dp.LinearQueries(MIXED)
    expected = {make.from_json(each) for each in written}
    workload = dp.parse_linear_workload("conjunctions:2", MIXED)
    assert set(workload) == expected and len(workload) == len(expected)


def test_parities_and_monotone_conjunctions_use_last_levels():
    codes = np.array(BINARY.codes(np.arange(BINARY.num_cells)))
    monotone = dp.parse_linear_workload("monotone_conjunctions:2", BINARY)
    parity = dp.parse_linear_workload("parities:2", BINARY)
    for pair, one, other in zip(combinations(range(5), 2), monotone, parity, strict=True):
        chosen = codes[list(pair)]
        assert (one.values() == chosen.prod(axis=0)).all()
        assert (other.values() == chosen.sum(axis=0) % 2).all()


def test_reads_a_file_of_lines(tmp_path):
    lines = [
        {"marginal": ["degree"]},
        {"conjunction": {"age": 2}},
        {"interval": {"attribute": "age", "low": 1, "high": 2}},
        {"prefix": {"attribute": "degree", "high": "BA"}},
        {"parity": {"member": True, "age": None}},
        {"values": [0.5] * MIXED.num_cells},
    ]
    path = tmp_path / "queries.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    workload = dp.parse_linear_workload(str(path), MIXED)
    assert len(workload) == 8
    check_against_each(workload, 4)
    assert dp.parse_linear_workload(path.read_text(), MIXED) == workload  # the lines themselves
    path.write_text("\n".join(map(json.dumps, workload.to_json())))
    assert dp.parse_linear_workload(str(path), MIXED) == workload


def test_reads_queries_from_a_matrix(tmp_path):
    matrix = np.random.default_rng(6).random((3, BINARY.num_cells))
    np.save(tmp_path / "q.npy", matrix)
    workload = dp.parse_linear_workload(f"matrix:{tmp_path / 'q.npy'}", BINARY)
    weights = np.full(BINARY.num_cells, 1 / BINARY.num_cells)
    np.testing.assert_allclose(workload.means(weights), matrix @ weights, atol=2**-17)


def test_repeated_queries_are_kept_and_counted():
    one = dp.LinearQueries(BINARY).conjunction({"a": True})
    workload = dp.LinearWorkload(BINARY, (one, one))
    assert len(workload) == 2 and workload.num_distinct == 1
    assert workload.weighted_sum(np.ones(2, np.int64)).max() == 2 * 2**16


def test_rejects_excessive_sizes_before_making_queries(monkeypatch, tmp_path):
    monkeypatch.setattr(linear_workload_module, "MAX_QUERIES", 11)
    specs = ["marginals:2", "conjunctions:1", "conjunctions:2", "intervals:age"]
    path = tmp_path / "queries.jsonl"
    path.write_text('{"marginal": ["member", "age"]}')
    monkeypatch.setattr(linear_workload_module.linear, "Product", None)
    for spec in [*specs[:3], str(path)]:
        with pytest.raises(dp.InputError, match="must have at most 11"):
            dp.parse_linear_workload(spec, MIXED)
    with pytest.raises(dp.InputError, match="must have at most 11"):
        dp.parse_linear_workload(
            "parities:2", dp.Domain(tuple(dp.BooleanAttribute(x) for x in "abcdef"))
        )
    np.save(tmp_path / "q.npy", np.zeros((4, BINARY.num_cells)))
    monkeypatch.setattr(linear_workload_module, "MAX_VALUES", 3 * BINARY.num_cells)
    with pytest.raises(dp.InputError, match="values together"):
        dp.parse_linear_workload(f"matrix:{tmp_path / 'q.npy'}", BINARY)


ADD, REPLACE = "add_or_remove_one", "replace_one"
UNIT = 2**16


def brute_force(workload: dp.LinearWorkload, neighboring: str) -> tuple[int, int]:
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
    held = dp.LinearWorkload(workload.domain, tuple(structured))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sensitivity_module, "_CHUNK", 2)
        multiplied = sensitivity_module._all_pairs(held)
        patch.setattr(sensitivity_module, "_MAX_COLUMNS", 0)
        assert sensitivity_module._all_pairs(held) == multiplied


@pytest.mark.parametrize(("domain", "spec"), FORMS)
@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
def test_sensitivity_is_exact_for_every_form_of_workload(domain, spec, neighboring):
    workload = dp.parse_linear_workload(spec, domain)
    found = workload_sensitivity(workload, neighboring)
    assert (found.l1, found.l2_squared) == brute_force(workload, neighboring)
    assert found.is_exact


def without_pairs(spec: str, domain: dp.Domain, monkeypatch) -> tuple[float, float]:
    """Its exact sensitivities under both relations, computed without comparing pairs."""
    compare_no_pairs(monkeypatch)
    workload = dp.parse_linear_workload(spec, domain)
    found = [workload_sensitivity(workload, relation) for relation in (ADD, REPLACE)]
    assert all(each.is_exact for each in found)
    assert all(each.l2_squared == each.l1 << 16 for each in found)
    return found[0].l1 / UNIT, found[1].l1 / UNIT


BITS = dp.Domain(tuple(dp.BooleanAttribute(f"x{i}") for i in range(12)))
CLOSED_FORMS = [
    ("marginals:2", BITS, 66, 132),
    ("conjunctions:3", BITS, 220, 440),
    ("monotone_conjunctions:3", BITS, 220, 220),
    ("parities:2", BITS, 36, 36),  # w of 12 attributes true: w (12 - w) pairs are odd
    ("parities:3", BITS, 220, 220),
    ("marginals:1", domain_of(2, 1, 3), 3, 4),  # the one cell of "a1" holds everybody
    ("prefixes:a0", domain_of(9, 2), 9, 9),
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
    workload = dp.LinearWorkload(domain_of(4), tuple(queries))
    assert workload_sensitivity(workload, REPLACE) == WorkloadSensitivity(
        10 * UNIT, 10 * UNIT**2, True
    )
    compare_no_pairs(monkeypatch)
    bound = workload_sensitivity(workload, REPLACE)
    assert bound == WorkloadSensitivity(12 * UNIT, 12 * UNIT**2, False)
