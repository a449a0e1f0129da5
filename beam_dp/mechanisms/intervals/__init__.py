"""The mechanism for interval counts: one noisy measurement of an ordered attribute."""

from beam_dp.mechanisms.intervals.plan import (
    IntervalPlan as IntervalPlan,
    plan_intervals as plan_intervals,
    release_intervals as release_intervals,
)
from beam_dp.releases.intervals import (
    IntervalAnswers as IntervalAnswers,
    IntervalRelease as IntervalRelease,
)
