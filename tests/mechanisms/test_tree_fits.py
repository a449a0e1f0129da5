"""Fits of wide domains: junction trees, their records and pairs, and candidate records."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.csv
import pytest
from noise_sources import NoNoise, Seeded
from tiny import (
    ADD,
    APPROXIMATE,
    PURE,
    check_release,
    correlated,
    domain_of,
    exact_table,
    on_trees,
    plan_of,
    promise,
    summary,
    workload_of,
)

from beam_dp.domain.files import read_domain
from beam_dp.domain.impossible import Impossible
from beam_dp.mechanisms.marginals import (
    plan as plan_module,
    scores as scores_module,
    selection as selection_module,
)
from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian, Laplace
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism, growing_tree, tree_cells
from beam_dp.mechanisms.registry import ReleaseOptions, plan_release
from beam_dp.models import candidates as candidates_module
from beam_dp.queries.workload import Workload
from beam_dp.releases.kinds import verify_release
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.secret.encoding.records import encode_cells
from beam_dp.secret.summaries.histogram import Histogram, Marginals

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


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=() if c == "chain" else pytest.mark.part) for c in SMALL]
)
@pytest.mark.parametrize("mechanism", [Gaussian(), Laplace("textbook"), MWEM(num_rounds=4)])
@pytest.mark.parametrize("num_records", [2000, pytest.param("noisy", marks=pytest.mark.part)])
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
    monkeypatch.setattr(selection_module, "num_choices", lambda *given: 0)
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
        joined, loose = scores_module._joined_and_loose(
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


# Releases over candidate records, for tables that fit neither an array nor a small tree.


MECHANISMS = {
    "mwem": (MWEM(), APPROXIMATE),
    "mwem pure": (MWEM(), PURE),
    "rounds": (MWEM(num_rounds=6), PURE),
    "annealed": (MWEM(num_rounds="annealed"), APPROXIMATE),
    "gaussian": (Gaussian(), APPROXIMATE),
    "laplace textbook": (Laplace("textbook"), PURE),
}
DOMAIN = domain_of(3, 4, 2, 5)


@contextmanager
def over_candidates(number: int = 2**12):
    """Lets tiny domains take the path of those that fit neither an array nor a tree."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_module, "MAX_ARRAY_CELLS", 0)
        patch.setattr(plan_module, "MAX_CANDIDATE_TREE", 0)
        patch.setattr(plan_module, "MAX_CANDIDATES", number)
        yield


def dependent(number: int = 2000) -> np.ndarray:
    rng = np.random.default_rng(3)
    weights = rng.uniform(size=DOMAIN.shape)
    weights[0, 0] *= 20
    weights[:, :, 1, 4] *= 5
    return rng.multinomial(number, (weights / weights.sum()).ravel())


def released(name, num_records="noisy", epsilon=1.0, counts=None, noise=None, domain=DOMAIN):
    mechanism, delta = MECHANISMS[name]
    workload = workload_of(domain, 2)
    counts = dependent() if counts is None else counts
    with over_candidates():
        plan = plan_of(mechanism, workload, promise(ADD, delta, epsilon), num_records)
        release = mechanism.release(plan, summary(plan, counts), noise or Seeded(1))
    return plan, release


@pytest.mark.parametrize("num_records", [2000, "noisy"])
@pytest.mark.parametrize("name", MECHANISMS)
def test_releases_over_candidates_are_well_formed_and_verified(name, num_records):
    plan, release = released(name, num_records)
    check_release(release, plan)
    assert release.fit["hypothesis"] == "candidates" and not release.potentials
    found = verify_release(release)
    assert found.holds and not found.faults


@pytest.mark.part
def test_error_of_candidates_is_at_most_a_tenth_above_that_of_an_array():
    """Over ten draws of noise, the mean errors of pairs differ by less than a tenth."""
    counts, workload = dependent(), workload_of(DOMAIN, 2)

    def error(release: SyntheticDatabase) -> float:
        tables = [(each.values, each.attributes) for each in release.answer(workload)]
        away = [np.abs(values - exact_table(DOMAIN, counts, names)) for values, names in tables]
        return float(np.mean([each.mean() for each in away]))

    found, expected = [], []
    for seed in range(10):
        found.append(error(released("mwem", 2000, 0.3, counts, Seeded(seed))[1]))
        plan = plan_of(MWEM(), workload, promise(ADD, APPROXIMATE, 0.3), 2000)
        expected.append(error(MWEM().release(plan, summary(plan, counts), Seeded(seed))))
    assert np.mean(found) < 1.1 * np.mean(expected)


