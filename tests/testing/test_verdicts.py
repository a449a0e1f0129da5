"""The verdicts of the audits, from fixed numbers: no draw is random here."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from beam_dp.privacy.guarantee import Guarantee
from beam_dp.testing import audit

RUNS = 10_000


def outcomes(share: float) -> Callable[[int], list[int]]:
    """So many runs, of which just this share is 1."""

    def sample(runs: int) -> list[int]:
        hits = round(share * runs)
        return [1] * hits + [0] * (runs - hits)

    return sample


def response(epsilon: float) -> tuple[audit.Law, audit.Law]:
    """Randomised response to a yes and to a no."""
    p = 1 / (1 + math.exp(-epsilon))
    return {1: p, 0: 1 - p}, {1: 1 - p, 0: p}


def audited(epsilon: float, claimed: float, law: float | None = None) -> audit.BlackBoxAudit:
    """An audit of randomised response at one epsilon, with another claim and another law."""
    first, second = (outcomes(each[1]) for each in response(epsilon))
    laws = None if law is None else response(law)
    return audit.audit_black_box(first, second, claimed, runs=RUNS, laws=laws)


# Refuted, blind, off its law: of audits at an epsilon, of a claim and with a law, if any is given.
@pytest.mark.parametrize(
    ("given", "lower_bound", "verdicts"),
    [
        ((1.0, 1.0, 1.0), 0.888, (False, False, False)),
        ((2.0, 1.0), 1.851, (True, False, False)),  # nothing was predicted
        ((0.5, 1.0, 1.0), None, (False, True, False)),
        ((0.5, 1.0), None, (False, False, False)),  # nobody said what it should see
        ((0.95, 1.0, 1.0), None, (False, False, False)),
        ((2.0, 3.0, 1.0), None, (False, False, True)),  # within the claim
    ],
)
def test_audit_finds_what_breaks_a_claim_or_a_law(given, lower_bound, verdicts):
    found = audited(*given)
    assert (found.is_refuted, found.is_blind, found.is_off_its_law) == verdicts
    assert found.passes is not any(verdicts)
    assert lower_bound is None or found.lower_bound == pytest.approx(lower_bound, abs=0.001)
    if given == (1.0, 1.0, 1.0):
        assert found.predicted == pytest.approx(found.lower_bound, rel=1e-3)
        assert found.limit == pytest.approx(1.0)


@pytest.mark.parametrize("runs", [200, 400, 800])
def test_probability_of_a_missed_floor_follows_from_binomial_counts(runs):
    """All numbers of hits are enumerated; the floor of a larger audit is missed less often."""
    laws = response(1.0)
    found = audit.audit_black_box(
        *(
            lambda number, law=law: [1] * round(law[1] * number) + [0] * round(law[0] * number)
            for law in laws
        ),
        1.0,
        runs=runs,
        laws=laws,
    )
    hits = np.arange(runs + 1)
    bounds = audit.epsilon_lower_bound(hits[:, None], hits[None, :], runs, false_alarm=5e-7)
    assert found.predicted is not None
    missed = bounds <= 0.8 * found.predicted
    likelier, other = (stats.binom.pmf(hits, runs, law[1]) for law in laws)
    assert found.blind_by_chance == pytest.approx(float(likelier @ missed @ other), rel=1e-6)


def false_alarm(runs: int, expected: float) -> float:
    """The exact probability that the audit rejects a true law of two outcomes."""
    share = expected / runs
    law = {1: share, 0: 1 - share}
    critical = audit.audit_sampler(outcomes(share)(runs), law).critical_value
    reach = math.sqrt(critical * runs * share * (1 - share))
    low, high = math.ceil(expected - reach) - 1, math.floor(expected + reach) + 1
    return float(stats.binom.sf(high - 1, runs, share) + stats.binom.cdf(low, runs, share))


@pytest.mark.parametrize(
    ("runs", "times"),
    [
        *((1000, 29), (5000, 5.2), (20_000, 2.1)),
        pytest.param(10**6, 2.1, marks=pytest.mark.part),
    ],
)
def test_true_law_is_rejected_at_most_as_often_as_stated(runs, times):
    """At the rarest outcome that has a cell of its own, and at one that is not so rare."""
    least = min(200.0, max(10.0, runs / 100))
    for expected in np.linspace(least, 1.5 * least, 100):
        assert false_alarm(runs, float(expected)) <= times * 1e-6
    rare = 0.9 * least / runs
    with pytest.raises(ValueError, match="too few outcomes"):
        audit.audit_sampler(outcomes(rare)(runs), {1: rare, 0: 1 - rare})


def test_wrong_law_is_rejected_and_true_law_is_not():
    law = {1: 0.25, 0: 0.75}
    assert audit.audit_sampler(outcomes(0.25)(RUNS), law).passes
    assert audit.audit_sampler(outcomes(0.271)(RUNS), law).passes
    assert not audit.audit_sampler(outcomes(0.272)(RUNS), law).passes
    assert not audit.audit_sampler([*outcomes(0.25)(RUNS), 2], law).passes


def test_epsilon_whose_exponential_overflows_is_audited():
    first, second = {0: 0.5, 1: 0.5}, {0: 1.0}
    for epsilon in (700.0, 710.0, 1e6):
        assert audit.hockey_stick(first, second, epsilon) == 0.5
        assert audit.hockey_stick(first, {0: 0.5, 1: 0.5}, epsilon) == 0
        assert audit.hockey_stick({0: 1.0}, {0: 1e-320, 1: 1.0}, 720.0) == pytest.approx(1, 1e-6)
    promise = Guarantee(1e4, 1e-9, "add_or_remove_one", "record", 1)  # type: ignore[arg-type]

    def leak(data: tuple[str, ...]) -> audit.Law:
        return {len(data): 1.0}

    assert audit.audit_law(leak, "a", promise).delta == 1.0
