"""The mechanisms MWEM, Gaussian and Laplace, and plans that measure all tables in one step."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, Literal

from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.flags.flag import OrWord, check_options, integer, number, option
from beam_dp.mechanisms import checks
from beam_dp.mechanisms.checks import Calibration, NumRecords
from beam_dp.mechanisms.marginals import plan as plans
from beam_dp.mechanisms.marginals.measurements import (
    Measurement,
    best_table_strategy,
    predicted_variance,
    residual_strategy,
    table_strategy,
)
from beam_dp.mechanisms.marginals.plan import MAX_CELLS
from beam_dp.mechanisms.marginals.rounds import plan_rounds
from beam_dp.mechanisms.marginals.selection import plan_selection
from beam_dp.mechanisms.marginals.synthesis import synthesise
from beam_dp.mechanisms.marginals.textbook_mwem import plan_textbook
from beam_dp.privacy.budget import Budget
from beam_dp.privacy.guarantee import RECORD, Guarantee, Neighboring
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.noise.bound import MEAN_ABSOLUTE
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.privacy.unit_costs import MAX_ATTRIBUTES, MAX_RECORDS, UnitCosts
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database.noisy_tables import chance_cost, unit_costs
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.synthetic_database.strategies import MeasureAll
from beam_dp.secret.summaries.histogram import Marginals

UnitCost = float | Literal["planned"]

# Noise hides pairs if the total variation that it adds to a table is above this. The total
# variation of two columns of people from independent columns is seldom larger.
_HIDDEN = 0.15

MAX_UNIT_COST = option(
    "keep a unit's records up to the joint cost of C equal records, which allows more records"
    " if they differ; planned: up to the cost of max_records_per_unit records that agree only"
    " by chance",
    "C",
    OrWord(number, "planned"),
    limits={"least": 1, "note": " or 'planned'"},
)


def check_max_unit_cost(max_unit_cost: UnitCost | None, calibration: str) -> None:
    """Refuses a ``max_unit_cost`` that the calibration does not have."""
    if max_unit_cost is not None and calibration == "textbook":
        condition = "must be left out with calibration textbook, which measures no residuals"
        raise InputError("max_unit_cost", max_unit_cost, condition)


def check_unit_cost(
    workload: Workload, guarantee: Guarantee, num_records: NumRecords, max_unit_cost: UnitCost
) -> None:
    """Refuses a ``max_unit_cost`` for a plan that cannot use it."""

    def refuse(condition: str) -> InputError:
        return InputError("max_unit_cost", max_unit_cost, condition)

    if guarantee.privacy_unit == RECORD:
        raise refuse("must be left out if the privacy unit is a record")
    limit = guarantee.max_records_per_unit
    if max_unit_cost != "planned" and not 1 <= max_unit_cost <= limit:
        raise refuse(f"must be from 1 to max_records_per_unit, which is {limit:,}")
    if limit > MAX_RECORDS:
        condition = f"must be at most {MAX_RECORDS:,} if max_unit_cost is given"
        raise InputError("max_records_per_unit", limit, condition)
    if guarantee.neighboring is not Neighboring.ADD_OR_REMOVE_ONE:
        raise refuse("must be left out under replace_one: use add_or_remove_one")
    if guarantee.delta == 0:
        raise refuse("must be left out if delta is 0: Gaussian noise needs a delta > 0")
    if num_records != "noisy":
        raise refuse("must be left out if num_records is public: use num_records noisy")
    if not plans.joins_fit(workload):
        raise refuse(
            "must be left out if noise selects the measured marginals, as for a workload that does"
            " not fit one model: use fewer or smaller marginals"
        )
    used = {name for names in workload for name in names if workload.domain[name].size > 1}
    if len(used) > MAX_ATTRIBUTES:
        raise refuse(
            f"must be left out if the workload has more than {MAX_ATTRIBUTES} attributes;"
            f" it has {len(used)}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureAllPlan(plans.MarginalsPlan):
    """The plan of a mechanism that measures a fixed set of tables once."""

    is_fixed: ClassVar[bool] = True

    parameters: MeasureAll

    @property
    def unit_costs(self) -> UnitCosts | None:
        """The limit on the joint cost of a unit's records (see ``Plan``); None without a limit."""
        cost = self.parameters.max_unit_cost
        return None if cost is None else unit_costs(self.domain, self.measurements, cost)

    def measurements_for(self, guarantee: Guarantee) -> tuple[Measurement, ...]:
        """Returns what the same strategy measures without a limit on costs for a guarantee."""
        is_laplace = all(one.distribution == "discrete_laplace" for one in self.measurements)
        strategy = _tables if is_laplace else _residuals
        calibration = self.parameters.calibration
        return strategy(self.workload, guarantee, self.total_is_public, calibration)

    def release(
        self, marginals: Marginals, noise: NoiseSource, progress: checks.Progress | None = None
    ) -> SyntheticDatabase:
        """Draws all measurements, and returns the release that fits the measurements."""
        tables = []
        for position, measurement in enumerate(self.measurements):
            if progress is not None:
                progress("measure", position + 1, len(self.measurements))
            tables.append(measurement.draw(marginals, noise))
        return synthesise(self, self.measurements, tables, noise, progress)


