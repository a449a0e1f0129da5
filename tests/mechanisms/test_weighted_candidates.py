"""Releases over candidate records, for tables that fit neither an array nor a small tree."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager, nullcontext

import numpy as np
import pandas as pd
import pytest
from noise_sources import NoNoise, Seeded
from tiny import (
    ADD,
    APPROXIMATE,
    PURE,
    check_release,
    domain_of,
    exact_table,
    on_trees,
    plan_of,
    promise,
    summary,
    workload_of,
)
from written_draws import draw_of

from beam_dp.domain.impossible import Impossible
from beam_dp.mechanisms.marginals import plan as plan_module
from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian, Laplace
from beam_dp.mechanisms.registry import ReleaseOptions, plan_release
from beam_dp.queries.workload import Workload
from beam_dp.releases.kinds import verify_release
from beam_dp.releases.synthetic_database.release import SyntheticDatabase

# Fits are dear: they run with the jobs.
pytestmark = pytest.mark.job

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


def test_every_marginal_is_answered_by_the_records():
    _, release = released("mwem")
    for answer in release.answer(workload_of(DOMAIN, 3)):
        assert (answer.values == release.record_marginal(answer.attributes)).all()


def test_release_over_candidates_is_written_to_the_usual_files():
    _, release = released("mwem")
    names = {name.split("-")[0] for name in draw_of(release).payload}
    assert names == {"records", "hypothesis", "measurements"}


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


@pytest.mark.parametrize("form", [nullcontext, on_trees, over_candidates])
def test_progress_of_every_hypothesis_ends_with_the_records(form):
    stages: list[str] = []
    with form():
        plan = plan_of(MWEM(), workload_of(DOMAIN, 2), promise(ADD, APPROXIMATE), 2000)
        held = summary(plan, dependent())
        plan.release(held, Seeded(1), lambda stage, done, of: stages.append(stage))
    assert stages[-2:] == ["fit", "records"]


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
