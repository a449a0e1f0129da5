"""Verifies the privacy loss, the stated errors and the records of a synthetic database."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_is, checked_integer, checked_number
from beam_dp.domain.universe import Names, released_edges
from beam_dp.errors import InputError
from beam_dp.models.basis import (
    Coefficients,
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
from beam_dp.privacy.guarantee import Neighboring
from beam_dp.privacy.rounding import UNIT
from beam_dp.privacy.steps import Step, total
from beam_dp.queries.workload import Workload
from beam_dp.releases import verdict
from beam_dp.releases.domain.earlier import chosen_figures, earlier_figures
from beam_dp.releases.domain.verify import domain_figures, domain_steps, with_domain
from beam_dp.releases.synthetic_database import measured_tables
from beam_dp.releases.synthetic_database.bin_sums import sums_step
from beam_dp.releases.synthetic_database.measured_tables import (
    Combination,
    MeasuredTable,
    NoiseBounds,
    NoisyMeasurements,
    PairDistances,
    tables_of,
)
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.synthetic_database.strategies import (
    MECHANISMS,
    STRATEGIES,
    Drawn,
    MeasureAll,
    Selection,
    SmallDatabase,
    Strategy,
    Textbook,
    denominator_of,
    strategy_of,
    strategy_steps,
)
from beam_dp.releases.verdict import (
    MAX_ARRAY_CELLS,
    MAX_CANDIDATES,
    MAX_RECORDS,
    MAX_TREE_RECORDS,
    ROUNDING_SHARE,
    Figures,
    check_fields,
    left_out_figures,
    left_out_steps,
    of_release,
)

# The largest rounding error of an answer, as a share of the number of records.
_ROUNDING = 64 * UNIT
_FIT = ("hypothesis", "steps", "estimated_cell_error", "mismatch")
_PAIRS = ("num_joined_pairs", "num_other_pairs")
_CHANCE = 2.0
_ONE_RECORD = 1.0
_FALSE_ALARM = 1e-9
# The rounding errors of a mean of squared differences, and of a fitted count, as a share of all.
_MISMATCH_ROUNDING, _COUNT_ROUNDING = 1e-6, 1e-11


def verify(release: SyntheticDatabase) -> verdict.Verification:
    """Verifies a synthetic database."""
    figures, notes = Figures(), []
    measured, strategy = release.measurements, strategy_of(release.plan)
    if strategy is None:
        if release.mechanism in MECHANISMS:
            condition = f"must be one of {', '.join(STRATEGIES)} for {release.mechanism}"
            raise InputError("strategy", release.plan.get("strategy"), condition)
        for name in release.plan:
            if name.endswith("_scale"):
                figures.faults.append(f"parameters.{name} is noise that no step charges")
        notes.append(
            "The card states no strategy that this version knows: the result is valid if the"
            " mechanism drew no noise besides the noise of the tables on the card."
        )
    steps, beside = _steps(release, strategy, figures)
    if measured is not None and measured.distances is not None:
        _score_figures(measured.distances, strategy, release.public_number, figures)
    with figures.following("errors"):
        if isinstance(strategy, SmallDatabase):
            _small_db_figures(release, strategy, figures)
        else:
            _error_figures(release, strategy, figures)
            record_figures(release, strategy, figures)
    if strategy is not None:
        _card_figures(release, strategy, figures)
    earlier_figures(release, figures, notes)
    return verdict.judged(
        "synthetic_database", release.mechanism, release.guarantee, steps, figures, beside, notes
    )


def _steps(
    release: SyntheticDatabase, strategy: Strategy | None, figures: Figures
) -> tuple[list[Step], list[Step]]:
    """Returns the steps that the card paid for, and those whose epsilons are added last."""
    domain, limited, discovered = release.domain, release.limited_guarantee, release.discovered
    drawn = Drawn(
        domain=domain,
        guarantee=of_release(limited, release.left_out, discovered),
        noise=release.noise,
        queries=release.queries,
        fit=release.fit,
    )
    steps = strategy_steps(strategy, drawn, figures)
    if release.bin_sums is not None:
        steps.append(sums_step(release.bin_sums.measured, drawn.guarantee))
    beside: list[Step] = []
    if release.left_out is not None:
        promise = of_release(limited, None, discovered)
        beside = left_out_steps(release.left_out, promise, domain)
        left_out_figures(release.left_out, promise, domain, steps, figures)
    if discovered is not None:
        _, epsilon = total(steps, discovered.main, beside)
        figures.at_least("discovered.release.epsilon", discovered.main.epsilon, epsilon)
        discoveries = domain_steps(discovered.noise, discovered.whole)
        domain_figures(discovered, discoveries, domain, figures)
        steps, beside = with_domain(discovered, steps, beside)
    elif (paid := release.plan.get("ledger_release")) is not None:
        origins = [edges.ledger_release for _, edges in released_edges(domain)]
        figures.equal("found with this payment, but not stated", origins.count(paid), 0)
    if release.records_per_unit is not None:
        chosen = release.records_per_unit
        choice = domain_steps(chosen.noise, chosen.main)
        chosen_figures(chosen, choice, figures)
        beside = [*beside, *choice]
    return steps, beside


def _card_figures(release: SyntheticDatabase, strategy: Strategy, figures: Figures) -> None:
    """Compares the remaining statements of a card with a known strategy."""
    measured = release.measurements
    if not release.num_records_is_public:
        figures.equal("neighboring", release.guarantee.neighboring, Neighboring.ADD_OR_REMOVE_ONE)
        figures.equal("noise of the number of records", bool(release.noise), True)
    if isinstance(strategy, Textbook | SmallDatabase):
        figures.equal("num_records is public", release.num_records_is_public, True)
        figures.equal("fit", release.fit, {})
        if isinstance(strategy, Textbook):
            names = [names for names, _ in release.potentials]
            figures.equal("hypothesis", names, list(release.workload.marginals))
        figures.equal("measurements", measured, None)
    elif measured is not None:
        figures.equal("measurements.fixed", measured.are_fixed, strategy.is_fixed)
        is_scored = measured.distances is not None
        figures.equal("measurements.distances", is_scored, isinstance(strategy, Selection))
    if not isinstance(strategy, MeasureAll | SmallDatabase):
        figures.equal("calibration", strategy.calibration, type(strategy).calibration)


def _misfits(release: SyntheticDatabase, covered: Iterable[Names]) -> dict[Names, float]:
    """Returns, by marginal, the largest distance of a covered answer from the noisy tables."""
    measured, names = release.measurements, tuple(marginal for marginal in covered if marginal)
    if measured is None or not measured.tables or not names:
        return {}
    asked = Workload(release.domain, names)
    number = release.public_number
    unbiased = measured_tables.unbiased_tables(asked, measured.described, measured.tables, number)
    answers = release.answer(asked)
    total = release.represented - float(unbiased[names[0]].sum())
    return {(): abs(total)} | {
        answer.attributes: float(np.abs(answer.values - unbiased[answer.attributes]).max())
        for answer in answers
    }


def _num_bounded_cells(
    release: SyntheticDatabase, strategy: Strategy | None
) -> tuple[int, int] | None:
    """Returns the numbers of cells whose bounds are true together; None if per marginal.

    For a selection, counts all cells that might have been measured: of attributes and pairs, and of
    triples.
    """
    measured, domain = release.measurements, release.domain
    if measured is None or measured.distances is None:
        return None
    scored = [domain.restrict(names).num_cells for names in measured.distances.pairs]
    of_triples = strategy.num_triple_cells if isinstance(strategy, Selection) else 0
    return sum(scored) + sum(domain.shape), of_triples


def _error_figures(release: SyntheticDatabase, strategy: Strategy | None, figures: Figures) -> None:
    """Compares the errors of measured tables, and of all marginals that follow from the tables."""
    domain = release.domain
    if isinstance(strategy, Textbook):
        figures.equal("errors", len(release.errors), 0)
        _textbook_bound(release, strategy, figures)
        return
    tables = tables_of(release.noise, domain)
    for entry, table in zip(release.noise, tables, strict=False):
        if "standard_deviation" in entry:
            name = f"standard_deviation of {','.join(table.names) or 'the total'}"
            figures.same(name, entry["standard_deviation"], math.sqrt(table.variance))
    if "strategy" not in release.plan:
        return  # for other mechanisms, the errors that follow from the tables are unknown
    supports = {domain.axes(names) for names in release.workload.closure()}
    relevant = [t for t in tables if t.kind == "table" or domain.axes(t.names) in supports]
    public = release.num_records_is_public
    variances = measured_tables.support_variances(domain, sorted(supports), relevant, public)
    bounds = NoiseBounds(domain, tables, "beforehand", public)
    measured = release.measurements
    if measured is not None:
        bounds = measured.bounds(domain, public)
    by_names = {
        names: measured_tables.cell_variance(domain, variances, domain.axes(names))
        for names in release.workload.closure()
    }
    covered = [names for names, variance in by_names.items() if math.isfinite(variance)]
    noise = max((by_names[names] for names in covered), default=0.0)
    # Two counts may be as large as all records, or as the noise. The tolerance of 1e-9 of a bound
    # covers the rounding of counts that are up to 70,000 times as large as the bound.
    rounding = _ROUNDING * (release.represented + math.sqrt(noise))
    misfits, together = _misfits(release, covered), _num_bounded_cells(release, strategy)
    figures.equal("errors", [*sorted(release.errors)], [*sorted(by_names)])
    # After rounds, a bound may be true together for more cells than one marginal has.
    is_determined = together is not None or bounds.choice == "beforehand"
    for names, variance in by_names.items():
        error, label = release.errors.get(names, {}), ",".join(names) or "the total"
        is_finite = math.isfinite(variance)
        expected = math.sqrt(variance) if is_finite else None
        figures.same(f"standard_error of {label}", error.get("standard_error"), expected)
        beta = error.get("failure_probability")
        for name in ("bound", "failure_probability"):
            figures.equal(f"{name} of {label} is stated", error.get(name) is not None, is_finite)
        if is_finite and beta:
            sizes = [domain.shape[axis] for axis in domain.axes(names)]
            cells = math.prod(sizes)
            if together is not None:
                cells = together[sum(size > 1 for size in sizes) > 2]
            least = bounds.of(domain.axes(names), variance, cells, beta)
            figures.at_least(f"bound of {label}", error.get("bound"), least)
            if names in misfits:
                expected = least + misfits[names]
                if is_determined:
                    figures.near(f"bound of {label}", error.get("bound"), expected, rounding)
                else:
                    figures.at_least(f"bound of {label}", error.get("bound"), expected - rounding)
    if isinstance(strategy, MeasureAll):
        weights = dict(zip(release.workload.marginals, release.workload.weights, strict=True))
        mean = sum(weight * by_names[names] for names, weight in weights.items())
        expected = math.sqrt(mean / sum(weights.values()))
        figures.same("predicted_cell_error", strategy.predicted_cell_error, expected)


def record_figures(release: SyntheticDatabase, strategy: Strategy | None, figures: Figures) -> None:
    """Compares the records and their number with the hypothesis and with the noisy tables.

    The records are rounded from the public hypothesis, so they must not contain other information.
    Rounding an array stops at a tenth of the error of the fit, or when it can't improve further. So
    the workload-weighted error of the records may be twice that tenth, or twice the error that
    rounding once more leaves. For a tree, a cell of the records may differ from the hypothesis by
    at most twice a bound that holds for independent draws, except with probability 1e-9.
    If the records are weighted candidates, the release has no other hypothesis. Then the tables of
    the records are compared with the noisy tables.
    """
    measured = release.measurements
    noise = moved = 0.0
    if measured is not None:
        observed, layout = _observed(release, measured)
        _number_figures(release, observed, layout, figures)
        noise = _fit_figures(release, strategy, observed, layout, figures)
        if release.potentials:
            moved = math.hypot(
                _loose_distance(release, observed, layout), _shrunk_distance(release, measured)
            )
    marginals = [set(names) for names in release.workload]
    for names in _fitted_sets(release):
        is_asked = any(marginal.issuperset(names) for marginal in marginals) or len(names) < 2
        figures.equal(f"hypothesis of {','.join(names)} is asked for", is_asked, True)
    if not release.potentials:
        return  # The records are the hypothesis: their tables are compared with the noisy tables.
    is_rounded = measured is not None or isinstance(strategy, Textbook)
    if (
        is_rounded
        and "tree_cells" not in release.fit
        and release.domain.num_cells <= MAX_ARRAY_CELLS
    ):
        _rounded_figures(release, noise, figures)
    else:
        _drawn_figures(release, moved, figures)


def _fitted_sets(release: SyntheticDatabase) -> tuple[Names, ...]:
    """The attribute sets whose tables the hypothesis or, without one, the records fitted."""
    return _sets([names for names, _ in release.potentials] or release.record_tables)


def _observed(
    release: SyntheticDatabase, measured: NoisyMeasurements
) -> tuple[NoisyCoefficients, MarginalCoefficients]:
    """Estimates, from the noisy tables, the coefficients of all fitted and record tables."""
    domain = release.domain
    names = [*(names for names, _ in release.potentials), *release.record_tables]
    supports = [domain.axes(marginal) for marginal in Workload(domain, _sets(names)).closure()]
    layout = MarginalCoefficients(domain.shape, {(), *supports})
    return Combination(domain, layout, measured.described, measured.tables).estimate(), layout


def _sets(names: Sequence[Names]) -> tuple[Names, ...]:
    return tuple(dict.fromkeys(marginal for marginal in names if marginal))


def _number_figures(
    release: SyntheticDatabase,
    observed: NoisyCoefficients,
    layout: MarginalCoefficients,
    figures: Figures,
) -> None:
    """Compares the number of records with the total of the noisy tables, or 1 if larger."""
    if release.num_records_is_public:
        return
    place = layout.slices[()]
    total = float(observed.values[place][0]) * math.sqrt(squared_scale(layout, (), ()))
    number = min(max(1.0, total), float(MAX_RECORDS))
    figures.near("num_records", release.represented, number, 0.5 + 1e-9)


def _fit_figures(
    release: SyntheticDatabase,
    strategy: Strategy | None,
    observed: NoisyCoefficients,
    layout: MarginalCoefficients,
    figures: Figures,
) -> float:
    """Compares the card's statements about the fit; returns the weighted error of the noise."""
    domain, fit, names = release.domain, release.fit, _fitted_sets(release)
    is_tree, selection = "tree_cells" in fit, strategy if isinstance(strategy, Selection) else None
    needed = [*_FIT, *(["tree_cells"] if is_tree else [])]
    if selection is not None:
        needed += [*_PAIRS, *(check.added for check in selection.checks)]
    if "start_from" in release.plan:
        needed.append("start_was_used")
    has_prior = selection is not None and bool(selection.prior_scale)
    if has_prior:
        needed.append("start_distance")
    check_fields("fit", fit, needed)
    checked_integer("fit.steps", fit["steps"], 0)
    checked_number("fit.estimated_cell_error", fit["estimated_cell_error"], least=0)
    kind = "junction_tree" if is_tree else "dense_array" if release.potentials else "candidates"
    figures.equal("fit.hypothesis", fit["hypothesis"], kind)
    if selection is not None and has_prior:
        _prior_figures(release, selection, kind, figures)
    if is_tree:
        sets = [*map(domain.axes, names), *(rule.axes for rule in domain.impossible)]
        figures.equal("fit.tree_cells", fit["tree_cells"], num_clique_cells(domain.shape, sets))
        if selection is not None:
            checked_integer("max_tree_cells", selection.max_tree_cells, int(fit["tree_cells"]))
    if selection is not None:
        joined = [marginal for marginal, _ in release.potentials]
        pairs = [sum(len(pair) == 2 for pair in sets) for sets in (joined, release.record_tables)]
        figures.equal("fit.num_joined_pairs", fit["num_joined_pairs"], pairs[0])
        figures.equal("fit.num_other_pairs", fit["num_other_pairs"], pairs[1])
        figures.at_least("joined and other pairs", sum(pairs), fit["num_added_pairs"])
    tables = [answer.values for answer in release.answer(Workload(domain, names))]
    plain = [MeasuredTable(marginal, "table", "discrete_laplace", 1.0) for marginal in names]
    expected = Combination(domain, layout, plain, tables).estimate()
    chosen = np.isfinite(expected.variances) & np.isfinite(observed.variances)
    chosen[layout.slices[()]] = False
    variances = observed.variances[chosen]
    away = np.abs(expected.values[chosen] - observed.values[chosen])
    mismatch, tolerance = 0.0, _MISMATCH_ROUNDING
    if len(away):
        mismatch = float((away**2 / variances).mean())
        # Noise may be far smaller than the rounding errors of counts.
        rounding = _COUNT_ROUNDING * release.represented
        tolerance += float(((2 * away + rounding) * rounding / variances).mean())
    tolerance += _MISMATCH_ROUNDING * mismatch
    older = mismatch * len(away) / max(1, _older_number(layout, chosen))
    closest = min(mismatch, older, key=lambda value: abs(value - fit["mismatch"]))
    figures.near("fit.mismatch", fit["mismatch"], closest, tolerance)
    workload = release.workload
    importance = importance_of(domain, layout, workload.marginals, workload.weights)
    return math.sqrt(float(importance[chosen] @ variances))


