"""A record moves what gets noise by no more than is planned for: any fit, any counts."""

import itertools
from itertools import product

import numpy as np
import pytest
from noise_sources import NoNoise, Scripted
from tiny import ADD, REPLACE, domain_of, promise, summary, workload_of

import beam_dp as dp
from beam_dp.hashing.projections import fold, num_buckets
from beam_dp.interval_strategies.hierarchy import tree
from beam_dp.interval_strategies.sine import SineStrategy
from beam_dp.interval_strategies.strategy import TextbookTree
from beam_dp.mechanisms.intervals.plan import windows
from beam_dp.mechanisms.marginals import rounds as rounds_module, textbook_mwem as textbook_module
from beam_dp.mechanisms.marginals.measurements import residual_query
from beam_dp.mechanisms.marginals.pair_scores import l1_score, largest_cell_score
from beam_dp.mechanisms.sparse_vector.mechanisms import NumericSparse
from beam_dp.mechanisms.sparse_vector.noise import sparse_vector_noise
from beam_dp.releases.synthetic_database.measured_tables import MAX_SCORE
from beam_dp.summaries.element_counts import KeyCounts
from beam_dp.summaries.histogram import MAX_TOTAL, Histogram, Marginals, clipped_counts

ODD = (np.nan, np.inf, -np.inf, 1e308, -1e308, 2.0**63, -(2.0**63), 5e-324, -3.5, 7.0)


@pytest.mark.parametrize("grid", [1, 2**16, 2**20])
def test_one_record_moves_the_score_by_at_most_one_record(grid):
    for answers in itertools.product(ODD, repeat=2):
        answer = np.array(answers)
        for count in (0, 1, 2, 10**6, 2**40, 2**62):
            scores = [l1_score(np.array([count + more, 3]), answer, grid) for more in (0, 1)]
            assert abs(scores[0] - scores[1]) <= grid
            assert all(0 <= each <= MAX_SCORE for each in scores)


@pytest.mark.parametrize("grid", [1, 2**16])
def test_one_replacement_moves_the_largest_distance_by_at_most_one_record(grid):
    for answers in itertools.product(ODD, repeat=2):
        answer = np.array(answers)
        for count in (0, 1, 10**6, 2**40, 2**62):
            held = [(count, 3), (count + 1, 3), (count, 4)]
            scores = [largest_cell_score(np.array(each), answer, grid) for each in held]
            assert max(scores) - min(scores) <= grid
            assert all(0 <= each <= MAX_SCORE for each in scores)


def selected(monkeypatch: pytest.MonkeyPatch, textbook: bool, counts: list[int]) -> np.ndarray:
    """The scores of the first selection of a run whose hypothesis has no numbers."""
    domain = domain_of(2, 2)
    calibration = "textbook" if textbook else "tight"
    plan = dp.MWEM(num_rounds=1, calibration=calibration).plan(  # type: ignore[arg-type]
        domain, workload_of(domain, 1), promise(REPLACE), 10
    )
    if textbook:
        monkeypatch.setattr(textbook_module, "marginal_of", lambda *_: np.full(2, np.nan))
    else:
        monkeypatch.setattr(
            rounds_module,
            "l1_score",
            lambda exact, answer, grid: l1_score(exact, np.nan * answer, grid),
        )
    noise = Scripted()
    mechanism = dp.MWEM(num_rounds=1, calibration=calibration)  # type: ignore[arg-type]
    mechanism.release(plan, summary(plan, np.array(counts)), noise)
    draw = next(each for each in noise.draws if each.is_selection)
    return draw.exact / draw.scale


@pytest.mark.parametrize("textbook", [True, False])
def test_scores_of_rounds_keep_their_sensitivity_with_a_nan_hypothesis(monkeypatch, textbook):
    with monkeypatch.context() as patch:
        one = selected(patch, textbook, [0, 0, 3, 7])
    with monkeypatch.context() as patch:
        other = selected(patch, textbook, [1, 0, 3, 6])
    # The scale is twice the sensitivity over a share of epsilon, which is less than 1.
    assert np.abs(one - other).max() <= 0.5


