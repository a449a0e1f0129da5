"""Exact integer tables that the distributed pass computes. Secret."""

from beam_dp.summaries.accumulator import Accumulator
from beam_dp.summaries.element_counts import ElementCounts
from beam_dp.summaries.histogram import Histogram, HistogramAccumulator
from beam_dp.summaries.key_counts import KeyCounts
from beam_dp.summaries.marginals import Marginals, MarginalsAccumulator
from beam_dp.summaries.projection import Projection, ProjectionAccumulator

__all__ = [
    "Accumulator",
    "ElementCounts",
    "Histogram",
    "HistogramAccumulator",
    "KeyCounts",
    "Marginals",
    "MarginalsAccumulator",
    "Projection",
    "ProjectionAccumulator",
]