def _older_number(layout: Coefficients, chosen: NDArray[np.bool_]) -> int:
    """Returns the number of chosen coefficients as 0.1.0 counted them, whose sum was the same."""
    # It had a coefficient for each code of an attribute of more than 64 codes.
    return sum(
        math.prod(size - (size <= 64) for size in (layout.shape[axis] for axis in support))
        for support, where in layout.slices.items()
        if chosen[where].any()
    )


def _prior_figures(
    release: SyntheticDatabase, selection: Selection, kind: str, figures: Figures
) -> None:
    """Compares what a selection states of public records with its hypothesis and tables."""
    domain, fit, measured = release.domain, release.fit, release.measurements
    check_is("parameters.start_from", release.plan["start_from"], str)
    check_is("fit.start_was_used", fit["start_was_used"], bool)
    checked_number("fit.start_distance", fit["start_distance"], above=-math.inf)
    # So few records come from a tree, unless public records are the candidates.
    if release.represented <= MAX_TREE_RECORDS:
        figures.equal("fit.start_was_used", fit["start_was_used"], kind == "candidates")
    if not fit["start_was_used"] or measured is None:
        return
    # The records are then the candidates, and all that was measured is fitted, without any check.
    figures.equal("fit.hypothesis", kind, "candidates")
    for check in selection.checks:
        figures.equal(f"fit.{check.added}", fit[check.added], 0)
    pairs = [table.names for table in measured.described if len(table.names) > 1]
    expected = [(), *((name,) for name in domain.names), *pairs]
    figures.equal("record_tables", [*release.record_tables], expected)


