"""Flags, query reader and plan of `answer-queries --mechanism sparse_mw`."""

from __future__ import annotations

import dataclasses

from beam_dp.checks import checked_integer
from beam_dp.hashing import HashKey
from beam_dp.mechanisms import SparseMWPlan, plan_sparse_mw
from beam_dp.mechanisms.online.sparse_mw_plan import MAX_SPARSITY as LARGEST
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.sparse import key_type_named
from beam_dp.queries.sparse_reader import SparseQueries
from beam_dp.transforms import KeyColumns

from . import flags
from .common import read_num_records
from .flags import integer, number

KEY = dataclasses.replace(flags.KEY, required=False, help="sparse_mw: the column of keys")
MAX_SPARSITY = dataclasses.replace(
    flags.MAX_SPARSITY, required=False, help="sparse_mw: the most keys that a query may name"
)
OF_SPARSE_MW = (KEY, MAX_SPARSITY)


def sparse_queries(given: dict[str, str]) -> tuple[KeyColumns, SparseQueries]:
    """Returns the column of keys, and what reads queries about them.

    Raises:
        InputError: if a flag is refused.
    """
    columns = KeyColumns(given["key"], key_type_named(given["key_type"]))
    max_sparsity = integer("max_sparsity", given["max_sparsity"])
    checked_integer("max_sparsity", max_sparsity, 1, LARGEST)
    # Only to refuse queries early: the run draws another key.
    return columns, SparseQueries(columns.key_type, max_sparsity, HashKey.draw(1))


def sparse_mw_plan(
    given: dict[str, str], guarantee: Guarantee, num_lines: int, failure_probability: float
) -> SparseMWPlan:
    """Returns the plan that the flags describe.

    Args:
        given: the flags.
        guarantee: what is promised.
        num_lines: how many queries there are: the default of --num_questions.
        failure_probability: of the stated bounds.

    Raises:
        InputError: if a flag is refused.
    """
    return plan_sparse_mw(
        guarantee,
        read_num_records(given),
        max_sparsity=integer("max_sparsity", given["max_sparsity"]),
        num_questions=(
            integer("num_questions", given["num_questions"])
            if "num_questions" in given
            else num_lines
        ),
        failure_probability=failure_probability,
        calibration="tight" if given["calibration"] == "tight" else "textbook",
        max_error=number("max_error", given["max_error"]) if "max_error" in given else None,
        max_updates=(
            integer("max_updates", given["max_updates"]) if "max_updates" in given else None
        ),
    )
