"""Noisy answers to a workload, the largest of them, and what a record may move of any count."""

import dataclasses
import itertools
import math
from itertools import product

import numpy as np
import pytest
from noise_sources import NoNoise, Scripted, Seeded
from tiny import ADD, REPLACE, domain_of, promise, summary, workload_of
from top_choice_laws import LAWS, PICKS

import beam_dp as dp
from beam_dp.errors import InputError
from beam_dp.hashing.projections import fold, num_buckets
from beam_dp.mechanisms.choosing import METHODS, TopChoice, choose_top, top_choice
from beam_dp.mechanisms.contract import check_promise
from beam_dp.mechanisms.intervals import windows
from beam_dp.mechanisms.linear_answers import draw_workload_answers, plan_workload_answers
from beam_dp.mechanisms.marginals import rounds as rounds_module, textbook_mwem as textbook_module
from beam_dp.mechanisms.marginals.measurements import residual_query
from beam_dp.mechanisms.marginals.scores import l1_score, largest_cell_score
from beam_dp.mechanisms.sparse_vector import NumericSparse, sparse_vector_noise
from beam_dp.models.intervals.hierarchy import tree
from beam_dp.models.intervals.sine import SineStrategy
from beam_dp.models.intervals.strategy import TextbookTree
from beam_dp.privacy.accounting import zcdp_rho
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.reader import LinearQueries
from beam_dp.releases.synthetic_database.measured_tables import MAX_SCORE
from beam_dp.secret.summaries.histogram import MAX_TOTAL, Histogram, Marginals, clipped_counts
from beam_dp.secret.summaries.sparse_counts import KeyCounts

DOMAIN = domain_of(4, 2, 3)
COUNTS = np.random.default_rng(0).integers(0, 50, DOMAIN.num_cells)
PAIRS = parse_linear_workload("conjunctions:2", DOMAIN)
VALUES = np.random.default_rng(1).random((5, DOMAIN.num_cells))
FRACTIONAL = LinearWorkload(DOMAIN, tuple(LinearQueries(DOMAIN).explicit(row) for row in VALUES))


@pytest.mark.parametrize(("delta", "size", "chosen"), [
    (0.0, 50, "discrete_laplace"),
    (1e-9, 2, "discrete_laplace"),
    (1e-9, 50, "discrete_gaussian"),
])  # fmt: skip
def test_distribution_with_smaller_error_is_chosen(delta, size, chosen):
    workload = parse_linear_workload("prefixes:a0", domain_of(size))
    plan = plan_workload_answers(workload, promise(ADD, delta), "noisy")
    assert plan.distribution == chosen
    others = ["discrete_laplace"] + ["discrete_gaussian"] * (delta > 0)
    errors = [
        plan_workload_answers(workload, promise(ADD, delta), "noisy", each).standard_error
        for each in others
    ]
    assert plan.standard_error == min(errors)


@pytest.mark.parametrize("kind", ["discrete_laplace", "discrete_gaussian"])
@pytest.mark.parametrize("epsilon", [0.5, 6.0])
def test_measured_errors_match_stated_error_and_bound(kind, epsilon):
    """4,000 answers of a seeded source, within five standard errors of the stated deviation.

    The bound fails in 5% of runs at most: more than 11 of 40 with probability 4e-7.
    """
    workload = LinearWorkload(DOMAIN, PAIRS.queries[:1] * 100)
    plan = plan_workload_answers(workload, promise(ADD, 1e-9, epsilon), "noisy", kind)
    exact = workload.counts(COUNTS)[0] / 2**16
    errors = np.array(
        [draw_workload_answers(plan, COUNTS, Seeded(seed)).values - exact for seed in range(40)]
    )
    # A squared Laplace noise has a standard deviation of sqrt(5) times its mean.
    assert abs((errors**2).mean() / plan.standard_error**2 - 1) < 5 * math.sqrt(5 / errors.size)
    failures = (np.abs(errors).max(axis=1) > plan.bound()).sum()
    assert failures <= 11
    # Nor does it hold by far: a bound a third smaller fails in most runs.
    assert (np.abs(errors).max(axis=1) > plan.bound() * 2 / 3).sum() > 11


