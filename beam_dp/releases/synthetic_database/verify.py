"""Synthetic databases: what their mechanisms measure and select, and the errors that follow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_dp.checks import check_choice, checked_integer, checked_number
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import RECORD, Guarantee, Neighboring
from beam_dp.privacy.rounding import UNIT
from beam_dp.privacy.unit_costs import MAX_RECORDS
from beam_dp.queries.linear import LinearQuery
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database import measured_tables, verify_choices
from beam_dp.releases.synthetic_database.noisy_measurements import NoiseBounds
from beam_dp.releases.synthetic_database.release import Names, SyntheticDatabase
from beam_dp.releases.synthetic_database.verify_records import record_figures
from beam_dp.releases.synthetic_database.verify_tables import table_steps, tables_of
from beam_dp.verification import verdict
from beam_dp.verification.steps import Step

_LABELS = ("calibration", "strategy")
_ROUNDS = ("num_rounds", "num_units", "selection_scale", "distribution", "measurement_scale")
_STATED = {
    "measure_all": (*_LABELS, "num_measurements", "predicted_cell_error"),
    "rounds": (*_LABELS, *_ROUNDS, "total_scale", "selection", "grid"),
    "selection": (
        *(*_LABELS, "num_candidates", "max_tree_cells"),
        *("attributes_share", "scores_share", "score_deviation"),
        *("score_grid", "score_scale", "attributes_mu", "pairs_mu"),
        *("most_choices", "choice_share", "choice_scale", "added_share"),
    ),
    "small_db": (
        *(*_LABELS, "sized_by", "max_error_fraction", "num_queries", "sampler", "size"),
        *("sampler_arithmetic", "sampler_time_depends_on_data", "num_distinct_queries"),
        *("num_distinct_columns", "num_multisets", "selection_scale", "selection_epsilon"),
        *("total_scale", "failure_probability"),
    ),
    "textbook": (
        *(*_LABELS, "num_rounds", "distribution", "measurement_scale", "selection_scale"),
        *("bound_of_average", "bound_of_average_is_vacuous"),
    ),
}
_OPTIONAL = {
    "measure_all": ("max_unit_cost",),
    "small_db": (
        *("vc_dimension", "vc_dimension_at_least", "vc_dimension_by", "bound", "bound_is_vacuous"),
    ),
}
_STOPS = (
    *("stop_below", "stop_threshold_scale", "stop_question_scale"),
    *("score_grid", "bound_when_stopped", "failure_probability"),
)
# Of a ledger's entry, of public records, and of the window that a database is of.
_ANY = ("ledger_release", "start_from", "windows")
_STRATEGIES = tuple(_STATED)
# Mechanisms of this package, whose cards state a strategy.
_OWN = ("mwem", "small_db", "laplace", "gaussian")
# Of an answer, as a share of the records: what floating point leaves of sums up to all of them.
_ROUNDING = 64 * UNIT


@dataclass(frozen=True)
class Stated:
    """What is stated of a mechanism for synthetic databases, by a card or by a plan.

    ``queries``: linear queries, where they are not all cells of marginals.
    ``fit``: what a card states of the fit; None of a plan, when nothing is drawn yet.
    """

    guarantee: Guarantee
    workload: Workload
    parameters: Mapping[str, Any]
    noise: Sequence[Mapping[str, Any]]
    queries: Sequence[LinearQuery] = ()
    fit: Mapping[str, Any] | None = None

    @property
    def domain(self) -> Domain:
        """The universe."""
        return self.workload.domain


def verify_synthetic_database(release: SyntheticDatabase) -> verdict.Verification:
    """Returns what the card of a synthetic database comes to."""
    figures, notes = verdict.Figures(), []
    measured, strategy = release.measurements, release.plan.get("strategy")
    if strategy not in _STRATEGIES:
        if release.mechanism in _OWN:
            condition = f"must be one of {', '.join(_STRATEGIES)} for {release.mechanism}"
            raise InputError("strategy", strategy, condition)
        for name in release.plan:
            if name.endswith("_scale"):
                figures.faults.append(f"parameters.{name} is the noise of nothing that is charged")
        notes.append(
            "The card states no strategy that this version knows: what is shown holds if the"
            " mechanism drew no more than the tables that the card states."
        )
    guarantee = verdict.of_release(release.guarantee, release.left_out)
    stated = Stated(
        guarantee, release.workload, release.plan, release.noise, release.queries, release.fit
    )
    steps = synthetic_steps(stated, figures)
    beside: list[Step] = []
    if release.left_out is not None:
        beside = verdict.left_out_steps(release.left_out, release.guarantee, release.domain)
        verdict.left_out_figures(
            release.left_out, release.guarantee, release.domain, steps, figures
        )
    if measured is not None and measured.distances is not None:
        public = release.num_records if release.num_records_is_public else None
        verify_choices.score_figures(measured.distances, release.plan, public, figures)
    with figures.following("errors"):
        if strategy == "small_db":
            verify_choices.small_db_figures(release, figures)
        else:
            _error_figures(release, figures)
            record_figures(release, figures)
    if strategy in _STRATEGIES:
        _card_figures(release, figures)
    return verdict.judged(
        "synthetic_database", release.mechanism, release.guarantee, steps, figures, beside, notes
    )


def _card_figures(release: SyntheticDatabase, figures: verdict.Figures) -> None:
    """Compares what the card of a known strategy states in addition to its noise."""
    strategy, measured = release.plan["strategy"], release.measurements
    if not release.num_records_is_public:
        figures.equal("neighboring", release.guarantee.neighboring, Neighboring.ADD_OR_REMOVE_ONE)
        figures.equal("noise of the number of records", bool(release.noise), True)
    if strategy in ("textbook", "small_db"):
        figures.equal("num_records is public", release.num_records_is_public, True)
        figures.equal("fit", release.fit, {})
        if strategy == "textbook":
            names = [names for names, _ in release.potentials]
            figures.equal("hypothesis", names, list(release.workload.marginals))
        figures.equal("measurements", measured, None)
    elif measured is not None:
        figures.equal("measurements.fixed", measured.are_fixed, strategy == "measure_all")
        scored = measured.distances is not None
        figures.equal("measurements.distances", scored, strategy == "selection")
    if strategy != "measure_all":
        calibration = "textbook" if strategy == "textbook" else "tight"
        if strategy != "small_db":
            figures.equal("calibration", release.plan["calibration"], calibration)
    check_choice("calibration", release.plan["calibration"], ("tight", "textbook"))


def synthetic_steps(stated: Stated, figures: verdict.Figures) -> list[Step]:
    """Returns the steps of a mechanism for synthetic databases."""
    strategy = stated.parameters.get("strategy")
    domain, guarantee, parameters = stated.domain, stated.guarantee, stated.parameters
    _check_parameters(stated)
    if strategy == "small_db":
        return verify_choices.small_db_steps(
            domain, guarantee, parameters, stated.noise, stated.queries
        )
    if strategy == "textbook":
        return verify_choices.textbook_steps(guarantee, parameters)
    tables = tables_of(stated.noise, domain)
    if strategy == "rounds":
        return verify_choices.rounds_steps(
            guarantee, parameters, None if stated.fit is None else tables, figures
        )
    if strategy == "selection":
        return verify_choices.selection_steps(
            domain, guarantee, parameters, stated.fit, tables, figures
        )
    if strategy not in _STRATEGIES and not tables:
        raise InputError("noise", 0, "must state the tables that were measured")
    if strategy == "measure_all":
        figures.equal("num_measurements", parameters.get("num_measurements"), len(tables))
    most = _max_unit_cost(guarantee, parameters, tables)
    return table_steps(domain, tables, guarantee, max_unit_cost=most)


def _check_parameters(stated: Stated) -> None:
    """Refuses parameters of a known strategy that are missing, unknown, or not of each other."""
    parameters = stated.parameters
    strategy = parameters.get("strategy")
    if strategy not in _STRATEGIES:
        return
    needed = _STATED[strategy]
    if strategy == "textbook" and any(name in parameters for name in (*_STOPS, "num_updates")):
        needed += _STOPS if stated.fit is None else (*_STOPS, "num_updates")
    verdict.check_fields("parameters", parameters, needed, (*_OPTIONAL.get(strategy, ()), *_ANY))
    if strategy == "textbook" and stated.noise:
        raise InputError("noise", len(stated.noise), "must be empty: no table is measured whole")


def _max_unit_cost(
    guarantee: Guarantee,
    parameters: Mapping[str, Any],
    tables: Sequence[measured_tables.MeasuredTable],
) -> float | None:
    """Returns what a unit's records may cost; None where their number alone is limited.

    It is of all that is measured together, and of nothing else.
    """
    if "max_unit_cost" not in parameters:
        return None
    most = checked_number("max_unit_cost", parameters["max_unit_cost"], least=1)
    records = guarantee.max_records_per_unit
    checked_integer("max_records_per_unit", records, math.ceil(most), MAX_RECORDS)
    if guarantee.neighboring is not Neighboring.ADD_OR_REMOVE_ONE:
        raise InputError("max_unit_cost", most, "limits no unit that is replaced")
    if guarantee.privacy_unit == RECORD:
        raise InputError("max_unit_cost", most, "limits no unit that is one record")
    if any((each.kind, each.distribution) != ("residual", "discrete_gaussian") for each in tables):
        raise InputError("max_unit_cost", most, "limits residuals with Gaussian noise alone")
    return most


def _misfits(release: SyntheticDatabase, covered: Iterable[Names]) -> dict[Names, float]:
    """The largest distance of covered answers from the noisy tables, by marginal."""
    measured, names = release.measurements, tuple(each for each in covered if each)
    if measured is None or not measured.tables or not names:
        return {}
    asked = Workload(release.domain, names)
    number = release.num_records if release.num_records_is_public else None
    unbiased = measured_tables.unbiased_tables(asked, measured.described, measured.tables, number)
    answers = release.answer(asked)
    total = release.represented - float(unbiased[names[0]].sum())
    return {(): abs(total)} | {
        each.attributes: float(np.abs(each.values - unbiased[each.attributes]).max())
        for each in answers
    }


def _num_bounded_cells(release: SyntheticDatabase) -> int | None:
    """How many cells have bounds that hold together; None for those of each marginal alone.

    Of a selection all that might have been measured.
    """
    measured, domain = release.measurements, release.domain
    if measured is None or measured.distances is None:
        return None
    scored = [domain.restrict(names).num_cells for names in measured.distances.pairs]
    return sum(scored) + sum(domain.shape)


def _error_figures(release: SyntheticDatabase, figures: verdict.Figures) -> None:
    """Compares the standard errors of what was measured, and of all marginals that follow."""
    domain, parameters = release.domain, release.plan
    if parameters.get("strategy") == "textbook":
        figures.equal("errors", len(release.errors), 0)
        verify_choices.textbook_bound(release, figures)
        return
    tables = tables_of(release.noise, domain)
    for entry, table in zip(release.noise, tables, strict=False):
        if "standard_deviation" in entry:
            name = f"standard_deviation of {','.join(table.names) or 'the total'}"
            figures.same(name, entry["standard_deviation"], math.sqrt(table.variance))
    if "strategy" not in parameters:
        return  # what follows from the tables of another mechanism is not known
    supports = {domain.axes(names) for names in release.workload.closure()}
    held = [t for t in tables if t.kind == "table" or domain.axes(t.names) in supports]
    public = release.num_records_is_public
    variances = measured_tables.support_variances(domain, sorted(supports), held, public)
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
    # The distance of two counts that may be as large as all records, or as the noise: 1e-9 of a
    # bound is more than their rounding up to 70,000 times as many records as that.
    rounding = _ROUNDING * (release.represented + math.sqrt(noise))
    misfits, together = _misfits(release, covered), _num_bounded_cells(release)
    figures.equal("errors", [*sorted(release.errors)], [*sorted(by_names)])
    # Bounds of rounds may hold together for more cells than those of a marginal.
    is_determined = together is not None or bounds.choice == "beforehand"
    for names, variance in by_names.items():
        error, label = release.errors.get(names, {}), ",".join(names) or "the total"
        known = math.isfinite(variance)
        found = math.sqrt(variance) if known else None
        figures.same(f"standard_error of {label}", error.get("standard_error"), found)
        beta = error.get("failure_probability")
        for name in ("bound", "failure_probability"):
            figures.equal(f"{name} of {label} is stated", error.get(name) is not None, known)
        if known and beta:
            cells = together or math.prod(domain.shape[axis] for axis in domain.axes(names))
            least = bounds.of(domain.axes(names), variance, cells, beta)
            figures.at_least(f"bound of {label}", error.get("bound"), least)
            if names in misfits:
                found = least + misfits[names]
                if is_determined:
                    figures.near(f"bound of {label}", error.get("bound"), found, rounding)
                else:
                    figures.at_least(f"bound of {label}", error.get("bound"), found - rounding)
    if "predicted_cell_error" in parameters:
        weights = dict(zip(release.workload.marginals, release.workload.weights, strict=True))
        mean = sum(weight * by_names[names] for names, weight in weights.items())
        found = math.sqrt(mean / sum(weights.values()))
        figures.same("predicted_cell_error", parameters["predicted_cell_error"], found)
