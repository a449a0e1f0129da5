"""Exact integer tables that the distributed pass computes. Secret."""

from beam_dp.summaries.accumulator import Accumulator as Accumulator
from beam_dp.summaries.element_counts import ElementCounts as ElementCounts
from beam_dp.summaries.histogram import (
    Histogram as Histogram,
    HistogramAccumulator as HistogramAccumulator,
)
from beam_dp.summaries.key_counts import KeyCounts as KeyCounts
from beam_dp.summaries.marginals import (
    Marginals as Marginals,
    MarginalsAccumulator as MarginalsAccumulator,
)
from beam_dp.summaries.projection import (
    Projection as Projection,
    ProjectionAccumulator as ProjectionAccumulator,
)
