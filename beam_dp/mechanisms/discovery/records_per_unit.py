"""Chooses how many records of a privacy unit to use, from noisy counts of units by their records.

Few records per unit lose the other records of units that have more; many records per unit need
more noise. The choice reads one histogram, in which each unit counts once, so it costs little.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer, checked_number
from beam_dp.errors import InputError
from beam_dp.interval_strategies.hierarchy import Hierarchy
from beam_dp.mechanisms.intervals.plan import best_tree
from beam_dp.mechanisms.marginals.measurements import residual_strategy, table_strategy
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.noise.bound import Distribution
from beam_dp.noise.source import MAX_SCALE, NoiseSource
from beam_dp.privacy.accounting import discrete_parameter
from beam_dp.privacy.guarantee import MAX_RECORDS_PER_UNIT, Neighboring
from beam_dp.privacy.rounding import Real, up
from beam_dp.releases.synthetic_database.measured_tables import cell_variance, support_variances
from beam_dp.verification.records_per_unit import (
    chosen_records,
    count_errors,
    record_levels,
    records_step,
)
from beam_dp.verification.steps import Step

MEASURED = "records per unit"


@dataclasses.dataclass(frozen=True)
class RecordsPerUnitPlan:
    """The public parameters for choosing the records per unit. Made by ``plan_records_per_unit``.

    Privacy: counting the units of each level, and sums of neighbouring levels, is the only step
    that reads records. Its noise has the loss of ``step()``, under the relation ``neighboring``,
    whatever the units' numbers of records are: a unit is in one level, so it changes each part of
    the tree of sums by 1 in L1 norm, or by 2 under replace-one. The choice follows from the noisy
    sums.

    Accuracy: see ``chosen_records``.
    """

    most: int  # the largest number of records that can be chosen
    noise_per_record: float  # the expected noise of a table per record of a unit, over its cells
    neighboring: Neighboring
    distribution: Distribution
    scale: float

    @property
    def num_levels(self) -> int:
        """The number of counts: of units whose numbers of records are in the same level."""
        return len(record_levels(self.most))

    @property
    def strategy(self) -> Hierarchy:
        """The tree of sums that are measured."""
        return best_tree(self.num_levels, 1 if self.distribution == "discrete_laplace" else 2)

    def step(self) -> Step:
        """Returns the noisy draw, with its privacy loss."""
        return records_step(
            num_moved=self.neighboring.num_moved,
            distribution=self.distribution,
            scale=self.scale,
            sizes=self.strategy.sizes[1:],
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the noise, and what the choice depends on, as a card states them."""
        return {
            "measured": MEASURED,
            "distribution": self.distribution,
            "scale": self.scale,
            "sizes": list(self.strategy.sizes[1:]),
            "most": self.most,
            "noise_per_record": self.noise_per_record,
        }

    def release(
        self, counts: NDArray[np.int64], noise: NoiseSource
    ) -> tuple[int, NDArray[np.float64]]:
        """Returns the chosen number of records, and the noisy numbers of units from each level on.

        ``counts``: the number of units in each level, shape (num_levels,), int64; secret.
        """
        if counts.shape != (self.num_levels,) or counts.dtype != np.int64:
            found = f"{counts.dtype} of shape {counts.shape}"
            raise InputError("counts", found, f"must be int64 of shape ({self.num_levels},)")
        draw = noise.laplace if self.distribution == "discrete_laplace" else noise.gaussian
        noisy = draw(self.strategy.measure(counts), self.scale)
        estimate = self.strategy.estimate(noisy.astype(np.float64))
        low = np.arange(self.num_levels)
        at_least = estimate.answer(low, np.full_like(low, self.num_levels - 1))
        errors = count_errors(self.distribution, self.scale, self.strategy.sizes[1:])
        chosen = chosen_records(
            self.most, self.noise_per_record, at_least.tolist(), errors.tolist()
        )
        return chosen, at_least


def plan_records_per_unit(
    most: int,
    noise_per_record: float,
    neighboring: Neighboring,
    *,
    mu: Real | None = None,
    epsilon: Real | None = None,
) -> RecordsPerUnitPlan:
    """Returns the plan for choosing the records per unit within a privacy loss.

    Privacy: see ``RecordsPerUnitPlan``. Gaussian noise keeps ``mu``, Laplace noise keeps
    ``epsilon``; exactly one of them is given.

    ``most``: the largest number of records that can be chosen, from 2.
    ``noise_per_record``: see ``noise_per_record``; > 0.
    """
    checked_integer("most_records_per_unit", most, 2, MAX_RECORDS_PER_UNIT)
    checked_number("noise_per_record", noise_per_record, above=0)
    if (mu is None) == (epsilon is None):
        raise InputError("mu", mu, "must be given without epsilon, or epsilon without mu")
    name, loss = ("mu", mu) if epsilon is None else ("epsilon", epsilon)
    assert loss is not None
    if not 0 < loss < math.inf:
        raise InputError(name, loss, "must be a finite number > 0")
    kind: Distribution = "discrete_gaussian" if epsilon is None else "discrete_laplace"
    plan = RecordsPerUnitPlan(most, noise_per_record, neighboring, kind, 1.0)
    changed, exact = neighboring.num_moved * len(plan.strategy.sizes[1:]), Fraction(loss)
    scale = discrete_parameter(changed / exact**2) if epsilon is None else up(changed / exact)
    if not scale <= MAX_SCALE:
        raise InputError(name, loss, "is too small: noise must have a scale of at most 2^50")
    return dataclasses.replace(plan, scale=scale)


def noise_per_record(plan: MarginalsPlan) -> float:
    """Returns the expected noise of a table, summed over its cells, if units have one record.

    The noise for k records per unit is k times as large. This is the mean over the tables of the
    workload, with their weights, before the fit. A mechanism that selects its tables counts as one
    that measures all of them.

    ``plan``: the plan of the later release for one record per unit.
    """
    workload, domain, measured = plan.workload, plan.domain, plan.measurements
    if not plan.is_fixed and plan.guarantee.delta > 0:
        measured = residual_strategy(workload, plan.guarantee, plan.total_is_public)
    elif not plan.is_fixed:
        measured = table_strategy(workload.maximal(), plan.guarantee)
    supports = [domain.axes(names) for names in workload.closure()]
    variances = support_variances(domain, supports, measured, plan.total_is_public)
    total = 0.0
    for names, weight in zip(workload.marginals, workload.weights, strict=True):
        axes = domain.axes(names)
        deviation = math.sqrt(cell_variance(domain, variances, axes))
        total += weight * math.prod(domain.shape[axis] for axis in axes) * deviation
    return total / sum(workload.weights) * math.sqrt(2 / math.pi)
