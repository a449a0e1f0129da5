"""Multiplicative weights and the exponential mechanism, over whole marginals (MWEM)."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

from beam_dp.checks import checked_integer, checked_number
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.flags.flag import OrWord, integer, number, option
from beam_dp.mechanisms.checks import CALIBRATION, NumRecords, check_calibration
from beam_dp.mechanisms.marginals.measure_all import (
    MAX_UNIT_COST,
    UnitCost,
    check_max_unit_cost,
    measure_all_plan,
    unit_cost_plan,
)
from beam_dp.mechanisms.marginals.plan import (
    MAX_CELLS,
    MarginalsPlan,
    Mechanism,
    check_request,
    joins_fit,
)
from beam_dp.mechanisms.marginals.rounds import plan_rounds
from beam_dp.mechanisms.marginals.selection import plan_selection
from beam_dp.mechanisms.marginals.strategies import (
    best_table_strategy,
    predicted_variance,
    residual_strategy,
)
from beam_dp.mechanisms.marginals.textbook_mwem import plan_textbook
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import Workload


@dataclasses.dataclass(frozen=True)
class MWEM(Mechanism):
    """Selects what the hypothesis answers badly, measures it, and fits all measurements at once.

    Privacy: (epsilon, delta), for the relation and unit of the guarantee. Rounds compose by sums
    of squares of mu where delta > 0, else by sums of epsilon; both hold for adaptively chosen
    rounds.

    ``tight``: by default what is measured is decided before any record is read, by the predicted
    error of the candidates: all residuals with Gaussian noise, or tables with Laplace noise (see
    ``strategies``). With ``num_rounds`` the exponential mechanism, or permute-and-flip where
    delta is 0, selects one marginal a round, which is measured whole. Either way a maximum-entropy
    fit of all measurements follows.

    ``textbook``: Hardt, Ligett and McSherry's algorithm as published: one cell of a marginal is
    selected and measured a round, and one multiplicative update follows. The last hypothesis is
    released. ``stop_below`` ends the rounds at the first selected cell whose error is small, by a
    noisy comparison that is paid for with a tenth of the budget.

    Args:
        num_rounds: of selection, >= 1; ``"annealed"`` lets their number follow from what they
            find; None measures everything at once, as is predicted to be best.
        calibration: ``tight`` or ``textbook``.
        max_unit_cost: C: of a unit with many records these are kept up to the cost of C equal ones,
            which are more of them the less they are alike, and at most ``max_records_per_unit``;
            the noise is as for C records. For Gaussian noise under add-or-remove-one, where
            everything is measured at once. ``"planned"``: the cost of ``max_records_per_unit`` of
            them that agree as often as random codes do. See ``unit_costs``.
        stop_below: of ``textbook``: the error, a share of the records, in (0, 1], below which the
            rounds end.

    Reference: Hardt, Ligett and McSherry (2012).
    """

    num_rounds: int | Literal["annealed"] | None = dataclasses.field(
        default=None,
        metadata=option(
            "rounds of mwem: a number, or 'annealed'; by default none, if the workload fits one"
            " model",
            "T",
            OrWord(integer, "annealed"),
        ),
    )
    calibration: Literal["tight", "textbook"] = dataclasses.field(
        default="tight", metadata=CALIBRATION
    )
    max_unit_cost: UnitCost | None = dataclasses.field(default=None, metadata=MAX_UNIT_COST)
    stop_below: float | None = dataclasses.field(
        default=None,
        metadata=option(
            "textbook mwem: ends the rounds where a noisy comparison, which takes a tenth of the"
            " budget, finds the error below this share of all records, 0 < A <= 1",
            "A",
            number,
        ),
    )
    name: ClassVar[str] = "mwem"
    summary: ClassVar[str] = "measures what is predicted to be best, then fits"

    def __post_init__(self) -> None:
        check_calibration(self.calibration)
        rounds = self.num_rounds
        if rounds == "annealed":
            if self.calibration == "textbook":
                raise InputError("num_rounds", rounds, "must be a number in the textbook algorithm")
        elif rounds is not None:
            checked_integer("num_rounds", rounds, 1, 100_000, note=" or 'annealed'")
        check_max_unit_cost(self.max_unit_cost, self.calibration)
        if self.max_unit_cost is not None and rounds is not None:
            condition = "must be left out with num_rounds, for rounds select what they measure"
            raise InputError("max_unit_cost", self.max_unit_cost, condition)
        if self.stop_below is not None:
            share = ", a share of the records"
            checked_number("stop_below", self.stop_below, above=0, most=1, note=share)
            if self.calibration != "textbook":
                condition = "must be left out without --calibration textbook"
                raise InputError("stop_below", self.stop_below, condition)

    def plan(
        self, domain: Domain, workload: Workload, guarantee: Guarantee, num_records: NumRecords
    ) -> MarginalsPlan:
        """Returns what will be measured, or how rounds will share the budget."""
        check_request(domain, workload, guarantee, num_records)
        if self.calibration == "textbook":
            rounds = None if self.num_rounds == "annealed" else self.num_rounds
            return plan_textbook(workload, guarantee, num_records, rounds, self.stop_below)
        if self.num_rounds is not None:
            return plan_rounds(workload, guarantee, num_records, self.num_rounds)
        if self.max_unit_cost is not None:
            return unit_cost_plan(self.name, workload, guarantee, num_records, self.max_unit_cost)
        if not joins_fit(workload):
            if guarantee.delta > 0:
                return plan_selection(workload, guarantee, num_records)
            return plan_rounds(workload, guarantee, num_records, "annealed")
        total_is_public = num_records != "noisy"
        candidates = [best_table_strategy(workload, guarantee, total_is_public, MAX_CELLS)]
        if guarantee.delta > 0:
            candidates.append(residual_strategy(workload, guarantee, total_is_public))
        best = min(candidates, key=lambda each: predicted_variance(workload, each, total_is_public))
        return measure_all_plan(self.name, workload, guarantee, num_records, best, self.calibration)
