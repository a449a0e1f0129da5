"""What is published of selection: of one candidate, and of the largest of many."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator

import numpy as np
from claim_rows.choice_laws import geometric_noisy_top, in_rounds
from claim_rows.claim import Agreement, Claim, Measured, Slack, failures
from claim_rows.published import selection_shortfall

from beam_dp.mechanisms.choosing import (
    METHODS,
    TopChoice,
    choose_top,
    top_choice,
)
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.testing import audit

BETA, DELTA = 0.05, 1e-9


def promise(delta: float = 0.0) -> Guarantee:
    """Returns epsilon 1, for a record that is added or removed."""
    return Guarantee(1.0, delta, "add_or_remove_one", "record", 1)


def _selection(trials: int) -> list[Measured]:
    """One best candidate, and 99 just farther below it than the bound."""
    bound, noise = selection_shortfall(100, 1, 1.0, BETA), NoiseSource()
    scores = np.full(100, -math.floor(bound) - 1, np.int64)
    scores[7] = 0
    found: list[Measured] = []
    for method in METHODS[1:]:
        choice = top_choice(promise(), 1, 1, method=method)
        picked = [choose_top(scores, choice, noise)[0] for _ in range(trials)]
        found.append(failures([-scores[each] / bound for each in picked], BETA))
    return found


def _neighbours() -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Scores of four candidates, and all that a record may make of them."""
    for scores in itertools.product((0, 1, 2), repeat=4):
        for change in itertools.product((-1, 0, 1), repeat=4):
            yield scores, tuple(np.add(scores, change).tolist())


def _range(_: int) -> list[Measured]:
    """Exact laws of one selection: the log-ratio of an output, and the range of all of them."""
    ratios, ranges = [], []
    for one, other in _neighbours():
        first = audit.exponential_mechanism(one, 2.0)
        second = audit.exponential_mechanism(other, 2.0)
        logs = [math.log(first[each] / second[each]) for each in first]
        ratios.append(max(map(abs, logs)))
        ranges.append(max(logs) - min(logs))
    number = len(ratios)
    return [Slack(max(ratios), 1.0, number, "epsilons"), Slack(max(ranges), 1.0, number, "ranges")]


def _largest(trials: int) -> list[Measured]:
    """The five largest of 100 just farther above all others than the bound."""
    found: list[Measured] = []
    for method, delta in (*((each, 0.0) for each in METHODS), ("exponential", DELTA)):
        choice = top_choice(promise(delta), 5, 1, method=method)  # type: ignore[arg-type]
        bound, noise = choice.margin(100, BETA), NoiseSource()
        scores = np.zeros(100, np.int64)
        scores[50:55] = math.floor(bound) + 1
        missed = (
            float((scores.max() - scores[choose_top(scores, choice, noise)]).max()) / bound
            for _ in range(trials)
        )
        found.append(failures(list(missed), BETA))
    return found


def _one_shot(trials: int) -> Agreement:
    """How often two of three are chosen, against quadrature of one shot of Gumbel noise."""
    scores, scale = np.array([2, 1, 0]), 1.3
    choice, noise = TopChoice("exponential", 2, 2, scale), NoiseSource()
    drawn = [tuple(choose_top(scores, choice, noise)) for _ in range(trials)]
    at = np.linspace(-12, 40, 52_001)
    step, z = at[1] - at[0], (at - scores[:, None]) / scale
    density, below = np.exp(-z - np.exp(-z)) / scale, np.exp(-np.exp(-z))
    worst = 0.0
    for first, second in itertools.permutations(range(3), 2):
        (third,) = {0, 1, 2} - {first, second}
        held = np.cumsum(density[second] * below[third]) * step
        share = float((density[first] * held).sum() * step)
        worst = max(worst, abs(drawn.count((first, second)) / trials - share))
    return Agreement(worst, 6, "quadrature", tolerance=3 / math.sqrt(trials))


