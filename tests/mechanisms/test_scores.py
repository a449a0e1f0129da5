"""Scores keep their sensitivity whatever a fit made of its answers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from noise_sources import NoNoise, Scripted
from tiny import REPLACE, domain_of, promise, summary, workload_of

from beam_dp.errors import InputError
from beam_dp.mechanisms.marginals import rounds as rounds_module, textbook_mwem as textbook_module
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.mechanisms.marginals.pair_scores import answer_on_grid, l1_score, largest_cell_score
from beam_dp.mechanisms.online.private_mw import PrivateMW
from beam_dp.mechanisms.online.private_mw_plan import plan_private_mw
from beam_dp.mechanisms.sparse_vector.mechanisms import NumericSparse
from beam_dp.mechanisms.sparse_vector.noise import sparse_vector_noise
from beam_dp.queries.reader import LinearQueries
from beam_dp.releases.synthetic_database.measured_tables import MAX_SCORE
from beam_dp.summaries.histogram import Histogram

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


def test_largest_distance_is_the_largest_cell_error():
    exact, answer = np.array([[5, 0], [2, 9]]), np.array([[4.0, 1.75], [2.0, 12.25]])
    assert largest_cell_score(exact, answer, 4) == 13


def test_nan_answers_count_as_zero():
    exact = np.array([5, 0, 2])
    same = [l1_score(exact, np.array([each, 0.0, 2.0]), 4) for each in (np.nan, 0.0)]
    assert same == [20, 20]
    found = answer_on_grid(np.array(ODD), 2, 1000).tolist()
    assert found == [0, 1000, -1000, 1000, -1000, 1000, -1000, 0, -7, 14]


def selected(monkeypatch: pytest.MonkeyPatch, textbook: bool, counts: list[int]) -> np.ndarray:
    """The scores of the first selection of a run whose hypothesis has no numbers."""
    domain = domain_of(2, 2)
    calibration = "textbook" if textbook else "tight"
    plan = MWEM(num_rounds=1, calibration=calibration).plan(  # type: ignore[arg-type]
        domain, workload_of(domain, 1), promise(REPLACE), 10
    )
    if textbook:
        monkeypatch.setattr(textbook_module, "marginal_of", lambda *_: np.full(2, np.nan))
    else:
        original = rounds_module.plan_basis

        def broken(*arguments: object) -> object:
            basis = original(*arguments)  # type: ignore[arg-type]
            whole = type(basis).marginals
            calls = itertools.count()

            def marginals(self: object, *given: object) -> object:
                found = whole(self, *given)  # type: ignore[arg-type]
                return [each * np.nan for each in found] if next(calls) == 0 else found

            monkeypatch.setattr(type(basis), "marginals", marginals)
            return basis

        monkeypatch.setattr(rounds_module, "plan_basis", broken)
    noise = Scripted()
    mechanism = MWEM(num_rounds=1, calibration=calibration)  # type: ignore[arg-type]
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
        with pytest.raises(InputError, match=r"^question: .* must be an integer") as raised:
            mechanism.ask(wrong)  # type: ignore[arg-type]
        assert "1.5" not in str(raised.value) and "7" not in str(raised.value)
    with pytest.raises(InputError, match=r"^value: .* must be an integer"):
        mechanism.ask(np.int64(100), 0.5)  # type: ignore[arg-type]
    assert mechanism.ask(np.int64(100), np.int64(5)) == 5  # type: ignore[arg-type]


def test_online_run_answers_with_a_nan_hypothesis(monkeypatch):
    domain = domain_of(4)
    plan = plan_private_mw(domain, promise(REPLACE), 100, num_questions=5, max_updates=3)
    run = PrivateMW(plan, Histogram(domain, np.full(4, 25)), NoNoise())
    run._hypothesis.weights[:] = np.nan
    answer = run.answer(LinearQueries(domain).conjunction({"a0": 1}))
    assert 0 <= answer.value <= 100 + plan.settle(100).total_bound
