"""From noisy measurements to a release. Nothing here touches exact data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain import Domain
from beam_dp.hypotheses.basis import Basis, log_potentials, marginal_of, squared_scale
from beam_dp.hypotheses.maximum_entropy import (
    NoisyCoefficients,
    dense_weights,
    fit_maximum_entropy,
)
from beam_dp.hypotheses.residual_basis import ResidualBasis
from beam_dp.hypotheses.rounding import round_to_records
from beam_dp.mechanisms.measurements import (
    Measurement,
    Names,
    cell_variance,
    combine,
    importance_of,
    support_variances,
)
from beam_dp.mechanisms.plan import MAX_RECORDS, Plan, Progress
from beam_dp.noise import NoiseSource
from beam_dp.releases import SyntheticDatabase

_FAILURE_PROBABILITY = 0.05
# Rounding to records may add this share of the fit's own error.
_ROUNDING_SHARE = 0.1


def workload_basis(plan: Plan) -> ResidualBasis:
    """Returns the coefficients on which the marginals of a plan's workload depend."""
    domain = plan.domain
    return ResidualBasis(domain.shape, [domain.axes(names) for names in plan.workload.closure()])


def synthesise(
    name: str,
    plan: Plan,
    measurements: Sequence[Measurement],
    tables: Sequence[NDArray[np.float64]],
    noise: NoiseSource,
    progress: Progress | None,
    fit: Mapping[str, Any] | None = None,
) -> SyntheticDatabase:
    """Returns the release that fits noisy tables: a hypothesis, and records rounded from it.

    Args:
        name: of the mechanism.
        plan: its plan.
        measurements: what was measured.
        tables: the noisy tables, in records.
        noise: for the draw's name and the signs that probe the fit.
        progress: called with public quantities.
        fit: what the mechanism has to say about how it went, for the card.
    """
    domain, workload = plan.domain, plan.workload
    basis = workload_basis(plan)
    observed = combine(domain, basis, measurements, tables)
    total = plan.num_records
    if total == "noisy":
        total = noisy_total(basis, observed)
    importance = importance_of(domain, basis, workload.marginals, workload.weights)
    signs = noise.signs(basis.num_coefficients)
    found = fit_maximum_entropy(basis, observed, total, importance, signs, progress)
    weights = dense_weights(basis, found.log_weights)
    misfit = basis.analyse(weights) * total - observed.values
    largest = workload.maximal()
    log_tables = log_potentials(basis, found.log_weights, [domain.axes(names) for names in largest])
    return build_release(
        name,
        plan,
        basis,
        weights,
        total,
        potentials=list(zip(largest, log_tables, strict=True)),
        measurements=measurements,
        errors=_errors(plan, basis, measurements, misfit),
        rounding_error=_ROUNDING_SHARE * found.estimated_error,
        noise=noise,
        progress=progress,
        fit={
            "steps": found.steps,
            "estimated_cell_error": found.estimated_error,
            "mismatch": found.mismatch,
            **(fit or {}),
        },
    )


def build_release(
    name: str,
    plan: Plan,
    basis: ResidualBasis,
    weights: NDArray[np.float64],
    total: int,
    *,
    potentials: Sequence[tuple[Names, NDArray[np.float64]]],
    measurements: Sequence[Measurement],
    errors: Mapping[Names, Mapping[str, float | None]],
    rounding_error: float,
    noise: NoiseSource,
    progress: Progress | None,
    fit: Mapping[str, Any],
) -> SyntheticDatabase:
    """Returns the release of a hypothesis: records are rounded from it, never drawn.

    Args:
        name: of the mechanism.
        plan: its plan.
        basis: ``workload_basis(plan)``.
        weights: the hypothesis, shape (num_cells,), sums to 1.
        total: number of records to release.
        potentials: the hypothesis once more, as log-potentials.
        measurements: what was measured.
        errors: of the marginals.
        rounding_error: root mean squared error of a cell that rounding may add, in records.
        noise: names the draw.
        progress: called with public quantities.
        fit: how the hypothesis was found.
    """
    if progress is not None:
        progress("records", 1, 1)
    importance = importance_of(plan.domain, basis, plan.workload.marginals, plan.workload.weights)
    counts = round_to_records(basis, weights, total, importance, rounding_error)
    cells = np.flatnonzero(counts)
    return SyntheticDatabase(
        domain=plan.domain,
        workload=plan.workload,
        guarantee=plan.guarantee,
        mechanism=name,
        num_records=total,
        num_records_is_public=plan.total_is_public,
        codes=plan.domain.codes(cells),
        counts=counts[cells],
        potentials=potentials,
        draw_id=noise.draw_id(),
        noise=[measurement.to_json() for measurement in measurements],
        errors=errors,
        parameters=plan.public,
        fit=fit,
    )


