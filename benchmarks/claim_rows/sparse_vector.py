"""What is published of the sparse vector mechanisms."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from claim_rows.claim import Agreement, Claim, Failures, Measured, Slack, failures
from claim_rows.published import sparse_vector_theorem
from claim_rows.selection import BETA, DELTA, promise
from dp_accounting.pld.privacy_loss_distribution import from_laplace_mechanism

from beam_dp.mechanisms.sparse_vector import (
    AboveThreshold,
    NumericSparse,
    Sparse,
    SparseVectorNoise,
    published_accuracy,
    sparse_vector_noise,
)
from beam_dp.privacy.noise.source import NoiseSource

# How far from the threshold questions are, as shares of the bound.
_SHARES = (0.25, 0.5, 0.75, 1.0)
_REACH = 60  # scales, beyond which noise is left out


def _error(mechanism: Any, num_questions: int, away: int) -> float:
    """How wrong an answer is; infinite where a question this far from the threshold is misjudged.

    All but c questions are below the threshold, of 0, and come first.
    """
    error, number = 0.0, mechanism.num_left
    for question in [-away] * (num_questions - number) + [away] * number:
        said = mechanism.ask(question)
        is_above = said is not None and said is not False
        if is_above != (question > 0):
            return math.inf
        if is_above and said is not True:
            error = max(error, abs(said - question))
    return error


def _runs(
    kind: type[NumericSparse],
    noise: SparseVectorNoise,
    num_questions: int,
    bound: float,
    trials: int,
) -> Failures:
    """The largest distance at which a question is misjudged, or error of an answer."""
    source, errors = NoiseSource(), []
    for _ in range(trials):
        worst = 0.0
        for share in _SHARES:
            away = math.floor(share * bound) + 1
            error = _error(kind(0, noise, source), num_questions, away)
            # A question that is misjudged at a share of the bound is wrong by more than that. Of
            # answers, one run counts.
            if error == math.inf:
                worst = max(worst, share + 1e-9)
            elif share == _SHARES[-1]:
                worst = max(worst, error / bound)
        errors.append(worst)
    return failures(errors, BETA)


def _above_threshold(trials: int) -> list[Measured]:
    noise = sparse_vector_noise(promise(), 1, answers=False, calibration="textbook")
    published = published_accuracy(promise(), 1, 100, BETA, answers=False) + 2
    ours = sparse_vector_theorem(noise, 100, BETA).bound(1).max_error
    return [_runs(AboveThreshold, noise, 100, bound, trials) for bound in (published, ours)]


def _sparse(answers: bool, trials: int) -> list[Measured]:
    found: list[Measured] = []
    for delta in (0.0, DELTA):
        guarantee, kind = promise(delta), NumericSparse if answers else Sparse
        noise = sparse_vector_noise(guarantee, 5, answers=answers, calibration="textbook")
        bound = published_accuracy(guarantee, 5, 100, BETA, answers=answers) + 2
        if answers and delta:
            bound = sparse_vector_theorem(noise, 100, BETA).bound(1).max_error
        found.append(_runs(kind, noise, 100, bound, trials))
    return found


def _numeric_where(trials: int) -> list[Measured]:
    """Answers alone: their noise is what the published accuracy does not allow for."""
    found: list[Measured] = []
    for num_questions, number in ((1000, 1), (30_000, 10), (1000, 100)):
        guarantee, source = promise(DELTA), NoiseSource()
        noise = sparse_vector_noise(guarantee, number, answers=True, calibration="textbook")
        bound = published_accuracy(guarantee, number, num_questions, BETA, answers=True) + 2
        if not _formula_holds(num_questions, number):
            bound = sparse_vector_theorem(noise, num_questions, BETA).bound(1).max_error
        far = 10**6
        errors = [
            _error(NumericSparse(0, noise, source), number, far) / bound for _ in range(trials)
        ]
        found.append(failures(errors, BETA))
    return found


def _formula_holds(num_questions: int, number: int) -> bool:
    left = math.log(num_questions) + math.log(4 * number / BETA)
    return left >= math.sqrt(8) * math.log(2 * number / BETA)


def _fresh_answers(trials: int) -> Failures:
    noise, source = sparse_vector_noise(promise(), 10, answers=True), NoiseSource()
    assert noise.answer_scale is not None
    bound = math.ceil(noise.answer_scale * math.log(10 / BETA))
    errors = [_error(NumericSparse(0, noise, source), 10, 10**6) / bound for _ in range(trials)]
    return failures(errors, BETA)


def _log_probability(
    noise: SparseVectorNoise, threshold: int, questions: list[int], said: list[bool]
) -> float:
    """Of an exact transcript of a run without redrawn thresholds, by summing over its noise."""
    reach = math.ceil(_REACH * noise.threshold_scale)
    drawn = np.arange(-reach, reach + 1)
    logs = -np.abs(drawn) / noise.threshold_scale + math.log(
        math.tanh(1 / (2 * noise.threshold_scale))
    )
    for question, is_above in zip(questions, said, strict=True):
        distance, scale = drawn + threshold - question, noise.question_scale
        ratio = math.exp(-1 / scale)
        # P(noise >= m) for m >= 1, of which both tails are made.
        tail = np.exp(-np.where(distance > 0, distance, 1 - distance) / scale) / (1 + ratio)
        logs = logs + np.log(np.where((distance > 0) == is_above, tail, 1 - tail))
    return float(np.logaddexp.reduce(logs))


def _worst_loss(noise: SparseVectorNoise, num_questions: int) -> tuple[float, int]:
    """One record raises all questions below and lowers those above: the largest log-ratio."""
    number = noise.max_above
    said = [False] * (num_questions - number) + [True] * number
    moved = [-1 if is_above else 1 for is_above in said]
    losses = [
        abs(
            _log_probability(noise, threshold, [0] * num_questions, said)
            - _log_probability(noise, threshold, moved, said)
        )
        for threshold in range(-20, 60, 4)
    ]
    return max(losses), len(losses)


def _above_threshold_privacy(_: int) -> list[Measured]:
    noise = sparse_vector_noise(promise(), 1, answers=False, calibration="textbook")
    found: list[Measured] = []
    for num_questions in (5, 20):
        worst, cases = _worst_loss(noise, num_questions)
        found.append(Slack(worst, 1.0, cases, f"epsilons of {num_questions} questions"))
    return found


def _lyu_su_li(_: int) -> list[Measured]:
    found: list[Measured] = []
    for number in (1, 10):
        noise = sparse_vector_noise(promise(), number, answers=False)
        worst, cases = _worst_loss(noise, 100)
        found.append(Slack(worst, 1.0, cases, f"epsilons at c = {number}"))
        parts = np.linspace(0.001, 0.999, 999)
        least = (1 / parts**2 + (2 * number / (1 - parts)) ** 2).min()
        ours = noise.threshold_scale**2 + noise.question_scale**2
        excess = max(0.0, ours / least - 1)
        found.append(Agreement(excess, len(parts), "the variances of all splits", 1e-9))
    return found


def _advanced(_: int) -> Slack:
    """The least scale that keeps the promise, by numerical composition, and what is asked for."""
    number, delta = 100, 1e-6
    asked = math.sqrt(8 * number * math.log(1 / delta))
    low, high = 1.0, 2 * asked
    while high - low > 1e-3:
        middle = (low + high) / 2
        one = from_laplace_mechanism(middle, value_discretization_interval=1e-4)
        is_private = one.self_compose(number).get_delta_for_epsilon(1.0) <= delta
        low, high = (low, middle) if is_private else (middle, high)
    return Slack(high, asked, 1, "records of scale")


CLAIMS = [
    Claim(
        key="sparse_vector.above_threshold",
        source="Dwork and Roth 2014, Theorem 3.24; lecture on the sparse vector",
        statement="AboveThreshold misjudges none of k questions that are farther than "
        "8(ln k + ln(2/beta))/epsilon from the threshold, except with probability beta",
        printed="the lecture has exp(-epsilon alpha/4c) <= beta/2c, where no c belongs: "
        "exp(-epsilon alpha/4) <= beta/2 and k exp(-epsilon alpha/8) <= beta/2; and "
        "'for all i, with probability 1 - beta', which is with probability 1 - beta, for all i",
        here="2 more for noise on integers; `SparseVectorNoise.margin`, a union bound over the "
        "noises of threshold and questions, is smaller (second figure)",
        measure=_above_threshold,
        trials=400,
    ),
    Claim(
        key="sparse_vector.above_threshold_privacy",
        source="Dwork and Roth 2014, Theorem 3.23",
        statement="AboveThreshold is epsilon-private, however many questions are below the "
        "threshold",
        here="exact, by summing over the noise of the threshold; with 20 questions all of epsilon "
        "is spent",
        measure=_above_threshold_privacy,
        trials=1,
    ),
    Claim(
        key="sparse_vector.sparse",
        source="Dwork and Roth 2014, Theorem 3.26",
        statement="Sparse misjudges none of k questions farther than alpha from the threshold, "
        "alpha = 8c(ln k + ln(2c/beta))/epsilon, or with delta "
        "sqrt(512 c ln(1/delta))(ln k + ln(2c/beta))/epsilon",
        here="2 more for noise on integers; at delta 1e-9 the noise with delta is the larger up to "
        "c = 165: `sparse_vector_noise` takes the least of three",
        measure=functools.partial(_sparse, False),
        trials=300,
    ),
    Claim(
        key="sparse_vector.numeric_sparse",
        source="Dwork and Roth 2014, Theorem 3.28",
        statement="NumericSparse misjudges none of k questions farther than alpha from the "
        "threshold, and no answer is wrong by more, alpha = 9c(ln k + ln(4c/beta))/epsilon, or "
        "with delta (sqrt(512) + 1) sqrt(c ln(2/delta))(ln k + ln(4c/beta))/epsilon",
        here="2 more for noise on integers; with delta see the next row",
        measure=functools.partial(_sparse, True),
        trials=300,
    ),
    Claim(
        key="sparse_vector.numeric_sparse_with_delta",
        source="Dwork and Roth 2014, Theorem 3.28",
        statement="the alpha of NumericSparse with delta holds for its answers, for all c and k",
        printed="answers have noise of scale sqrt(8)(sqrt(512) + 1) sqrt(c ln(2/delta))/epsilon, "
        "which exceeds alpha more often where ln k + ln(4c/beta) is less: alpha = 17,380 at "
        "k = 1,000, c = 100, beta = 0.05, delta = 1e-9, where it is 15.9 against 23.5, fails in "
        "about 30 % of runs",
        here="holds where ln k + ln(4c/beta) >= sqrt(8) ln(2c/beta): k = 1,000, c = 1 and "
        "k = 30,000, c = 10; elsewhere, as at k = 1,000, c = 100, "
        "`claim_rows.published.sparse_vector_theorem` takes the larger of both noises' bounds",
        measure=_numeric_where,
        trials=400,
    ),
    Claim(
        key="sparse_vector.fresh_answers",
        source="lecture on the sparse vector",
        statement="NumericSparse answers with fresh noise",
        printed="f_i + Lap(theta(epsilon/2)): the rate for the scale, which is of order c/epsilon",
        here="`SparseVectorNoise.answer_scale` s: c answers are within s ln(c/beta), rounded up",
        measure=_fresh_answers,
    ),
    Claim(
        key="sparse_vector.lyu_su_li",
        source="Lyu, Su and Li 2017, Algorithm 7",
        statement="one threshold with noise 1/e1 for the whole run, questions with 2c/e2, is "
        "(e1 + e2)-private until c answers are above; the variance is least where "
        "e1 : e2 = 1 : (2c)^(2/3)",
        here="`sparse_vector_noise`, method `pure`; exact loss of 100 questions, and all splits",
        measure=_lyu_su_li,
        trials=1,
    ),
    Claim(
        key="sparse_vector.advanced_composition",
        source="lecture on the sparse vector, introduction",
        statement="k answers with Laplace noise of order sqrt(k)/epsilon are (epsilon, delta)-"
        "private",
        printed="sqrt(8 ln(1/delta)) is left out: sqrt(k)/epsilon alone has a delta of 0.12 at "
        "k = 100, epsilon = 1",
        here="sqrt(8 k ln(1/delta))/epsilon, or Gaussian noise, which `plan_workload_answers` "
        "takes; the least scale by numerical composition, at k = 100, epsilon = 1, delta = 1e-6",
        measure=_advanced,
        trials=1,
    ),
]
