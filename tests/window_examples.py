"""Tables of windows for tests, drawn with seeded noise."""

from typing import Any

from noise_sources import Seeded
from release_examples import DOMAIN
from window_plans import HORIZON_ID, RECORD, marginals_of, plan_of

import beam_dp as dp
from beam_dp.releases.windows.release import WindowTables

AGES = dp.Workload(DOMAIN, (("age", "member"), ("getting in/out of bed",)))
# Several tables with Gaussian noise, and one table whose sums give both marginals.
GAUSSIAN = {"distribution": "discrete_gaussian"}


def window_of(
    number: int = 3, workload: dp.Workload = AGES, num_windows: int = 10, **options: Any
) -> WindowTables:
    """The release of one window of a horizon."""
    plan = plan_of(num_windows, RECORD, workload, **options)
    return plan.draw(number, marginals_of(plan, 2), Seeded(number), HORIZON_ID)


def block_of(number: int = 0, workload: dp.Workload = AGES, **options: Any) -> WindowTables:
    """The release of one block of a horizon of ten windows."""
    plan = plan_of(10, RECORD, workload, strategy="levels", **{"block": 4, **options})
    return plan.draw_block(number, marginals_of(plan, 8), Seeded(100 + number), HORIZON_ID)