def measure_all_plan(
    mechanism: str,
    workload: Workload,
    guarantee: Guarantee,
    num_records: NumRecords,
    measurements: tuple[Measurement, ...],
    calibration: str,
    max_unit_cost: float | None = None,  # the limit C for which the measurements are calibrated
) -> MeasureAllPlan:
    """Returns the plan of a mechanism that measures a fixed set of tables once."""
    plans.check_joins(workload)
    checks.check_noise(guarantee, [measurement.scale for measurement in measurements])
    plans.check_sums(num_records, measurements)
    variance = predicted_variance(workload, measurements, num_records != "noisy")
    names = {measurement.names for measurement in measurements}
    # Without any measurements, the release is a public constant of the usual shape.
    maximal = tuple(
        table for table in sorted(names) if not any(set(table) < set(other) for other in names)
    )
    return MeasureAllPlan(
        mechanism=mechanism,
        workload=workload,
        guarantee=guarantee,
        num_records=num_records,
        summary_tables=maximal or workload.maximal(),
        measurements=measurements,
        loss=_loss(guarantee, measurements),
        parameters=MeasureAll(
            calibration=calibration,
            max_unit_cost=max_unit_cost,
            num_measurements=len(measurements),
            predicted_cell_error=math.sqrt(variance),
        ),
    )


def unit_cost_plan(
    mechanism: str,
    workload: Workload,
    guarantee: Guarantee,
    num_records: NumRecords,
    max_unit_cost: UnitCost,
) -> MeasureAllPlan:
    """Returns the plan that measures all residuals and limits the cost of a unit's records."""
    check_unit_cost(workload, guarantee, num_records, max_unit_cost)
    if max_unit_cost == "planned":
        # The residuals' shares of the budget do not depend on the limit C.
        any_scale = residual_strategy(workload, guarantee, False, 1.0)
        limit = guarantee.max_records_per_unit
        max_unit_cost = chance_cost(workload.domain, any_scale, limit)
    measurements = residual_strategy(workload, guarantee, False, max_unit_cost)
    return measure_all_plan(
        mechanism, workload, guarantee, num_records, measurements, "tight", max_unit_cost
    )


def _loss(guarantee: Guarantee, measurements: tuple[Measurement, ...]) -> Loss:
    """Returns the privacy loss of measurements that are calibrated for the guarantee.

    Privacy: an epsilon for Laplace tables, a mu for Gaussian residuals on a fine grid, and a rho
    for Gaussian tables on the integers: those for which the noise is calibrated.
    """
    delta = guarantee.delta
    kinds = {(measurement.kind, measurement.distribution) for measurement in measurements}
    if kinds <= {("table", "discrete_laplace")} and (kinds or delta == 0):
        return Budget.of(guarantee, "pure").loss
    if delta == 0 and any(distribution == "discrete_gaussian" for _, distribution in kinds):
        raise InputError("delta", delta, "must be > 0 for discrete Gaussian noise")
    if kinds <= {("residual", "discrete_gaussian")}:
        return Budget.of(guarantee, "gaussian").loss
    if kinds == {("table", "discrete_gaussian")}:
        return Budget.of(guarantee, "zcdp").loss
    listed = ", ".join(sorted(" with ".join(kind) for kind in kinds))
    condition = "must all be tables with one noise, or residuals with discrete Gaussian noise"
    raise InputError("measurements", listed, condition)


