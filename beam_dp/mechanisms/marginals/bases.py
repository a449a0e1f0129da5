"""The basis of a fit to noisy tables, and where a fit starts: shared by scores and synthesis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain, Names
from beam_dp.mechanisms.checks import MAX_RECORDS
from beam_dp.mechanisms.marginals import plan as plans
from beam_dp.mechanisms.marginals.measurements import Measurement, closure_of
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.models import basis as bases, maximum_entropy
from beam_dp.models.basis import Basis, Coefficients, Support
from beam_dp.models.denoised_attributes import denoised
from beam_dp.models.residual_basis import ResidualBasis
from beam_dp.models.tree_basis import TreeBasis
from beam_dp.releases.synthetic_database import measured_tables
from beam_dp.releases.synthetic_database.measured_tables import MeasuredTable

# Large domains have many coefficients, so their fits stop at a larger tolerance: this takes a third
# as many passes and loses about 1 % of accuracy.
_ARRAY_TOLERANCE = 1e-6
_TOLERANCE = 1e-5


def plan_basis(
    plan: MarginalsPlan, sets: Iterable[Support] | None = None
) -> ResidualBasis | TreeBasis:
    """Returns the basis of a hypothesis, over an array or over a junction tree."""
    # ``sets``: attribute sets to join, as ascending axes; by default all sets of the workload.
    domain = plan.domain
    if sets is None:
        sets = [domain.axes(names) for names in plan.workload.maximal()]
    supports = closure_of(sets)
    if plans.fits_an_array(domain):
        return ResidualBasis(domain.shape, supports)
    impossible = [(each.axes, each.mask(domain.shape)) for each in domain.impossible]
    return TreeBasis(domain.shape, supports, impossible)


def independent_start(
    plan: MarginalsPlan,
    basis: Basis,
    measurements: Sequence[Measurement],
    tables: Sequence[NDArray[np.float64]],
) -> tuple[maximum_entropy.NoisyCoefficients, int, NDArray[np.float64]]:
    """Returns noisy coefficients, the number of records, and log-weights (num_coefficients,)."""
    # The coefficients of long attributes are denoised. The log-weights are the hypothesis of
    # independent attributes; the number is noisy or public.
    observed = measured_tables.Combination(plan.domain, basis, measurements, tables).estimate()
    total = noisy_total(basis, observed) if plan.num_records == "noisy" else plan.num_records
    observed = denoised(plan.domain, basis, observed, total)
    return observed, total, maximum_entropy.independent_log_weights(basis, observed, total)


def outside(
    supports: Iterable[Support], domain: Domain, measurements: Sequence[MeasuredTable]
) -> list[Support]:
    """Returns the measured sets of attributes that a hypothesis does not join."""
    joined = set(supports)
    measured = [domain.axes(measurement.names) for measurement in measurements]
    return [axes for axes in dict.fromkeys(measured) if axes not in joined]


def tolerance(basis: Basis) -> float:
    """Returns the accuracy to which a fit is solved, in nats per coefficient."""
    is_array = isinstance(basis, ResidualBasis)
    return _ARRAY_TOLERANCE if is_array else _TOLERANCE


def names_of(domain: Domain, axes: Support) -> Names:
    """Returns the attribute names of axes."""
    return tuple(domain.names[axis] for axis in axes)


def noisy_total(basis: Coefficients, observed: maximum_entropy.NoisyCoefficients) -> int:
    """Returns the estimated number of records, from 1 to ``MAX_RECORDS``."""
    constant = float(observed.values[basis.slices[()]][0])
    scale = math.sqrt(bases.squared_scale(basis, (), ()))
    return min(max(1, round(constant * scale)), MAX_RECORDS)