def _rounded_figures(release: SyntheticDatabase, noise: float, figures: Figures) -> None:
    """Compares the error of the records with the error that rounding may leave."""
    workload = release.workload
    # The card may claim any error, but a fit is hardly worse than the noise of the fitted tables.
    estimated = checked_number(
        "estimated_cell_error", release.fit.get("estimated_cell_error", 0.0), least=0
    )
    limit = ROUNDING_SHARE * min(estimated, _CHANCE * noise)
    limit *= release.num_records / release.represented
    axes = [release.domain.axes(names) for names in workload]
    squares = [
        float(((release.record_marginal(names) - weights * release.num_records) ** 2).mean())
        for names, weights in zip(workload, _weights(release, axes), strict=True)
    ]
    distance = math.sqrt(np.average(squares, weights=workload.weights))
    least = _CHANCE * limit + _ONE_RECORD
    if distance > least:
        least = _CHANCE * _error_again(release, limit) + _ONE_RECORD
    figures.number += 1
    if not distance <= least:
        figures.faults.append(
            f"the records are {distance:.6g} from the hypothesis in a cell, root mean square;"
            f" rounding leaves at most {least:.6g}: they are other records"
        )


def _error_again(release: SyntheticDatabase, limit: float) -> float:
    """Rounds the hypothesis once more; returns the larger of ``limit`` and the error per cell."""
    domain, workload = release.domain, release.workload
    supports = [domain.axes(marginal) for marginal in workload.closure()]
    basis = ResidualBasis(domain.shape, {(), *supports})
    importance = importance_of(domain, basis, workload.marginals, workload.weights)
    weights = _weights(release, [tuple(range(len(domain.shape)))])[0].ravel()
    counts = round_to_records(basis, weights, release.num_records, importance, limit)
    away = basis.analyse(counts - weights * release.num_records)
    return max(limit, math.sqrt(float(importance @ away**2)))


