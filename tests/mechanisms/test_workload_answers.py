"""Noisy answers to a workload, and the largest of them: noise, laws of choices, mutants."""

import dataclasses
import math

import numpy as np
import pytest
from noise_sources import NoNoise, Seeded
from tiny import ADD, REPLACE, domain_of, promise
from top_choice_laws import LAWS, PICKS

import beam_dp as dp
from beam_dp.errors import InputError
from beam_dp.mechanisms.choosing import METHODS, TopChoice, choose_top, top_choice
from beam_dp.mechanisms.contract import check_promise
from beam_dp.mechanisms.linear_answers.answers import draw_workload_answers, plan_workload_answers
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.accounting import zcdp_rho
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.reader import LinearQueries

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
