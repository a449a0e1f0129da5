"""Chooses how many records of a privacy unit to use, from noisy counts of units by their records.

Few records per unit lose the other records of units that have more; many records per unit need
more noise. The choice reads one histogram, in which each unit counts once, so it costs little.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_is, checked_integer, checked_number
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.flags.shared import DISCOVER
from beam_dp.mechanisms.contract import EarlierPlan, Plan
from beam_dp.mechanisms.intervals import IntervalPlan, plan_intervals, release_intervals
from beam_dp.mechanisms.marginals.measure_all import MeasureAllPlan
from beam_dp.mechanisms.marginals.measurements import residual_strategy, table_strategy
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.privacy.budget import Budget
from beam_dp.privacy.guarantee import MAX_RECORDS_PER_UNIT, RECORD, Guarantee
from beam_dp.privacy.loss import Loss, composed
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.privacy.steps import Step, total
from beam_dp.releases.domain.earlier import UnitCounts, records_of
from beam_dp.releases.domain.verify import domain_steps, with_domain
from beam_dp.releases.earlier_stage import LIMIT, RECORDS, Discovered, records_attribute
from beam_dp.releases.synthetic_database.measured_tables import cell_variance, support_variances

# The share of epsilon for the choice; the later release gets the rest.
RECORDS_SHARE = 0.02


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RecordsPlan(EarlierPlan, IntervalPlan):
    """The public parameters for choosing the records per unit. Made by ``plan_records``.

    Privacy: pure epsilon, for the relation and the unit of the guarantee. Counting the units of
    each level is the only step that reads records. A unit is in one level, whatever its number of
    records is, or in none; so the L1 sensitivity is 1, and 2 under replace-one, and the histogram
    is one of interval counts in which a unit has at most one record. The choice follows from the
    noisy counts. The later release may use the chosen number, because epsilons add up by adaptive
    basic composition: this one and that of ``main`` are at most the epsilon of ``whole``.

    Accuracy: see ``chosen_records``.

    ``guarantee``: of the counts alone; ``whole``: of the choice and of all later releases together;
    its records per unit are the most that can be chosen.
    """

    what: ClassVar[str] = RECORDS
    done: ClassVar[str] = "chose the records per unit"
    kind: ClassVar[type[UnitCounts]] = UnitCounts

    declared: Domain  # records outside these attributes are not counted
    noise_per_record: float  # the expected noise of a table per record of a unit, over its cells

    @property
    def asked_by(self) -> tuple[str, str]:
        """The argument that asks for this release, with its value."""
        return LIMIT, DISCOVER

    @property
    def headline(self) -> str:
        """A short description of the run."""
        return f"choice of at most {self.max_records:,} records per unit"

    @property
    def facts(self) -> dict[str, str]:
        """The lines of a preview about this release."""
        spent, left = self.guarantee.epsilon, self.chosen(1).main.epsilon
        text = f"epsilon {spent:.4g} chooses the number, epsilon {left:.4g} is left"
        return {RECORDS: f"at most {self.max_records:,}: {text}"}

    @property
    def max_records(self) -> int:
        """The largest number of records that can be chosen."""
        return self.whole.max_records_per_unit

    def chosen(self, records: int, draw_id: str | None = None) -> Discovered:
        """Returns what a later release states about the choice."""
        noise = {"measured": RECORDS, "distribution": self.choice[1], "scale": self.scale}
        main, _ = Budget.of(self.whole, "pure").split(RECORDS_SHARE)
        main = main.with_limits(max_records_per_unit=records)
        return Discovered(whole=self.whole, main=main, noise=(noise,), draw_id=draw_id)

    def result_text(self, release: Any) -> str:
        """Returns what was chosen, in one line."""
        return f"Chose {records_of(release).main.max_records_per_unit:,} as the records per unit"

    def identity(self) -> dict[str, Any]:
        """See ``Plan``."""
        return {**super().identity(), "parameters": self._stated()}

    def _stated(self) -> dict[str, Any]:
        later = self.chosen(self.max_records).main
        parameters = {
            "noise_per_record": self.noise_per_record,
            "release": {"epsilon": later.epsilon, "delta": later.delta},
            "whole": self.whole.to_json(),
        }
        return {"records_per_unit": parameters}

    def release(self, counts: NDArray[np.int64], noise: NoiseSource) -> UnitCounts:
        """Returns noisy counts; the only function that turns exact counts of units into a release.

        ``counts``: the number of units in each level of ``record_levels(most)``, int64; secret.
        """
        return release_intervals(self, counts, noise, self.attribute, self.public)


def plan_records(
    declared: Domain | None,
    whole: Guarantee,
    noise_per_record: float,
) -> RecordsPlan:
    """Returns the plan for choosing the records per unit, for a share of a guarantee.

    Args:
        declared: records outside these attributes are not counted; None to count all records.
        whole: the guarantee of the choice and the later releases; its records per unit, at least
            2, are the most that can be chosen.
        noise_per_record: see ``noise_per_record``; > 0.
    """
    check_is("guarantee", whole, Guarantee)
    if whole.privacy_unit == RECORD:
        raise InputError("privacy_unit", RECORD, "must be a column to choose its records per unit")
    limit = whole.max_records_per_unit
    checked_integer("most_records_per_unit", limit, 2, MAX_RECORDS_PER_UNIT)
    checked_number("noise_per_record", noise_per_record, above=0)
    _, rest = Budget.of(whole, "pure").split(RECORDS_SHARE)
    of_counts = whole.with_limits(epsilon=rest.level, delta=0.0, max_records_per_unit=1)
    attribute = records_attribute(limit)
    counts = plan_intervals(attribute.num_levels, of_counts, "histogram", "discrete_laplace")
    fields = {field.name: getattr(counts, field.name) for field in dataclasses.fields(counts)}
    return RecordsPlan(
        **{**fields, "attribute": attribute},
        declared=Domain(()) if declared is None else declared,
        whole=whole,
        noise_per_record=noise_per_record,
    )


def loss_with_records(plan: Plan, chosen: Discovered) -> Loss:
    """Returns the loss of a later plan and of the choice; refuses to break ``chosen.whole``."""
    steps, beside = list(plan.steps), list[Step]()
    if plan.discovered is not None:
        steps, beside = with_domain(plan.discovered, steps, beside)
    choice = domain_steps(chosen.noise, chosen.main)
    _, epsilon = total(steps, chosen.whole, [*beside, *choice])
    if not epsilon <= chosen.whole.epsilon:
        condition = f"must keep the whole guarantee, epsilon {chosen.whole.epsilon:.6g}"
        raise InputError("mechanism", plan.mechanism, condition)
    return composed([plan.loss, *(step.loss for step in choice)])


def noise_per_record(plan: MarginalsPlan, guarantee: Guarantee) -> float:
    """Returns the expected noise of a table, summed over its cells, if units have one record.

    The noise for k records per unit is k times as large. This is the mean over the tables of the
    workload, with their weights, before the fit. A mechanism that selects its tables counts as one
    that measures all of them.

    ``plan``: the plan of the later release, for any number of records per unit.
    ``guarantee``: that of the later release for one record per unit.
    """
    workload, domain = plan.workload, plan.domain
    if isinstance(plan, MeasureAllPlan):
        measured = plan.measurements_for(guarantee)
    elif guarantee.delta > 0:
        measured = residual_strategy(workload, guarantee, plan.total_is_public)
    else:
        measured = table_strategy(workload.maximal(), guarantee)
    supports = [domain.axes(names) for names in workload.closure()]
    variances = support_variances(domain, supports, measured, plan.total_is_public)
    total_noise = 0.0
    for names, weight in zip(workload.marginals, workload.weights, strict=True):
        axes = domain.axes(names)
        deviation = math.sqrt(cell_variance(domain, variances, axes))
        total_noise += weight * math.prod(domain.shape[axis] for axis in axes) * deviation
    return total_noise / sum(workload.weights) * math.sqrt(2 / math.pi)
