"""Rounds: what all of them together spend, on all neighbours of tiny domains."""

from __future__ import annotations

import math

import numpy as np
import pytest
from noise_sources import NoNoise
from tiny import (
    ADD,
    APPROXIMATE,
    PURE,
    REPLACE,
    domain_of,
    largest_share,
    plan_of,
    promise,
    scripted,
    summary,
    workload_of,
)

from beam_dp.errors import InputError
from beam_dp.mechanisms.marginals import rounds as rounds_module
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.mechanisms.marginals.rounds import round_budget


@pytest.fixture(autouse=True)
def without_the_final_fit(monkeypatch):
    """It is post-processing of what was drawn: these tests look at what is drawn."""
    monkeypatch.setattr(rounds_module, "synthesise", lambda *arguments, **named: None)


@pytest.mark.parametrize("delta, growth", [(PURE, 2), (APPROXIMATE, 4)])
def test_annealed_schedule_spends_more_after_uninformative_rounds(delta, growth):
    """Empty data answered exactly never moves the hypothesis by as much as the noise would."""
    domain = domain_of(2, 2)
    workload = workload_of(domain, 2)
    plan = plan_of(MWEM(num_rounds="annealed"), workload, promise(delta=delta), 1)
    noise = NoNoise()
    plan.release(summary(plan, np.zeros(4, dtype=np.int64)), noise)
    scales = [draw.scale for draw in noise.draws if not draw.is_selection]
    units = [(scales[0] / scale) ** (1 if delta == 0 else 2) for scale in scales]
    assert (
        not delta or min(scales) > 4000
    )  # so that the 4 of a discrete Gaussian is next to nothing
    assert units[:2] == pytest.approx([1, growth])
    assert sum(units) == pytest.approx(plan.public["num_units"])


@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
@pytest.mark.parametrize("most", [1, 2])
def test_scores_change_by_no_more_than_their_sensitivity(neighboring, most):
    """With next to no budget for measuring, selection is what is audited."""
    guarantee = promise(neighboring, PURE, 1.0, most)
    domain = domain_of(2, 2)
    workload = workload_of(domain, 1, weights=(1.0, 0.9))

    def select_only(plan, marginals, noise):
        plan.release(marginals, noise)
        noise.draws[:] = [draw for draw in noise.draws if draw.is_selection]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds_module, "_SELECTION_SHARE", 0.999999)
        plan = plan_of(MWEM(num_rounds=1), workload, guarantee, 20)
        bases = [np.array(each) for each in ([0, 0, 0, 0], [9, 0, 9, 0], [12, 5, 0, 0])]
        share = largest_share(plan, guarantee, select_only, bases, [scripted(0)])
    assert 0.85 < share <= 1


def test_scores_are_integer_errors_minus_a_public_number():
    domain = domain_of(2, 3)
    workload = workload_of(domain, 1, weights=(1.0, 0.25))
    plan = plan_of(MWEM(num_rounds=1), workload, promise(), 12)
    counts = np.array([5, 0, 1, 1, 2, 3])
    noise = NoNoise()
    plan.release(summary(plan, counts), noise)
    select, measure = noise.draws
    budget = round_budget(promise(), 1, True)
    first = np.abs(counts.reshape(2, 3).sum(1) - 6).sum()
    second = np.abs(counts.reshape(2, 3).sum(0) - 4).sum()
    left = budget.measurement_scale * math.sqrt(2 / math.pi)
    expected = [first - 2 * left, (second - 3 * left) / 4]
    assert select.exact.dtype == np.int64
    assert (select.exact / select.scale * budget.selection_scale).tolist() == pytest.approx(
        expected, abs=1e-3
    )
    assert measure.scale == budget.measurement_scale


@pytest.mark.parametrize("guarantee", [promise(), promise(ADD, APPROXIMATE)])
def test_public_parameters_match_the_drawn_noise(guarantee):
    workload = workload_of(domain_of(2, 3), 1)
    plan = plan_of(MWEM(num_rounds=4), workload, guarantee, "noisy")
    noise = NoNoise()
    plan.release(summary(plan, np.arange(6)), noise)
    kinds = [draw.kind for draw in noise.draws]
    selected, measured = "select", "gaussian"
    if guarantee.delta == 0:
        selected, measured = "permute_and_flip", "laplace"
    assert kinds == [measured, *[selected, measured] * 4]
    public = plan.public
    assert noise.draws[0].scale == public["total_scale"]
    assert noise.draws[0].exact.item() == 15 * public["grid"]
    assert noise.draws[2].scale == public["measurement_scale"]
    assert public["num_rounds"] == 4


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1.0, 1e3])
@pytest.mark.parametrize("num_records", [1, 10**9, 2**40])
@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
def test_plans_with_rounds_run_on_any_counts_or_are_refused(epsilon, num_records, neighboring):
    """Whatever the public numbers and the data, nothing fails once records have been read."""
    domain = domain_of(40, 3, 1)
    workload = workload_of(domain, 2, weights=(1e6, 1.0, 1e-6))
    for delta in (PURE, APPROXIMATE):
        guarantee = promise(neighboring, delta, epsilon, 50)
        try:
            plan = plan_of(MWEM(num_rounds=2), workload, guarantee, num_records)
        except InputError as refused:
            assert refused.name == "epsilon" and epsilon < 1e-4
            continue
        for counts in (np.zeros(120), np.full(120, 10**9), np.eye(120)[7] * 2**45):
            plan.release(summary(plan, counts), NoNoise())
