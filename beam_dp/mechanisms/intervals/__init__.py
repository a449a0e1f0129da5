"""Counts of every interval of one ordered attribute, from one noisy measurement of its cells."""

from beam_dp.mechanisms.intervals.plan import IntervalPlan, plan_intervals, release_intervals
from beam_dp.releases.intervals import IntervalAnswers, IntervalRelease

__all__ = [
    "IntervalAnswers",
    "IntervalPlan",
    "IntervalRelease",
    "plan_intervals",
    "release_intervals",
]
