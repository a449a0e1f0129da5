"""Release counts of all intervals of one ordered column, with differential privacy.

    beam-dp release-intervals \
        --input 'visits/*.parquet' --domain visits.json --attribute age \
        --epsilon 1 --delta 0 --neighboring add_or_remove_one \
        --privacy_unit person_id --max_records_per_unit 1 --output out/ages

The number of records is not needed, and not released.
`beam-dp release-intervals --help` lists the flags.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, get_args

from beam_dp.flags import shared
from beam_dp.flags.flag import Flag
from beam_dp.mechanisms.intervals import IntervalPlan, StrategyName, plan_attribute
from beam_dp.privacy.ledger.entries import Token
from beam_dp.views.terminal import short

from . import program
from .flags import read_domain

ATTRIBUTE = Flag(
    "attribute", "an ordered attribute of the domain, with 2 to 2^20 levels", "COLUMN", True
)
STRATEGY = Flag(
    "strategy",
    "the strategy to measure; best has the smallest mean squared error over all intervals",
    default="best",
    choices=("best", *get_args(StrategyName)),
)
_UNUSED = (shared.WORKLOAD, shared.NUM_RECORDS, shared.CALIBRATION)
FLAGS = (
    *(flag for flag in shared.COMMON if flag not in _UNUSED),
    shared.COUNT_LEFT_OUT,
    shared.EXPECT_RECORDS,
    ATTRIBUTE,
    STRATEGY,
)


@dataclass(frozen=True, kw_only=True)
class Job(program.ReleaseJob):
    """A job that releases counts of all intervals."""

    plan: IntervalPlan

    def release(self, token: Token | None) -> program.Transform:
        """Returns the transform that creates the release."""
        from beam_dp.transforms.intervals import ReleasePlannedIntervals

        return ReleasePlannedIntervals(self.plan, token)

    def facts(self) -> dict[str, str]:
        """Returns the lines of the preview."""
        plan = self.plan
        error = f"{short(math.sqrt(plan.mean_squared_error))} records"
        noise = plan.choice[1].replace("_", " ")
        steps = "whole records" if plan.grid == 1 else f"steps of 1/{plan.grid} records"
        return {
            "error": f"{error} expected (root mean square over all intervals)",
            "noise": f"{noise}, scale {plan.scale:.4g}, in {steps}",
        }

    def headline(self) -> str:
        """Returns a short description of the job."""
        plan = self.plan
        name = "" if plan.attribute is None else plan.attribute.name
        return f"all intervals of {name}, {plan.num_leaves:,} levels, by {plan.choice[0]}"

    def advice(self) -> tuple[str, str]:
        """Returns a remark about the release, and example flags of ``beam-dp answer``."""
        error = f"{math.sqrt(self.plan.mean_squared_error):,.1f} records"
        remark = f"Its error is {error} (root mean square over\nall intervals)."
        return f"{remark} Look at it", "--interval LOW HIGH"


def _read_job(given: dict[str, str], fields: dict[str, Any]) -> Job:
    """Returns the job that the flags describe."""
    domain = read_domain(given)
    expected = program.read_expected(given, "noisy")
    return Job(
        **fields,
        plan=plan_attribute(
            domain,
            given["attribute"],
            shared.read_guarantee(given),
            given["strategy"],  # type: ignore[arg-type]  # one of its choices
            "count_left_out" in given,
        ),
        expect_records=expected,
    )


PROGRAM = program.Program("release_intervals", FLAGS, __doc__, _read_job)
parse_arguments, main = PROGRAM.parse_arguments, PROGRAM.main

if __name__ == "__main__":
    raise SystemExit(main())
