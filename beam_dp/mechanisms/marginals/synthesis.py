"""From noisy measurements to a synthetic database. Nothing here touches exact data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.checks import MAX_RECORDS, Progress
from beam_dp.mechanisms.marginals.measurements import (
    Measurement,
    Names,
    closure_of,
)
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, fits_an_array
from beam_dp.mechanisms.marginals.released_records import (
    array_release,
    loose_targets,
    record_coefficients,
    tree_release,
)
from beam_dp.models.basis import (
    Basis,
    Coefficients,
    MarginalCoefficients,
    carry_over,
    importance_of,
    log_potentials,
    marginal_of,
    squared_scale,
)
from beam_dp.models.denoised_attributes import denoised
from beam_dp.models.maximum_entropy import (
    Fit,
    NoisyCoefficients,
    fit_maximum_entropy,
    independent_log_weights,
)
from beam_dp.models.residual_basis import ResidualBasis, Support
from beam_dp.models.tree_basis import TreeBasis
from beam_dp.noise.source import NoiseSource
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database.measured_tables import (
    Combination,
    cell_variance,
    support_variances,
)
from beam_dp.releases.synthetic_database.noisy_measurements import NoisyMeasurements, PairDistances
from beam_dp.releases.synthetic_database.release import SyntheticDatabase

_FAILURE_PROBABILITY = 0.05  # of the bounds of errors
# Rounding to records may add this share of the fit's own error.
_ROUNDING_SHARE = 0.1
# Over a tree there are many coefficients: a third of the passes costs about 1 % of accuracy.
_ARRAY_TOLERANCE = 1e-6
_TREE_TOLERANCE = 1e-5


def plan_basis(
    plan: MarginalsPlan, sets: Iterable[Support] | None = None
) -> ResidualBasis | TreeBasis:
    """Returns the coefficients of a hypothesis, for a domain of any size.

    Small domains are one array. Above 2^26 cells, or where the domain declares impossible
    combinations, they are a junction tree.

    ``sets``: attribute sets, as ascending axes, with whatever lies inside them; by default all
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
    plan: MarginalsPlan,
    measurements: Sequence[Measurement],
    tables: Sequence[NDArray[np.float64]],
    noise: NoiseSource,
    progress: Progress | None,
    *,
    joined: Sequence[Support] | None = None,
    num_bounded_cells: int | None = None,
    distances: PairDistances | None = None,
    fit: Mapping[str, Any] | None = None,
) -> SyntheticDatabase:
    """Returns the release that fits noisy tables: a hypothesis, and records rounded from it.

    ``tables``: the noisy tables, in records.
    ``progress``: called with public quantities.
    ``joined``: the attribute sets that the hypothesis joins; by default those of the workload.
    What was measured of others is left to the records, which answer for it: only those of a
    tree are fitted to it, so a domain that fits an array must join all of them.
    ``num_bounded_cells``: cells whose bounds must hold together, where noise decided which of
    them were measured; by default those of each marginal alone.
    """
    domain, workload = plan.domain, plan.workload
    joins_all = joined is None
    if joined is None:
        joined = [domain.axes(names) for names in workload.maximal()]
    basis = plan_basis(plan, joined)
    loose = [] if joins_all else _outside(basis, domain, measurements)
    layout = MarginalCoefficients(domain.shape, closure_of([*joined, *loose])) if loose else basis
    everything = Combination(domain, layout, measurements, tables).estimate()
    observed = everything if layout is basis else everything.restricted(layout, basis)
    total = noisy_total(basis, observed) if plan.num_records == "noisy" else plan.num_records
    importance = importance_of(domain, basis, workload.marginals, workload.weights)
    found = _fitted(plan, basis, observed, total, importance, noise, progress)
    if progress is not None:
        progress("records", 1, 1)
    if isinstance(basis, ResidualBasis):
        most = _ROUNDING_SHARE * found.estimated_error
        codes, counts = array_release(basis, domain, found.log_weights, total, importance, most)
    else:
        targets = loose_targets(basis, found.log_weights, total, layout, everything, loose)
        codes, counts = tree_release(
            domain, basis, found.log_weights, total, targets, workload_pairs(workload)
        )
    moments = total * basis.log_moments(found.log_weights, math.log(basis.num_cells))[1]
    expected = carry_over(basis.slices, moments, layout)
    released = record_coefficients(layout, codes, counts) if loose else expected
    record_tables = [names_of(domain, axes) for axes in loose]
    misfit = _misfits(plan, layout, everything.values, expected, released, record_tables)
    log_tables = log_potentials(basis, found.log_weights, joined)
    held = NoisyMeasurements(tuple(measurements), tuple(tables), plan.is_fixed, distances)
    return SyntheticDatabase(
        domain=domain,
        workload=workload,
        guarantee=plan.guarantee,
        mechanism=plan.mechanism,
        num_records=total,
        num_records_is_public=plan.total_is_public,
        codes=codes,
        counts=counts,
        potentials=[*zip((names_of(domain, axes) for axes in joined), log_tables, strict=True)],
        record_tables=record_tables,
        draw_id=noise.draw_id(),
        noise=[measurement.to_json() for measurement in measurements],
        measurements=held,
        errors=marginal_errors(plan, layout, held, misfit, num_bounded_cells),
        plan=plan.public,
        fit={**_stated_fit(plan, basis, found), **(fit or {})},
    )


