"""Bounds after a selection: how often they fail if the choice depends most on the noise."""

import dataclasses
import itertools
from functools import cache

import numpy as np
import pytest
from measured_database import DOMAIN, counts as measured_counts, database
from noise_sources import Seeded
from numpy.typing import NDArray
from scipy.stats import binomtest
from tiny import ADD, APPROXIMATE, PURE, domain_of, on_trees, plan_of, promise, summary, workload_of

import beam_dp as dp
from beam_dp.domain.impossible import Impossible
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.mechanisms.marginals.selection import SelectionPlan
from beam_dp.models import maximum_entropy
from beam_dp.planning.synthetic_databases import selected_tables_theorem
from beam_dp.privacy.noise import bound as bound_module
from beam_dp.privacy.noise.bound import FAILURE_PROBABILITY, chosen_noise_bound, noise_bound
from beam_dp.queries.dense_tables import VectorQuery, sums_of
from beam_dp.queries.linear import Disjunction, Product, negation
from beam_dp.releases.synthetic_database import measured_tables
from beam_dp.releases.synthetic_database.proved_bounds import ScoredPair

Patch = pytest.MonkeyPatch

RUNS = 60
SHAPE = domain_of(*[4] * 6)
PAIRS = list(itertools.combinations(range(6), 2))
QUERIES = [
    VectorQuery.of({first: one, second: other})
    for first, second in PAIRS
    for one, other in itertools.product(np.eye(4), repeat=2)
]
# For each pair: either attribute at its first code, or not both.
QUERIES += [
    VectorQuery.of_literals(query)
    for pair in PAIRS
    for product in [Product.of(SHAPE.shape, dict.fromkeys(pair, ((0, 1),)))]
    for query in (Disjunction.of(SHAPE.shape, dict.fromkeys(pair, ((0, 1),))), negation(product))
]


@cache
def alike() -> NDArray[np.int64]:
    """All pairs are equally dependent: only noise decides which are left out."""
    rng = np.random.default_rng(1)
    hidden = rng.integers(0, 4, 2000)
    own = [rng.integers(0, 4, 2000) for _ in range(6)]
    codes = [np.where(rng.random(2000) < 0.6, hidden, each) for each in own]
    return np.bincount(SHAPE.cell_index(codes), minlength=SHAPE.num_cells)


@cache
def true_table(axes: tuple[int, ...]) -> NDArray[np.float64]:
    others = tuple(axis for axis in range(6) if axis not in axes)
    return alike().reshape(SHAPE.shape).sum(axis=others).astype(float)


@cache
def plan(number: str = "noisy", delta: float = APPROXIMATE) -> MarginalsPlan:
    with on_trees(40):
        records = 2000 if number == "public" else "noisy"
        return plan_of(dp.MWEM(), workload_of(SHAPE, 2), promise(ADD, delta, 0.3), records)


@cache
def drawn(seed: int = 0, number: str = "noisy", delta: float = APPROXIMATE) -> dp.SyntheticDatabase:
    made = plan(number, delta)
    with on_trees(40), Patch.context() as patch:
        # A bound covers how far the fit goes, so that few steps suffice.
        patch.setattr(maximum_entropy, "_MAX_STEPS", 5)
        return made.release(summary(made, alike()), Seeded(seed))


def releases(number: str = "noisy", delta: float = APPROXIMATE) -> list[dp.SyntheticDatabase]:
    return [drawn(seed, number, delta) for seed in range(RUNS)]


@cache
def truths() -> list[float]:
    return [float(sums_of(true_table(each.axes), [each])[0]) for each in QUERIES]


def asked(release: dp.SyntheticDatabase) -> bool:
    """Whether an answer about any pair is wrong by more than its bound."""
    answers = release.bounded.of(QUERIES)
    return any(
        abs(answer.value - truth) > answer.bound
        for answer, truth in zip(answers, truths(), strict=True)
        if answer.bound is not None
    )


