"""The mechanism for interval counts: one noisy measurement of an ordered attribute."""

from beam_dp.mechanisms.intervals.plan import IntervalPlan, plan_intervals, release_intervals
from beam_dp.releases.intervals import IntervalAnswers, IntervalRelease

__all__ = [
    "IntervalAnswers",
    "IntervalPlan",
    "IntervalRelease",
    "plan_intervals",
    "release_intervals",
]