def test_bound_of_one_laplace_answer_is_exact():
    workload = LinearWorkload(DOMAIN, PAIRS.queries[:1])
    plan = plan_workload_answers(workload, promise(ADD, 0.0, 0.7), "noisy")
    ratio = math.exp(-1 / plan.scale)
    for probability in (0.5, 0.05, 1e-6):
        least = next(m for m in range(1000) if 2 * ratio ** (m + 1) / (1 + ratio) <= probability)
        assert plan.bound(probability) == least


def test_all_zero_query_gets_noise():
    nothing = LinearWorkload(DOMAIN, (LinearQueries(DOMAIN).explicit([0.0] * DOMAIN.num_cells),))
    for kind in ("discrete_laplace", "discrete_gaussian"):
        assert plan_workload_answers(nothing, promise(ADD, 1e-9), "noisy", kind).scale > 0


def test_gaussian_noise_is_used_when_laplace_does_not_fit():
    many = LinearWorkload(DOMAIN, FRACTIONAL.queries * 2000)
    guarantee = promise(ADD, 1e-9, 2e-7)
    with pytest.raises(InputError, match=r"^epsilon: "):
        plan_workload_answers(many, guarantee, "noisy", "discrete_laplace")
    assert plan_workload_answers(many, guarantee, "noisy").distribution == "discrete_gaussian"


def test_plan_states_the_bound_of_its_own_failure_probability():
    usual = plan_workload_answers(PAIRS, promise(ADD), "noisy")
    bold = plan_workload_answers(PAIRS, promise(ADD), "noisy", failure_probability=0.5)
    assert bold.bound() == usual.bound(0.5) < usual.bound() == bold.bound(0.05)
    assert (bold.public["bound"], bold.public["failure_probability"]) == (bold.bound(), 0.5)
    released = draw_workload_answers(bold, COUNTS, Seeded(1))
    assert (released.bound, released.failure_probability) == (bold.bound(), 0.5)


# Selections: known answers, exact laws on all neighbours, samplers against laws, and mutants.


def draws(name: str, scores: np.ndarray, runs: int, **named: bool) -> list[int]:
    """Of seeded coins; only the sampler of the exponential mechanism takes no seed."""
    noise = NoiseSource() if name == "exponential_mechanism" else Seeded(7)
    pick = PICKS[name]
    return [pick(scores, 1, 1.0, noise, **named) for _ in range(runs)]


@pytest.mark.parametrize("name", LAWS)
def test_choice_is_correct_for_extreme_scores_and_single_candidates(name):
    ends = np.array([-(2**63), 2**63 - 1])
    assert set(draws(name, ends, 20)) == {1}
    assert set(draws(name, np.array([-5]), 3)) == {0}
    # The best of many, by far.
    scores = np.zeros(1000, np.int64)
    scores[617] = 10**6
    assert set(draws(name, scores, 3)) == {617}


APPROXIMATE = 1e-9


@pytest.mark.parametrize("method", METHODS)
def test_without_noise_the_largest_scores_are_chosen_in_order(method):
    scores = np.array([5, 9, 9, -3, 7])
    choice = TopChoice(method, 4, 1, 1.0)
    assert choose_top(scores, choice, NoNoise()) == [1, 2, 4, 0]


def test_scales_of_top_choices_match_the_derivation():
    for relation, most in ((ADD, 1), (REPLACE, 1), (ADD, 3)):
        monotone = relation == ADD
        width = most * (1 if monotone else 2)
        pure = promise(relation, 0.0, 0.5, most)
        for method in METHODS:
            choice = top_choice(pure, 10, most, monotone=monotone, method=method)
            assert choice.scale == pytest.approx(10 * width / 0.5, rel=1e-12)
            assert choice.scale >= 10 * width / 0.5
        some = promise(relation, APPROXIMATE, 0.5, most)
        choice = top_choice(some, 100, most, monotone=monotone)
        assert choice.method == "exponential" and choice.spends_rho
        assert 100 * (width / choice.scale) ** 2 / 8 == pytest.approx(zcdp_rho(0.5, 1e-9), rel=1e-9)
        assert choice.loss.rho <= zcdp_rho(0.5, 1e-9)


