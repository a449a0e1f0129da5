"""What the distributed pass computes: exact integer tables. Secret until a mechanism saw them."""

from beam_dp.summaries.accumulator import Accumulator
from beam_dp.summaries.histogram import Histogram, HistogramAccumulator
from beam_dp.summaries.key_counts import KeyCounts
from beam_dp.summaries.marginals import Marginals, MarginalsAccumulator

__all__ = [
    "Accumulator",
    "Histogram",
    "HistogramAccumulator",
    "KeyCounts",
    "Marginals",
    "MarginalsAccumulator",
]