def test_questions_that_are_not_integers_are_refused():
    noise = sparse_vector_noise(promise(), 1, answers=True)
    mechanism = NumericSparse(10, noise, NoNoise())
    for wrong in (1.5, float("nan"), "7", None):
        with pytest.raises(dp.InputError, match=r"^question: .* must be an integer") as raised:
            mechanism.ask(wrong)  # type: ignore[arg-type]
        assert "1.5" not in str(raised.value) and "7" not in str(raised.value)
    with pytest.raises(dp.InputError, match=r"^value: .* must be an integer"):
        mechanism.ask(np.int64(100), 0.5)  # type: ignore[arg-type]
    assert mechanism.ask(np.int64(100), np.int64(5)) == 5  # type: ignore[arg-type]


def test_online_run_answers_with_a_nan_hypothesis(monkeypatch):
    domain = domain_of(4)
    plan = dp.plan_private_mw(domain, promise(REPLACE), 100, num_questions=5, max_updates=3)
    run = dp.PrivateMW(plan, Histogram(domain, np.full(4, 25)), NoNoise())
    run._hypothesis.weights[:] = np.nan
    answer = run.answer(dp.LinearQueries(domain).conjunction({"a0": 1}))
    assert 0 <= answer.value <= 100 + plan.settle(100).total_bound


# However many records there are, a record moves what gets noise by no more than is planned for.


LARGEST = 2**63 - 1
DOMAIN = domain_of(4, 2)
LARGE = [2**k + d for k in (40, 45, 46, 47, 48, 55, 58, 59, 60, 61, 62) for d in (-1, 0)]
LARGE += [140_000_000_000_000, LARGEST - 1, LARGEST]


def workloads() -> list[dp.LinearWorkload]:
    make = dp.LinearQueries(DOMAIN)
    values = [0.0, 0.25, 1.0, 1.0, 0.5, 1.0, 2**-16, 0.75]
    return [
        *(dp.parse_linear_workload(each, DOMAIN) for each in ("prefixes:a0", "intervals:a0")),
        dp.parse_linear_workload("parities:2", domain_of(2, 2, 2)),
        dp.LinearWorkload(DOMAIN, (make.explicit(values), make.conjunction({"a0": 1}))),
    ]


@pytest.mark.parametrize("kind", ["discrete_laplace", "discrete_gaussian"])
@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
@pytest.mark.parametrize("number", range(4))
def test_answers_move_by_at_most_their_sensitivity_at_any_count(number, neighboring, kind):
    workload = workloads()[number]
    guarantee = promise(neighboring, 1e-9)
    plan = dp.plan_workload_answers(workload, guarantee, 10, kind)  # type: ignore[arg-type]
    noise = NoNoise()

    def exact(counts: np.ndarray) -> list[int]:
        dp.draw_workload_answers(plan, counts, noise)
        return noise.draws[-1].exact.tolist()

    for large, others in product(LARGE, (1, None)):
        others = others or large
        one = np.full(workload.domain.num_cells, others, np.int64)
        one[0], one[1] = large, others - 1
        other = one.copy()
        other[0] -= 1
        if neighboring == REPLACE:
            other[1] += 1
        moved = [a - b for a, b in zip(exact(one), exact(other), strict=True)]
        l1 = plan.sensitivity.l1 * plan.grid // 2**16
        assert sum(map(abs, moved)) <= l1, large
        assert sum(each**2 for each in moved) * 2**32 <= plan.sensitivity.l2_squared * plan.grid**2


def test_single_query_is_exact_for_the_largest_histogram():
    counts = Histogram(DOMAIN, np.full(8, LARGEST)).counts
    for query in workloads()[3]:
        numerators = [round(value * 2**16) for value in query.values()]
        assert query.count(counts) == sum(
            a * b for a, b in zip(numerators, counts.tolist(), strict=True)
        )


