"""Selections on tiny domains that are treated as wide ones, and a few that are wide."""

import dataclasses
import math
from itertools import combinations

import numpy as np
import pytest
from noise_sources import NoNoise, Seeded
from tiny import (
    ADD,
    APPROXIMATE,
    PURE,
    REPLACE,
    check_release,
    correlated,
    domain_of,
    exact_table,
    on_trees,
    plan_of,
    promise,
    selects_only,
    summary,
    workload_of,
)

from beam_dp.domain.impossible import Impossible
from beam_dp.mechanisms.marginals import released_records as records_module
from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian, Laplace
from beam_dp.mechanisms.marginals.plan import (
    MAX_SELECTED_CELLS,
    MarginalsPlan,
    Mechanism,
    tree_cells,
)
from beam_dp.mechanisms.marginals.selection import plan_selection
from beam_dp.models import maximum_entropy
from beam_dp.privacy.accounting import discrete_gaussian_mu
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.secret.summaries.histogram import Marginals

# Fits are dear: they run with the jobs.
pytestmark = [pytest.mark.job, pytest.mark.filterwarnings("error::RuntimeWarning")]

SELECTING: dict[str, tuple[Mechanism, float]] = {
    "pairs": (MWEM(), APPROXIMATE),
    "annealed": (MWEM(), PURE),
    "rounds": (MWEM(num_rounds=3), PURE),
    "rounds, delta": (MWEM(num_rounds=3), APPROXIMATE),
}
# Sizes, and cells that a selected tree may have: not all pairs fit.
SHAPES = {
    "one attribute": ((4,), 4),
    "two that cannot be joined": ((3, 4), 7),
    "two": ((3, 4), 12),
    "several": ((3, 2, 2, 4), 20),
    "one code": ((3, 1, 2), 8),
    "only one code": ((1, 1), 8),
    "large": ((70, 2, 2), 150),
}


def check(release: SyntheticDatabase, plan: MarginalsPlan, selected_cells: int) -> None:
    check_release(release, plan)
    assert release.fit["hypothesis"] == "junction_tree"
    joined = [plan.domain.axes(names) for names, _ in release.potentials]
    assert release.fit["tree_cells"] == tree_cells(plan.domain, joined) <= selected_cells


PROMISES = [(ADD, 12, 1), (ADD, "noisy", 2), (REPLACE, 12, 3)]


# Every two of the three parameters meet.
@pytest.mark.parametrize(
    "name, shape, number",
    [
        pytest.param(
            *(name, shape, (i + k) % 3), marks=() if shape == "several" else pytest.mark.part
        )
        for i, name in enumerate(SELECTING)
        for k, shape in enumerate(SHAPES)
    ],
)
def test_releases_are_well_formed(name, shape, number):
    (neighboring, num_records, most), (mechanism, delta) = PROMISES[number], SELECTING[name]
    sizes, selected_cells = SHAPES[shape]
    domain = domain_of(*sizes)
    for ways in {1, min(2, len(sizes)), min(3, len(sizes))}:
        workload = workload_of(domain, ways)
        with on_trees(selected_cells):
            plan = plan_of(mechanism, workload, promise(neighboring, delta, 1.0, most), num_records)
            assert plan.public["strategy"] == ("selection" if name == "pairs" else "rounds")
            counts = np.zeros(domain.num_cells, np.int64)
            counts[-1] = 12
            check(mechanism.release(plan, summary(plan, counts), Seeded(ways)), plan, 10**9)
            release = mechanism.release(plan, summary(plan, 0 * counts), Seeded(0))
            check(release, plan, selected_cells)


@pytest.mark.part
def test_fewer_pairs_are_joined_with_more_noise():
    domain = domain_of(4, 4, 4, 4)
    counts = correlated(domain, 2000)
    numbers = []
    with on_trees(4**4):
        for epsilon in (1e-3, 0.1, 100.0):
            plan = plan_of(MWEM(), workload_of(domain, 2), promise(ADD, APPROXIMATE, epsilon), 2000)
            release = MWEM().release(plan, summary(plan, counts), Seeded(1))
            numbers.append(release.fit["num_joined_pairs"])
    assert numbers[0] < numbers[-1] == 6


