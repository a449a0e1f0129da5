"""Tables of windows: the price of all placements of a unit, sums, and their mutants.

"price": over all that a unit may have in the windows of a tiny horizon, limited as shipped, what
any protected run of windows, and its blocks, hand to the noise. "sum": that of very many empty
windows, which must be unbiased.
"""

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
from auditing import (
    Audit,
    Bug,
    Finding,
    Patch,
    around,
    audited,
    derived,
    replaced,
)
from tiny import domain_of, share_spent, workload_of
from window_plans import HORIZON_ID, handed_out, marginals_of, person, placements, plan_of, whole

import beam_dp as dp
from beam_dp.domain.horizon import WindowUnit, keep_windows, whole_promise
from beam_dp.mechanisms.windows import plan as plan_module
from beam_dp.mechanisms.windows.plan import WindowTablesPlan
from beam_dp.privacy.noise.source import NoiseSource

NUM_WINDOWS = 4
CELLS = whole(domain_of(2))
# Of residuals the records of a unit that agree move most.
SEVERAL = workload_of(domain_of(2, 2), 1)
EPSILON, DELTA = 3.0, 1e-6
MANY, WIDE = 168, whole(domain_of(50))
LAPLACE, GAUSSIAN = "discrete_laplace", "discrete_gaussian"


@dataclasses.dataclass(frozen=True)
class Case:
    unit: WindowUnit
    distribution: Any
    has_blocks: bool = False
    workload: dp.Workload = CELLS

    def plan(self, num_windows: int = NUM_WINDOWS, workload: Any = None) -> WindowTablesPlan:
        limits = EPSILON, 0.0 if self.distribution == LAPLACE else DELTA
        options: dict[str, Any] = {"distribution": self.distribution}
        if self.has_blocks:
            options |= {"strategy": "levels", "block": 2, "share": 0.4}
        return plan_of(num_windows, self.unit, workload or self.workload, *limits, **options)


def runs_of(unit: WindowUnit) -> list[range]:
    """The windows that are protected together, wherever they start."""
    starts = range(NUM_WINDOWS - unit.protected_windows + 1)
    return [range(start, start + unit.protected_windows) for start in starts]


def price(case: Case) -> Finding:
    """The share of the guarantee that the worst unit spends, of all."""
    plan, num_cells = case.plan(), case.workload.domain.num_cells
    worst = 0.0
    for run in runs_of(case.unit):
        nobody = handed_out(plan, np.zeros((NUM_WINDOWS, num_cells)), run)
        for placement in placements(NUM_WINDOWS, case.unit, num_cells):
            seen = handed_out(plan, np.array(placement), run)
            worst = max(worst, share_spent(plan.guarantee, seen, nobody))
            if worst > 1 + 1e-12:
                return Finding(False)
    return Finding(bool(worst > 1 - 1e-6))


def unbiased_sum(case: Case) -> Finding:
    """Of 168 empty windows, over 50 cells: within 6.2 standard errors of 0, but once in 10^9."""
    plan = case.plan(MANY, WIDE)
    source, nothing = NoiseSource(), marginals_of(plan, 0)
    release = dp.HorizonRelease(
        horizon=plan.horizon,
        horizon_id=HORIZON_ID,
        guarantee=plan.guarantee,
        workload=plan.workload,
        windows={n: plan.draw(n, nothing, source, HORIZON_ID) for n in range(MANY)},
    )
    (answer,) = release.answer(plan.workload)
    error = float(answer.standard_error or 0) / math.sqrt(answer.values.size)
    return Finding(abs(float(answer.values.mean())) < 6.2 * error)


def forget_windows(patch: Patch) -> None:
    """The sensitivity of one window of a unit."""

    def of_one(horizon: Any, unit: WindowUnit, *given: Any, **options: Any) -> dp.Guarantee:
        promised = whole_promise(horizon, unit, *given, **options)
        return dataclasses.replace(promised, max_records_per_unit=unit.max_records_per_unit)

    patch.setattr(plan_module, "whole_promise", of_one)
    patch.setattr(plan_module, "most_squares", lambda most, block=None: 1)


def forget_protected(patch: Patch) -> None:
    """A unit is kept in as many windows as it has, of which none is remembered."""

    def keep(remembered: Any, units: Any, number: int, limits: WindowUnit, total: int) -> Any:
        most = limits.max_windows_per_unit
        short = dataclasses.replace(limits, protected_windows=most)
        return keep_windows(remembered, units, number, short, total)

    patch.setattr("window_plans.keep_windows", keep)


# As if no two windows of a unit could lie in one block.
spread_over_blocks = replaced(plan_module, "most_squares", lambda most, block=None: most)


def whole_share(name: str, place: int) -> Bug:
    """A level gets the noise of the whole budget."""
    return around(
        plan_module,
        name,
        lambda original, *given: original(*given[:place], Fraction(1), *given[place + 1 :]),
    )


WHOLE_SHARES = {
    LAPLACE: whole_share("laplace_level", 1),
    GAUSSIAN: whole_share("gaussian_level", 3),
}
clip = around(
    plan_module,
    "unbiased_tables",
    lambda original, *given: {
        names: np.maximum(table, 0) for names, table in original(*given).items()
    },
)


def audits() -> list[Audit]:
    found = []
    for distribution in (LAPLACE, GAUSSIAN):
        for name, unit, has_blocks, workload in (
            ("c = 2, P = 3, k = 2", person(2, 3, 2), False, CELLS),
            ("c = 3, and blocks", person(3, 4), True, CELLS),
            ("several marginals, and blocks", person(2, 4), True, SEVERAL),
        ):
            case = Case(unit, distribution, has_blocks, workload)
            guarantee = case.plan().guarantee
            of_plan = ("k ignored", "sensitivity halved", "replace-one run with add-remove noise")
            checks = {"price": price}
            bugs = {"price": derived(guarantee, draws=2, least=1 - 1e-6, without=of_plan)}
            bugs["price"]["c missing in the sensitivity"] = forget_windows
            bugs["price"]["P ignored"] = forget_protected
            if has_blocks:
                bugs["price"]["budget not split"] = WHOLE_SHARES[distribution]
                if distribution == GAUSSIAN:
                    bugs["price"]["windows of a block apart"] = spread_over_blocks
            else:
                checks["sum"] = unbiased_sum
                bugs["sum"] = {"clipped tables summed": clip}
            kind = distribution.removeprefix("discrete_")
            dear = ("sum",) if has_blocks else ("price", "sum")
            title = f"windows, {kind}, {name}"
            found.append(audited(title, guarantee, checks, bugs, case, dear=dear))
    return found