def test_histogram_sums_never_overflow():
    histogram = Histogram(DOMAIN, np.full(8, LARGEST))
    assert int(histogram.counts.sum()) <= MAX_TOTAL
    assert (histogram.marginal(["a1"]) > 0).all()
    few = np.arange(8)
    assert Histogram(DOMAIN, few).counts is few


@pytest.mark.parametrize("size", [1, 3, 1000, 2**20])
def test_clipping_keeps_order_and_never_increases_differences(size):
    most = MAX_TOTAL // size
    places = np.array([most - 2, most - 1, most, most + 1, min(most + 9, LARGEST), 0, 7])
    for step in (0, 1, 3):
        for value in places.tolist():
            one, other = np.zeros((2, size), np.int64)
            one[0], other[0] = value, min(value + step, LARGEST)
            change = int(clipped_counts(other)[0]) - int(clipped_counts(one)[0])
            assert 0 <= change <= step
    assert int(clipped_counts(np.full(size, LARGEST)).sum()) <= MAX_TOTAL


def test_online_runs_accept_any_number_of_records():
    guarantee = promise(ADD)
    plan = dp.plan_private_mw(DOMAIN, guarantee, "noisy", num_questions=10, max_updates=3)
    full, noise = np.full(8, LARGEST), NoNoise()
    query = dp.LinearQueries(DOMAIN).explicit([1.0] * 7 + [0.5])
    for each in (full, full - np.eye(8, dtype=np.int64)[0]):
        run = dp.PrivateMW(plan, Histogram(DOMAIN, each), noise)
        assert run.answer(query).value <= 2**41
    sparse = dp.plan_sparse_mw(guarantee, "noisy", max_sparsity=2, num_questions=10, max_updates=3)
    run = dp.SparseMW(sparse, KeyCounts({"a": 2**70, "b": 3}), noise)
    assert run.answer(dp.SparseQuery({"a": 1, "b": 1})).value <= 2**41


def test_small_database_accepts_any_number_of_records():
    plan = dp.SmallDB(size=1).plan(DOMAIN, workload_of(DOMAIN, 1), promise(ADD), "noisy")
    table = np.full(DOMAIN.shape, LARGEST)

    class Lowest(NoNoise):
        def below(self, bound: int) -> int:
            return 0

    noise = Lowest()
    dp.SmallDB(size=1).release(plan, Marginals(DOMAIN, {DOMAIN.names: table}), noise)
    assert 0 < noise.draws[0].exact.item() <= MAX_TOTAL


def test_noisy_sums_are_exact_modulo_two_to_the_64():
    """A sum that wraps is then the true one with its noise, reduced: nothing more is told."""
    strategies = {
        "tree": tree((3, 16)),
        "textbook": TextbookTree(16, True),
        "windows": windows(16),
        "sine": SineStrategy.build(16),
    }
    measured = {name: each.measure for name, each in strategies.items()}
    measured["residual"] = lambda counts: residual_query(counts.reshape(8, 2), 16 * 3**20).ravel()
    buckets = num_buckets(3)
    measured["fold"] = lambda counts: fold(counts[:buckets], 1, 3)
    rng = np.random.default_rng(1)
    for name, measure in measured.items():
        columns = np.stack([measure(cell) for cell in np.eye(16, dtype=np.int64)], axis=1)
        matrix = columns.astype(object)
        for counts in (np.full(16, LARGEST), rng.integers(2**62, LARGEST, 16)):
            expected = [int(each) for each in matrix @ counts.astype(object)]
            found = [int(each) for each in measure(counts)]
            assert all((a - b) % 2**64 == 0 for a, b in zip(found, expected, strict=True)), name


def test_grid_leaves_room_for_the_public_number_of_records():
    wide = domain_of(2**12, 2**12)
    workload, guarantee = workload_of(wide, 2), promise(ADD, 1e-9)
    plan = dp.Gaussian().plan(wide, workload, guarantee, 2**37)
    assert max(each.grid for each in plan.measurements) * 2**37 <= 2**62