def scored(release: dp.SyntheticDatabase) -> bool:
    """Whether an unmeasured pair is farther from independent than the proved bound."""
    out = [axes for axes in PAIRS if not release.estimates.covers(axes)]
    known = release.bounded._pairs(out, FAILURE_PROBABILITY)
    assert known.keys() == set(out)
    return any(
        np.abs(true_table(axes) - pair.table).sum() > pair.distance for axes, pair in known.items()
    )


def stated(release: dp.SyntheticDatabase) -> bool:
    """Whether a marginal is wrong by more than the bound on the card."""
    return any(
        np.abs(answer.values - true_table(SHAPE.axes(answer.attributes))).max() > answer.bound
        for answer in release.answer(release.workload)
        if answer.bound is not None
    )


def fails_no_more_than_stated(failures: int, runs: int, probability: float) -> bool:
    test = binomtest(failures, runs, probability, alternative="greater")
    return bool(test.pvalue > 1e-3)


@pytest.mark.part
@pytest.mark.parametrize("wrong", [asked, scored, stated])
@pytest.mark.parametrize("number", ["noisy", "public"])
def test_bounds_of_a_selection_fail_at_most_as_often_as_stated(number, wrong):
    made = releases(number)
    kept = {tuple(each.estimates.covers(axes) for axes in PAIRS) for each in made}
    assert len(kept) > RUNS / 4  # noise did decide
    assert sum(each.fit["num_added_pairs"] > 0 for each in made) > RUNS / 2  # a check added some
    assert fails_no_more_than_stated(sum(map(wrong, made)), RUNS, FAILURE_PROBABILITY)


@pytest.mark.part
def test_bounds_of_rounds_fail_at_most_as_often_as_stated():
    """Measures the same tables repeatedly with Laplace noise, as the noise decides."""
    made = releases("public", PURE)
    measured = [[tuple(entry["attributes"]) for entry in each.noise] for each in made]
    assert any(len(each) > len(set(each)) for each in measured)
    for wrong in (asked, stated):
        assert fails_no_more_than_stated(sum(map(wrong, made)), RUNS, FAILURE_PROBABILITY)


def without_noise_of_scores(patch: Patch) -> None:
    patch.setattr(measured_tables.PairDistances, "noise_bound", lambda *_: 0.0)


def of_half_the_noise_of_scores(patch: Patch) -> None:
    original = measured_tables.PairDistances.noise_bound
    patch.setattr(measured_tables.PairDistances, "noise_bound", lambda *given: original(*given) / 2)


def of_half_the_noise(patch: Patch) -> None:
    original = measured_tables.NoiseBounds.of
    patch.setattr(measured_tables.NoiseBounds, "of", lambda *given: original(*given) / 2)


@pytest.mark.part
@pytest.mark.parametrize(
    ("mutant", "wrong"),
    [
        (without_noise_of_scores, scored),
        (of_half_the_noise_of_scores, scored),
        (of_half_the_noise, asked),
    ],
)
def test_smaller_bounds_fail_more_often_than_stated(mutant, wrong, monkeypatch):
    made = releases("public")
    mutant(monkeypatch)
    assert not fails_no_more_than_stated(sum(map(wrong, made)), RUNS, FAILURE_PROBABILITY)


@pytest.mark.parametrize("distribution", ["discrete_gaussian", "discrete_laplace"])
@pytest.mark.parametrize("num_parts", [2, 8])
def test_bound_is_true_even_if_noise_chooses_the_weights(distribution, num_parts):
    """The worst choice: the weight of each part is its own noise."""
    scale, runs, probability = 2.0, 2000, 0.2
    is_laplace = distribution == "discrete_laplace"
    noise = Seeded(3)
    draw = noise.laplace if is_laplace else noise.gaussian
    drawn = draw(np.zeros(runs * num_parts, np.int64), scale).reshape(runs, num_parts)
    variance = bound_module.noise_variance(distribution, scale)  # type: ignore[arg-type]
    # Weights drawn / norm: their squares add up to 1, and the error is the norm.
    errors = np.sqrt((drawn.astype(float) ** 2).sum(axis=1))
    laplace = variance if is_laplace else None
    proved = chosen_noise_bound(variance, 1, laplace, probability, num_parts)
    assert fails_no_more_than_stated(int((errors > proved).sum()), runs, probability)
    if num_parts == 8 and not is_laplace:
        plain = noise_bound(variance, 1, laplace, probability)
        assert not fails_no_more_than_stated(int((errors > plain).sum()), runs, probability)


