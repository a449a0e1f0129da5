"""Every mechanism from exact tables to a release, on tiny domains and at the limits."""

from __future__ import annotations

import json

import numpy as np
import pytest
from noise_sources import NoNoise, Scripted, Seeded
from tiny import (
    ADD,
    APPROXIMATE,
    PURE,
    REPLACE,
    check_release,
    domain_of,
    exact_table,
    plan_of,
    progress_of,
    promise,
    released_faces,
    summary,
    workload_of,
)

from beam_dp.mechanisms.checks import NumRecords
from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian, Laplace
from beam_dp.mechanisms.marginals.plan import Mechanism
from beam_dp.models import maximum_entropy
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import Workload, marginals
from beam_dp.releases.synthetic_database.release import SyntheticDatabase

# A warning of numpy's is a line of log that depends on what was measured.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

MECHANISMS: dict[str, Mechanism] = {
    "mwem": MWEM(),
    "mwem rounds": MWEM(num_rounds=3),
    "mwem textbook": MWEM(num_rounds=3, calibration="textbook"),
    "gaussian": Gaussian(),
    "gaussian textbook": Gaussian("textbook"),
    "laplace": Laplace(),
    "laplace textbook": Laplace("textbook"),
}
# Its many rounds take longer: in fewer tests.
WITH_ANNEALED = {**MECHANISMS, "mwem annealed rounds": MWEM(num_rounds="annealed")}
RELATIONS: list[tuple[str, NumRecords]] = [(ADD, 12), (ADD, "noisy"), (REPLACE, 12)]
SHAPES = {
    "one cell": (1,),
    "one attribute": (4,),
    "several": (3, 2, 2),
    "sizes of one": (1, 3, 1),
    "only sizes of one": (1, 1),
    "large": (70, 2),
}


def supports(name: str, delta: float, num_records: NumRecords) -> bool:
    if name.startswith("gaussian") and delta == 0:
        return False
    return not (name == "mwem textbook" and num_records == "noisy")


def released(
    mechanism: Mechanism,
    workload: Workload,
    guarantee: Guarantee,
    num_records: NumRecords,
    counts: np.ndarray,
    noise: NoiseSource | None = None,
) -> SyntheticDatabase:
    plan = plan_of(mechanism, workload, guarantee, num_records)
    return mechanism.release(plan, summary(plan, counts), noise or NoiseSource())


@pytest.mark.mostly_slow(one_in=6)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("neighboring, num_records", RELATIONS)
def test_releases_are_well_formed_for_empty_and_full_data(name, shape, neighboring, num_records):
    domain = domain_of(*SHAPES[shape])
    one = np.zeros(domain.num_cells, np.int64)
    one[-1] = 1
    # In turn, so that each mechanism has each pair of shape, relation, data, and delta with ways.
    kinds = [(d, w) for d in (PURE, APPROXIMATE) for w in (1, 2) if supports(name, d, num_records)]
    turn = [*SHAPES].index(shape) + RELATIONS.index((neighboring, num_records))
    for place, counts in enumerate((0 * one, one, 12 * one) if kinds else ()):
        delta, ways = kinds[(turn + place) % len(kinds)]
        workload = workload_of(domain, min(ways, domain.num_attributes))
        guarantee = promise(neighboring, delta, 1.0, 2)
        release = released(MECHANISMS[name], workload, guarantee, num_records, counts, Seeded(1))
        check_release(release, plan_of(MECHANISMS[name], workload, guarantee, num_records))


