"""The memory to ask a runner for, for the one worker that runs a mechanism.

Only public sizes enter: a request that followed the records would show in the job's graph. They are
predictions to an order of magnitude, as in ``resources``. A user who knows better asks for more by
Beam's own flag ``--resource_hints=min_ram=64GB``, of which and this a runner takes the larger one.
"""

from __future__ import annotations

import math

from beam_dp.mechanisms.intervals import IntervalPlan
from beam_dp.mechanisms.linear_answers.answers import WorkloadAnswersPlan
from beam_dp.mechanisms.marginals.measurements import num_noisy_cells
from beam_dp.mechanisms.marginals.plan import MAX_SELECTED_CELLS, Plan, fits_an_array, tree_cells
from beam_dp.mechanisms.marginals.selection import SelectionPlan
from beam_dp.mechanisms.online.private_mw_plan import PrivateMWPlan
from beam_dp.mechanisms.online.sparse_mw_plan import SparseMWPlan
from beam_dp.mechanisms.sketches.plan import SparsePlan
from beam_dp.mechanisms.small_db.small_db import SmallDBPlan
from beam_dp.planning.resources import (
    answers_resources,
    choice_bytes,
    fit_resources,
    intervals_resources,
    online_resources,
    sketch_bytes,
)

AnyPlan = Plan | IntervalPlan | SparsePlan | PrivateMWPlan | SparseMWPlan | WorkloadAnswersPlan

# Beam and the readers, which a mechanism alone does not import.
_BEAM_BYTES = 190e6
# Of a cell of the exact summary: its shards, the array, and a table that is summed from it.
_SUMMARY_BYTES = 24
# So that a request tells no more than it must, and two like jobs ask for the same.
_STEP_BYTES = 2**28


def worker_bytes(plan: AnyPlan, summary_cells: int) -> int:
    """Returns the memory that one worker needs to run a mechanism.

    Counts of keys (``StabilityHistogram``, ``HybridSketch``, ``sparse_mw``) take 16 bytes a
    distinct key besides; how many there are is private, so they are left out here.

    Args:
        plan: what will be done.
        summary_cells: of the exact summary that the mechanism reads; 0 for counts of keys.

    Returns:
        Bytes, a multiple of 2^28.

    Cost: O(1), or as much as planning a junction tree.

    Example:
        >>> from beam_dp import Guarantee
        >>> from beam_dp.mechanisms.intervals import plan_intervals
        >>> plan = plan_intervals(1024, Guarantee(1.0, 0.0, "replace_one", "record", 1))
        >>> worker_bytes(plan, 1024) // 2**20
        512
    """
    needed = _BEAM_BYTES + _SUMMARY_BYTES * summary_cells + _mechanism_bytes(plan)
    return math.ceil(needed / _STEP_BYTES) * _STEP_BYTES


def _mechanism_bytes(plan: AnyPlan) -> float:
    if isinstance(plan, SmallDBPlan):
        size = plan.size if plan.choice.sampler == "nested" else 0
        return choice_bytes(len(plan.queries), plan.domain.num_cells, size)
    if isinstance(plan, Plan):
        cells = _hypothesis_cells(plan)
        return fit_resources(cells, num_noisy_cells(plan.domain, plan.measurements)).memory_bytes
    if isinstance(plan, IntervalPlan):
        return intervals_resources(plan.num_leaves).memory_bytes
    if isinstance(plan, PrivateMWPlan):
        return online_resources(plan.domain.num_cells, plan.num_questions, 1).memory_bytes
    if isinstance(plan, WorkloadAnswersPlan):
        cells = plan.workload.domain.num_cells
        return answers_resources(cells, len(plan.workload)).memory_bytes
    width = plan.sketch.projection_width if isinstance(plan, SparsePlan) and plan.sketch else 0
    return sketch_bytes(width)


def _hypothesis_cells(plan: Plan) -> int:
    domain = plan.domain
    if fits_an_array(domain):
        return domain.num_cells
    if isinstance(plan, SelectionPlan):
        return MAX_SELECTED_CELLS
    return tree_cells(domain, [domain.axes(names) for names in plan.workload.maximal()])
