"""Answers to queries that arrive one after another, by private multiplicative weights."""

from beam_dp.mechanisms.online.conjunctions import (
    ReleasedConjunctions as ReleasedConjunctions,
    plan_conjunctions as plan_conjunctions,
    release_conjunctions as release_conjunctions,
)
from beam_dp.mechanisms.online.private_mw import (
    PrivateAnswer as PrivateAnswer,
    PrivateMW as PrivateMW,
)
from beam_dp.mechanisms.online.private_mw_plan import (
    PrivateMWPlan as PrivateMWPlan,
    plan_private_mw as plan_private_mw,
)
from beam_dp.mechanisms.online.saved_private_mw import (
    Restart as Restart,
    check_private_mw as check_private_mw,
    restart_private_mw as restart_private_mw,
    resume_private_mw as resume_private_mw,
    save_private_mw as save_private_mw,
)
from beam_dp.mechanisms.online.saved_sparse_mw import (
    resume_sparse_mw as resume_sparse_mw,
    save_sparse_mw as save_sparse_mw,
)
from beam_dp.mechanisms.online.sparse_mw import SparseMW as SparseMW
from beam_dp.mechanisms.online.sparse_mw_plan import (
    SparseMWPlan as SparseMWPlan,
    plan_sparse_mw as plan_sparse_mw,
)
