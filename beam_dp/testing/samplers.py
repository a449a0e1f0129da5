"""Tests of samplers against closed forms."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy import stats

from beam_dp.testing.black_box import FALSE_ALARM
from beam_dp.testing.laws import Law

# Rarer outcomes share one cell of the test: Pearson's statistic has a longer tail than its limit
# where cells are small. The worst law has two outcomes. At 1e-6, by the exact binomial law, it is
# rejected 2.1 times as often as that if its cells have 200 or more, 5.2 times from 50 on, and 29
# times from 10 on, which is what so few draws allow.
_LEAST_EXPECTED, _ENOUGH_EXPECTED, _SHARE_EXPECTED = 10.0, 200.0, 0.01


@dataclasses.dataclass(frozen=True)
class SamplerAudit:
    """A chi-square test of outcomes against their law.

    Args:
        statistic: Pearson's; infinite where something impossible happened.
        critical_value: a true law exceeds it with nearly the probability of a false alarm, see
            ``audit_sampler``.
        freedoms: of the chi-square law.
    """

    statistic: float
    critical_value: float
    freedoms: int

    @property
    def passes(self) -> bool:
        """Whether the outcomes may well follow the law."""
        return self.statistic <= self.critical_value


def audit_sampler(
    outcomes: Iterable[Any], law: Law, *, false_alarm: float = FALSE_ALARM
) -> SamplerAudit:
    """Tests by chi-square whether outcomes follow a law.

    Args:
        outcomes: independent draws.
        law: probability of every outcome; clip what is unbounded.
        false_alarm: probability that a true law is rejected, in the limit of many draws. At 1e-6
            a true law is rejected with at most 2.1 times this probability from 20,000 draws on,
            with at most 5.2 times from 5,000 on, and with at most 29 times below.

    Raises:
        ValueError: if there are too few outcomes to tell anything.

    Example:
        >>> audit_sampler([0, 1] * 50, {0: 0.5, 1: 0.5}).passes
        True
        >>> audit_sampler([0] * 100, {0: 0.5, 1: 0.5}).passes
        False
    """
    counts = Counter(outcomes)
    runs = sum(counts.values())
    known = sorted(law, key=law.__getitem__, reverse=True)
    impossible = any(law.get(outcome, 0.0) == 0 for outcome in counts)
    expected = np.array([law[outcome] for outcome in known]) * runs
    observed = np.array([counts[outcome] for outcome in known], np.float64)
    least = min(_ENOUGH_EXPECTED, max(_LEAST_EXPECTED, _SHARE_EXPECTED * runs))
    enough = int((expected >= least).sum())
    if enough < len(known):
        rest = max(enough, 1)
        if expected[rest:].sum() < least:
            rest -= 1  # what is rare even together joins the rarest of the others
        expected = np.append(expected[:rest], expected[rest:].sum())
        observed = np.append(observed[:rest], observed[rest:].sum())
    if len(expected) < 2 and not impossible:
        raise ValueError("there are too few outcomes to compare them with the law")
    statistic = np.inf if impossible else float(((observed - expected) ** 2 / expected).sum())
    freedoms = max(len(expected) - 1, 1)
    return SamplerAudit(statistic, float(stats.chi2.isf(false_alarm, freedoms)), freedoms)
