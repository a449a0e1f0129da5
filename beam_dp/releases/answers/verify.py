"""Verifies noisy answers to declared workloads, the largest queries, and questions one by one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from beam_dp.checks import check_choice, checked_integer, checked_number
from beam_dp.domain.files import domain_from_json
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.privacy.loss import Loss, composed
from beam_dp.privacy.noise.bound import choice_margin, largest_noise, noise_variance
from beam_dp.privacy.steps import (
    Step,
    comparisons_step,
    flip_step,
    laplace_step,
    noise_step,
    repeated,
    selection_step,
)
from beam_dp.queries.linear import VALUE_BITS, LinearQuery
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.reader import SHOWN_LETTERS, LinearQueries, read_line
from beam_dp.queries.sensitivity import WorkloadSensitivity, workload_sensitivity
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.verdict import (
    COUNT_FAILURE,
    MAX_RECORDS,
    START_SHARE,
    Figures,
    Verification,
    check_fields,
    judged,
)

_UNIT = 1 << VALUE_BITS
_SQUARED = "l2_sensitivity_squared"
_SENSITIVITIES = ("l1_sensitivity", "l2_sensitivity", _SQUARED, "sensitivity_is_exact")
_NOISE_FIELDS = ("distribution", "scale", "grid")
_ERRORS = ("standard_error", "bound", "failure_probability")
_ASKED = ("mechanism", "num_queries", "num_records", "guarantee", "loss")
_PLAN = (*_ASKED, *_NOISE_FIELDS, *_ERRORS)
_ONE_SHOT = "geometric"
_METHODS = (_ONE_SHOT, "exponential", "permute_and_flip")
_THEOREM = "one shot of geometric noise, as Dwork and Roth (2014), Claim 3.9"
_CHOICE = ("top", "choice", "choice_grid", "choice_scale", "margin")


def verify(release: AnswersRelease) -> Verification:
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
    sensitivity = None
    if queries:
        sensitivity = workload_sensitivity(
            LinearWorkload(domain, tuple(queries)),
            release.guarantee.neighboring,
            release.guarantee.max_records_per_unit,
        )
        _compare(sensitivity, plan, figures, is_whole=not num_cut)
    least, largest = len(queries) + bool(num_cut), len(queries) + num_cut
    figures.at_least("num_queries", plan["num_queries"], least, largest)
    if num_cut:
        notes.append(
            "The file truncates a long query. The sensitivities are therefore the figures of the"
            " card, which were compared only with the sensitivities of the other queries."
        )
    steps = linear_answer_steps(plan, None if num_cut else sensitivity)
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
    first_values: dict[LinearQuery, float] = {}
    num_cut = 0
    for row in release.rows:
        if row["error"] is not None:
            continue
        figures.equal("route of an answer", row["route"], "measured")
        line = read_line(reader, row["query"])
        if line.query is not None:
            first = first_values.setdefault(line.query, row["value"])
            figures.equal("second answer to a query", row["value"], first)
        elif len(row["query"]) == SHOWN_LETTERS:
            num_cut += 1
        else:
            raise InputError("query", row["query"], "must be a query of the domain of the card")
    return list(first_values), num_cut


def _compare(
    sensitivity: WorkloadSensitivity, plan: Mapping[str, Any], figures: Figures, *, is_whole: bool
) -> None:
    """Compares the sensitivities on a card with the sensitivities of some or all of the queries."""
    for name, value in (
        ("l1_sensitivity", sensitivity.l1 / _UNIT),
        ("l2_sensitivity", sensitivity.l2 / _UNIT),
        (_SQUARED, float(Fraction(sensitivity.l2_squared, _UNIT**2))),
    ):
        if is_whole:
            figures.same(name, plan[name], value)
        elif sensitivity.is_exact:
            figures.at_least(name, plan[name], value)
    if is_whole:
        figures.equal("sensitivity_is_exact", plan["sensitivity_is_exact"], sensitivity.is_exact)


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


# Verifies answers to queries that came one at a time, by the sparse vector technique.


_COUNT_SCALE = "count_scale"
_GRID = 1 << VALUE_BITS

CARD = ("mechanism", "guarantee", "num_records", "plan")
CARD_OPTIONAL = ("domain", "ledger_release", "versions", "num_answers", "num_refused")
_ROUTES = ("hypothesis", "update", "exhausted")
_MECHANISMS = {"private_mw": "starts_from_release", "sparse_mw": "max_sparsity"}
# By method: whether the threshold is drawn again after an answer above it, and the noise of
# answers.
_ONLINE_METHODS = {
    "pure": (False, "discrete_laplace"),
    "zcdp": (True, "discrete_gaussian"),
    "textbook": (True, "discrete_laplace"),
}
_OPTIONS = ("num_questions", "failure_probability", "calibration", "max_error", "max_updates")
_ONLINE_PLAN = ("guarantee", "num_records", "loss", *_OPTIONS)
_BOUNDS = ("total_bound", "hypothesis_bound", "update_bound", "exhausted_bound", "is_vacuous")
_SETTINGS = ("total", "max_error", "learning_rate", "noise", "threshold", "gap", *_BOUNDS)
_SCALES = ("threshold_scale", "question_scale", "answer_scale")
_NOISE = ("method", "max_above", "redraws_threshold", "answer_noise", "loss", *_SCALES)


def verify_online(release: AnswersRelease) -> Verification:
    """Verifies a run that answers from a hypothesis."""
    figures, card = Figures(), release.card
    plan, settings = card["plan"], card.get("settings")
    if not isinstance(settings, Mapping):
        raise InputError("settings", settings, "must be present, because they state the noise")
    _check_names(card, plan, settings)
    _online_figures(release, plan, settings, figures)
    is_counted = plan["num_records"] == "noisy"
    count = checked_number(_COUNT_SCALE, plan[_COUNT_SCALE], above=0) if is_counted else None
    steps = online_steps(release.guarantee, settings["noise"], count)
    answer_steps = steps[is_counted:]
    # Plans state epsilon^2 / 2 as the rho of a step, also where epsilon itself is less.
    is_exact = all(step.loss.rho != step.loss.epsilon for step in answer_steps)
    figures.loss("noise.loss", settings["noise"]["loss"], _loss_of(answer_steps), is_exact=is_exact)
    # A plan is made before the noisy count, so the plan states the largest loss of other steps.
    is_exact = is_exact and not is_counted
    figures.loss("plan.loss", plan["loss"], _loss_of(steps), is_exact=is_exact)
    _setting_figures(plan, settings, figures)
    _choice_figures(card, plan, settings, figures)
    for row in release.rows:
        if row["error"] is None:
            check_choice("route of an answer", row["route"], _ROUTES)
        if row["error"] is None and row["bound"] is not None:
            name = f"{row['route']}_bound"
            figures.same(f"bound of an answer, {row['route']}", row["bound"], settings.get(name))
    limit = settings["noise"]["max_above"]
    updates = sum(row["route"] == "update" for row in release.rows)
    figures.at_least("answers that are updates", updates, 0, limit)
    return judged("answers", str(card["mechanism"]), release.guarantee, steps, figures)


def _loss_of(steps: Sequence[Step]) -> Loss:
    return composed(step.loss for step in steps)


def _check_names(
    card: Mapping[str, Any], plan: Mapping[str, Any], settings: Mapping[str, Any]
) -> None:
    check_choice("mechanism", card.get("mechanism"), _MECHANISMS)
    check_fields("card", card, (*CARD, "settings"), CARD_OPTIONAL)
    counted = (_COUNT_SCALE,) if plan.get("num_records") == "noisy" else ()
    field = _MECHANISMS[card["mechanism"]]
    if field == "starts_from_release":
        domain_from_json(card.get("domain"), "card")
        if not isinstance(plan.get(field), bool):
            raise InputError(field, plan.get(field), "must be true or false")
    elif "domain" in card:
        raise InputError("domain", "a universe", "must not be stated for keys")
    check_fields("plan", plan, (*_ONLINE_PLAN, field, *counted), ("ledger_release",))
    check_fields("settings", settings, _SETTINGS)
    check_fields("settings.noise", settings["noise"], _NOISE)
    check_choice("calibration", plan["calibration"], ("tight", "textbook"))


def _online_figures(
    release: AnswersRelease, plan: Mapping[str, Any], settings: Mapping[str, Any], figures: Figures
) -> None:
    """Compares the figures that a card states twice, and checks the settings on the card."""
    figures.equal("plan.guarantee", plan["guarantee"], release.guarantee.to_json())
    noise, is_counted = settings["noise"], plan["num_records"] == "noisy"
    entry = release.card["num_records"]
    check_fields("num_records", entry, ("noisy" if is_counted else "public",))
    (number,) = entry.values()
    checked_integer("num_records", number)
    figures.equal("settings.total", settings["total"], min(max(1, number), MAX_RECORDS))
    if is_counted:
        figures.equal("neighboring", release.guarantee.neighboring, Neighboring.ADD_OR_REMOVE_ONE)
    else:
        figures.equal("plan.num_records", plan["num_records"], number)
    check_choice("method", noise["method"], _ONLINE_METHODS)
    redraws, answers = _ONLINE_METHODS[noise["method"]]
    figures.equal("redraws_threshold", noise["redraws_threshold"], redraws)
    figures.equal("answer_noise", noise["answer_noise"], answers)
    if plan["calibration"] == "textbook":
        figures.equal("method", noise["method"], "textbook")
    if plan["max_updates"] is not None:
        figures.equal("max_updates", plan["max_updates"], noise["max_above"])


def _choice_figures(
    card: Mapping[str, Any], plan: Mapping[str, Any], settings: Mapping[str, Any], figures: Figures
) -> None:
    """Compares alpha, the gap of an update and its step; any two of these determine the third."""
    largest, gap = settings["total"] + settings["total_bound"], settings["gap"]
    alpha = gap / largest
    if plan["calibration"] == "textbook":
        figures.same("learning_rate", settings["learning_rate"], alpha / 2)
    else:
        least = plan["max_error"]
        if least is None:
            least = 0.0 if plan["max_updates"] is not None else _least_error(card, plan, settings)
        expected = max(least * largest, settings["update_bound"] + 1 / _GRID)
        figures.same("gap", gap, expected)
        figures.same("learning_rate", settings["learning_rate"], 4 * min(1.0, alpha))
        alpha = least or alpha
    figures.same("max_error", settings["max_error"], alpha)
    if plan["max_error"] is not None:
        figures.same("plan.max_error", plan["max_error"], settings["max_error"])


def _least_error(
    card: Mapping[str, Any], plan: Mapping[str, Any], settings: Mapping[str, Any]
) -> float:
    """Returns the smallest alpha that the largest number of updates allows."""
    updates = settings["noise"]["max_above"] + 1
    if card["mechanism"] == "sparse_mw":
        limit = checked_integer("max_sparsity", plan["max_sparsity"], 1)
        divergence = math.log(limit * updates + 1)
    else:
        divergence = math.log(domain_from_json(card.get("domain"), "card").num_cells)
        if plan["starts_from_release"]:
            divergence -= math.log(START_SHARE)
    return math.sqrt(divergence / (2 * updates)) * (1 + 1e-9) or 1e-9


def online_steps(
    guarantee: Guarantee, noise: Mapping[str, Any], count_scale: float | None
) -> list[Step]:
    """Returns the steps of comparisons with a threshold and of numeric answers.

    A unit of k records moves a question and its answer by at most k, under either relation. If one
    threshold is used for c answers above it, the cost is k / threshold_scale + 2 c k /
    question_scale. If the threshold is drawn again after each of the c answers, every answer costs
    k / threshold_scale + 2 k / question_scale.

    ``noise``: of the sparse vector, as a card states it. ``count_scale``: of the noise on the
    number of records; None if the number is public.
    """
    k = guarantee.max_records_per_unit
    uses = checked_integer("max_above", noise["max_above"], 1)
    steps = [] if count_scale is None else [laplace_step("count the records", k, count_scale)]
    steps.append(
        comparisons_step(
            threshold_scale=noise["threshold_scale"],
            question_scale=noise["question_scale"],
            redraws=noise["redraws_threshold"],
            k=k,
            most=uses,
        )
    )
    distribution, scale = noise["answer_noise"], noise["answer_scale"]
    if scale is not None:
        moved, what = k * _GRID, "measure an answer"
        steps.append(repeated(noise_step(what, distribution, moved, moved**2, scale * _GRID), uses))
    return steps


def _setting_figures(
    plan: Mapping[str, Any], settings: Mapping[str, Any], figures: Figures
) -> None:
    """Compares the error bounds of a run with the noise of the run."""
    beta, noise = plan["failure_probability"], settings["noise"]
    total_bound = 0.0
    if plan.get("num_records") == "noisy":
        log_term = math.log(1 / (beta * COUNT_FAILURE))
        total_bound = float(math.ceil(plan[_COUNT_SCALE] * log_term))
        figures.same("total_bound", settings.get("total_bound"), total_bound)
        total_bound = settings["total_bound"]
        beta *= 1 - COUNT_FAILURE
    else:
        figures.equal("total_bound", settings["total_bound"], 0.0)
    is_textbook, share = plan.get("calibration") == "textbook", beta / 3
    asked = plan["num_questions"] * (2 if is_textbook else 1)
    thresholds = noise["max_above"] if noise["redraws_threshold"] else 1
    margin = (
        math.ceil(noise["threshold_scale"] * _GRID * math.log(thresholds / share))
        + math.ceil(noise["question_scale"] * _GRID * math.log(asked / share))
    ) / _GRID
    log_term = math.log(noise["max_above"] / share)
    if not plan["num_questions"] >= 1:
        raise InputError("num_questions", plan["num_questions"], "must be an integer >= 1")
    scale = noise["answer_scale"] * _GRID
    update = math.ceil(scale * log_term) / _GRID
    if noise["answer_noise"] == "discrete_gaussian":
        update = scale * math.sqrt(2 * (log_term + math.log(2))) / _GRID
    figures.same("update_bound", settings.get("update_bound"), update)
    gap = settings["gap"]
    if is_textbook:
        threshold = settings["threshold"] / _GRID  # rounded up to the grid
        figures.at_least("threshold", threshold, 2 * gap + total_bound)
        bound, value = threshold + margin, settings["hypothesis_bound"]
        figures.at_least("hypothesis_bound", value, bound, bound + 2 / _GRID)
    else:
        threshold = gap + total_bound + margin
        figures.equal("threshold", settings["threshold"], math.ceil(threshold * _GRID))
        bound = threshold + margin + 2 / _GRID
        figures.same("hypothesis_bound", settings["hypothesis_bound"], bound)
    if settings["exhausted_bound"] is not None:
        exhausted = gap + total_bound + 2 / _GRID
        figures.same("exhausted_bound", settings["exhausted_bound"], exhausted)
    is_vacuous = settings["hypothesis_bound"] >= settings["total"]
    figures.equal("is_vacuous", settings.get("is_vacuous"), is_vacuous)