def test_bound_is_true_even_if_noise_chooses_the_number_of_parts():
    """Adds parts until the bound is exceeded, if it ever is."""
    runs, most, probability = 1000, 40, 0.2
    drawn = Seeded(4).gaussian(np.zeros(runs * most, np.int64), 50.0).reshape(runs, most) / 50
    norms = np.sqrt(np.cumsum(drawn**2, axis=1))
    fixed, free = (
        np.array(
            [
                chosen_noise_bound(1.0, 1, None, probability, d, is_number_fixed=is_fixed)
                for d in range(1, most + 1)
            ]
        )
        for is_fixed in (True, False)
    )
    assert (free > fixed).all()
    assert fails_no_more_than_stated(int((norms > free).any(axis=1).sum()), runs, probability)


def test_numbers_of_noise_parts_match_manual_calculation():
    def measured(kind: str, *names: str) -> measured_tables.MeasuredTable:
        return measured_tables.MeasuredTable(names, kind, "discrete_gaussian", 3.0)  # type: ignore[arg-type]

    first = [measured("residual", *names) for names in ((), ("a0",), ("a1",))]
    later = [measured("residual", *names) for names in (("a0",), ("a1",), ("a0", "a1"))]
    once = measured_tables.NoiseBounds(SHAPE, [*first, *later], "once", False)
    # The total, both attributes, and everything measured after the choice.
    assert once._parts((0, 1)) == [1, 1, 1, 1]
    assert once._parts((0,)) == [1, 1, 0, 1] and once._parts(()) == [1, 0, 0, 0]
    public = measured_tables.NoiseBounds(SHAPE, [*first[1:], *later], "once", True)
    assert sum(public._parts((0, 1))) == 3 and sum(public._parts((0,))) == 2
    tables = [measured("table", "a0", "a1"), measured("table", "a1", "a2")]
    in_turn = measured_tables.NoiseBounds(SHAPE, tables, "in_turn", False)
    assert in_turn._parts((0, 1)) == [4, 2, 0] and in_turn._parts((3,)) == [1, 1, 0]
    fixed = measured_tables.NoiseBounds(SHAPE, tables, "beforehand", False)
    assert fixed.of((0, 1), 9.0, 7, 0.05) == noise_bound(9.0, 7, None, 0.05)
    assert once.of((0, 1), 9.0, 7, 0.05) == chosen_noise_bound(9.0, 7, None, 0.05, 4)
    assert public.of((), 0.0, 7, 0.05) == 0.0


def test_bounds_of_pairs_match_calculations_by_hand():
    """Tables of 2 x 2 that differ by 10 in each cell are 40 apart, and a parity sees all of it."""
    table = np.full((2, 2), 100.0)
    pair = ScoredPair(table, 40.0, 8.0)
    cell = VectorQuery.of({0: [1, 0], 1: [1, 0]})
    # Half of the distance, and half of the difference between the sums.
    assert pair.bound(cell, 103.0) == 3 + 20 + 4
    # A count is neither negative nor larger than a count that includes it.
    assert pair.bound(cell, 3.0) == 121 and pair.bound(cell, 3.0, largest=7.0) == 4
    assert pair.bound(cell, 3.0, largest=90.0) == 87 and pair.bound(cell, 150.0, largest=7.0) == 74
    assert ScoredPair(table, 400.0, 0.0).bound(cell, 150.0, largest=7.0) == 150
    # The complement: also at most half of the distance, and half of the difference of the sums.
    others = dataclasses.replace(cell, constant=1.0, factor=-1.0)
    assert pair.bound(others, 303.0) == 3 + 20 + 4 and pair.bound(others, 273.0) == 300 + 24 - 273
    parity = VectorQuery.of({0: [1, -1], 1: [1, -1]})
    moved = table + 10 * np.outer([1, -1], [1, -1])
    assert float(sums_of(moved, [parity])[0]) == pair.bound(parity, 0.0) == 40
    # A count is also a sum of products of -1 and -1, with the same bound.
    release = drawn()
    assert not all(release.estimates.covers(axes) for axes in PAIRS)
    negated = [
        dataclasses.replace(each, vectors=tuple(-vector for vector in each.vectors))
        for each in QUERIES
    ]
    bounds, same = ([each.bound for each in release.bounded.of(q)] for q in (QUERIES, negated))
    assert same == pytest.approx(bounds)
    distances = measured_tables.PairDistances(
        2.0, dict.fromkeys(itertools.combinations(SHAPE.names, 2), 1.0)
    )
    assert distances.noise_bound(0.05) == noise_bound(4.0, len(PAIRS), None, 0.05)


