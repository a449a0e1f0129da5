"""The memory to ask a runner for, for the one worker that runs a mechanism.

Only public sizes enter: a request that depended on the records would show in the job's graph. They
are predictions to an order of magnitude, as in ``resources``. Beam's flag
``--resource_hints=min_ram=64GB`` asks for more: a runner takes the larger of the two.
"""

from __future__ import annotations

import math

from beam_dp.mechanisms.contract import Plan

# Beam and the readers, which a mechanism alone does not import.
_BEAM_BYTES = 190e6
# For a cell of the exact summary: its shards, the array, and a table summed from it.
_SUMMARY_BYTES = 24
# Rounding reveals less, and lets two similar jobs ask for the same.
_STEP_BYTES = 2**28


def worker_bytes(plan: Plan, summary_cells: int) -> int:
    """Returns the bytes that one worker needs to run a mechanism, a multiple of 2^28.

    ``summary_cells`` is the size of the exact summary that the mechanism reads; 0 for counts of
    keys (``StabilityHistogram``, ``HybridSketch``, ``sparse_mw``), which take 16 bytes for each
    distinct key in addition: their number is private, so it is left out here.

    Cost: O(1), or as much as planning a junction tree.

    Example:
        >>> from beam_dp import Guarantee
        >>> from beam_dp.mechanisms.intervals.plan import plan_intervals
        >>> plan = plan_intervals(16, Guarantee(1.0, 0.0, "replace_one", "record", 1))
        >>> worker_bytes(plan, 16) // 2**20
        512
    """
    needed = _BEAM_BYTES + _SUMMARY_BYTES * summary_cells + plan.memory_bytes
    return math.ceil(needed / _STEP_BYTES) * _STEP_BYTES