def _one_shot_privacy(_: int) -> list[Measured]:
    """Exact laws of the two largest of four, of the noise for epsilon 1."""
    choice = top_choice(promise(), 2, 1, method="geometric")
    law = functools.cache(lambda each: geometric_noisy_top(each, 2, choice.scale))
    pairs = list(_neighbours())
    worst = max(audit.largest_log_ratio(law(one), law(other)) for one, other in pairs)
    return [Slack(worst, 1.0, len(pairs), "epsilons")]


def _rounds_privacy(_: int) -> list[Measured]:
    """Renyi divergences of the exact laws of two rounds, over their order."""
    choice = TopChoice("exponential", 2, 2, 2.0)
    law = functools.cache(
        lambda each: in_rounds(audit.exponential_mechanism, each, 2, choice.scale)
    )
    pairs, worst, rho = list(_neighbours()), 0.0, float(choice.loss.rho or 0)
    for one, other in pairs:
        first, second = law(one), law(other)
        for order in (1.1, 2.0, 8.0):
            total = sum(p**order * second[each] ** (1 - order) for each, p in first.items())
            worst = max(worst, math.log(total) / (order - 1) / order)
    return [Slack(worst, rho, 3 * len(pairs), "rho")]


CLAIMS = [
    Claim(
        key="selection.utility",
        source="Dwork and Roth 2014, Theorem 3.11; McKenna and Sheldon 2020",
        statement="the exponential mechanism, and permute-and-flip, choose a score no more than "
        "(2D/epsilon)(ln R + ln(1/beta)) below the best of R except with probability beta",
        here="`claim_rows.published.selection_shortfall`",
        measure=_selection,
    ),
    Claim(
        key="selection.range",
        source="Dwork and Roth 2014, Theorem 3.10; Dong, Durfee and Rogers 2020",
        statement="the exponential mechanism is epsilon-private, and the log-ratios of its outputs "
        "lie within epsilon of each other, so that it has rho = epsilon^2/8",
        here="`NoiseSource.select`; permute-and-flip has no such range",
        measure=_range,
        trials=1,
    ),
    Claim(
        key="selection.largest",
        source="lecture on the sparse vector",
        statement="the c largest of k queries that are all known are found by c rounds of the "
        "exponential mechanism: the t-th no more than s ln(kc/beta) below the t-th largest, for "
        "all t, except with probability beta",
        here="`top_choice`, `plan_top_queries`: s = 2c/epsilon, half of it for counts under "
        "add-or-remove-one, or 2 sqrt(c/(8 rho)); in one shot of geometric noise s ln(k/beta)",
        measure=_largest,
        trials=1000,
    ),
    Claim(
        key="selection.one_shot",
        source="Durfee and Rogers 2019, Lemma 4.2",
        statement="c rounds of the exponential mechanism name the same c, in the same order, as "
        "one shot of Gumbel noise on all scores",
        here="`choose_top` draws the rounds",
        measure=_one_shot,
        trials=10_000,
    ),
    Claim(
        key="selection.one_shot_privacy",
        source="Qiao, Su and Zhang 2021, with integer noise here",
        statement="the largest c sums of scores and one shot of noise of scale 2cD/epsilon, or "
        "cD/epsilon for monotone scores, may be named in order at epsilon; with delta, a scale "
        "of order sqrt(c ln(k/delta)) D/epsilon will do",
        here="`choose_top` with geometric noise, ties included, spends all of epsilon; with "
        "delta Gumbel noise of scale 2 D sqrt(c/(8 rho)), by the rows above and below",
        measure=_one_shot_privacy,
        trials=1,
    ),
    Claim(
        key="selection.rounds_privacy",
        source="Dong, Durfee and Rogers 2020",
        statement="c rounds of the exponential mechanism of epsilon have rho = c epsilon^2/8",
        here="`TopChoice.loss`; for neighbours of either sign",
        measure=_rounds_privacy,
        trials=1,
    ),
]
