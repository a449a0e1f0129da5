"""Counts of a huge universe: hashed projections, sketches and stability histograms."""

from beam_dp.mechanisms.sketches.count_sketch import CountSketch
from beam_dp.mechanisms.sketches.hybrid import HybridSketch
from beam_dp.mechanisms.sketches.plan import SparseMechanism, SparsePlan
from beam_dp.mechanisms.sketches.release import SparseSummary, release_sparse
from beam_dp.mechanisms.sketches.sparse_project import SparseProject
from beam_dp.mechanisms.sketches.stability_histogram import StabilityHistogram

__all__ = [
    "CountSketch",
    "HybridSketch",
    "SparseMechanism",
    "SparsePlan",
    "SparseProject",
    "SparseSummary",
    "StabilityHistogram",
    "release_sparse",
]
