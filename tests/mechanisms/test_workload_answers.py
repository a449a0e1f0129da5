"""Noisy answers to a workload: noise from the sensitivity, honest errors, refusals."""

import math

import numpy as np
import pytest
from noise_sources import NoNoise, Seeded
from tiny import ADD, REPLACE, domain_of, promise

from beam_dp.errors import InputError
from beam_dp.mechanisms.linear_answers.answers import draw_workload_answers, plan_workload_answers
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.reader import LinearQueries

DOMAIN = domain_of(4, 2, 3)
COUNTS = np.random.default_rng(0).integers(0, 50, DOMAIN.num_cells)
PAIRS = parse_linear_workload("conjunctions:2", DOMAIN)
VALUES = np.random.default_rng(1).random((5, DOMAIN.num_cells))
FRACTIONAL = LinearWorkload(DOMAIN, tuple(LinearQueries(DOMAIN).explicit(row) for row in VALUES))


@pytest.mark.parametrize("workload", [PAIRS, FRACTIONAL])
@pytest.mark.parametrize("kind", ["discrete_laplace", "discrete_gaussian"])
def test_without_noise_the_answers_are_exact(workload, kind):
    plan = plan_workload_answers(workload, promise(ADD, 1e-9), "noisy", kind)
    source = NoNoise()
    answers = draw_workload_answers(plan, COUNTS, source)
    expected = [query.count(COUNTS) / 2**16 for query in workload]
    assert answers.values.tolist() == expected
    (draw,) = source.draws
    assert draw.scale == plan.scale and draw.kind == kind.removeprefix("discrete_")
    assert draw.exact.tolist() == [round(each * plan.grid) for each in expected]


def test_histogram_noise_matches_known_values():
    histogram = parse_linear_workload("marginals:a0", domain_of(5))
    for neighboring, delta, variance in ((ADD, 0.0, 1.84135), (REPLACE, 0.0, 7.83542)):
        plan = plan_workload_answers(histogram, promise(neighboring, delta), 10)
        assert plan.standard_error**2 == pytest.approx(variance, rel=1e-5)
    gaussian = plan_workload_answers(histogram, promise(REPLACE, 1e-9), 10, "discrete_gaussian")
    assert gaussian.standard_error == pytest.approx(7.77148, rel=1e-5)


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