def _loose_distance(
    release: SyntheticDatabase, observed: NoisyCoefficients, layout: MarginalCoefficients
) -> float:
    """Returns the distance, in records, of the hypothesis from tables that only records answer."""
    loose = [release.domain.axes(names) for names in _sets(release.record_tables)]
    differences = [
        observed.values[layout.slices[axes]] - table_coefficients(weights * release.represented)
        for axes, weights in zip(loose, _weights(release, loose), strict=True)
    ]
    return math.sqrt(sum(float(difference @ difference) for difference in differences))


def _shrunk_distance(release: SyntheticDatabase, measured: NoisyMeasurements) -> float:
    """Returns the distance, in records, of the hypothesis from tables with less dependence."""
    if measured.distances is None:
        return 0.0
    domain, joined = release.domain, [names for names, _ in release.potentials]
    measured_pairs = {
        pair for names in (*joined, *release.record_tables) for pair in combinations(names, 2)
    }
    pairs = [
        domain.axes(pair)
        for pair in Workload(domain, tuple(release.workload)).closure()
        if len(pair) == 2 and pair not in measured_pairs
    ]
    tables = dict(zip(pairs, _weights(release, pairs), strict=True))
    differences = (
        less - tables[axes] for axes, less in measured.distances.shrunk(domain, tables).items()
    )
    squares = sum(float(np.vdot(difference, difference)) for difference in differences)
    return release.represented * math.sqrt(squares)


