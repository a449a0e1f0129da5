"""SmallDB: a few records that answer all queries of a workload, drawn exactly."""

from beam_dp.mechanisms.small_db.choice import MultisetChoice
from beam_dp.mechanisms.small_db.small_db import SmallDB, SmallDBPlan

__all__ = ["MultisetChoice", "SmallDB", "SmallDBPlan"]
