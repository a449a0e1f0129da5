"""Errors of sums of windows: closed forms against simulated horizons, and the planner's choice.

The simulations estimate by dense least squares of what is released at each time, so that nothing of
the estimator is used twice. A root mean square of n independent errors is within 5 % of its closed
form, but for a chance below 1e-6, if n is at least 5,000 for Gaussian noise and 12,500 for Laplace
noise; all sums of one horizon and cell count as one error, and there are 25,600 of these.
"""

import math
from typing import Any

import numpy as np
import pytest
from noise_sources import Seeded
from tiny import domain_of
from window_plans import HORIZON_ID, RECORD, horizon_of, marginals_of, person, plan_of, whole

from beam_dp.mechanisms.windows.choices import Question, mean_squared_error
from beam_dp.mechanisms.windows.plan import WindowTablesPlan
from beam_dp.noise.source import NoiseSource
from beam_dp.planning.ranking import rank_window_strategies
from beam_dp.releases.windows.release import HorizonRelease
from beam_dp.windows.horizon import Blocks

QUESTIONS = ("one", "trailing:24", "running")
LEVELS = {"strategy": "levels", "block": 24, "share": 0.3}


def design_of(num_windows: int, blocks: Blocks | None) -> np.ndarray:
    """Which windows each window and each block sums up, one row each."""
    design = np.zeros((num_windows + (0 if blocks is None else len(blocks)), num_windows))
    design[:num_windows] = np.eye(num_windows)
    for number in range(len(design) - num_windows):
        design[num_windows + number, list(blocks.windows(number))] = 1  # type: ignore[union-attr]
    return design


@pytest.mark.parametrize("moment", ["now", "end"])
def test_closed_form_equals_the_variance_of_dense_least_squares(moment):
    rng = np.random.default_rng(3)
    for _ in range(60):
        num_windows = int(rng.integers(2, 12))
        size = int(rng.integers(2, num_windows + 1))
        window, block = rng.uniform(0.5, 9, 2)
        question = Question(None if rng.random() < 0.3 else int(rng.integers(1, num_windows + 1)))
        blocks = Blocks(num_windows, size)
        design = design_of(num_windows, blocks)
        precision = 1 / np.array([window] * num_windows + [block] * len(blocks))
        variances = []
        for first, stop in zip(*question.ends(num_windows), strict=True):
            known = stop if moment == "now" else num_windows
            seen = np.flatnonzero(design[:, known:].sum(axis=1) == 0)
            of_seen = design[seen, :known]
            covariance = np.linalg.inv((of_seen.T * precision[seen]) @ of_seen)
            variances.append(covariance[first:stop, first:stop].sum())
        found = mean_squared_error(question, num_windows, window, size, block, moment)
        assert found == pytest.approx(np.mean(variances), rel=1e-9)


BARS = [
    (1, {}, "now", (1.41, 6.93, 13.0)),
    (1, LEVELS, "now", (2.02, 8.3, 10.1)),
    (1, LEVELS, "end", (1.99, 6.7, 8.8)),
    (7, {}, "now", (9.9, 48.5, 91)),
    (168, {}, "now", (71.23, 349, 655)),
]


@pytest.mark.parametrize(("windows", "options", "moment", "bars"), BARS)
def test_errors_of_a_week_are_at_most_those_of_continuous_noise(windows, options, moment, bars):
    plan = plan_of(168, person(windows, 168), **options)
    for text, bar in zip(QUESTIONS, bars, strict=True):
        assert 0.95 * bar < plan.error(text, moment) < 1.001 * bar


