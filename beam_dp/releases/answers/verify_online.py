"""Verifies answers to queries that came one at a time, by the sparse vector technique."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from beam_dp.checks import check_choice, checked_integer, checked_number
from beam_dp.domain.files import domain_from_json
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.privacy.loss import Loss, composed
from beam_dp.privacy.steps import (
    Step,
    comparisons_step,
    laplace_step,
    noise_step,
    repeated,
)
from beam_dp.queries.linear import VALUE_BITS
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.verdict import Figures, Verification, check_fields, judged

_COUNT_SCALE = "count_scale"
_COUNT_FAILURE = 0.25  # the noisy count's share of the failure probability
_GRID = 1 << VALUE_BITS
_MAX_RECORDS = 2**40  # the largest number of records that settings support
_START_SHARE = 0.001  # the share of the uniform distribution if a hypothesis starts from a release

CARD = ("mechanism", "guarantee", "num_records", "plan")
CARD_OPTIONAL = ("domain", "ledger_release", "versions", "num_answers", "num_refused")
_ROUTES = ("hypothesis", "update", "exhausted")
_MECHANISMS = {"private_mw": "starts_from_release", "sparse_mw": "max_sparsity"}
# By method: whether the threshold is drawn again after an answer above it, and the noise of
# answers.
_METHODS = {
    "pure": (False, "discrete_laplace"),
    "zcdp": (True, "discrete_gaussian"),
    "textbook": (True, "discrete_laplace"),
}
_PLAN = (
    *("guarantee", "num_records", "num_questions", "failure_probability"),
    *("calibration", "max_error", "max_updates", "loss"),
)
_SETTINGS = (
    *("total", "total_bound", "max_error", "learning_rate", "noise", "threshold", "gap"),
    *("hypothesis_bound", "update_bound", "exhausted_bound", "is_vacuous"),
)
_NOISE = (
    *("method", "max_above", "threshold_scale", "question_scale", "redraws_threshold"),
    *("answer_noise", "answer_scale", "loss"),
)


def verify_online(release: AnswersRelease) -> Verification:
    """Verifies a run that answers from a hypothesis."""
    figures, card = Figures(), release.card
    plan, settings = card["plan"], card.get("settings")
    if not isinstance(settings, Mapping):
        raise InputError("settings", settings, "must be present, because they state the noise")
    _check_names(card, plan, settings)
    _card_figures(release, plan, settings, figures)
    steps = online_steps(release.guarantee, plan, settings)
    is_counted = plan["num_records"] == "noisy"
    own = steps[is_counted:]
    # Plans state epsilon^2 / 2 as the rho of a step, also where epsilon itself is less.
    is_exact = all(step.loss.rho != step.loss.epsilon for step in own)
    figures.loss("noise.loss", settings["noise"]["loss"], _loss_of(own), is_exact=is_exact)
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
    most = settings["noise"]["max_above"]
    updates = sum(row["route"] == "update" for row in release.rows)
    figures.at_least("answers that are updates", updates, 0, most)
    return judged("answers", str(card["mechanism"]), release.guarantee, steps, figures)


def _loss_of(steps: Sequence[Step]) -> Loss:
    return composed(step.loss for step in steps)


def _check_names(
    card: Mapping[str, Any], plan: Mapping[str, Any], settings: Mapping[str, Any]
) -> None:
    check_choice("mechanism", card.get("mechanism"), _MECHANISMS)
    check_fields("card", card, (*CARD, "settings"), CARD_OPTIONAL)
    counted = (_COUNT_SCALE,) if plan.get("num_records") == "noisy" else ()
    own = _MECHANISMS[card["mechanism"]]
    if own == "starts_from_release":
        domain_from_json(card.get("domain"), "card")
        if not isinstance(plan.get(own), bool):
            raise InputError(own, plan.get(own), "must be true or false")
    elif "domain" in card:
        raise InputError("domain", "a universe", "must not be stated for keys")
    check_fields("plan", plan, (*_PLAN, own, *counted), ("ledger_release",))
    check_fields("settings", settings, _SETTINGS)
    check_fields("settings.noise", settings["noise"], _NOISE)
    check_choice("calibration", plan["calibration"], ("tight", "textbook"))


def _card_figures(
    release: AnswersRelease, plan: Mapping[str, Any], settings: Mapping[str, Any], figures: Figures
) -> None:
    """Compares the figures that a card states twice, and checks the settings on the card."""
    figures.equal("plan.guarantee", plan["guarantee"], release.guarantee.to_json())
    noise, is_counted = settings["noise"], plan["num_records"] == "noisy"
    stated = release.card["num_records"]
    check_fields("num_records", stated, ("noisy" if is_counted else "public",))
    (number,) = stated.values()
    checked_integer("num_records", number)
    figures.equal("settings.total", settings["total"], min(max(1, number), _MAX_RECORDS))
    if is_counted:
        figures.equal("neighboring", release.guarantee.neighboring, Neighboring.ADD_OR_REMOVE_ONE)
    else:
        figures.equal("plan.num_records", plan["num_records"], number)
    check_choice("method", noise["method"], _METHODS)
    redraws, answers = _METHODS[noise["method"]]
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
    most, gap = settings["total"] + settings["total_bound"], settings["gap"]
    alpha = gap / most
    if plan["calibration"] == "textbook":
        figures.same("learning_rate", settings["learning_rate"], alpha / 2)
    else:
        least = plan["max_error"]
        if least is None:
            least = 0.0 if plan["max_updates"] is not None else _least_error(card, plan, settings)
        found = max(least * most, settings["update_bound"] + 1 / _GRID)
        figures.same("gap", gap, found)
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
        most = checked_integer("max_sparsity", plan["max_sparsity"], 1)
        divergence = math.log(most * updates + 1)
    else:
        divergence = math.log(domain_from_json(card.get("domain"), "card").num_cells)
        if plan["starts_from_release"]:
            divergence -= math.log(_START_SHARE)
    return math.sqrt(divergence / (2 * updates)) * (1 + 1e-9) or 1e-9


def online_steps(
    guarantee: Guarantee, plan: Mapping[str, Any], settings: Mapping[str, Any]
) -> list[Step]:
    """Returns the steps of comparisons with a threshold and of numeric answers.

    A unit of k records moves a question and its answer by at most k, under either relation. If one
    threshold is used for c answers above it, the cost is k / threshold_scale + 2 c k /
    question_scale. If the threshold is drawn again after each of the c answers, every answer costs
    k / threshold_scale + 2 k / question_scale.
    """
    noise = settings.get("noise")
    if not isinstance(noise, Mapping):
        raise InputError("settings", "noise", "must be present")
    k = guarantee.max_records_per_unit
    most = checked_integer("max_above", noise.get("max_above"), 1)
    steps = []
    if plan.get("num_records") == "noisy":
        count_scale = checked_number(_COUNT_SCALE, plan.get(_COUNT_SCALE), above=0)
        steps.append(laplace_step("count the records", k, count_scale))
    steps.append(comparisons_step(noise, k, most))
    distribution, scale = noise.get("answer_noise"), noise.get("answer_scale")
    if scale is not None:
        moved, what = k * _GRID, "measure an answer"
        steps.append(repeated(noise_step(what, distribution, moved, moved**2, scale * _GRID), most))
    return steps


def _setting_figures(
    plan: Mapping[str, Any], settings: Mapping[str, Any], figures: Figures
) -> None:
    """Compares the error bounds of a run with the noise of the run."""
    beta, noise = plan["failure_probability"], settings["noise"]
    total_bound = 0.0
    if plan.get("num_records") == "noisy":
        log_term = math.log(1 / (beta * _COUNT_FAILURE))
        total_bound = float(math.ceil(plan[_COUNT_SCALE] * log_term))
        figures.same("total_bound", settings.get("total_bound"), total_bound)
        total_bound = settings["total_bound"]
        beta *= 1 - _COUNT_FAILURE
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
        bound, stated = threshold + margin, settings["hypothesis_bound"]
        figures.at_least("hypothesis_bound", stated, bound, bound + 2 / _GRID)
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