@dataclasses.dataclass(frozen=True)
class Gaussian(plans.Mechanism):
    """Measures the workload with discrete Gaussian noise, and fits a distribution.

    Privacy: (epsilon, delta) with delta > 0, for the relation and unit of the guarantee.
    ``tight`` measures residuals with the best variances for the workload, calibrated exactly (see
    ``measurements.residual_strategy``). ``textbook`` measures every marginal with the same noise,
    on the integers, calibrated through zero-concentrated privacy. For m marginals, the L2
    sensitivity is sqrt(m) (sqrt(2m) under replace-one) times the number of records per unit.

    Args:
        calibration: the method described above, ``tight`` or ``textbook``.
        max_unit_cost: see ``MWEM``.

    Reference: Canonne, Kamath and Steinke (2020) for the noise.
    """

    calibration: Calibration = dataclasses.field(default="tight", metadata=checks.CALIBRATION)
    max_unit_cost: UnitCost | None = dataclasses.field(default=None, metadata=MAX_UNIT_COST)
    name: ClassVar[str] = "gaussian"
    summary: ClassVar[str] = "measures all, with Gaussian noise"

    def __post_init__(self) -> None:
        checks.check_calibration(self.calibration)
        check_options(self)
        check_max_unit_cost(self.max_unit_cost, self.calibration)

    def plan(
        self, domain: Domain, workload: Workload, guarantee: Guarantee, num_records: NumRecords
    ) -> plans.MarginalsPlan:
        """Returns the plan; raises InputError if delta is 0 or the request is too large."""
        plans.check_request(domain, workload, guarantee, num_records)
        if guarantee.delta == 0:
            raise InputError("delta", 0.0, "must be > 0 for the Gaussian mechanism")
        if self.max_unit_cost is not None:
            return unit_cost_plan(self.name, workload, guarantee, num_records, self.max_unit_cost)
        measurements = _residuals(workload, guarantee, num_records != "noisy", self.calibration)
        return measure_all_plan(
            self.name, workload, guarantee, num_records, measurements, self.calibration
        )


def _residuals(
    workload: Workload, guarantee: Guarantee, total_is_public: bool, calibration: str
) -> tuple[Measurement, ...]:
    """Returns the measurements of ``Gaussian``; as published, tables instead of residuals."""
    if calibration == "tight":
        return residual_strategy(workload, guarantee, total_is_public)
    moved = guarantee.neighboring.num_moved
    squared_sensitivity = guarantee.max_records_per_unit**2 * moved * len(workload)
    scale = Budget.of(guarantee, "zcdp").scale(squared_sensitivity)
    return tuple(Measurement(names, "table", "discrete_gaussian", scale) for names in workload)


@dataclasses.dataclass(frozen=True)
class Laplace(plans.Mechanism):
    """Measures tables with discrete Laplace noise, and fits a distribution.

    Privacy: pure epsilon, for the relation and unit of the guarantee; a delta is not spent. A
    record changes one cell of each of m tables by one. With equal shares of epsilon, the scale is m
    / epsilon (2m / epsilon under replace-one) times the number of records per unit. ``textbook``
    measures the workload's marginals with equal shares. ``tight`` measures unions of marginals, up
    to the joint table, and uses the shares that are predicted to be best.

    Args:
        calibration: the method described above, ``tight`` or ``textbook``.

    Reference: Dwork and Roth (2014), Theorem 3.6; Ghosh, Roughgarden and Sundararajan (2009).
    """

    calibration: Calibration = dataclasses.field(default="tight", metadata=checks.CALIBRATION)
    name: ClassVar[str] = "laplace"
    summary: ClassVar[str] = "measures all, with Laplace noise"

    def __post_init__(self) -> None:
        checks.check_calibration(self.calibration)

    def plan(
        self, domain: Domain, workload: Workload, guarantee: Guarantee, num_records: NumRecords
    ) -> plans.MarginalsPlan:
        """Returns the plan; raises InputError if the request is too large."""
        plans.check_request(domain, workload, guarantee, num_records)
        measurements = _tables(workload, guarantee, num_records != "noisy", self.calibration)
        return measure_all_plan(
            self.name, workload, guarantee, num_records, measurements, self.calibration
        )


def _tables(
    workload: Workload, guarantee: Guarantee, total_is_public: bool, calibration: str
) -> tuple[Measurement, ...]:
    """Returns the measurements of ``Laplace``."""
    if calibration == "tight":
        return best_table_strategy(workload, guarantee, total_is_public, MAX_CELLS)
    return table_strategy(workload.marginals, guarantee)


def _hides_pairs(
    workload: Workload, measurements: tuple[Measurement, ...], num_records: NumRecords
) -> bool:
    """Whether the noise of all tables would hide what pairs show: then noisy scores come first."""
    if num_records == "noisy" or not any(len(names) > 1 for names in workload):
        return False
    cell = MEAN_ABSOLUTE * math.sqrt(predicted_variance(workload, measurements, True))
    sizes = [math.prod(workload.domain[name].size for name in names) for names in workload]
    return cell * sum(sizes) / len(sizes) / 2 > _HIDDEN * num_records