@pytest.mark.part
@pytest.mark.parametrize("options", [{}, LEVELS], ids=["independent", "levels"])
def test_errors_of_released_horizons_match_the_stated_errors(options):
    """4,096 running totals."""
    domain = domain_of(1024)
    plan = plan_of(24, RECORD, whole(domain), **{**options, **({"block": 6} if options else {})})
    source = Seeded(4)
    squares: dict[str, list[float]] = {text: [] for text in QUESTIONS}
    stated: dict[str, list[float]] = {text: [] for text in QUESTIONS}
    for _ in range(4):
        release = released(plan, source, counts=3)
        for text in QUESTIONS:
            for first, stop in zip(*Question.parse(text, 24).ends(24), strict=True):
                (answer,) = release.answer(plan.workload, slice(int(first), int(stop)))
                squares[text].append(((answer.values - 3 * (stop - first)) ** 2).mean())
                stated[text].append(float(answer.standard_error or 0) ** 2)
    for text in QUESTIONS:
        found = math.sqrt(np.mean(squares[text]))
        assert found == pytest.approx(math.sqrt(np.mean(stated[text])), rel=0.08)
        assert found == pytest.approx(plan.error(text, "end"), rel=0.08)


def released(plan: WindowTablesPlan, source: NoiseSource, counts: int) -> HorizonRelease:
    """A horizon all of whose windows hold so many records in each cell."""
    blocks = plan.blocks
    sizes = [] if blocks is None else [len(blocks.windows(n)) for n in range(len(blocks))]
    return HorizonRelease(
        horizon=plan.horizon,
        horizon_id=HORIZON_ID,
        guarantee=plan.guarantee,
        workload=plan.workload,
        windows={
            number: plan.draw(number, marginals_of(plan, counts), source, HORIZON_ID)
            for number in range(plan.horizon.num_windows)
        },
        block=plan.block,
        blocks={
            number: plan.draw_block(number, marginals_of(plan, counts * size), source, HORIZON_ID)
            for number, size in enumerate(sizes)
        },
    )


@pytest.mark.part
@pytest.mark.parametrize(
    ("num_windows", "unit"),
    [(24, RECORD), (168, RECORD), (168, person(7, 168)), (60, person(60, 60)), (48, person(3, 12))],
)
@pytest.mark.parametrize("questions", [QUESTIONS, ("running",), ("trailing:12", "running")])
def test_ranked_first_choice_is_within_two_percent_of_the_best(num_windows, unit, questions):
    """Nor any share in steps of 3 %, with the noise that is drawn."""

    def mean_error(plan: WindowTablesPlan) -> float:
        return math.exp(np.mean([math.log(plan.error(text)) for text in questions]))

    best = plan_of(num_windows, unit, strategy="best", questions=questions)
    least = mean_error(best)
    options = rank_window_strategies(
        best.workload, horizon_of(num_windows), unit, 1.0, 1e-9, questions=questions
    )
    assert options[0].mean_error == pytest.approx(least, rel=1e-6)
    for option in options:
        kwargs: dict[str, Any] = {"distribution": option.distribution, "strategy": option.strategy}
        if option.block is None:
            assert least <= 1.02 * mean_error(plan_of(num_windows, unit, **kwargs))
            continue
        for share in (option.share, *np.arange(0.02, 1, 0.12).tolist()):
            other = plan_of(num_windows, unit, block=option.block, share=share, **kwargs)
            assert least <= 1.02 * mean_error(other)
            if share == option.share:
                for text in questions:
                    assert other.error(text) == pytest.approx(option.errors[text], rel=1e-4)
                    final = other.error(text, "end")
                    assert final == pytest.approx(option.final_errors[text], rel=1e-4)


def test_blocks_lower_the_error_of_running_totals_but_not_of_single_windows():
    for questions, strategy in ((("running",), "levels"), (("one",), "independent")):
        plan = plan_of(168, RECORD, strategy="best", questions=questions)
        assert plan.strategy == strategy


def test_blocks_are_ranked_only_if_the_whole_horizon_is_protected():
    for unit, strategies in (
        (person(3, 12), {"independent"}),
        (person(3, 48), {"independent", "levels"}),
        (RECORD, {"independent", "levels"}),
    ):
        found = rank_window_strategies(whole(domain_of(3)), horizon_of(48), unit, 1.0, 1e-9)
        assert {each.strategy for each in found} == strategies
        assert [each.mean_error for each in found] == sorted(each.mean_error for each in found)