def test_smaller_margin_is_chosen():
    pure, some = promise(ADD), promise(ADD, APPROXIMATE)
    assert top_choice(pure, 100, 1, monotone=True).method == "geometric"
    for number in (1, 5, 30, 200):
        best = top_choice(some, number, 1, monotone=True)
        others = [top_choice(some, number, 1, monotone=True, method=each) for each in METHODS]
        assert best.margin(1000, 0.05) == min(each.margin(1000, 0.05) for each in others)
        assert best.method == ("geometric" if number < 10 else "exponential")


def test_noise_that_needs_delta_is_refused_without_delta():
    guarantee = promise(ADD, APPROXIMATE)
    plan = dp.plan_top_queries(PAIRS, guarantee, "noisy", 20, "exponential")
    assert plan.choice_scale < 20 * plan.choice_grid and plan.distribution == "discrete_gaussian"
    with pytest.raises(InputError, match="mechanism"):
        check_promise(dataclasses.replace(plan, guarantee=promise(ADD)), promise(ADD))


# A record moves what gets noise by no more than is planned for: any fit, any counts.


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
EIGHT = domain_of(4, 2)
LARGE = [2**k + d for k in (40, 45, 46, 47, 48, 55, 58, 59, 60, 61, 62) for d in (-1, 0)]
LARGE += [140_000_000_000_000, LARGEST - 1, LARGEST]


def workloads() -> list[dp.LinearWorkload]:
    make = dp.LinearQueries(EIGHT)
    values = [0.0, 0.25, 1.0, 1.0, 0.5, 1.0, 2**-16, 0.75]
    return [
        *(dp.parse_linear_workload(each, EIGHT) for each in ("prefixes:a0", "intervals:a0")),
        dp.parse_linear_workload("parities:2", domain_of(2, 2, 2)),
        dp.LinearWorkload(EIGHT, (make.explicit(values), make.conjunction({"a0": 1}))),
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
    counts = Histogram(EIGHT, np.full(8, LARGEST)).counts
    for query in workloads()[3]:
        numerators = [round(value * 2**16) for value in query.values()]
        assert query.count(counts) == sum(
            a * b for a, b in zip(numerators, counts.tolist(), strict=True)
        )


def test_histogram_sums_never_overflow():
    histogram = Histogram(EIGHT, np.full(8, LARGEST))
    assert int(histogram.counts.sum()) <= MAX_TOTAL
    assert (histogram.marginal(["a1"]) > 0).all()
    few = np.arange(8)
    assert Histogram(EIGHT, few).counts is few


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
    plan = dp.plan_private_mw(EIGHT, guarantee, "noisy", num_questions=10, max_updates=3)
    full, noise = np.full(8, LARGEST), NoNoise()
    query = dp.LinearQueries(EIGHT).explicit([1.0] * 7 + [0.5])
    for each in (full, full - np.eye(8, dtype=np.int64)[0]):
        run = dp.PrivateMW(plan, Histogram(EIGHT, each), noise)
        assert run.answer(query).value <= 2**41
    sparse = dp.plan_sparse_mw(guarantee, "noisy", max_sparsity=2, num_questions=10, max_updates=3)
    run = dp.SparseMW(sparse, KeyCounts({"a": 2**70, "b": 3}), noise)
    assert run.answer(dp.SparseQuery({"a": 1, "b": 1})).value <= 2**41


def test_small_database_accepts_any_number_of_records():
    plan = dp.SmallDB(size=1).plan(EIGHT, workload_of(EIGHT, 1), promise(ADD), "noisy")
    table = np.full(EIGHT.shape, LARGEST)

    class Lowest(NoNoise):
        def below(self, bound: int) -> int:
            return 0

    noise = Lowest()
    dp.SmallDB(size=1).release(plan, Marginals(EIGHT, {EIGHT.names: table}), noise)
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