def _fitted(
    plan: MarginalsPlan,
    basis: Basis,
    observed: NoisyCoefficients,
    total: int,
    importance: NDArray[np.float64],
    noise: NoiseSource,
    progress: Progress | None,
) -> Fit:
    """Returns the hypothesis that fits what was observed, of long attributes less of its noise."""
    signs, start = noise.signs(basis.num_coefficients), None
    if plan.start_from is not None:
        start = plan.start_from.log_weights(basis, importance, signs, tolerance(basis))
    return fit_maximum_entropy(
        basis,
        observed,
        total,
        importance,
        signs,
        progress,
        tolerance(basis),
        denoise=lambda each: denoised(plan.domain, basis, each, total),
        start=start,
    )


def workload_pairs(workload: Workload) -> list[Support]:
    """Returns the pairs of attributes that some marginal of a workload holds."""
    axes = (workload.domain.axes(names) for names in workload)
    return sorted({pair for each in axes for pair in combinations(each, 2)})


def independent_start(
    plan: MarginalsPlan,
    basis: Basis,
    measurements: Sequence[Measurement],
    tables: Sequence[NDArray[np.float64]],
) -> tuple[NoisyCoefficients, int, NDArray[np.float64]]:
    """Returns what noisy tables say of a basis, and the hypothesis of independent attributes.

    Returns:
        The coefficients, of long attributes less of their noise; the number of records, noisy or
        public; and the log-weights, shape (num_coefficients,).
    """
    observed = Combination(plan.domain, basis, measurements, tables).estimate()
    total = noisy_total(basis, observed) if plan.num_records == "noisy" else plan.num_records
    observed = denoised(plan.domain, basis, observed, total)
    return observed, total, independent_log_weights(basis, observed, total)


def _outside(basis: Basis, domain: Domain, measurements: Sequence[Measurement]) -> list[Support]:
    """Returns the measured sets of attributes that a hypothesis does not join."""
    measured = [domain.axes(measurement.names) for measurement in measurements]
    return [axes for axes in dict.fromkeys(measured) if axes not in basis.slices]


def _misfits(
    plan: MarginalsPlan,
    layout: Coefficients,
    observed: NDArray[np.float64],
    expected: NDArray[np.float64],
    released: NDArray[np.float64],
    record_tables: Sequence[Names],
) -> Callable[[Names], NDArray[np.float64]]:
    """Returns how far what answers for a marginal is from what was observed of it.

    ``observed``: from the noisy tables, in records.
    """
    by_hypothesis, by_records = expected - observed, released - observed
    if plan.total_is_public:
        by_hypothesis[layout.slices[()]] = by_records[layout.slices[()]] = 0.0

    def misfit(names: Names) -> NDArray[np.float64]:
        is_loose = any(set(held) <= set(names) for held in record_tables)
        return by_records if is_loose else by_hypothesis

    return misfit


def tolerance(basis: Basis) -> float:
    """Returns the nats a coefficient within which a fit is solved."""
    return _TREE_TOLERANCE if isinstance(basis, TreeBasis) else _ARRAY_TOLERANCE


def _stated_fit(plan: MarginalsPlan, basis: Basis, found: Fit) -> dict[str, Any]:
    """Returns what the hypothesis is and how it was found, for the card."""
    kind: dict[str, Any] = {"hypothesis": "dense_array"}
    if isinstance(basis, TreeBasis):
        kind = {"hypothesis": "junction_tree", "tree_cells": basis.tree.num_cells}
    if plan.start_from is not None:
        kind["start_was_used"] = found.is_from_start
    return {
        **kind,
        "steps": found.steps,
        "estimated_cell_error": found.estimated_error,
        "mismatch": found.mismatch,
    }


def names_of(domain: Domain, axes: Support) -> Names:
    """Returns the names of some axes."""
    return tuple(domain.names[axis] for axis in axes)


def noisy_total(basis: Basis, observed: NoisyCoefficients) -> int:
    """Returns the estimated number of records, from 1 to what a public number may be."""
    constant = float(observed.values[basis.slices[()]][0])
    scale = math.sqrt(squared_scale(basis, (), ()))
    return min(max(1, round(constant * scale)), MAX_RECORDS)


def marginal_errors(
    plan: MarginalsPlan,
    layout: Coefficients,
    measured: NoisyMeasurements,
    misfit: Callable[[Names], NDArray[np.float64]],
    num_bounded_cells: int | None,
) -> dict[Names, dict[str, float | None]]:
    """Returns, for each marginal of the workload and those inside it, its error and a bound.

    The error is that of the unbiased noisy estimate.

    The bound holds whatever the fit did: it adds the largest distance between the answer and the
    unbiased noisy marginal, which is public, to a bound on the noise of the latter. That holds
    whatever noise chose to measure (``NoiseBounds``), for all cells that might have been.

    ``layout``: where the coefficients of ``misfit`` stand.
    ``misfit``: for a marginal, the coefficients of the answers less the unbiased noisy ones, in
    records.
    ``num_bounded_cells``: cells whose bounds must hold together, where noise decided which of
    them were measured; by default those of each marginal alone.
    """
    domain = plan.domain
    closure = plan.workload.closure()
    supports = [domain.axes(names) for names in closure]
    variances = support_variances(domain, supports, measured.described, plan.total_is_public)
    bounds = measured.bounds(domain, plan.total_is_public)
    errors: dict[Names, dict[str, float | None]] = {}
    for names in closure:
        variance = cell_variance(domain, variances, domain.axes(names))
        if not math.isfinite(variance):
            errors[names] = {"standard_error": None, "bound": None, "failure_probability": None}
            continue
        table = marginal_of(layout, misfit(names), domain.axes(names))
        of_noise = bounds.of(
            domain.axes(names), variance, num_bounded_cells or table.size, _FAILURE_PROBABILITY
        )
        errors[names] = {
            "standard_error": math.sqrt(variance),
            "bound": float(np.abs(table).max()) + of_noise,
            "failure_probability": _FAILURE_PROBABILITY,
        }
    return errors
