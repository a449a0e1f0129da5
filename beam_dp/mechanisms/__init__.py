"""Mechanisms: the only door from the secret side, a summary, to the public side, a release."""

from beam_dp.mechanisms.choosing import exponential_mechanism, geometric_noisy_max, permute_and_flip
from beam_dp.mechanisms.contract import AnswersPlan, Plan
from beam_dp.mechanisms.linear_answers import (
    WorkloadAnswers,
    WorkloadAnswersPlan,
    draw_workload_answers,
    plan_workload_answers,
)
from beam_dp.mechanisms.marginals import MWEM, Gaussian, Laplace, MarginalsPlan, Mechanism
from beam_dp.mechanisms.online import (
    PrivateAnswer,
    PrivateMW,
    PrivateMWPlan,
    Restart,
    SparseMW,
    SparseMWPlan,
    check_private_mw,
    plan_private_mw,
    plan_sparse_mw,
    restart_private_mw,
    resume_private_mw,
    resume_sparse_mw,
    save_private_mw,
    save_sparse_mw,
)
from beam_dp.mechanisms.registry import plan_release
from beam_dp.mechanisms.sketches import (
    CountSketch,
    HybridSketch,
    SparseMechanism,
    SparsePlan,
    SparseProject,
    SparseSummary,
    StabilityHistogram,
    release_sparse,
)
from beam_dp.mechanisms.small_db import MultisetChoice, SmallDB
from beam_dp.mechanisms.sparse_vector import (
    AboveThreshold,
    NumericSparse,
    Sparse,
    SparseVectorNoise,
    sparse_vector_noise,
)

__all__ = [
    "MWEM",
    "AboveThreshold",
    "AnswersPlan",
    "CountSketch",
    "Gaussian",
    "HybridSketch",
    "Laplace",
    "MarginalsPlan",
    "Mechanism",
    "MultisetChoice",
    "NumericSparse",
    "Plan",
    "PrivateAnswer",
    "PrivateMW",
    "PrivateMWPlan",
    "Restart",
    "SmallDB",
    "Sparse",
    "SparseMW",
    "SparseMWPlan",
    "SparseMechanism",
    "SparsePlan",
    "SparseProject",
    "SparseSummary",
    "SparseVectorNoise",
    "StabilityHistogram",
    "WorkloadAnswers",
    "WorkloadAnswersPlan",
    "check_private_mw",
    "draw_workload_answers",
    "exponential_mechanism",
    "geometric_noisy_max",
    "permute_and_flip",
    "plan_private_mw",
    "plan_release",
    "plan_sparse_mw",
    "plan_workload_answers",
    "release_sparse",
    "restart_private_mw",
    "resume_private_mw",
    "resume_sparse_mw",
    "save_private_mw",
    "save_sparse_mw",
    "sparse_vector_noise",
]