def _drawn_figures(release: SyntheticDatabase, moved: float, figures: Figures) -> None:
    """Compares tables of the records with tables of the hypothesis, as for independent draws.

    Records are also moved towards noisy tables that only the records answer, and towards less
    dependence of some pairs. A sweep never increases the sum of squares over all tables. So the
    distance of the records from the hypothesis may be the distance after the draw plus the distance
    of those tables from the hypothesis, ``moved`` records.
    """
    domain, number = release.domain, release.num_records
    candidates = min(number, MAX_CANDIDATES)
    share = candidates / max(number, 1)
    moved *= candidates / max(release.represented, 1)
    names = _sets([names for names, _ in release.potentials])
    loose = _sets(release.record_tables)
    pairs = [pair for pair in Workload(domain, tuple(release.workload)).closure() if len(pair) == 2]
    every = _sets([*names, *loose, *pairs]) if moved else names
    tables = _weights(release, [domain.axes(marginal) for marginal in every])
    log_term = math.log(2 * max(1, sum(table.size for table in tables)) / _FALSE_ALARM)
    # Bernstein's inequality for a binomial count.
    limits = [np.sqrt(2 * log_term * candidates * table) + log_term / 3 + 1 for table in tables]
    of_all = math.sqrt(sum(float(np.vdot(limit, limit)) for limit in limits)) + moved
    for marginal, weights, limit in zip(names, tables, limits, strict=False):
        away = np.abs(release.record_marginal(marginal) * share - weights * candidates)
        factor = float(np.linalg.norm(away)) / of_all if moved else float((away / limit).max())
        figures.number += 1
        if factor > _CHANCE:
            figures.faults.append(
                f"the records of {','.join(marginal)} are up to {factor / _CHANCE:.3g} times as far"
                " from the hypothesis as rounding may leave them: they are other records"
            )


