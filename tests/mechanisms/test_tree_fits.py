"""Junction trees: fits equal those of an array, records follow the tree, and pairs join it."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow.csv
import pytest
from noise_sources import Seeded
from tiny import (
    ADD,
    APPROXIMATE,
    correlated,
    domain_of,
    on_trees,
    plan_of,
    promise,
    summary,
    workload_of,
)

from beam_dp.domain.files import read_domain
from beam_dp.encoding.records import encode_cells
from beam_dp.mechanisms.marginals import (
    pair_scores as pair_scores_module,
    selection as selection_module,
)
from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian, Laplace
from beam_dp.mechanisms.marginals.measurements import closure_of
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism, growing_tree, tree_cells
from beam_dp.mechanisms.marginals.released_records import tree_release
from beam_dp.mechanisms.marginals.selection import pair_weights
from beam_dp.models.record_moves import Target
from beam_dp.models.tree_basis import TreeBasis
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.summaries.histogram import Histogram, Marginals

# Fits are dear: they run with the jobs.
pytestmark = pytest.mark.job

DATA = os.environ.get("BEAM_DP_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="BEAM_DP_DATA is not set")


def both_fits(
    plan: MarginalsPlan, mechanism: Mechanism, held: Marginals
) -> list[SyntheticDatabase]:
    """The same noisy tables, fitted over one array and over a junction tree."""
    found = [mechanism.release(plan, held, Seeded(5))]
    with on_trees():
        found.append(mechanism.release(plan, held, Seeded(5)))
    return found


def assert_close(one: SyntheticDatabase, other: SyntheticDatabase, workload: Workload) -> None:
    for left, right in zip(one.answer(workload), other.answer(workload), strict=True):
        moved = np.abs(left.values - right.values).sum()
        assert moved <= 0.01 * one.num_records, (left.attributes, moved)
        assert left.standard_error == pytest.approx(right.standard_error, nan_ok=True)


SMALL: dict[str, tuple[tuple[int, ...], Sequence[tuple[str, ...]]]] = {
    "chain": ((3, 2, 4, 3), [("a0", "a1"), ("a1", "a2"), ("a2", "a3")]),
    "cycle": ((3, 2, 4, 3), [("a0", "a1"), ("a1", "a2"), ("a2", "a3"), ("a0", "a3")]),
    "one code": ((3, 1, 4), [("a0", "a1"), ("a1", "a2")]),
    "triples": ((3, 2, 4, 2), [("a0", "a1", "a2"), ("a2", "a3")]),
}


@pytest.mark.parametrize("case", SMALL)
@pytest.mark.parametrize("mechanism", [Gaussian(), Laplace("textbook"), MWEM(num_rounds=4)])
@pytest.mark.parametrize("num_records", [2000, "noisy"])
def test_tree_fit_equals_array_fit(case, mechanism, num_records):
    sizes, marginals = SMALL[case]
    domain = domain_of(*sizes)
    workload = Workload(domain, tuple(marginals))
    plan = plan_of(mechanism, workload, promise(ADD, APPROXIMATE), num_records)
    dense, tree = both_fits(plan, mechanism, summary(plan, correlated(domain, 2000)))
    assert dense.fit["hypothesis"] == "dense_array" and tree.fit["hypothesis"] == "junction_tree"
    assert dense.num_records == tree.num_records
    assert_close(dense, tree, workload_of(domain, 2))


ADULT7 = [
    "workclass",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "income>50K",
]


def load(name: str) -> Histogram:
    """The exact histogram of a table under BEAM_DP_DATA."""
    assert DATA is not None
    stem = name.removesuffix("7")
    domain = read_domain(str(pathlib.Path(DATA, f"{stem}-domain.json")))
    if name == "adult7":
        domain = domain.restrict(ADULT7)
    table = pyarrow.csv.read_csv(pathlib.Path(DATA, f"{stem}.csv"))
    cells = encode_cells(domain, table.combine_chunks().to_batches()[0])
    return Histogram(domain, np.bincount(cells, minlength=domain.num_cells).astype(np.int64))


@needs_data
@pytest.mark.part
@pytest.mark.parametrize("name, selected_cells", [("adult7", 2000), ("nltcs", 400)])
def test_tree_fit_of_a_selection_equals_array_fit_on_real_tables(name, selected_cells, monkeypatch):
    exact = load(name)
    num_records = int(exact.counts.sum())
    workload = workload_of(exact.domain, 2)
    original = selection_module.synthesise
    seen: list[tuple[Any, Any]] = []

    def record(*arguments: Any, **named: Any) -> SyntheticDatabase:
        seen.append((arguments, named))
        return original(*arguments, **named)

    # Pairs outside the tree are left to its records: an array has nothing to compare with those.
    choose = selection_module.choose_pairs
    monkeypatch.setattr(selection_module, "choose_left_out", lambda *given: [])
    monkeypatch.setattr(selection_module, "choose_pairs", lambda *given: (choose(*given)[0], []))
    monkeypatch.setattr(selection_module, "synthesise", record)
    with on_trees(selected_cells):
        plan = plan_of(MWEM(), workload, promise(ADD, APPROXIMATE), num_records)
        tree = MWEM().release(plan, exact.marginals(plan.summary_tables), Seeded(5))
    ((arguments, named),) = seen
    dense = original(*arguments, **named)
    assert tree.fit["num_joined_pairs"] > len(exact.domain.shape) / 2
    assert dense.fit["hypothesis"] == "dense_array" and tree.fit["hypothesis"] == "junction_tree"
    assert_close(dense, tree, workload)


# Records of a tree follow the tree, also in pairs of attributes that no table of it holds.

SIZES = (6, 5, 7, 4, 6)
NUM_RECORDS = 4000
Pair = tuple[int, int]


def strayed(pairs: list[Pair], asked: list[Pair], seed: int) -> float:
    """The total variation of the records in the pairs that are asked for, on average."""
    rng = np.random.default_rng(seed)
    domain = domain_of(*SIZES)
    basis = TreeBasis(SIZES, closure_of([(0, 1), (1, 2), (2, 3), (3, 4)]), [])
    log_weights = rng.normal(0, 2, basis.num_coefficients)
    (table,) = basis.marginals(log_weights, [(0, 4)])
    # A measured table outside the tree, which says something else than the tree.
    loose = [Target((0, 4), rng.dirichlet(np.ones(table.size)).reshape(table.shape), 1.0)]
    loose = [Target(each.axes, each.table * NUM_RECORDS, 1.0) for each in loose]
    codes, counts = tree_release(domain, basis, log_weights, NUM_RECORDS, loose, pairs)
    found = []
    for (first, second), fitted in zip(asked, basis.marginals(log_weights, asked), strict=True):
        held = np.zeros(fitted.shape)
        np.add.at(held, (codes[first], codes[second]), counts)
        found.append(np.abs(held / NUM_RECORDS - fitted).sum() / 2)
    return float(np.mean(found))


def test_records_stay_close_to_requested_pairs():
    asked = [pair for pair in combinations(range(5), 2) if pair not in {(0, 4)}]
    seeds = range(4)
    alone = np.mean([strayed([], asked, seed) for seed in seeds])
    kept = np.mean([strayed(asked, asked, seed) for seed in seeds])
    assert kept < 0.75 * alone


# Which pairs a selection measures, and which of them one tree joins.


def test_dependent_pairs_are_joined():
    """Two pairs are tied together, all else is independent; the tree has room for no third."""
    domain = domain_of(3, 3, 2, 2)
    tied = np.einsum("ab,cd->abcd", np.eye(3) * 100, np.eye(2)).astype(np.int64).ravel()
    with on_trees(9 + 4):
        plan = plan_of(MWEM(), workload_of(domain, 2), promise(ADD, APPROXIMATE, 2.0), 600)
        release = MWEM().release(plan, summary(plan, tied), Seeded(3))
    assert sorted(names for names, _ in release.potentials) == [("a0", "a1"), ("a2", "a3")]
    assert release.fit["num_joined_pairs"] == 2


def test_pairs_that_exceed_the_tree_limit_are_measured_outside_it():
    """These pairs fit a tree that grows one by one; triangulated at once they need a larger one."""
    domain = domain_of(3, 2, 5, 2, 3)
    pairs = [(0, 2), (2, 3), (1, 4), (3, 4), (1, 2), (0, 4)]
    limit = 96
    tree = growing_tree(domain, limit)
    assert all(tree.join(pair) for pair in pairs) and tree.num_cells <= limit
    assert tree_cells(domain, pairs) > limit
    with on_trees(limit):
        joined, loose = pair_scores_module._joined_and_loose(
            domain, pairs, dict.fromkeys(pairs, 1.0), len(pairs)
        )
    assert tree_cells(domain, joined) <= limit
    assert loose and joined + loose == pairs


@pytest.mark.parametrize("heavy", [("a0", "a1"), ("a2", "a3")])
def test_joins_the_pair_of_more_weight(heavy):
    """Two pairs are tied equally, and the tree has room for one of them."""
    domain = domain_of(3, 3, 3, 3)
    tied = np.einsum("ab,cd->abcd", np.eye(3) * 20, np.eye(3)).astype(np.int64).ravel()
    pairs = workload_of(domain, 2).marginals
    workload = workload_of(domain, 2, [3.0 if each == heavy else 1.0 for each in pairs])
    with on_trees(9 + 3 + 3):
        plan = plan_of(MWEM(), workload, promise(ADD, APPROXIMATE, 2.0), int(tied.sum()))
        release = MWEM().release(plan, summary(plan, tied), Seeded(3))
    assert [names for names, _ in release.potentials if len(names) > 1] == [heavy]


def test_weight_of_a_pair_is_that_of_all_marginals_around_it():
    domain = domain_of(2, 2, 2)
    workload = Workload(domain, (("a0", "a1", "a2"), ("a1", "a0"), ("a2",)), (0.5, 4.0, 8.0))
    assert pair_weights(workload) == {(0, 1): 4.5, (0, 2): 0.5, (1, 2): 0.5}
