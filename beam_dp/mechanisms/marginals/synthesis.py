"""Turns noisy measurements into a synthetic database. This module never reads exact data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Names
from beam_dp.mechanisms.checks import Progress
from beam_dp.mechanisms.marginals import plan as plans
from beam_dp.mechanisms.marginals.measurements import closure_of
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, StartingRecords
from beam_dp.mechanisms.marginals.released_records import (
    array_release,
    loose_targets,
    many_records,
    names_of,
    noisy_total,
    outside,
    plan_basis,
    record_coefficients,
    start_log_weights,
    tolerance,
    tree_release,
    workload_pairs,
)
from beam_dp.models import basis as bases, maximum_entropy
from beam_dp.models.basis import Basis, Coefficients, Support
from beam_dp.models.candidates import CandidateBasis, candidate_basis
from beam_dp.models.denoised_attributes import denoised
from beam_dp.models.prior_fit import fit_from_prior, learned
from beam_dp.models.residual_basis import ResidualBasis
from beam_dp.models.rounding import round_systematically, round_to_records
from beam_dp.models.tree_basis import TreeBasis
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.releases.synthetic_database import measured_tables
from beam_dp.releases.synthetic_database.measured_tables import (
    MeasuredTable,
    NoisyMeasurements,
    PairDistances,
)
from beam_dp.releases.synthetic_database.release import SyntheticDatabase

if TYPE_CHECKING:
    from beam_dp.mechanisms.marginals.public_prior import PublicPrior

_FAILURE_PROBABILITY = 0.05  # the failure probability of the error bounds
# Rounding to records may add this fraction of the fit's own error.
_ROUNDING_SHARE = 0.1


def plan_candidates(
    plan: MarginalsPlan,
    layout: Coefficients,  # the coefficients of each support's own marginal
    observed: maximum_entropy.NoisyCoefficients,
    total: int,
    noise: NoiseSource,
) -> CandidateBasis:
    """Returns the basis of a hypothesis over candidate records, drawn from noisy tables."""
    importance = _importance(plan, layout)
    signs = noise.signs(layout.num_coefficients)
    return candidate_basis(
        plan.domain, layout.supports, observed, total, importance, signs, plans.MAX_CANDIDATES
    )


@dataclass(frozen=True)
class _Hypothesis:
    """A hypothesis that was fitted to noisy tables, and the records made from the hypothesis.

    ``potentials``: its log-weights; empty if the records represent it.
    """

    fit: maximum_entropy.Fit
    expected: NDArray[np.float64]  # its coefficients, in records
    codes: Sequence[NDArray[Any]]
    counts: NDArray[np.int64]
    potentials: list[tuple[Names, NDArray[np.float64]]]
    record_tables: list[Names]
    kind: dict[str, Any]  # the description for the card


def synthesise(
    plan: MarginalsPlan,
    measurements: Sequence[MeasuredTable],
    tables: Sequence[NDArray[np.float64]],  # the noisy tables, in records
    noise: NoiseSource,
    progress: Progress | None,  # is called with public quantities only
    *,
    joined: Sequence[Support] | None = None,
    num_bounded_cells: Callable[[Support], int] | None = None,
    distances: PairDistances | None = None,
    fit: Mapping[str, Any] | None = None,
    prior: PublicPrior | None = None,
) -> SyntheticDatabase:
    """Returns the release that fits noisy tables: a hypothesis, and records rounded from it.

    The hypothesis is an array if the domain is small, otherwise a junction tree if the tree is
    small, otherwise weights of at most 2^19 candidate records, for tables that need a larger tree.

    ``joined``: the attribute sets that a tree joins; by default the sets of the workload. For the
    remaining sets, only the records are fitted to the tables, and the records answer queries. If
    the domain fits an array, all sets must be joined.
    ``num_bounded_cells``: the number of cells whose bounds must be true together with the bounds of
    a marginal, if noise decided which cells were measured; by default the marginal's own cells.
    ``prior``: public records, which are then the candidates; only their weights are fitted.
    """
    domain = plan.domain
    joins_all = joined is None
    if joined is None:
        joined = [domain.axes(names) for names in plan.workload.maximal()]
    supports = closure_of(joined)
    loose = [] if joins_all else outside(supports, domain, measurements)
    layout = _layout(plan, [*joined, *loose], prior)
    observed = measured_tables.Combination(domain, layout, measurements, tables).estimate()
    total = noisy_total(layout, observed) if plan.num_records == "noisy" else plan.num_records
    asked = _Observed(plan, layout, observed, total, joined, loose, noise, progress, distances)
    many = total > plans.MAX_CANDIDATES  # then the records are copies of candidates
    few_selected = not joins_all and not many
    if prior is not None:
        made = asked.over_candidates(prior)
    elif isinstance(layout, ResidualBasis):
        made = asked.over_array(layout)
    elif not (loose and many) and (
        few_selected or plans.tree_fits(domain, joined, plans.MAX_CANDIDATE_TREE)
    ):
        made = asked.over_tree()
    else:
        made = asked.over_candidates()
    if distances is not None:
        names = [marginal for marginal, _ in made.potentials]
        pairs = [sum(len(pair) == 2 for pair in sets) for sets in (names, made.record_tables)]
        fit = {"num_joined_pairs": pairs[0], "num_other_pairs": pairs[1], **(fit or {})}
    released = made.expected
    if made.record_tables:
        released = record_coefficients(layout, made.codes, made.counts)
        released *= total / plan.num_rows(total)
    misfit = asked.misfits(made, released)
    noisy = NoisyMeasurements(tuple(measurements), tuple(tables), plan.is_fixed, distances)
    return SyntheticDatabase(
        domain=domain,
        workload=plan.workload,
        guarantee=plan.guarantee,
        mechanism=plan.mechanism,
        num_records=plan.num_rows(total),
        num_records_is_public=plan.total_is_public,
        num_represented=total if plan.num_synthetic_records else None,
        codes=made.codes,
        counts=made.counts,
        potentials=made.potentials,
        record_tables=made.record_tables,
        draw_id=noise.draw_id(),
        noise=[measurement.to_json() for measurement in measurements],
        measurements=noisy,
        errors=marginal_errors(plan, layout, noisy, misfit, num_bounded_cells),
        plan=plan.public,
        fit={**_stated_fit(plan, made), **(fit or {})},
    )


def _layout(
    plan: MarginalsPlan, sets: Iterable[Support], prior: PublicPrior | None
) -> Coefficients:
    """Returns the layout of coefficients for sets: for an array, or for each set's marginal."""
    domain = plan.domain
    if plans.fits_an_array(domain) and prior is None:
        return ResidualBasis(domain.shape, closure_of(sets))
    return bases.MarginalCoefficients(domain.shape, closure_of(sets))


