"""The strategies of mechanisms for synthetic databases: their parameters, and their steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from beam_dp.checks import check_choice, checked_integer, checked_number
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import RECORD, Guarantee, Neighboring
from beam_dp.privacy.steps import Step
from beam_dp.privacy.unit_costs import MAX_RECORDS
from beam_dp.queries.linear import LinearQuery
from beam_dp.queries.workload import OfWorkload, Workload
from beam_dp.releases.synthetic_database import verify_choices
from beam_dp.releases.synthetic_database.measured_tables import MeasuredTable
from beam_dp.releases.synthetic_database.verify_choices import table_steps, tables_of
from beam_dp.releases.verdict import Figures, check_fields

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
    "selection": (
        *("prior_share", "prior_grid", "prior_scale"),
        *("num_triples", "num_triple_cells", "most_triple_choices"),
        *("triple_choice_share", "triple_choice_scale", "triple_added_share"),
    ),
    "small_db": (
        *("vc_dimension", "vc_dimension_at_least", "vc_dimension_by", "bound", "bound_is_vacuous"),
    ),
}
_STOPS = (
    *("stop_below", "stop_threshold_scale", "stop_question_scale"),
    *("score_grid", "bound_when_stopped", "failure_probability"),
)
# Optional fields: a ledger's entry, public records to start from, and the window of a database.
_ANY = ("ledger_release", "records_per_unit_from", "start_from", "windows")
STRATEGIES = tuple(_STATED)


@dataclass(frozen=True)
class Stated(OfWorkload):
    """The statements of a card or a plan about a mechanism for synthetic databases.

    ``queries``: linear queries, if they are not all cells of marginals.
    ``fit``: the card's statements about the fit; None for a plan, before anything is drawn.
    """

    guarantee: Guarantee
    workload: Workload
    parameters: Mapping[str, Any]
    noise: Sequence[Mapping[str, Any]]
    queries: Sequence[LinearQuery] = ()
    fit: Mapping[str, Any] | None = None


def synthetic_steps(stated: Stated, figures: Figures) -> list[Step]:
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
    if strategy not in STRATEGIES and not tables:
        raise InputError("noise", 0, "must state the tables that were measured")
    if strategy == "measure_all":
        figures.equal("num_measurements", parameters.get("num_measurements"), len(tables))
    most = _max_unit_cost(guarantee, parameters, tables)
    return table_steps(domain, tables, guarantee, max_unit_cost=most)


def _check_parameters(stated: Stated) -> None:
    """Raises InputError if a known strategy's parameters are missing, unknown or inconsistent."""
    parameters = stated.parameters
    strategy = parameters.get("strategy")
    if strategy not in STRATEGIES:
        return
    needed = _STATED[strategy]
    if strategy == "textbook" and any(name in parameters for name in (*_STOPS, "num_updates")):
        needed += _STOPS if stated.fit is None else (*_STOPS, "num_updates")
    check_fields("parameters", parameters, needed, (*_OPTIONAL.get(strategy, ()), *_ANY))
    check_choice("calibration", parameters["calibration"], ("tight", "textbook"))
    if strategy == "textbook" and stated.noise:
        raise InputError("noise", len(stated.noise), "must be empty: no table is measured whole")


def _max_unit_cost(
    guarantee: Guarantee, parameters: Mapping[str, Any], tables: Sequence[MeasuredTable]
) -> float | None:
    """Returns the limit on the cost of a unit's records; None if only the number is limited."""
    if "max_unit_cost" not in parameters:
        return None
    most = checked_number("max_unit_cost", parameters["max_unit_cost"], least=1)
    records = guarantee.max_records_per_unit
    checked_integer("max_records_per_unit", records, math.ceil(most), MAX_RECORDS)
    if guarantee.neighboring is not Neighboring.ADD_OR_REMOVE_ONE:
        raise InputError("max_unit_cost", most, "can't limit a unit that is replaced")
    if guarantee.privacy_unit == RECORD:
        raise InputError("max_unit_cost", most, "can't limit a unit that is one record")
    if any((each.kind, each.distribution) != ("residual", "discrete_gaussian") for each in tables):
        raise InputError("max_unit_cost", most, "can only limit residuals with Gaussian noise")
    return most