@pytest.mark.mostly_slow(one_in=3, start=1)
@pytest.mark.parametrize("name", WITH_ANNEALED)
@pytest.mark.parametrize("delta", [PURE, APPROXIMATE])
@pytest.mark.parametrize("num_records", [20, "noisy"])
def test_release_depends_on_data_only_through_noisy_values(name, delta, num_records, monkeypatch):
    """With answers that ignore the data, every byte of the release does, too."""
    if not supports(name, delta, num_records):
        pytest.skip("refused by the mechanism")
    monkeypatch.setattr(maximum_entropy, "_MAX_STEPS", 5)  # later steps see no more than these
    workload = workload_of(domain_of(3, 2, 2), 2)

    def answer(number: int, shape: tuple[int, ...]) -> np.ndarray:
        return np.random.default_rng([5, number]).integers(0, 30, shape)

    plan = plan_of(WITH_ANNEALED[name], workload, promise(ADD, delta), num_records)
    some = np.random.default_rng(0).integers(0, 9, 12)
    bases = (np.zeros(12), np.eye(12)[3], some, np.full(12, 10**9))
    assert len(released_faces(plan, bases, lambda: Scripted([2, 0, 1], answer))) == 1


@pytest.mark.mostly_slow(one_in=3)
@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("delta", [PURE, APPROXIMATE])
def test_release_structure_is_the_same_for_all_data(name, delta):
    if not supports(name, delta, 20):
        pytest.skip("refused by the mechanism")
    workload = workload_of(domain_of(3, 2, 2), 2)
    structures = set()
    for counts in (np.zeros(12), np.eye(12)[0], np.arange(12), np.arange(12) + np.eye(12)[5]):
        release = released(MECHANISMS[name], workload, promise(ADD, delta), 20, counts)
        potentials = tuple((names, table.shape) for names, table in release.potentials)
        noise = len(release.noise) if "rounds" not in name else None
        errors = tuple(release.errors) if "rounds" not in name else None
        structures.add((potentials, noise, errors, tuple(release.fit), json.dumps(release.plan)))
    assert len(structures) == 1


@pytest.mark.mostly_slow(one_in=3)
@pytest.mark.parametrize("name", [name for name in MECHANISMS if name != "mwem textbook"])
@pytest.mark.parametrize("delta", [PURE, APPROXIMATE])
@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
@pytest.mark.parametrize("epsilon", [1e4, 1e6])
def test_huge_epsilon_gives_the_exact_marginals(name, delta, neighboring, epsilon):
    if not supports(name, delta, 100):
        pytest.skip("refused by the mechanism")
    domain = domain_of(3, 2)
    workload = workload_of(domain, 2 if "rounds" in name else 1)
    counts = np.array([40, 3, 7, 11, 25, 14])
    guarantee = promise(neighboring, delta, epsilon)
    release = released(MECHANISMS[name], workload, guarantee, 100, counts)
    for answer in release.answer(workload):
        truth = exact_table(domain, counts, answer.attributes)
        np.testing.assert_allclose(answer.values, truth, atol=0.6)
        assert answer.bound is not None and answer.bound < 20
        records = release.record_marginal(answer.attributes)
        assert np.abs(records - truth).max() <= 1


def test_noisy_number_of_records_is_close_to_the_truth_and_at_least_one():
    workload = workload_of(domain_of(3, 2), 1)
    counts = np.array([400, 30, 70, 110, 250, 140])
    for name in MECHANISMS:
        for delta in (PURE, APPROXIMATE):
            if not supports(name, delta, "noisy"):
                continue
            guarantee = promise(ADD, delta, 20.0)
            release = released(MECHANISMS[name], workload, guarantee, "noisy", counts)
            assert abs(release.num_records - 1000) < 60
            empty = released(MECHANISMS[name], workload, guarantee, "noisy", 0 * counts)
            assert empty.num_records >= 1


