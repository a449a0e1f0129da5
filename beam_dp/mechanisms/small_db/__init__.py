"""SmallDB: a few records that answer all queries of a workload, drawn exactly."""

from beam_dp.mechanisms.small_db.choice import MultisetChoice as MultisetChoice
from beam_dp.mechanisms.small_db.plan import SmallDBPlan as SmallDBPlan
from beam_dp.mechanisms.small_db.small_db import SmallDB as SmallDB