def test_large_pairs_get_less_noise():
    """Variances fall as the fourth roots of the numbers of cells grow, for equal weights."""
    sizes = (2, 3, 20, 60)
    plan = plan_selection(workload_of(domain_of(*sizes), 2), promise(ADD, APPROXIMATE), 2000)
    measured = {each.names: each.variance for each in plan._pair_measurements(plan.pairs)}
    scaled = [
        measured[f"a{i}", f"a{j}"] * (sizes[i] * sizes[j]) ** 0.25
        for i, j in combinations(range(4), 2)
    ]
    assert scaled == pytest.approx([scaled[0]] * 6, rel=1e-6)


def zeros(plan: MarginalsPlan) -> Marginals:
    return Marginals(
        plan.domain,
        {
            names: np.zeros([plan.domain.shape[axis] for axis in plan.domain.axes(names)], np.int64)
            for names in plan.summary_tables
        },
    )


WIDE: dict[str, Workload] = {
    "35 attributes": Workload(
        domain_of(*[5 + i % 3 for i in range(35)]),
        tuple((f"a{i}", f"a{(i + far) % 35}") for i in range(35) for far in (1, 5, 11)),
    ),
    "pairs too large to be joined": workload_of(domain_of(1500, 1500, 1500), 2),
    "an attribute of no pair": Workload(
        domain_of(1500, 1500, 1500, 2, 2, 2, 1),
        (("a0", "a1"), ("a1", "a2"), ("a0", "a2"), ("a3", "a4"), ("a4", "a6"), ("a5",)),
    ),
}


@pytest.mark.part
@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize(("delta", "num_records"), [(PURE, 200), (APPROXIMATE, "noisy")])
def test_selection_over_wide_domain_gives_well_formed_release(name, delta, num_records):
    workload = WIDE[name]
    mechanism = MWEM(num_rounds=4) if delta == PURE else MWEM()
    plan = plan_of(mechanism, workload, promise(ADD, delta), num_records)
    check(mechanism.release(plan, zeros(plan), Seeded(2)), plan, MAX_SELECTED_CELLS)
    without_delta = plan_of(MWEM(), workload, promise(), num_records)
    assert without_delta.public["num_rounds"] == "annealed"


# What is drawn, and what it costs.


@pytest.mark.parametrize("neighboring, moved", [(ADD, 1), (REPLACE, 2)])
@pytest.mark.parametrize("most", [1, 3])
def test_noise_of_the_scores_has_the_planned_scale(neighboring, moved, most):
    domain = domain_of(3, 2, 2, 4)
    guarantee = promise(neighboring, APPROXIMATE, 1.0, most)
    noise = NoNoise()
    with on_trees(20):
        plan = plan_of(MWEM(), workload_of(domain, 2), guarantee, 20)
        selects_only(plan, summary(plan, np.arange(48)), noise)
    # Tables of six cells are measured after the scores.
    scores = next(draw for draw in noise.draws if draw.exact.shape == (6,))
    deviation = plan.public["score_deviation"]
    mu = discrete_gaussian_mu(1.0, APPROXIMATE)
    expected = moved * most * math.sqrt(6) / (mu * math.sqrt(plan.public["scores_share"]))
    assert deviation == pytest.approx(expected, rel=1e-6) and deviation >= expected
    grid = round(scores.scale / deviation)
    assert scores.scale == pytest.approx(deviation * grid)
    # Without noise the hypothesis of independent attributes is known but for its regularisation.
    table = np.arange(48).reshape(3, 2, 2, 4)
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    for score, pair in zip(scores.exact / grid, pairs, strict=True):
        pair_table = table.sum(tuple(axis for axis in range(4) if axis not in pair))
        independent = np.outer(pair_table.sum(1), pair_table.sum(0)) / table.sum()
        far = np.abs(pair_table - 20 * independent / table.sum()).sum()
        assert score == pytest.approx(far, rel=0.05)


# Data reach the release through noise alone.


