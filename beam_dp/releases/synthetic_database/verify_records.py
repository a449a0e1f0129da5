"""Whether the records of a synthetic database, and its fit, follow from its noisy tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer, checked_number
from beam_dp.models.basis import (
    MarginalCoefficients,
    importance_of,
    squared_scale,
    table_coefficients,
)
from beam_dp.models.elimination import num_clique_cells
from beam_dp.models.maximum_entropy import NoisyCoefficients
from beam_dp.models.potentials import marginal_weights
from beam_dp.models.residual_basis import ResidualBasis
from beam_dp.models.rounding import round_to_records
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database.measured_tables import Combination, MeasuredTable
from beam_dp.releases.synthetic_database.noisy_measurements import NoisyMeasurements
from beam_dp.releases.synthetic_database.release import Names, SyntheticDatabase
from beam_dp.verification.verdict import Figures, check_fields

_FIT = ("hypothesis", "steps", "estimated_cell_error", "mismatch")
_PAIRS, _ADDED = ("num_joined_pairs", "num_other_pairs"), "num_added_pairs"
# Rounding stops at this share of the error of the fit, which the noise bounds but for chance.
_ROUNDING_SHARE = 0.1
_CHANCE = 2.0
_ONE_RECORD = 1.0
_MAX_CELLS = 2**26  # of an array
# Records are made from at most this many candidates.
_MAX_CANDIDATES = 2**20
_FALSE_ALARM = 1e-9
# Of a mean of squares, where floating point takes differences.
_ROUNDING = 1e-6
_MAX_RECORDS = 2**40


def record_figures(release: SyntheticDatabase, figures: Figures) -> None:
    """Compares the records, and how many they are, with the hypothesis and with the noisy tables.

    The hypothesis is public, and the records are rounded from it: they may not say more. Rounding
    an array stops at a tenth of the error of the fit, or where it gets no further. So the error
    of the records, weighted as the workload says, may be twice that tenth, or twice what rounding
    once more leaves. Of a tree no table may have a cell that is twice as far from the records as
    records drawn independently are, except with probability 1e-9.
    """
    measured = release.measurements
    noise = loose_distance = 0.0
    if measured is not None:
        observed, layout = _observed(release, measured)
        _number_figures(release, observed, layout, figures)
        noise = _fit_figures(release, observed, layout, figures)
        loose_distance = _loose_distance(release, observed, layout)
    if not release.potentials:
        return
    marginals = [set(names) for names in release.workload]
    for names, _ in release.potentials:
        is_asked = any(marginal.issuperset(names) for marginal in marginals) or len(names) < 2
        figures.equal(f"hypothesis of {','.join(names)} is asked for", is_asked, True)
    is_rounded = measured is not None or release.plan.get("strategy") == "textbook"
    if is_rounded and "tree_cells" not in release.fit and release.domain.num_cells <= _MAX_CELLS:
        _rounded_figures(release, noise, figures)
    else:
        _drawn_figures(release, loose_distance, figures)


def _observed(
    release: SyntheticDatabase, measured: NoisyMeasurements
) -> tuple[NoisyCoefficients, MarginalCoefficients]:
    """What the noisy tables say of the hypothesis, and of what only the records answer."""
    domain = release.domain
    names = [*(names for names, _ in release.potentials), *release.record_tables]
    supports = [domain.axes(each) for each in Workload(domain, _sets(names)).closure()]
    layout = MarginalCoefficients(domain.shape, {(), *supports})
    return Combination(domain, layout, measured.described, measured.tables).estimate(), layout


def _sets(names: Sequence[Names]) -> tuple[Names, ...]:
    return tuple(dict.fromkeys(each for each in names if each))


def _number_figures(
    release: SyntheticDatabase,
    observed: NoisyCoefficients,
    layout: MarginalCoefficients,
    figures: Figures,
) -> None:
    """Compares the number of records with the total of the noisy tables, from 1 on."""
    if release.num_records_is_public:
        return
    place = layout.slices[()]
    total = float(observed.values[place][0]) * math.sqrt(squared_scale(layout, (), ()))
    found = min(max(1.0, total), float(_MAX_RECORDS))
    figures.near("num_records", release.num_records, found, 0.5 + 1e-9)


def _fit_figures(
    release: SyntheticDatabase,
    observed: NoisyCoefficients,
    layout: MarginalCoefficients,
    figures: Figures,
) -> float:
    """Compares what is said of the fit; returns the weighted error of the noise alone."""
    domain, fit = release.domain, release.fit
    names = _sets([names for names, _ in release.potentials])
    is_tree, is_selection = "tree_cells" in fit, release.plan.get("strategy") == "selection"
    needed = [*_FIT, *(["tree_cells"] if is_tree else []), *(_PAIRS if is_selection else [])]
    if is_selection and "most_choices" in release.plan:
        needed.append(_ADDED)
    if "start_from" in release.plan:
        needed.append("start_was_used")
    check_fields("fit", fit, needed)
    checked_integer("fit.steps", fit["steps"], 0)
    checked_number("fit.estimated_cell_error", fit["estimated_cell_error"], least=0)
    figures.equal(
        "fit.hypothesis", fit["hypothesis"], "junction_tree" if is_tree else "dense_array"
    )
    if is_tree:
        sets = [domain.axes(each) for each in names] + [each.axes for each in domain.impossible]
        figures.equal("fit.tree_cells", fit["tree_cells"], num_clique_cells(domain.shape, sets))
        if is_selection:
            least = int(fit["tree_cells"])
            checked_integer("max_tree_cells", release.plan["max_tree_cells"], least)
    if is_selection:
        pairs = [sum(len(each) > 1 for each in sets) for sets in (names, release.record_tables)]
        figures.equal("fit.num_joined_pairs", fit["num_joined_pairs"], pairs[0])
        figures.equal("fit.num_other_pairs", fit["num_other_pairs"], pairs[1])
        figures.at_least("joined and other pairs", sum(pairs), fit.get(_ADDED, 0))
    tables = [each.values for each in release.answer(Workload(domain, names))]
    plain = [MeasuredTable(each, "table", "discrete_laplace", 1.0) for each in names]
    expected = Combination(domain, layout, plain, tables).estimate()
    chosen = np.isfinite(expected.variances) & np.isfinite(observed.variances)
    chosen[layout.slices[()]] = False
    variances = observed.variances[chosen]
    squares = (expected.values[chosen] - observed.values[chosen]) ** 2 / variances
    mismatch = float(squares.mean()) if len(squares) else 0.0
    figures.near("fit.mismatch", fit["mismatch"], mismatch, _ROUNDING * (1 + mismatch))
    workload = release.workload
    importance = importance_of(domain, layout, workload.marginals, workload.weights)
    return math.sqrt(float(importance[chosen] @ variances))


def _rounded_figures(release: SyntheticDatabase, noise: float, figures: Figures) -> None:
    """Compares the error of the records with what rounding leaves of it."""
    workload = release.workload
    # A fit is hardly worse than the noise that it was made from, whatever its card says.
    estimated = checked_number(
        "estimated_cell_error", release.fit.get("estimated_cell_error", 0.0), least=0
    )
    most = _ROUNDING_SHARE * min(estimated, _CHANCE * noise)
    axes = [release.domain.axes(names) for names in workload]
    squares = [
        float(((release.record_marginal(names) - weights * release.num_records) ** 2).mean())
        for names, weights in zip(workload, _weights(release, axes), strict=True)
    ]
    found = math.sqrt(np.average(squares, weights=workload.weights))
    least = _CHANCE * most + _ONE_RECORD
    if found > least:
        least = _CHANCE * _error_again(release, most) + _ONE_RECORD
    figures.number += 1
    if not found <= least:
        figures.faults.append(
            f"the records are {found:.6g} from the hypothesis in a cell, root mean square;"
            f" rounding leaves at most {least:.6g}: they are other records"
        )


def _error_again(release: SyntheticDatabase, most: float) -> float:
    """The error in a cell of rounding the hypothesis once more: where that could not be less."""
    domain, workload = release.domain, release.workload
    supports = [domain.axes(each) for each in workload.closure()]
    basis = ResidualBasis(domain.shape, {(), *supports})
    importance = importance_of(domain, basis, workload.marginals, workload.weights)
    weights = _weights(release, [tuple(range(len(domain.shape)))])[0].ravel()
    counts = round_to_records(basis, weights, release.num_records, importance, most)
    away = basis.analyse(counts - weights * release.num_records)
    return max(most, math.sqrt(float(importance @ away**2)))


def _loose_distance(
    release: SyntheticDatabase, observed: NoisyCoefficients, layout: MarginalCoefficients
) -> float:
    """How far from the hypothesis noise has put the tables that only records answer, in records."""
    loose = [release.domain.axes(names) for names in _sets(release.record_tables)]
    differences = [
        observed.values[layout.slices[axes]] - table_coefficients(weights * release.num_records)
        for axes, weights in zip(loose, _weights(release, loose), strict=True)
    ]
    return math.sqrt(sum(float(each @ each) for each in differences))


def _drawn_figures(release: SyntheticDatabase, loose_distance: float, figures: Figures) -> None:
    """Compares tables of the records with those of the hypothesis, as if drawn independently.

    Records are also moved towards tables that only they answer. No move raises the sum of squares
    over all tables. So the records may be as far from the hypothesis as the draw left all of them,
    and as those tables are from the hypothesis.
    """
    domain, number = release.domain, release.num_records
    candidates = min(number, _MAX_CANDIDATES)
    share = candidates / max(number, 1)
    names = _sets([names for names, _ in release.potentials])
    loose = _sets(release.record_tables)
    pairs = [each for each in Workload(domain, tuple(release.workload)).closure() if len(each) == 2]
    every = _sets([*names, *loose, *pairs]) if loose else names
    tables = _weights(release, [domain.axes(each) for each in every])
    log_term = math.log(2 * max(1, sum(each.size for each in tables)) / _FALSE_ALARM)
    # Bernstein's inequality for a binomial count.
    most = [np.sqrt(2 * log_term * candidates * each) + log_term / 3 + 1 for each in tables]
    of_all = math.sqrt(sum(float(np.vdot(each, each)) for each in most)) + share * loose_distance
    for each, weights, allowed in zip(names, tables[: len(names)], most[: len(names)], strict=True):
        away = np.abs(release.record_marginal(each) * share - weights * candidates)
        factor = float(np.linalg.norm(away)) / of_all if loose else float((away / allowed).max())
        figures.number += 1
        if factor > _CHANCE:
            figures.faults.append(
                f"the records of {','.join(each)} are up to {factor / _CHANCE:.3g} times as far"
                " from the hypothesis as rounding may leave them: they are other records"
            )


def _weights(
    release: SyntheticDatabase, sets: Sequence[tuple[int, ...]]
) -> list[NDArray[np.float64]]:
    domain = release.domain
    potentials = [(domain.axes(names), table) for names, table in release.potentials]
    return marginal_weights(domain.shape, potentials, sets, domain.impossible)