def _weights(
    release: SyntheticDatabase, sets: Sequence[tuple[int, ...]]
) -> list[NDArray[np.float64]]:
    domain = release.domain
    potentials = [(domain.axes(names), table) for names, table in release.potentials]
    return marginal_weights(domain.shape, potentials, sets, domain.impossible)


def _textbook_bound(release: SyntheticDatabase, strategy: Textbook, figures: Figures) -> None:
    """Checks the published bound, 2 N sqrt(ln|X| / T) + 10 k T ln|Q| / epsilon.

    T is the number of rounds, and N the number of records. This bound is for all T rounds; see
    ``_stopped_bound`` if rounds may end early.
    """
    guarantee = of_release(release.limited_guarantee, release.left_out, release.discovered)
    rounds, bound = strategy.num_rounds, None
    num_queries = release.workload.num_cells()
    if strategy.stop_below:
        _stopped_bound(release, strategy, figures)
    elif guarantee.delta == 0:
        bound = 2 * release.num_records * math.sqrt(math.log(release.domain.num_cells) / rounds)
        of_record = guarantee.epsilon / guarantee.max_records_per_unit
        bound += 10 * rounds * math.log(max(num_queries, 2)) / of_record
    figures.same("bound_of_average", strategy.bound_of_average, bound)
    is_vacuous = bound is None or bound >= release.num_records or 2 * rounds >= num_queries
    of_card = strategy.bound_of_average_is_vacuous
    figures.equal("bound_of_average_is_vacuous", of_card, is_vacuous)


