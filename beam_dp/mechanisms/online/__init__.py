"""Answers to queries that arrive one after another, by private multiplicative weights."""

from beam_dp.mechanisms.online.private_mw import PrivateAnswer, PrivateMW
from beam_dp.mechanisms.online.private_mw_plan import PrivateMWPlan, plan_private_mw
from beam_dp.mechanisms.online.saved_private_mw import (
    Restart,
    check_private_mw,
    restart_private_mw,
    resume_private_mw,
    save_private_mw,
)
from beam_dp.mechanisms.online.saved_sparse_mw import resume_sparse_mw, save_sparse_mw
from beam_dp.mechanisms.online.sparse_mw import SparseMW
from beam_dp.mechanisms.online.sparse_mw_plan import SparseMWPlan, plan_sparse_mw

__all__ = [
    "PrivateAnswer",
    "PrivateMW",
    "PrivateMWPlan",
    "Restart",
    "SparseMW",
    "SparseMWPlan",
    "check_private_mw",
    "plan_private_mw",
    "plan_sparse_mw",
    "restart_private_mw",
    "resume_private_mw",
    "resume_sparse_mw",
    "save_private_mw",
    "save_sparse_mw",
]