@pytest.mark.part
def test_few_candidates_fit_triples_nearly_as_well_as_an_array():
    """Candidates follow triples, not pairs alone; every fourth one finds what the tables are."""
    domain, rng = domain_of(*[2] * 11), np.random.default_rng(7)
    records = rng.integers(0, 2, (11, 20_000))
    for column in range(2, 11):
        rule = records[column - 1] & records[column - 2] ^ records[rng.integers(column)]
        records[column] = np.where(rng.random(20_000) < 0.8, rule, records[column])
    counts = np.bincount(np.ravel_multi_index(records, domain.shape), minlength=2**11)
    workload = workload_of(domain, 3)
    plan = plan_of(MWEM(), workload, promise(ADD, APPROXIMATE), 20_000)
    exact = {names: exact_table(domain, counts, names) for names in workload}

    def error(release: SyntheticDatabase) -> float:
        return float(
            np.mean(
                [
                    np.abs(each.values - exact[each.attributes]).mean()
                    for each in release.answer(workload)
                ]
            )
        )

    ratios = []
    for seed in range(3):
        whole = error(MWEM().release(plan, summary(plan, counts), Seeded(seed)))
        with over_candidates(2**10), pytest.MonkeyPatch.context() as patch:
            patch.setattr(candidates_module, "_FEW_CANDIDATES", 2**8)
            patch.setattr(candidates_module, "_CANDIDATES_PER_COEFFICIENT", 1)
            few = MWEM().plan(domain, workload, promise(ADD, APPROXIMATE), 20_000)
            ratios.append(error(MWEM().release(few, summary(few, counts), Seeded(seed))) / whole)
    assert np.mean(ratios) < 1.15


@pytest.mark.parametrize("change", ["records", "mismatch", "kind"])
def test_forged_records_or_fit_of_candidates_fail_verification(change):
    _, release = released("mwem")
    if change == "records":
        counts = release.counts.copy()
        counts[0], counts[-1] = counts[0] + counts[-1] - 1, 1
        forged = dataclasses.replace(release, counts=counts)
    elif change == "mismatch":
        fit = {**release.fit, "mismatch": release.fit["mismatch"] / 2}
        forged = dataclasses.replace(release, fit=fit)
    else:
        forged = dataclasses.replace(release, fit={**release.fit, "hypothesis": "dense_array"})
    assert verify_release(release).holds
    assert not verify_release(forged).holds


def test_impossible_combinations_get_no_candidate():
    impossible = (Impossible((0, 1), (((1, 3),), ((0, 1),))),)
    domain = dataclasses.replace(DOMAIN, impossible=impossible)
    counts = dependent().reshape(domain.shape)
    counts[1:, 0] = 0
    _, release = released("mwem", counts=counts.ravel(), domain=domain)
    assert release.fit["hypothesis"] == "candidates"
    assert not impossible[0].matches(release.codes).any()
    (pair,) = release.answer(Workload(domain, (("a0", "a1"),)))
    assert (pair.values[1:, 0] == 0).all()


@pytest.mark.parametrize("num_records", [10**6, 10**12])
def test_more_records_than_candidates_keep_the_tables_of_a_tree(num_records):
    """Each candidate is released many times; rounding errs by a few records a cell."""
    counts = dependent(10_000) * (num_records // 10_000)
    workload = Workload(DOMAIN, (("a0", "a1"), ("a1", "a2"), ("a3",)))
    with on_trees(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_module, "MAX_CANDIDATES", 2**12)
        plan = plan_of(MWEM(), workload, promise(ADD, APPROXIMATE), num_records)
        release = MWEM().release(plan, summary(plan, counts), NoNoise())
    assert release.fit["hypothesis"] == "junction_tree"
    assert release.num_records == num_records and len(release.counts) <= 2**12
    for answer in release.answer(workload):
        away = release.record_marginal(answer.attributes) - answer.values
        assert np.abs(away).max() < 1e-6 * num_records + 5


@pytest.mark.part
def test_fit_over_candidates_starts_from_public_records():
    counts = dependent(5000)
    codes = DOMAIN.codes(np.repeat(np.arange(counts.size), counts))
    public = pd.DataFrame(dict(zip(DOMAIN.names, codes, strict=True)))
    workload, errors = workload_of(DOMAIN, 2), {}
    for start in (None, public):
        options = ReleaseOptions(num_records=5000, start_from=start)
        with over_candidates():
            guarantee = promise(ADD, APPROXIMATE, 0.02)
            plan = plan_release(MWEM(), DOMAIN, workload, guarantee, options)
            release = MWEM().release(plan, summary(plan, counts), Seeded(2))
        assert release.fit.get("start_was_used", False) == (start is not None)
        assert verify_release(release).holds
        errors[start is None] = np.mean(
            [
                np.abs(each.values - exact_table(DOMAIN, counts, each.attributes)).sum()
                for each in release.answer(workload)
            ]
        )
    assert errors[False] < 0.5 * errors[True]


@pytest.mark.part
def test_strong_dependence_of_many_attributes_is_fitted_down_to_the_noise():
    """The estimated error rises for some steps long before the fit comes near such tables."""
    rng, num_axes = np.random.default_rng(7), 18
    latent = rng.random(50_000)
    cells = np.zeros(len(latent), np.int64)
    for _ in range(num_axes):
        value = (latent + 0.6 * rng.random(len(latent))) % 1
        cells = cells * 2 + (value**2 * 2).astype(np.int64)
    domain = domain_of(*[2] * num_axes)
    plan = plan_of(MWEM(), workload_of(domain, 2), promise(ADD, APPROXIMATE), "noisy")
    held = summary(plan, np.bincount(cells, minlength=2**num_axes))
    assert MWEM().release(plan, held, Seeded(1)).fit["mismatch"] < 2