def _importance(plan: MarginalsPlan, layout: Coefficients) -> NDArray[np.float64]:
    return bases.importance_of(plan.domain, layout, plan.workload.marginals, plan.workload.weights)


@dataclass(frozen=True)
class _Observed:
    """What noisy tables say, and what is fitted to it."""

    plan: MarginalsPlan
    layout: Coefficients
    observed: maximum_entropy.NoisyCoefficients
    total: int
    joined: Sequence[Support]  # by a tree
    loose: Sequence[Support]  # only the records are fitted to the tables of these sets
    noise: NoiseSource
    progress: Progress | None
    distances: PairDistances | None  # of a selection

    def over_array(self, basis: ResidualBasis) -> _Hypothesis:
        """Fits a hypothesis that is one array over the whole domain."""
        importance = _importance(self.plan, basis)
        fit = self._fitted(basis, self.observed, importance)
        rows, limit = self._rounding(fit)
        records = array_release(basis, self.plan.domain, fit.log_weights, rows, importance, limit)
        moments = basis.log_moments(fit.log_weights, math.log(basis.num_cells))[1]
        potentials = self._potentials(basis, fit)
        kind = {"hypothesis": "dense_array"}
        return _Hypothesis(fit, self.total * moments, *records, potentials, [], kind)

    def over_tree(self) -> _Hypothesis:
        """Fits a junction tree to the joined sets; fits its records to the other tables, too."""
        domain, layout, total, loose = self.plan.domain, self.layout, self.total, self.loose
        basis = plan_basis(self.plan, self.joined)
        assert isinstance(basis, TreeBasis)
        importance = _importance(self.plan, basis)
        observed = self.observed.restricted(layout, basis) if loose else self.observed
        fit = self._fitted(basis, observed, importance)
        moments = basis.log_moments(fit.log_weights)[1]
        rows, limit = self._rounding(fit)
        if rows > plans.MAX_CANDIDATES and not loose:
            wanted = rows * moments
            codes, counts = many_records(
                domain, basis, fit.log_weights, rows, wanted, importance, limit
            )
        else:
            drawn = min(rows, plans.MAX_CANDIDATES)
            targets = loose_targets(basis, fit.log_weights, total, layout, self.observed, loose)
            targets = [replace(target, table=target.table * (drawn / total)) for target in targets]
            codes, counts = tree_release(
                domain,
                basis,
                fit.log_weights,
                drawn,
                targets,
                workload_pairs(self.plan.workload),
                self.distances,
                None if self.distances is None else self._deviations(drawn / total),
            )
            counts = round_systematically(counts.astype(np.float64), rows)
        return _Hypothesis(
            fit,
            bases.carry_over(basis.slices, total * moments, layout),
            codes,
            counts,
            self._potentials(basis, fit),
            [names_of(domain, axes) for axes in loose],
            {"hypothesis": "junction_tree", "tree_cells": basis.tree.num_cells},
        )

    def over_candidates(self, prior: PublicPrior | None = None) -> _Hypothesis:
        """Fits weights of candidate records; the records rounded from the weights answer."""
        plan, observed, total = self.plan, self.observed, self.total
        if prior is None:
            basis = plan_candidates(plan, self.layout, observed, total, self.noise)
            importance = _importance(plan, basis)
            # Where noise is less than the records of a candidate, fewer candidates would fit worse.
            variances = observed.variances[observed.fitted(basis)]
            few = basis.thinned(total / math.sqrt(variances.min(initial=math.inf)))
            fit = self._fitted(few, observed, importance)
            if few is not basis:
                fit = maximum_entropy.matched(fit, few, basis, observed, total, tolerance(basis))
        else:
            basis, fit = prior.fitted(plan.workload, self.layout, observed, total)
            importance = _importance(plan, basis)
            self._report("fit", "records")
        weights = basis.weights(fit.log_weights)
        rows, limit = self._rounding(fit)
        counts = round_to_records(basis, weights, rows, importance, limit)
        kept = counts > 0
        chosen = observed.fitted(basis)
        scaled = counts.astype(np.float64) * (total / rows)
        away = (basis.analyse(scaled) - observed.values)[chosen]
        mismatch = float(np.mean(away**2 / observed.variances[chosen])) if len(chosen) else 0.0
        sets = dict.fromkeys([*self.joined, *self.loose])
        return _Hypothesis(
            replace(fit, mismatch=mismatch),
            total * basis.analyse(weights),
            tuple(column[kept] for column in basis.codes),
            counts[kept],
            [],
            [(), *(names_of(plan.domain, axes) for axes in sets)],
            {"hypothesis": "candidates"},
        )

    def misfits(
        self, made: _Hypothesis, released: NDArray[np.float64]
    ) -> Callable[[Names], NDArray[np.float64]]:
        """Returns a function of marginals: the answer's coefficients less the observed ones."""
        observed = self.observed.values
        by_hypothesis, by_records = made.expected - observed, released - observed
        if self.plan.total_is_public:
            constant = self.layout.slices[()]
            by_hypothesis[constant] = by_records[constant] = 0.0

        def misfit(names: Names) -> NDArray[np.float64]:
            is_loose = any(set(table) <= set(names) for table in made.record_tables)
            return by_records if is_loose else by_hypothesis

        return misfit

    def _deviations(self, scale: float) -> dict[Support, float]:
        """Returns the standard deviation of a cell's noise in each residual, times a scale."""
        variances = self.observed.variances
        return {
            axes: scale * math.sqrt(variances[where].mean())
            for axes, where in self.layout.slices.items()
            if where.stop > where.start
        }

    def _rounding(self, fit: maximum_entropy.Fit) -> tuple[int, float]:
        """Returns the number of released records, and the error that rounding may leave in them."""
        rows = self.plan.num_rows(self.total)
        return rows, _ROUNDING_SHARE * fit.estimated_error * rows / self.total

    def _potentials(
        self, basis: Basis, fit: maximum_entropy.Fit
    ) -> list[tuple[Names, NDArray[np.float64]]]:
        """Returns the tables of log-weights to release."""
        names = (names_of(self.plan.domain, axes) for axes in self.joined)
        tables = bases.log_potentials(basis, fit.log_weights, self.joined)
        return [*zip(names, tables, strict=True)]

    def _report(self, *steps: str) -> None:
        if self.progress is not None:
            for step in steps:
                self.progress(step, 1, 1)

    def _fitted(
        self,
        basis: Basis,
        observed: maximum_entropy.NoisyCoefficients,
        importance: NDArray[np.float64],
    ) -> maximum_entropy.Fit:
        """Returns the hypothesis that fits the observations, with long attributes denoised.

        If the plan has records to start from, the noisy tables decide by their likelihood between
        these records and independent attributes.
        """
        signs = self.noise.signs(basis.num_coefficients)
        if self.plan.start_from is not None and self.plan.starts_fits:
            start = self.plan.start_from
            fit = _fitted_from(start, basis, observed, self.total, importance, signs)
            if fit is not None:
                self._report("fit", "records")
                return fit
        fit = maximum_entropy.fit_maximum_entropy(
            basis,
            observed,
            self.total,
            importance,
            signs,
            self.progress,
            tolerance(basis),
            denoise=lambda each: denoised(self.plan.domain, basis, each, self.total),
        )
        self._report("records")
        return fit


