"""The sparse vector technique: which of many queries are above a threshold."""

from beam_dp.mechanisms.sparse_vector.mechanisms import AboveThreshold, NumericSparse, Sparse
from beam_dp.mechanisms.sparse_vector.noise import SparseVectorNoise, sparse_vector_noise

__all__ = ["AboveThreshold", "NumericSparse", "Sparse", "SparseVectorNoise", "sparse_vector_noise"]