def noisy_total(basis: Basis, observed: NoisyCoefficients) -> int:
    """Returns the estimated number of records, from 1 to what a public number may be."""
    constant = float(observed.values[basis.slices[()]][0])
    scale = math.sqrt(squared_scale(basis, (), ()))
    return min(max(1, round(constant * scale)), MAX_RECORDS)


def marginal_table(
    domain: Domain, basis: Basis, coefficients: NDArray[np.float64], names: Names
) -> NDArray[np.float64]:
    """Returns the marginal of the table that coefficients of the whole domain describe."""
    return marginal_of(basis, coefficients, domain.axes(names))


def _errors(
    plan: Plan,
    basis: ResidualBasis,
    measurements: Sequence[Measurement],
    misfit: NDArray[np.float64],
) -> dict[Names, dict[str, float | None]]:
    """Returns, for each marginal of the workload and those inside it, its error and a bound.

    The error is that of the unbiased noisy estimate.

    The bound holds whatever the fit did: it adds the largest distance between the fitted and the
    unbiased noisy marginal, which is public, to a bound on the noise of the latter.
    """
    domain = plan.domain
    variances = support_variances(domain, basis.supports, measurements, plan.total_is_public)
    misfit = misfit.copy()
    if plan.total_is_public:
        misfit[basis.slices[()]] = 0.0
    laplace_variance = min(
        (each.variance for each in measurements if each.distribution == "discrete_laplace"),
        default=None,
    )
    errors: dict[Names, dict[str, float | None]] = {}
    for names in plan.workload.closure():
        variance = cell_variance(domain, variances, domain.axes(names))
        if not math.isfinite(variance):
            errors[names] = {"standard_error": None, "bound": None, "failure_probability": None}
            continue
        table = marginal_table(domain, basis, misfit, names)
        noise_bound = _tail(variance, table.size, laplace_variance)
        errors[names] = {
            "standard_error": math.sqrt(variance),
            "bound": float(np.abs(table).max()) + noise_bound,
            "failure_probability": _FAILURE_PROBABILITY,
        }
    return errors


def _tail(variance: float, num_cells: int, laplace_variance: float | None) -> float:
    """Returns what no cell's noise exceeds, except with the failure probability.

    A sum of discrete Gaussians is subgaussian. For a discrete Laplace noise of variance v
    E exp(tX) = 1 / (1 - v (cosh t - 1)) <= exp(0.753 v t^2) while t <= 1 and v t^2 <= 0.92,
    because cosh t - 1 <= 0.5431 t^2 and 1 / (1 - u) <= exp(2 ln(2) u) for u <= 1/2. In a weighted
    sum of variance V no weight exceeds sqrt(V / v), so the same holds with V for all
    t sqrt(V) <= min(0.959, sqrt(v)); Chernoff's bound does the rest.

    Args:
        variance: of the noise of one cell.
        num_cells: of the marginal.
        laplace_variance: smallest variance of one Laplace noise; None where all are Gaussian.
    """
    log_term = math.log(2 * num_cells / _FAILURE_PROBABILITY)
    deviation = math.sqrt(variance)
    if laplace_variance is None:
        return deviation * math.sqrt(2 * log_term)
    limit = min(0.959, math.sqrt(laplace_variance))
    if math.sqrt(log_term / 0.753) <= limit:
        return deviation * math.sqrt(4 * 0.753 * log_term)
    return deviation * (log_term / limit + 0.753 * limit)
