"""From noisy measurements to a release. Nothing here touches exact data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
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
from beam_dp.hypotheses.residual_basis import ResidualBasis, Support
from beam_dp.hypotheses.rounding import round_to_records
from beam_dp.hypotheses.tree_basis import TreeBasis
from beam_dp.hypotheses.tree_records import tree_records
from beam_dp.mechanisms.measurements import (
    Measurement,
    Names,
    cell_variance,
    closure_of,
    combine,
    importance_of,
    support_variances,
)
from beam_dp.mechanisms.plan import Plan, Progress, fits_an_array, max_records
from beam_dp.noise import NoiseSource
from beam_dp.releases import SyntheticDatabase
from beam_dp.releases.records import distinct_records

_FAILURE_PROBABILITY = 0.05
# Rounding to records may add this share of the fit's own error.
_ROUNDING_SHARE = 0.1


def plan_basis(plan: Plan, sets: Iterable[Support] | None = None) -> Basis:
    """Returns the coefficients of a hypothesis, for a domain of any size.

    Small domains are one array. Above 2^26 cells, or where the domain declares impossible
    combinations, they are a junction tree.

    Args:
        plan: of the release.
        sets: attribute sets, as ascending axes, with whatever lies inside them; by default all
            of the workload's.
    """
    domain = plan.domain
    if sets is None:
        sets = [domain.axes(names) for names in plan.workload.maximal()]
    supports = closure_of(sets)
    if fits_an_array(domain):
        return ResidualBasis(domain.shape, supports)
    impossible = [(each.axes, each.mask(domain.shape)) for each in domain.impossible]
    return TreeBasis(domain.shape, supports, impossible)


def synthesise(
    name: str,
    plan: Plan,
    measurements: Sequence[Measurement],
    tables: Sequence[NDArray[np.float64]],
    noise: NoiseSource,
    progress: Progress | None,
    *,
    sets: Sequence[Support] | None = None,
    num_bounded_cells: int | None = None,
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
        sets: the attribute sets that the hypothesis joins; by default those of the workload.
        num_bounded_cells: cells whose bounds must hold together, where noise decided which of
            them were measured; by default those of each marginal alone.
        fit: what the mechanism has to say about how it went, for the card.
    """
    domain, workload = plan.domain, plan.workload
    basis = plan_basis(plan, sets)
    observed = combine(domain, basis, measurements, tables)
    total = plan.num_records
    if total == "noisy":
        total = noisy_total(domain, basis, observed)
    importance = importance_of(domain, basis, workload.marginals, workload.weights)
    signs = noise.signs(basis.num_coefficients)
    found = fit_maximum_entropy(basis, observed, total, importance, signs, progress)
    _, moments = basis.log_moments(found.log_weights, math.log(basis.num_cells))
    if sets is None:
        sets = [domain.axes(names) for names in workload.maximal()]
    names_of = [tuple(domain.names[axis] for axis in axes) for axes in sets]
    log_tables = log_potentials(basis, found.log_weights, sets)
    return build_release(
        name,
        plan,
        basis,
        found.log_weights,
        total,
        potentials=list(zip(names_of, log_tables, strict=True)),
        measurements=measurements,
        errors=_errors(
            plan, basis, measurements, moments * total - observed.values, num_bounded_cells
        ),
        rounding_error=_ROUNDING_SHARE * found.estimated_error,
        noise=noise,
        progress=progress,
        fit={
            **describe_basis(basis),
            "steps": found.steps,
            "estimated_cell_error": found.estimated_error,
            "mismatch": found.mismatch,
            **(fit or {}),
        },
    )


def describe_basis(basis: Basis) -> dict[str, Any]:
    """Returns how the hypothesis is represented, for the card."""
    if isinstance(basis, TreeBasis):
        return {"hypothesis": "junction_tree", "tree_cells": basis.tree.num_cells}
    return {"hypothesis": "dense_array"}


def build_release(
    name: str,
    plan: Plan,
    basis: Basis,
    log_weights: NDArray[np.float64],
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
        basis: of the log-weights.
        log_weights: the hypothesis, shape (num_coefficients,).
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
    codes, counts = records_of(plan.domain, basis, log_weights, total, importance, rounding_error)
    return SyntheticDatabase(
        domain=plan.domain,
        workload=plan.workload,
        guarantee=plan.guarantee,
        mechanism=name,
        num_records=total,
        num_records_is_public=plan.total_is_public,
        codes=codes,
        counts=counts,
        potentials=potentials,
        draw_id=noise.draw_id(),
        noise=[measurement.to_json() for measurement in measurements],
        errors=errors,
        parameters=plan.public,
        fit=fit,
    )


def records_of(
    domain: Domain,
    basis: Basis,
    log_weights: NDArray[np.float64],
    num_records: int,
    importance: NDArray[np.float64],
    max_error: float,
) -> tuple[Sequence[NDArray[Any]], NDArray[np.int64]]:
    """Returns records that are close to a hypothesis: distinct ones as codes, and their counts.

    Args:
        domain: the universe.
        basis: of the log-weights.
        log_weights: the hypothesis, shape (num_coefficients,).
        num_records: >= 0.
        importance: of the coefficients, shape (num_coefficients,).
        max_error: root of the weighted squared error, in records, at which to stop improving.
    """
    if isinstance(basis, ResidualBasis):
        weights = dense_weights(basis, log_weights)
        counts = round_to_records(basis, weights, num_records, importance, max_error)
        cells = np.flatnonzero(counts)
        return domain.codes(cells), counts[cells]
    assert isinstance(basis, TreeBasis)
    basis.calibrate(log_weights)
    codes = tree_records(basis.tree, num_records)
    return distinct_records(domain, list(codes))


def noisy_total(domain: Domain, basis: Basis, observed: NoisyCoefficients) -> int:
    """Returns the estimated number of records, from 1 to what a public number may be."""
    constant = float(observed.values[basis.slices[()]][0])
    scale = math.sqrt(squared_scale(basis, (), ()))
    return min(max(1, round(constant * scale)), max_records(domain))


def marginal_table(
    domain: Domain, basis: Basis, coefficients: NDArray[np.float64], names: Names
) -> NDArray[np.float64]:
    """Returns the marginal of the table that coefficients of the whole domain describe."""
    return marginal_of(basis, coefficients, domain.axes(names))


def _errors(
    plan: Plan,
    basis: Basis,
    measurements: Sequence[Measurement],
    misfit: NDArray[np.float64],
    num_bounded_cells: int | None,
) -> dict[Names, dict[str, float | None]]:
    """Returns, for each marginal of the workload and those inside it, its error and a bound.

    The error is that of the unbiased noisy estimate.

    The bound holds whatever the fit did: it adds the largest distance between the fitted and the
    unbiased noisy marginal, which is public, to a bound on the noise of the latter.
    """
    domain = plan.domain
    closure = plan.workload.closure()
    supports = [domain.axes(names) for names in closure]
    variances = support_variances(domain, supports, measurements, plan.total_is_public)
    misfit = misfit.copy()
    if plan.total_is_public:
        misfit[basis.slices[()]] = 0.0
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
        table = marginal_table(domain, basis, misfit, names)
        noise_bound = _tail(variance, num_bounded_cells or table.size, laplace_variance)
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
        num_cells: that the bound holds for at once.
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
