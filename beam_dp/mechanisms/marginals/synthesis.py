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
from beam_dp.mechanisms.marginals.measurements import Measurement, Names, closure_of
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, StartingRecords, fits_an_array
from beam_dp.models import basis as bases, maximum_entropy
from beam_dp.models.basis import Basis, Support
from beam_dp.models.denoised_attributes import denoised
from beam_dp.models.junction_tree import tree_records
from beam_dp.models.record_moves import Target, improve_records
from beam_dp.models.residual_basis import ResidualBasis
from beam_dp.models.rounding import round_systematically, round_to_records
from beam_dp.models.tree_basis import TreeBasis
from beam_dp.noise.source import NoiseSource
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database import measured_tables
from beam_dp.releases.synthetic_database.measured_tables import NoisyMeasurements, PairDistances
from beam_dp.releases.synthetic_database.records import distinct_records
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
    layout = (
        bases.MarginalCoefficients(domain.shape, closure_of([*joined, *loose])) if loose else basis
    )
    everything = measured_tables.Combination(domain, layout, measurements, tables).estimate()
    observed = everything if layout is basis else everything.restricted(layout, basis)
    total = noisy_total(basis, observed) if plan.num_records == "noisy" else plan.num_records
    importance = bases.importance_of(domain, basis, workload.marginals, workload.weights)
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
    expected = bases.carry_over(basis.slices, moments, layout)
    released = record_coefficients(layout, codes, counts) if loose else expected
    record_tables = [names_of(domain, axes) for axes in loose]
    misfit = _misfits(plan, layout, everything.values, expected, released, record_tables)
    log_tables = bases.log_potentials(basis, found.log_weights, joined)
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
    observed: maximum_entropy.NoisyCoefficients,
    total: int,
    importance: NDArray[np.float64],
    noise: NoiseSource,
    progress: Progress | None,
) -> maximum_entropy.Fit:
    """Returns the hypothesis that fits what was observed, of long attributes less of its noise."""
    signs, start = noise.signs(basis.num_coefficients), None
    if plan.start_from is not None:
        start = start_log_weights(plan.start_from, basis, importance, signs, tolerance(basis))
    return maximum_entropy.fit_maximum_entropy(
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
) -> tuple[maximum_entropy.NoisyCoefficients, int, NDArray[np.float64]]:
    """Returns what noisy tables say of a basis, and the hypothesis of independent attributes.

    Returns:
        The coefficients, of long attributes less of their noise; the number of records, noisy or
        public; and the log-weights, shape (num_coefficients,).
    """
    observed = measured_tables.Combination(plan.domain, basis, measurements, tables).estimate()
    total = noisy_total(basis, observed) if plan.num_records == "noisy" else plan.num_records
    observed = denoised(plan.domain, basis, observed, total)
    return observed, total, maximum_entropy.independent_log_weights(basis, observed, total)


def _outside(basis: Basis, domain: Domain, measurements: Sequence[Measurement]) -> list[Support]:
    """Returns the measured sets of attributes that a hypothesis does not join."""
    measured = [domain.axes(measurement.names) for measurement in measurements]
    return [axes for axes in dict.fromkeys(measured) if axes not in basis.slices]