@pytest.mark.parametrize("seed", range(4))
def test_noisy_number_of_records_is_limited_to_two_to_the_40(seed, monkeypatch):
    """Noise may be far above any number of records: no such number is ever written out."""
    monkeypatch.setattr(maximum_entropy, "_MAX_STEPS", 5)  # a fit to such noise would take all 100
    workload = workload_of(domain_of(3, 2), 1)
    rng = np.random.default_rng(seed)
    for name in MECHANISMS:
        if not supports(name, APPROXIMATE, "noisy"):
            continue
        noise = Scripted([0], lambda _, shape: rng.integers(2**58, 2**62, shape))
        release = released(
            MECHANISMS[name], workload, promise(ADD, APPROXIMATE), "noisy", np.zeros(6), noise
        )
        assert 1 <= release.num_records <= 2**40


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, delta",
    [("mwem", PURE), ("mwem", APPROXIMATE)],
)
@pytest.mark.parametrize("num_records", [1000, "noisy"])
def test_bound_fails_no_more_often_than_stated(name, delta, num_records):
    """200 runs: each bound fails with probability 5% at most; 24 failures or more have P < 2e-4.

    The bound adds the fit's distance to a union bound, so far fewer are expected.
    """
    domain = domain_of(3, 2, 2)
    workload = workload_of(domain, 2)
    counts = np.random.default_rng(3).multinomial(1000, np.ones(12) / 12)
    mechanism = MECHANISMS[name]
    plan = plan_of(mechanism, workload, promise(ADD, delta, 0.5), num_records)
    held = summary(plan, counts)
    failures = np.zeros(len(workload))
    noise = Seeded(11)
    runs = 200 if num_records == 1000 else 60
    for _ in range(runs):
        release = mechanism.release(plan, held, noise)
        for position, answer in enumerate(release.answer(workload)):
            truth = exact_table(domain, counts, answer.attributes)
            failures[position] += np.abs(answer.values - truth).max() > answer.bound
    assert failures.max() <= 0.05 * runs


@pytest.mark.mostly_slow(one_in=3)
@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("epsilon", [1e-3, 1e3])
@pytest.mark.parametrize("num_records", [1, 10**9])
def test_extreme_budgets_and_sizes_give_well_formed_releases(name, epsilon, num_records):
    domain = domain_of(100, 3, 1)
    workload = marginals(domain, attributes=[["a0", "a1"], ["a1", "a2"]])
    workload = Workload(domain, workload.marginals, (1e-6, 1e6))
    # Each delta that it supports with each budget, and with each size.
    deltas = [delta for delta in (PURE, APPROXIMATE) if supports(name, delta, num_records)]
    delta = deltas[((epsilon > 1) + (num_records > 1)) % len(deltas)]
    plan = plan_of(MECHANISMS[name], workload, promise(ADD, delta, epsilon), num_records)
    counts = np.random.default_rng(1).multinomial(num_records, np.ones(300) / 300)
    check_release(MECHANISMS[name].release(plan, summary(plan, counts), Seeded(2)), plan)


@pytest.mark.parametrize("name", WITH_ANNEALED)
def test_real_noise_gives_well_formed_releases_with_different_draw_ids(name):
    workload = workload_of(domain_of(3, 2), 1)
    plan = plan_of(WITH_ANNEALED[name], workload, promise(ADD, APPROXIMATE), 50)
    held = summary(plan, np.full(6, 8))
    first, second = (WITH_ANNEALED[name].release(plan, held, NoiseSource()) for _ in range(2))
    check_release(first, plan)
    assert first.draw_id != second.draw_id


@pytest.mark.parametrize("name", MECHANISMS)
def test_release_does_not_modify_exact_tables(name):
    workload = workload_of(domain_of(3, 2), 1)
    plan = plan_of(MECHANISMS[name], workload, promise(ADD, APPROXIMATE), 50)
    held = summary(plan, np.arange(6))
    before = {names: table.copy() for names, table in held.tables.items()}
    MECHANISMS[name].release(plan, held, NoNoise())
    for names, table in before.items():
        assert (held.tables[names] == table).all()


@pytest.mark.parametrize("name", MECHANISMS)
def test_progress_reports_public_quantities_only(name):
    workload = workload_of(domain_of(3, 2), 1)
    plan = plan_of(MECHANISMS[name], workload, promise(ADD, APPROXIMATE), 50)
    noises = [Scripted([0], lambda _, shape: np.full(shape, 9)) for _ in range(2)]
    bases = (np.zeros(6), np.full(6, 10**6))
    told = progress_of(plan, [*zip(bases, noises, strict=True)])
    assert told[0] == told[1] and told[0]
    assert all(1 <= done <= total for _, done, total in told[0])
