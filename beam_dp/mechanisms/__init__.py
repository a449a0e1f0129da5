"""Mechanisms: the only door from the secret side, a summary, to the public side, a release."""

from beam_dp.mechanisms.choosing import (
    exponential_mechanism,
    geometric_noisy_max,
    permute_and_flip,
)
from beam_dp.mechanisms.linear_answers.answers import (
    WorkloadAnswers,
    WorkloadAnswersPlan,
    draw_workload_answers,
    plan_workload_answers,
)
from beam_dp.mechanisms.marginals.gaussian import Gaussian
from beam_dp.mechanisms.marginals.laplace import Laplace
from beam_dp.mechanisms.marginals.mwem import MWEM
from beam_dp.mechanisms.marginals.plan import (
    Mechanism,
    Plan,
)
from beam_dp.mechanisms.online.private_mw import (
    PrivateAnswer,
    PrivateMW,
)
from beam_dp.mechanisms.online.private_mw_plan import (
    PrivateMWPlan,
    plan_private_mw,
)
from beam_dp.mechanisms.online.saved_private_mw import (
    Restart,
    check_private_mw,
    restart_private_mw,
    resume_private_mw,
    save_private_mw,
)
from beam_dp.mechanisms.online.saved_sparse_mw import (
    resume_sparse_mw,
    save_sparse_mw,
)
from beam_dp.mechanisms.online.sparse_mw import SparseMW
from beam_dp.mechanisms.online.sparse_mw_plan import (
    SparseMWPlan,
    plan_sparse_mw,
)
from beam_dp.mechanisms.release_plan import plan_release
from beam_dp.mechanisms.sketches.count_sketch import CountSketch
from beam_dp.mechanisms.sketches.hybrid import HybridSketch
from beam_dp.mechanisms.sketches.plan import (
    SparseMechanism,
    SparsePlan,
)
from beam_dp.mechanisms.sketches.release import (
    SparseSummary,
    release_sparse,
)
from beam_dp.mechanisms.sketches.sparse_project import SparseProject
from beam_dp.mechanisms.sketches.stability_histogram import StabilityHistogram
from beam_dp.mechanisms.small_db.choice import MultisetChoice
from beam_dp.mechanisms.small_db.small_db import SmallDB
from beam_dp.mechanisms.sparse_vector.mechanisms import (
    AboveThreshold,
    NumericSparse,
    Sparse,
)
from beam_dp.mechanisms.sparse_vector.noise import (
    SparseVectorNoise,
    sparse_vector_noise,
)

__all__ = [
    "MWEM",
    "AboveThreshold",
    "CountSketch",
    "Gaussian",
    "HybridSketch",
    "Laplace",
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
