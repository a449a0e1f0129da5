"""A junction tree fits what one array fits, from the same noisy tables."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
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
from beam_dp.mechanisms.marginals import selection as selection_module
from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian, Laplace
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.summaries.histogram import Histogram, Marginals

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