@pytest.mark.part
@pytest.mark.parametrize(("name", "num_records"), [("pairs", "noisy"), ("rounds, delta", 1000)])
def test_bounds_of_measured_marginals_fail_no_more_often_than_stated(name, num_records):
    """20 runs: the bounds of a run fail together with probability 5 % at most, in fact hardly ever.

    The bound adds the fit's distance to a union bound; 6 failures or more have P < 4e-4.
    """
    mechanism, delta = SELECTING[name]
    domain = domain_of(3, 2, 2, 2)
    workload = workload_of(domain, 2)
    counts = correlated(domain, 1000)
    failures, bounded = 0, 0
    with on_trees(14):
        plan = plan_of(mechanism, workload, promise(ADD, delta, 0.5), num_records)
        held = summary(plan, counts)
        for seed in range(20):
            failed = False
            for answer in mechanism.release(plan, held, Seeded(seed)).answer(workload):
                if answer.bound is None:
                    continue
                bounded += 1
                truth = exact_table(domain, counts, answer.attributes)
                failed |= bool(np.abs(answer.values - truth).max() > answer.bound)
            failures += failed
    assert failures <= 5 and bounded > 10


# Combinations that no record has.

FIRST = ((0, 1),)
IMPOSSIBLE = (Impossible((0, 1), (((1, 3),), FIRST)), Impossible((1, 2, 3), (FIRST, FIRST, FIRST)))
TIGHT: dict[str, tuple[Mechanism, float, int | None]] = {
    "mwem": (MWEM(), APPROXIMATE, None),
    "mwem, pure": (MWEM(), PURE, None),
    "mwem rounds": (MWEM(num_rounds=3), PURE, None),
    "gaussian": (Gaussian(), APPROXIMATE, None),
    "gaussian textbook": (Gaussian("textbook"), APPROXIMATE, None),
    "laplace": (Laplace(), PURE, None),
    "laplace textbook": (Laplace("textbook"), PURE, None),
    "pairs": (MWEM(), APPROXIMATE, 26),
    "annealed": (MWEM(), PURE, 26),
    "rounds over a tree": (MWEM(num_rounds=3), APPROXIMATE, 26),
}


# Every two of the three parameters meet.
@pytest.mark.part
@pytest.mark.parametrize(
    "num_records, epsilon, name",
    [
        ((300, "noisy")[(i + k) % 2], epsilon, name)
        for i, epsilon in enumerate([0.01, 1.0, 1e5])
        for k, name in enumerate(TIGHT)
    ],
)
def test_impossible_combinations_get_no_weight(name, epsilon, num_records, monkeypatch):
    mechanism, delta, selected_cells = TIGHT[name]
    if name not in ("mwem", "annealed"):
        # Almost without noise, a fit takes all its steps.
        monkeypatch.setattr(maximum_entropy, "_MAX_STEPS", 40)
    domain = dataclasses.replace(domain_of(3, 2, 2, 4), impossible=IMPOSSIBLE)
    workload = workload_of(domain, 2)
    counts = np.zeros(domain.shape, np.int64)
    counts[0, :, 1, :] = 30
    counts[:, 1, 0, 2] = 20
    codes = np.indices(domain.shape).reshape(4, -1)
    forbidden = [each.matches(codes) for each in IMPOSSIBLE]
    assert all(not counts.ravel()[each].any() and each.any() for each in forbidden)
    with on_trees(selected_cells):
        plan = plan_of(mechanism, workload, promise(ADD, delta, epsilon), num_records)
        release = mechanism.release(plan, summary(plan, counts.ravel()), Seeded(1))
        assert int(release.counts.sum()) == release.num_records
        assert release.fit["hypothesis"] == "junction_tree"
        assert not any(each.matches(release.codes).any() for each in IMPOSSIBLE)
        (pair,) = release.answer(Workload(domain, (("a0", "a1"),)))
        assert (pair.values[1:, 0] == 0).all() and pair.values.sum() == pytest.approx(
            release.num_records
        )
        (triple,) = release.answer(Workload(domain, (("a1", "a2", "a3"),)))
        assert triple.values[0, 0, 0] == 0


def test_impossible_record_is_replaced_by_a_possible_one():
    domain = domain_of(2, 3)
    domain = dataclasses.replace(domain, impossible=(Impossible((0, 1), (((0, 1),), ((0, 2),))),))
    codes = np.array([[0, 1, 0, 1, 0], [0, 0, 2, 2, 1]], dtype=np.int32)
    records_module._leave_out_impossible(domain, codes)
    assert codes.tolist() == [[1, 1, 0, 1, 0], [0, 0, 2, 2, 2]]
