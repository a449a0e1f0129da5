"""The mechanism for interval counts: one noisy measurement of an ordered attribute.

Also of several attributes from one budget, and of every rectangle of two.
"""

from beam_dp.mechanisms.intervals.plan import IntervalPlan, plan_intervals, release_intervals
from beam_dp.mechanisms.intervals.rectangle_release import RectangleRelease
from beam_dp.mechanisms.intervals.rectangles import (
    RectanglePlan,
    plan_rectangles,
    release_rectangles,
)
from beam_dp.mechanisms.intervals.several import (
    SeveralIntervalsPlan,
    plan_several_intervals,
    release_several_intervals,
)
from beam_dp.releases.intervals import IntervalAnswers, IntervalRelease

__all__ = [
    "IntervalAnswers",
    "IntervalPlan",
    "IntervalRelease",
    "RectanglePlan",
    "RectangleRelease",
    "SeveralIntervalsPlan",
    "plan_intervals",
    "plan_rectangles",
    "plan_several_intervals",
    "release_intervals",
    "release_rectangles",
    "release_several_intervals",
]
