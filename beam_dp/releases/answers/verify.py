"""Verifies noisy answers to a declared workload of linear queries, or to the largest queries."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from beam_dp.checks import check_choice, checked_integer, checked_number
from beam_dp.domain.files import domain_from_json
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.privacy.loss import composed
from beam_dp.privacy.noise.bound import choice_margin, largest_noise, noise_variance
from beam_dp.privacy.steps import Step, flip_step, noise_step, selection_step
from beam_dp.queries.linear import VALUE_BITS, LinearQuery
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.lines import SHOWN_LETTERS, read_line
from beam_dp.queries.reader import LinearQueries
from beam_dp.queries.sensitivity import WorkloadSensitivity, workload_sensitivity
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.answers.verify_online import CARD, CARD_OPTIONAL, verify_online
from beam_dp.releases.verdict import Figures, Verification, check_fields, judged

_UNIT = 1 << VALUE_BITS
_SQUARED = "l2_sensitivity_squared"
_SENSITIVITIES = ("l1_sensitivity", "l2_sensitivity", _SQUARED, "sensitivity_is_exact")
_PLAN = (
    *("mechanism", "distribution", "scale", "grid", "num_queries", "num_records"),
    *("standard_error", "bound", "failure_probability", "guarantee", "loss"),
)
_ONE_SHOT = "geometric"
_METHODS = (_ONE_SHOT, "exponential", "permute_and_flip")
_THEOREM = "one shot of geometric noise, as Dwork and Roth (2014), Claim 3.9"
_CHOICE = ("top", "choice", "choice_grid", "choice_scale", "margin")


def verify_answers(release: AnswersRelease) -> Verification:
    """Verifies answers with noise on each answer, or answers from a hypothesis that is updated."""
    plan = release.stated.get("plan")
    if not isinstance(plan, Mapping):
        raise InputError("plan", plan, "must be present, because the plan states the noise")
    if "choice" in plan:
        return _verify_top_queries(release)
    return _verify_linear_answers(release) if "distribution" in plan else verify_online(release)


def _verify_linear_answers(release: AnswersRelease) -> Verification:
    """Verifies answers with noise on each answer, and compares the card with the queries."""
    figures, plan = Figures(), release.card["plan"]
    domain = domain_from_json(release.card.get("domain"), "card")
    check_fields("plan", plan, (*_PLAN, *_SENSITIVITIES), ("ledger_release",))
    _card_figures(release, plan, figures)
    notes = []
    queries, num_cut = _distinct_queries(release, domain, figures)
    found = None
    if queries:
        found = workload_sensitivity(
            LinearWorkload(domain, tuple(queries)),
            release.guarantee.neighboring,
            release.guarantee.max_records_per_unit,
        )
        _compare(found, plan, figures, is_whole=not num_cut)
    least, most = len(queries) + bool(num_cut), len(queries) + num_cut
    figures.at_least("num_queries", plan["num_queries"], least, most)
    if num_cut:
        notes.append(
            "The file truncates a long query. The sensitivities are therefore the figures of the"
            " card, which were compared only with the sensitivities of the other queries."
        )
    steps = linear_answer_steps(plan, None if num_cut else found)
    figures.loss("plan.loss", plan["loss"], composed(step.loss for step in steps))
    _error_figures(release, plan, figures, plan["num_queries"], _stated_probability(plan))
    return judged(
        "answers", str(release.card["mechanism"]), release.guarantee, steps, figures, notes=notes
    )


def linear_answer_steps(
    plan: Mapping[str, Any], sensitivity: WorkloadSensitivity | None
) -> list[Step]:
    """Returns the step that adds noise on a grid to a vector of answers."""
    # ``plan``: the plan on a card, with sensitivities in records and the scale in grid steps.
    # ``sensitivity``: the sensitivity of the queries; None if only the card states it.
    distribution = plan.get("distribution")
    grid = checked_integer("grid", plan.get("grid"), 1, _UNIT)
    if sensitivity is not None:
        l1, l2_squared = Fraction(sensitivity.l1, _UNIT), Fraction(sensitivity.l2_squared, _UNIT**2)
    else:
        l1 = Fraction(checked_number("l1_sensitivity", plan.get("l1_sensitivity"), least=0))
        l2_squared = Fraction(checked_number(_SQUARED, plan.get(_SQUARED), least=0))
    what = f"answer {checked_integer('num_queries', plan.get('num_queries'), 1):,} queries"
    steps = math.ceil(l1 * grid)
    return [noise_step(what, distribution, steps, l2_squared * grid**2, plan.get("scale", 0.0))]


def _card_figures(release: AnswersRelease, plan: Mapping[str, Any], figures: Figures) -> None:
    """Compares the figures that a card states twice."""
    check_fields("card", release.card, CARD, CARD_OPTIONAL)
    figures.equal("plan.guarantee", plan["guarantee"], release.guarantee.to_json())
    figures.equal("plan.mechanism", plan["mechanism"], release.card["mechanism"])
    number = plan["num_records"]
    if number == "noisy":
        figures.equal("num_records", release.card["num_records"], None)
        figures.equal("neighboring", release.guarantee.neighboring, Neighboring.ADD_OR_REMOVE_ONE)
    else:
        checked_integer("plan.num_records", number, 1)
        figures.equal("num_records", release.card["num_records"], {"public": number})


def _distinct_queries(
    release: AnswersRelease, domain: Domain, figures: Figures
) -> tuple[list[LinearQuery], int]:
    """Returns the distinct answered queries, and the number of queries that the file truncates."""
    # A query that was asked twice must have one answer: a second answer would have its own noise.
    reader = LinearQueries(domain)
    found: dict[LinearQuery, float] = {}
    num_cut = 0
    for row in release.rows:
        if row["error"] is not None:
            continue
        figures.equal("route of an answer", row["route"], "measured")
        line = read_line(reader, row["query"])
        if line.query is not None:
            first = found.setdefault(line.query, row["value"])
            figures.equal("second answer to a query", row["value"], first)
        elif len(row["query"]) == SHOWN_LETTERS:
            num_cut += 1
        else:
            raise InputError("query", row["query"], "must be a query of the domain of the card")
    return list(found), num_cut


def _compare(
    found: WorkloadSensitivity, plan: Mapping[str, Any], figures: Figures, *, is_whole: bool
) -> None:
    """Compares the sensitivities on a card with the sensitivities of some or all of the queries."""
    for name, value in (
        ("l1_sensitivity", found.l1 / _UNIT),
        ("l2_sensitivity", found.l2 / _UNIT),
        (_SQUARED, float(Fraction(found.l2_squared, _UNIT**2))),
    ):
        if is_whole:
            figures.same(name, plan[name], value)
        elif found.is_exact:
            figures.at_least(name, plan[name], value)
    if is_whole:
        figures.equal("sensitivity_is_exact", plan["sensitivity_is_exact"], found.is_exact)


def _error_figures(
    release: AnswersRelease,
    plan: Mapping[str, Any],
    figures: Figures,
    num_answers: int,
    failure_probability: float,
) -> None:
    """Compares the errors that a card and its answers state with the errors of the noise."""
    distribution, scale, grid = plan["distribution"], plan["scale"], plan["grid"]
    error = math.sqrt(noise_variance(distribution, scale)) / grid
    bound = largest_noise(distribution, scale, num_answers, failure_probability) / grid
    figures.same("standard_error", plan.get("standard_error"), error)
    figures.same("bound", plan.get("bound"), bound)
    for row in release.rows:
        if row["error"] is None:
            figures.same("standard_error of an answer", row["standard_error"], error)
            figures.same("bound of an answer", row["bound"], bound)


def _stated_probability(plan: Mapping[str, Any]) -> float:
    """Returns the failure probability that a card states for its error bounds."""
    beta = plan.get("failure_probability")
    if not isinstance(beta, float) or not 0 < beta < 1:
        raise InputError("failure_probability", beta, "must be > 0 and < 1")
    return beta


def _verify_top_queries(release: AnswersRelease) -> Verification:
    """Verifies the largest answers and, unless the file truncates a query, their number."""
    figures, plan = Figures(), release.card["plan"]
    check_fields("plan", plan, (*_PLAN, *_CHOICE), ("ledger_release",))
    _card_figures(release, plan, figures)
    steps = top_query_steps(plan, release.guarantee)
    figures.loss("plan.loss", plan["loss"], composed(step.loss for step in steps))
    number, half = plan["top"], _stated_probability(plan) / 2
    domain = domain_from_json(release.card.get("domain"), "card")
    chosen, num_cut = _distinct_queries(release, domain, figures)
    figures.at_least("top", number, len(chosen) + bool(num_cut), len(chosen) + num_cut)
    figures.at_least("num_queries", plan["num_queries"], number)
    _error_figures(release, plan, figures, number, half)
    is_one_shot, num_queries = plan["choice"] == _ONE_SHOT, plan["num_queries"]
    margin = choice_margin(is_one_shot, plan["choice_scale"], number, num_queries, half)
    figures.same("margin", plan.get("margin"), margin / plan["choice_grid"])
    return judged("answers", str(release.card["mechanism"]), release.guarantee, steps, figures)


def top_query_steps(plan: Mapping[str, Any], guarantee: Guarantee) -> list[Step]:
    """Returns the step that chooses queries and the step that adds noise to their answers.

    A unit moves the answer to any query by at most the number of the unit's records. If the unit is
    added or removed, all answers move the same way; if it is replaced, they may move either way.
    """
    number = checked_integer("top", plan.get("top"), 1)
    moved, ways = guarantee.max_records_per_unit, guarantee.neighboring.num_moved
    grids = [checked_integer(name, plan.get(name), 1, _UNIT) for name in ("choice_grid", "grid")]
    method, scale = plan.get("choice"), plan.get("choice_scale", 0.0)
    check_choice("choice", method, _METHODS)
    sensitivity, what = moved * grids[0], "choose one of the largest"
    if method == "exponential":
        choice = selection_step(what, sensitivity, scale, number, ways=ways)
    elif method == "permute_and_flip":
        choice = flip_step(what, sensitivity, scale, number, ways=ways)
    else:
        choice = flip_step(what, sensitivity, scale, number, ways=ways, theorem=_THEOREM)
    distribution, scale, step = plan.get("distribution"), plan.get("scale", 0.0), moved * grids[1]
    what = f"answer {number:,} queries"
    return [choice, noise_step(what, distribution, number * step, number * step**2, scale)]
