"""What a release states about the error of its marginals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from beam_dp.hypotheses.basis import Coefficients, marginal_of
from beam_dp.mechanisms.measurements import Measurement, Names, cell_variance, support_variances
from beam_dp.mechanisms.plan import Plan

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


def noise_bound(
    variance: float, num_cells: int, laplace_variance: float | None, failure_probability: float
) -> float:
    """Returns what no cell's noise exceeds, except with the failure probability.

    A sum of discrete Gaussians is subgaussian. For a discrete Laplace noise of variance v
    E exp(tX) = 1 / (1 - v (cosh t - 1)) <= exp(0.753 v t^2) while t <= 1 and v t^2 <= 0.92,
    because cosh t - 1 <= 0.5431 t^2 and 1 / (1 - u) <= exp(2 ln(2) u) for u <= 1/2. In a weighted
    sum of variance V no weight exceeds sqrt(V / v), so the same holds with V for all
    t sqrt(V) <= min(0.959, sqrt(v)); Chernoff's bound does the rest.

    Args:
        variance: of the noise of one cell.
        num_cells: that the bound holds for at once.
        laplace_variance: smallest variance of one Laplace noise; None where all are Gaussian.
        failure_probability: in (0, 1).
    """
    log_term = math.log(2 * num_cells / failure_probability)
    deviation = math.sqrt(variance)
    if laplace_variance is None:
        return deviation * math.sqrt(2 * log_term)
    limit = min(0.959, math.sqrt(laplace_variance))
    if math.sqrt(log_term / 0.753) <= limit:
        return deviation * math.sqrt(4 * 0.753 * log_term)
    return deviation * (log_term / limit + 0.753 * limit)