def _misfits(
    plan: MarginalsPlan,
    layout: bases.Coefficients,
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


def _stated_fit(plan: MarginalsPlan, basis: Basis, found: maximum_entropy.Fit) -> dict[str, Any]:
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


def noisy_total(basis: Basis, observed: maximum_entropy.NoisyCoefficients) -> int:
    """Returns the estimated number of records, from 1 to what a public number may be."""
    constant = float(observed.values[basis.slices[()]][0])
    scale = math.sqrt(bases.squared_scale(basis, (), ()))
    return min(max(1, round(constant * scale)), MAX_RECORDS)


def marginal_errors(
    plan: MarginalsPlan,
    layout: bases.Coefficients,
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
    variances = measured_tables.support_variances(
        domain, supports, measured.described, plan.total_is_public
    )
    bounds = measured.bounds(domain, plan.total_is_public)
    errors: dict[Names, dict[str, float | None]] = {}
    for names in closure:
        variance = measured_tables.cell_variance(domain, variances, domain.axes(names))
        if not math.isfinite(variance):
            errors[names] = {"standard_error": None, "bound": None, "failure_probability": None}
            continue
        table = bases.marginal_of(layout, misfit(names), domain.axes(names))
        of_noise = bounds.of(
            domain.axes(names), variance, num_bounded_cells or table.size, _FAILURE_PROBABILITY
        )
        errors[names] = {
            "standard_error": math.sqrt(variance),
            "bound": float(np.abs(table).max()) + of_noise,
            "failure_probability": _FAILURE_PROBABILITY,
        }
    return errors


Records = tuple[Sequence[NDArray[Any]], NDArray[np.int64]]

# More records than this are copies of so many candidates: moving each would take hours, and the
# rounding of so many disappears in any noise.
MAX_CANDIDATES = 2**20
# Each lowers the error less than the one before; after three answers no longer come closer to the
# truth: what is left to fit is noise.
_NUM_SWEEPS = 3


def array_release(
    basis: ResidualBasis,
    domain: Domain,
    log_weights: NDArray[np.float64],
    num_records: int,
    importance: NDArray[np.float64],
    max_error: float,
) -> Records:
    """Returns the distinct records rounded from a dense hypothesis, and their counts.

    ``log_weights``: the hypothesis, shape (num_coefficients,).
    ``importance``: of the coefficients, shape (num_coefficients,).
    ``max_error``: root of the weighted squared error, in records, that rounding may leave.
    """
    weights = basis.weights(log_weights)
    counts = round_to_records(basis, weights, num_records, importance, max_error)
    cells = np.flatnonzero(counts)
    return domain.codes(cells), counts[cells]


def tree_release(
    domain: Domain,
    basis: TreeBasis,
    log_weights: NDArray[np.float64],
    num_records: int,
    loose: Sequence[Target],
    pairs: Sequence[Support],
) -> Records:
    """Returns the distinct records of a hypothesis over a junction tree, and their counts.

    Records are made from the tree, and moved towards the tables that it joins and those that it
    does not. Whole records that fit all of them at once leave out much of the noise. So that
    pairs which no table holds do not go astray meanwhile, they are kept at what the tree says.

    ``log_weights``: the hypothesis, shape (num_coefficients,).
    ``loose``: tables that the tree does not join, in records.
    """
    joined = zip(basis.sets, basis.marginals(log_weights, basis.sets), strict=True)
    num_candidates = min(num_records, MAX_CANDIDATES)
    share = num_candidates / max(num_records, 1)
    targets = [Target(axes, table * num_candidates, 1.0) for axes, table in joined]
    targets += [Target(each.axes, each.table * share, each.weight) for each in loose]
    held = {pair for each in targets for pair in combinations(each.axes, 2)}
    others = [pair for pair in pairs if pair not in held]
    tables = zip(others, basis.marginals(log_weights, others), strict=True)
    targets += [Target(axes, table * num_candidates, 1.0) for axes, table in tables]
    impossible = [(each.axes, each.mask(domain.shape)) for each in domain.impossible]
    codes = tree_records(basis.tree, num_candidates)
    _leave_out_impossible(domain, codes)
    improve_records(domain.shape, codes, targets, 0.0, _NUM_SWEEPS, impossible)
    distinct, counts = distinct_records(domain, list(codes))
    if num_candidates < num_records:
        counts = round_systematically(counts.astype(np.float64), num_records)
        distinct = tuple(column[counts > 0] for column in distinct)
    return distinct, counts[counts > 0]


def _leave_out_impossible(domain: Domain, codes: NDArray[np.int32]) -> None:
    """Replaces impossible records by copies of others, in place.

    A tree gives them no weight, but its tables may round to nothing where they meet.
    """
    if not domain.impossible:
        return
    matches = np.logical_or.reduce([each.matches(list(codes)) for each in domain.impossible])
    wrong, right = np.flatnonzero(matches), np.flatnonzero(~matches)
    if len(wrong) and len(right):
        codes[:, wrong] = codes[:, np.resize(right, len(wrong))]


def loose_targets(
    basis: TreeBasis,
    log_weights: NDArray[np.float64],
    total: int,
    layout: bases.Coefficients,
    observed: maximum_entropy.NoisyCoefficients,
    loose: Sequence[Support],
) -> list[Target]:
    """Returns what records should say of measured tables that the tree does not join.

    The hypothesis's own table is moved towards the noisy one: each cell as far as its difference is
    expected to exceed noise, if what all of them exceed it by is shared out by the squares of the
    counts; the whole way where it is further off than noise takes any cell.

    ``log_weights``: the hypothesis, shape (num_coefficients,).
    ``observed``: everything observed, in records.
    """
    targets = []
    for axes, weights in zip(loose, basis.marginals(log_weights, loose), strict=True):
        table = total * weights
        where = layout.slices[axes]
        difference = observed.values[where] - bases.table_coefficients(table)
        of_all = float(observed.variances[where].sum())
        targets.append(Target(axes, table + _less_noise(table, difference, of_all), 1.0))
    return targets


def _less_noise(
    table: NDArray[np.float64], difference: NDArray[np.float64], noise: float
) -> NDArray[np.float64]:
    """Returns how far the cells of a table are believed to be from noisy ones.

    ``table``: of the hypothesis, in records.
    ``difference``: coefficients of the noisy table less its own, in records.
    """
    cells = bases.coefficients_table(difference, table.shape)
    of_cell = noise / table.size
    beyond = max(float(difference @ difference) - noise, 0.0)
    squares = table * table
    prior = beyond * squares / max(float(squares.sum()), np.finfo(float).tiny)
    kept = prior / np.maximum(prior + of_cell, np.finfo(float).tiny)
    return np.where(beyond_noise(cells, of_cell), cells, kept * cells)


def beyond_noise(cells: NDArray[np.float64], variance: float) -> NDArray[np.bool_]:
    """Returns which cells are larger than noise alone would make the largest of them.

    Reference: Donoho and Johnstone (1994), the universal threshold.
    """
    return np.abs(cells) > math.sqrt(2 * math.log(cells.size) * variance)


def record_coefficients(
    layout: bases.Coefficients, codes: Sequence[NDArray[Any]], counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Returns the coefficients of released records, shape (num_coefficients,), in records."""
    result = np.empty(layout.num_coefficients)
    for support, where in layout.slices.items():
        shape = [layout.shape[axis] for axis in support]
        cells = np.zeros(len(counts), dtype=np.int64)
        for axis in support:
            cells = cells * layout.shape[axis] + codes[axis]
        table = np.bincount(cells, weights=counts, minlength=math.prod(shape))
        result[where] = bases.table_coefficients(table.astype(np.float64).reshape(shape))
    return result


# Noisy tables correct a start: it need not be solved as well as the fit, in five times the time.
_COARSER = 30


def start_log_weights(
    start: StartingRecords,
    basis: Basis,
    importance: NDArray[np.float64],
    signs: NDArray[np.float64],
    tolerance: float,
) -> NDArray[np.float64]:
    """Returns the hypothesis that fits given records alone, shape (num_coefficients,).

    They are a sample: the hypothesis keeps what is not due to chance, as if each coefficient had
    the variance that it has among that many records with independent attributes.

    ``importance``: of the coefficients, shape (num_coefficients,).
    ``signs``: shape (num_coefficients,), independent fair signs.
    """
    total = int(start.counts.sum())
    values = record_coefficients(basis, start.codes, start.counts)
    for support, where in basis.slices.items():
        values[where] /= np.sqrt(basis.cells_summed(support))
    independent = np.zeros_like(values)  # uniform, then as these records are
    for _ in range(2):
        variances = total * maximum_entropy.independent_variances(basis, independent)
        sample = maximum_entropy.NoisyCoefficients(values, variances)
        independent = maximum_entropy.independent_log_weights(basis, sample, total)
    found = maximum_entropy.fit_maximum_entropy(
        basis, sample, total, importance, signs, tolerance=_COARSER * tolerance
    )
    return found.log_weights