def _fitted_from(
    start: StartingRecords,
    basis: Basis,
    observed: maximum_entropy.NoisyCoefficients,
    total: int,
    importance: NDArray[np.float64],
    signs: NDArray[np.float64],
) -> maximum_entropy.Fit | None:
    """Returns the fit with records as a prior; None if independent attributes are more likely."""
    number = float(start.counts.sum())
    prior = start_log_weights(start, basis, importance, signs, tolerance(basis))
    posterior = learned(basis, observed, total, prior, number)
    independent = maximum_entropy.independent_log_weights(basis, observed, total)
    if learned(basis, observed, total, independent, number).misfit <= posterior.misfit:
        return None
    return fit_from_prior(basis, observed, total, importance, prior, posterior, tolerance(basis))


def _stated_fit(plan: MarginalsPlan, made: _Hypothesis) -> dict[str, Any]:
    """Returns the description of the hypothesis and of its fit for the card."""
    fit, kind = made.fit, dict(made.kind)
    if plan.start_from is not None and plan.starts_fits:
        kind["start_was_used"] = fit.is_from_start
    return {
        **kind,
        "steps": fit.steps,
        "estimated_cell_error": fit.estimated_error,
        "mismatch": fit.mismatch,
    }


def marginal_errors(
    plan: MarginalsPlan,
    layout: bases.Coefficients,
    measured: NoisyMeasurements,
    misfit: Callable[[Names], NDArray[np.float64]],
    num_bounded_cells: Callable[[Support], int] | None,
) -> dict[Names, dict[str, float | None]]:
    """Returns the error and a bound for each marginal of the workload and its sub-marginals.

    The error is the standard error of the unbiased noisy estimate. The bound is valid for any fit:
    it adds the largest distance between the answer and the unbiased noisy marginal, which is
    public, to a bound on the noise of that marginal. The bound on the noise is valid for any noisy
    choice of measurements (``NoiseBounds``), for all cells that might have been measured.

    ``layout``: the positions of the coefficients that ``misfit`` returns.
    ``misfit``: returns the answer's coefficients less the unbiased noisy ones, in records.
    ``num_bounded_cells``: as in ``synthesise``.
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
        cells = num_bounded_cells(domain.axes(names)) if num_bounded_cells else table.size
        of_noise = bounds.of(domain.axes(names), variance, cells, _FAILURE_PROBABILITY)
        errors[names] = {
            "standard_error": math.sqrt(variance),
            "bound": float(np.abs(table).max()) + of_noise,
            "failure_probability": _FAILURE_PROBABILITY,
        }
    return errors