@dataclasses.dataclass(frozen=True)
class MWEM(plans.Mechanism):
    """Selects marginals that the hypothesis answers badly, measures each, and fits everything.

    Privacy: (epsilon, delta), for the relation and unit of the guarantee. The losses of rounds add
    up: mu^2 if delta > 0, otherwise epsilon. Both sums are valid for adaptively chosen rounds.

    ``tight``: by default the measurements are chosen before any record is read, by the predicted
    error: all residuals with Gaussian noise, or tables with Laplace noise (see ``measurements``).
    With ``num_rounds``, the exponential mechanism (permute-and-flip if delta is 0) selects one
    marginal per round, and all of its cells are measured. In both cases a maximum-entropy fit of
    all measurements follows.

    ``textbook``: Hardt, Ligett and McSherry's algorithm as published: each round selects and
    measures one cell of a marginal and makes one multiplicative update. The last hypothesis is
    released. With ``stop_below``, the rounds end at the first selected cell with a small error,
    found by a noisy comparison that costs a tenth of the budget.

    Args:
        num_rounds: the number of selection rounds, >= 1. With ``"annealed"``, the number depends on
            the results of the rounds. With None there are no rounds: the tables that are predicted
            to be best are measured together.
        calibration: the method described above, ``tight`` or ``textbook``.
        max_unit_cost: the limit C: a unit's records are kept up to the joint cost of C equal
            records, and up to the number ``max_records_per_unit``. A unit with different records
            keeps more records than a unit with equal records; the noise is calibrated for C
            records. Requires Gaussian noise, add-or-remove-one, and ``num_rounds=None``.
            ``"planned"`` sets C to the cost of ``max_records_per_unit`` records that agree as often
            as random codes. See ``unit_costs``.
        stop_below: for ``textbook`` only: the error below which the rounds end, as a share of the
            records, in (0, 1].

    Reference: Hardt, Ligett and McSherry (2012).
    """

    num_rounds: int | Literal["annealed"] | None = dataclasses.field(
        default=None,
        metadata=option(
            "mwem: the number of rounds, or annealed; by default there are no rounds if the"
            " workload fits one model",
            "T",
            OrWord(integer, "annealed"),
            limits={"least": 1, "most": 100_000, "note": " or 'annealed'"},
        ),
    )
    calibration: Calibration = dataclasses.field(default="tight", metadata=checks.CALIBRATION)
    max_unit_cost: UnitCost | None = dataclasses.field(default=None, metadata=MAX_UNIT_COST)
    stop_below: float | None = dataclasses.field(
        default=None,
        metadata=option(
            "textbook mwem: stop the rounds when a noisy comparison, which takes a tenth of"
            " the budget, finds the error below this share of all records, 0 < A <= 1",
            "A",
            number,
            limits={"above": 0, "most": 1, "note": ", a share of the records"},
        ),
    )
    name: ClassVar[str] = "mwem"
    summary: ClassVar[str] = "measures what is predicted to be best, then fits"

    def __post_init__(self) -> None:
        checks.check_calibration(self.calibration)
        check_options(self)
        rounds = self.num_rounds
        if rounds == "annealed" and self.calibration == "textbook":
            raise InputError("num_rounds", rounds, "must be a number in the textbook algorithm")
        check_max_unit_cost(self.max_unit_cost, self.calibration)
        if self.max_unit_cost is not None and rounds is not None:
            condition = (
                "must be left out with num_rounds, because rounds choose their own measurements"
            )
            raise InputError("max_unit_cost", self.max_unit_cost, condition)
        if self.stop_below is not None and self.calibration != "textbook":
            condition = "must be left out without --calibration textbook"
            raise InputError("stop_below", self.stop_below, condition)

    def plan(
        self, domain: Domain, workload: Workload, guarantee: Guarantee, num_records: NumRecords
    ) -> plans.MarginalsPlan:
        """Returns the plan for the measurements or for the rounds."""
        plans.check_request(domain, workload, guarantee, num_records)
        if self.calibration == "textbook":
            rounds = None if self.num_rounds == "annealed" else self.num_rounds
            return plan_textbook(workload, guarantee, num_records, rounds, self.stop_below)
        if self.num_rounds is not None:
            return plan_rounds(workload, guarantee, num_records, self.num_rounds)
        if self.max_unit_cost is not None:
            return unit_cost_plan(self.name, workload, guarantee, num_records, self.max_unit_cost)
        if not plans.joins_fit(workload):
            if guarantee.delta > 0:
                return plan_selection(workload, guarantee, num_records)
            return plan_rounds(workload, guarantee, num_records, "annealed")
        total_is_public = num_records != "noisy"
        candidates = [best_table_strategy(workload, guarantee, total_is_public, MAX_CELLS)]
        if guarantee.delta > 0:
            candidates.append(residual_strategy(workload, guarantee, total_is_public))
        best = min(candidates, key=lambda each: predicted_variance(workload, each, total_is_public))
        plan = measure_all_plan(self.name, workload, guarantee, num_records, best, self.calibration)
        if guarantee.delta > 0 and _hides_pairs(workload, best, num_records):
            selection = plan_selection(workload, guarantee, num_records)
            return dataclasses.replace(selection, with_all=plan)
        return plan