def _stopped_bound(release: SyntheticDatabase, strategy: Textbook, figures: Figures) -> None:
    """Compares the error bound and the number of rounds if the rounds may end early."""
    rounds, beta, grid = strategy.num_rounds, strategy.failure_probability, strategy.score_grid

    def rounded(scale: float, log_term: float) -> float:
        return math.ceil(scale * grid * log_term) / grid

    bound = strategy.stop_below * release.num_records + 1 / grid
    bound += rounded(strategy.stop_threshold_scale, math.log(4 / beta))
    bound += rounded(strategy.stop_question_scale, math.log(4 * rounds / beta))
    num_cells = release.workload.num_cells()
    bound += strategy.selection_scale * math.log(4 * num_cells * rounds / beta)
    figures.same("bound_when_stopped", strategy.bound_when_stopped, bound)
    figures.at_least("num_updates", strategy.num_updates, 0, rounds)


def _score_figures(
    distances: PairDistances,
    strategy: Strategy | None,
    public_number: int | None,
    figures: Figures,
) -> None:
    """Compares the figures behind the bounds of left-out pairs with the stated scores."""
    if not isinstance(strategy, Selection):
        return  # a card of another strategy must not state distances: see ``_card_figures``
    deviation = strategy.score_deviation
    figures.same("distances: standard_deviation", distances.deviation, deviation)
    figures.equal("distances: pairs", len(distances.pairs), strategy.num_candidates)
    if distances.independent is not None:
        grid, number = distances.independent.grid, distances.independent.num_records
        figures.equal("distances: grid", grid, strategy.score_grid)
        if public_number is not None:
            figures.equal("distances: num_records", number, float(public_number))


def _small_db_figures(
    release: SyntheticDatabase, strategy: SmallDatabase, figures: Figures
) -> None:
    """Compares the scales, which the card states twice, and the bounds that follow."""
    k, size = release.limited_guarantee.max_records_per_unit, strategy.size
    listed = [(entry["what"], entry["scale"]) for entry in release.noise]
    figures.equal("noise", listed, strategy.scales)
    figures.equal("num_records", release.num_records_is_public, True)
    figures.equal("num_represented", release.num_represented is not None, True)
    figures.equal("num_queries", strategy.num_queries, len(release.queries))
    figures.equal("size", size, release.num_records)
    moved = size * denominator_of(release.domain, release.queries) * k
    epsilon = strategy.selection_epsilon
    figures.same("selection_epsilon", epsilon, 2 * moved / strategy.selection_scale)
    beta, share = strategy.failure_probability, strategy.max_error_fraction
    total_scale, total = strategy.total_scale, release.represented
    part = beta if total_scale is None else beta / 2
    cells = np.count_nonzero(release.domain.possible())
    drawn = np.arange(size, dtype=np.float64)
    log_ways = float(np.log((cells + drawn) / (drawn + 1)).sum())
    bound = share * total + 2 * k / epsilon * (log_ways - math.log(part))
    if total_scale is not None:
        bound += (1 + share) * math.ceil(total_scale * math.log(1 / part))
    expected = {"standard_error": None, "failure_probability": beta}
    for error in (release.query_error, *release.errors.values()):
        figures.same("bound of an answer", error.get("bound"), bound)
        figures.equal("error of an answer", {name: error.get(name) for name in expected}, expected)
    figures.equal("record_tables", release.record_tables, ((),))
    if total_scale is None:
        figures.same("bound", strategy.bound, bound)
        figures.equal("bound_is_vacuous", strategy.bound_is_vacuous, bound >= total)
