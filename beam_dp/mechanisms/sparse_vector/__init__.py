"""The sparse vector technique: which of many queries are above a threshold."""

from beam_dp.mechanisms.sparse_vector.mechanisms import (
    AboveThreshold as AboveThreshold,
    NumericSparse as NumericSparse,
    Sparse as Sparse,
)
from beam_dp.mechanisms.sparse_vector.noise import (
    SparseVectorNoise as SparseVectorNoise,
    sparse_vector_noise as sparse_vector_noise,
)
