"""Error bounds of released marginals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from beam_dp.hypotheses.basis import Coefficients, marginal_of
from beam_dp.mechanisms.marginals.measurements import (
    Measurement,
    Names,
    cell_variance,
    support_variances,
)
from beam_dp.mechanisms.marginals.plan import Plan
from beam_dp.noise.bound import noise_bound

_FAILURE_PROBABILITY = 0.05


def marginal_errors(
    plan: Plan,
    layout: Coefficients,
    measurements: Sequence[Measurement],
    misfit: Callable[[Names], NDArray[np.float64]],
    num_bounded_cells: int | None,
) -> dict[Names, dict[str, float | None]]:
    """Returns, for each marginal of the workload and those inside it, its error and a bound.

    The error is that of the unbiased noisy estimate.

    The bound holds whatever the fit did: it adds the largest distance between the answer and the
    unbiased noisy marginal, which is public, to a bound on the noise of the latter.

    Args:
        plan: of the release.
        layout: where the coefficients of ``misfit`` stand.
        measurements: what was measured.
        misfit: for a marginal, the coefficients of the answers less the unbiased noisy ones, in
            records.
        num_bounded_cells: cells whose bounds must hold together, where noise decided which of
            them were measured; by default those of each marginal alone.
    """
    domain = plan.domain
    closure = plan.workload.closure()
    supports = [domain.axes(names) for names in closure]
    variances = support_variances(domain, supports, measurements, plan.total_is_public)
    laplace_variance = min(
        (each.variance for each in measurements if each.distribution == "discrete_laplace"),
        default=None,
    )
    errors: dict[Names, dict[str, float | None]] = {}
    for names in closure:
        variance = cell_variance(domain, variances, domain.axes(names))
        if not math.isfinite(variance):
            errors[names] = {"standard_error": None, "bound": None, "failure_probability": None}
            continue
        table = marginal_of(layout, misfit(names), domain.axes(names))
        of_noise = noise_bound(
            variance, num_bounded_cells or table.size, laplace_variance, _FAILURE_PROBABILITY
        )
        errors[names] = {
            "standard_error": math.sqrt(variance),
            "bound": float(np.abs(table).max()) + of_noise,
            "failure_probability": _FAILURE_PROBABILITY,
        }
    return errors
