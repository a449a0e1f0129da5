"""Mechanisms: the only door from the secret side, a summary, to the public side, a release."""

from beam_dp.mechanisms.choosing import (
    exponential_mechanism as exponential_mechanism,
    geometric_noisy_max as geometric_noisy_max,
    permute_and_flip as permute_and_flip,
)
from beam_dp.mechanisms.choosing_top import (
    TopChoice as TopChoice,
    choose_top as choose_top,
    top_choice as top_choice,
)
from beam_dp.mechanisms.contract import (
    AnswersPlan as AnswersPlan,
    Mechanism as Mechanism,
    Plan as Plan,
    check_promise as check_promise,
)
from beam_dp.mechanisms.linear_answers import (
    LinearAnswersPlan as LinearAnswersPlan,
    TopQueries as TopQueries,
    TopQueriesPlan as TopQueriesPlan,
    WorkloadAnswers as WorkloadAnswers,
    WorkloadAnswersPlan as WorkloadAnswersPlan,
    draw_top_queries as draw_top_queries,
    draw_workload_answers as draw_workload_answers,
    plan_top_queries as plan_top_queries,
    plan_workload_answers as plan_workload_answers,
)
from beam_dp.mechanisms.marginals import (
    MWEM as MWEM,
    Gaussian as Gaussian,
    Laplace as Laplace,
    MarginalsPlan as MarginalsPlan,
)
from beam_dp.mechanisms.online import (
    PrivateAnswer as PrivateAnswer,
    PrivateMW as PrivateMW,
    PrivateMWPlan as PrivateMWPlan,
    ReleasedConjunctions as ReleasedConjunctions,
    Restart as Restart,
    SparseMW as SparseMW,
    SparseMWPlan as SparseMWPlan,
    check_private_mw as check_private_mw,
    plan_conjunctions as plan_conjunctions,
    plan_private_mw as plan_private_mw,
    plan_sparse_mw as plan_sparse_mw,
    release_conjunctions as release_conjunctions,
    restart_private_mw as restart_private_mw,
    resume_private_mw as resume_private_mw,
    resume_sparse_mw as resume_sparse_mw,
    save_private_mw as save_private_mw,
    save_sparse_mw as save_sparse_mw,
)
from beam_dp.mechanisms.registry import plan_release as plan_release
from beam_dp.mechanisms.sketches import (
    CountSketch as CountSketch,
    HybridSketch as HybridSketch,
    SparseMechanism as SparseMechanism,
    SparsePlan as SparsePlan,
    SparseProject as SparseProject,
    SparseSummary as SparseSummary,
    StabilityHistogram as StabilityHistogram,
    release_sparse as release_sparse,
)
from beam_dp.mechanisms.small_db import MultisetChoice as MultisetChoice, SmallDB as SmallDB
from beam_dp.mechanisms.sparse_vector import (
    AboveThreshold as AboveThreshold,
    NumericSparse as NumericSparse,
    Sparse as Sparse,
    SparseVectorNoise as SparseVectorNoise,
    sparse_vector_noise as sparse_vector_noise,
)
from beam_dp.mechanisms.window_tables import (
    WindowDatabasesPlan as WindowDatabasesPlan,
    WindowTablesPlan as WindowTablesPlan,
    plan_window_databases as plan_window_databases,
    plan_window_tables as plan_window_tables,
)