def test_bound_is_true_for_fitted_and_unbiased_answers():
    """The fitted answer's bound includes the unbiased answer's bound, so either may be shown."""
    release = database()
    queries = [
        VectorQuery.of({0: np.eye(4)[i], 3: np.eye(4)[j]})
        for i, j in itertools.product(range(4), repeat=2)
    ]
    table = measured_counts().reshape(DOMAIN.shape).sum(axis=(1, 2)).astype(float)
    shown = release.bounded.of(queries)
    for answer, query, (_, unbiased) in zip(
        shown, queries, release.estimates.both(queries), strict=True
    ):
        assert unbiased is not None and unbiased.standard_error is not None
        assert answer.bound is not None
        of_noise = noise_bound(unbiased.standard_error**2, len(queries), None, FAILURE_PROBABILITY)
        assert answer.bound == pytest.approx(abs(answer.value - unbiased.value) + of_noise)
        assert abs(answer.value - float(sums_of(table, [query])[0])) <= answer.bound
    (mean,) = release.estimates.means([queries[0]], 0, np.arange(4.0))
    assert mean.bound is None


@pytest.mark.parametrize("number", ["noisy", "public"])
def test_planned_bound_is_at_least_the_bound_of_a_selection(number):
    made = plan(number)
    assert isinstance(made, SelectionPlan)
    promised = selected_tables_theorem(made, FAILURE_PROBABILITY).bound(2000).max_error
    for found, names in noise_bounds_of(drawn(1, number)):
        assert found <= promised * (1 + 1e-9), names


def noise_bounds_of(release: dp.SyntheticDatabase) -> list[tuple[float, str]]:
    """The bound on the noise of each measured pair, over all cells of all pairs."""
    measured = release.measurements
    assert measured is not None
    bounds = measured.bounds(SHAPE, release.num_records_is_public)
    cells = len(PAIRS) * 16 + 6 * 4
    errors = {
        names: entry["standard_error"] for names, entry in release.errors.items() if len(names) == 2
    }
    return [
        (bounds.of(SHAPE.axes(names), error**2, cells, FAILURE_PROBABILITY), ",".join(names))
        for names, error in errors.items()
        if error is not None
    ]


def test_independent_table_of_scores_is_zero_in_impossible_cells():
    domain = dataclasses.replace(SHAPE, impossible=(Impossible((0, 1), (((0, 1),), ((1, 2),))),))
    counts = np.where(
        (np.indices(SHAPE.shape)[0] == 0) & (np.indices(SHAPE.shape)[1] == 1),
        0,
        alike().reshape(SHAPE.shape),
    ).ravel()
    with on_trees(60):
        made = plan_of(dp.MWEM(), workload_of(domain, 2), promise(ADD, APPROXIMATE, 0.3), "noisy")
        release = made.release(summary(made, counts), Seeded(1))
    measured = release.measurements
    assert measured is not None and measured.distances is not None
    independent = measured.distances.independent
    assert independent is not None
    (table,) = independent.answers(domain, [(0, 1)]).values()
    assert table[0, 1] == 0 and table.sum() == pytest.approx(independent.num_records)
