"""Counts of a huge universe: hashed projections, sketches and stability histograms."""

from beam_dp.mechanisms.sketches.count_sketch import CountSketch as CountSketch
from beam_dp.mechanisms.sketches.hybrid import HybridSketch as HybridSketch
from beam_dp.mechanisms.sketches.plan import (
    SparseMechanism as SparseMechanism,
    SparsePlan as SparsePlan,
)
from beam_dp.mechanisms.sketches.release import (
    SparseSummary as SparseSummary,
    release_sparse as release_sparse,
)
from beam_dp.mechanisms.sketches.sparse_project import SparseProject as SparseProject
from beam_dp.mechanisms.sketches.stability_histogram import StabilityHistogram as StabilityHistogram
