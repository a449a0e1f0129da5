"""Answers to queries one after the other: a sparse vector, numeric answers, perhaps a count."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from beam_dp.checks import checked_integer, checked_number
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.rounding import lowered
from beam_dp.queries.linear import VALUE_BITS
from beam_dp.releases.answers import AnswersRelease
from beam_dp.verification.claims import Claims
from beam_dp.verification.steps import (
    Step,
    Unstated,
    above,
    laplace_step,
    noise_step,
    number,
    positive,
    repeated,
)
from beam_dp.verification.verdict import Figures, Verification, judged

SPARSE_VECTOR = "Lyu, Su and Li (2017), Algorithm 7; Dwork and Roth (2014), Theorem 3.23"
_COUNT_SCALE = "count_scale"
_COUNT_FAILURE = 0.25  # share of the failure probability that is the noisy count's
_COUNT_SHARE = 0.05  # of epsilon, at most; of cards that do not state the scale of the count
_GRID = 1 << VALUE_BITS


def verify_online(release: AnswersRelease) -> Verification:
    """Returns what the card of a run that answers from a hypothesis comes to."""
    figures, card = Figures(), release.card
    plan, settings = card["plan"], card.get("settings")
    if not isinstance(settings, Mapping):
        raise InputError("settings", settings, "must be there: without them no noise is stated")
    figures.equal("plan.guarantee", plan.get("guarantee"), release.guarantee.to_json())
    steps = online_steps(release.guarantee, plan, settings)
    _setting_figures(plan, settings, figures)
    for row in release.rows:
        if row["error"] is None and row["bound"] is not None:
            name = f"{row['route']}_bound"
            figures.same(f"bound of an answer, {row['route']}", row["bound"], settings.get(name))
    most = settings["noise"]["max_above"]
    updates = sum(row["route"] == "update" for row in release.rows)
    figures.number += 1
    if updates > most:
        figures.faults.append(f"{updates:,} answers are updates; must be at most {most:,}")
    return judged("answers", str(card["mechanism"]), release.guarantee, steps, figures)


def online_steps(
    guarantee: Guarantee, plan: Mapping[str, Any], settings: Mapping[str, Any]
) -> list[Step]:
    """Returns the steps of comparisons with a threshold and of numeric answers.

    A unit moves a question, and what the answer to it is, by k records, under either relation. One
    threshold for c answers above it costs k / threshold_scale once, and 2 c k / question_scale;
    where the threshold is drawn anew after each, each costs k / threshold_scale and
    2 k / question_scale.

    Args:
        guarantee: of the run.
        plan: what a card states of it.
        settings: the noise, as a card states it.
    """
    noise = settings.get("noise")
    if not isinstance(noise, Mapping):
        raise InputError("settings", "noise", "must be there")
    k = guarantee.max_records_per_unit
    most = checked_integer("max_above", noise.get("max_above"), 1)
    steps = []
    if plan.get("num_records") == "noisy":
        steps.append(_count_step(guarantee, plan, settings))
    steps.append(comparisons_step(noise, k, most))
    distribution, scale = noise.get("answer_noise"), noise.get("answer_scale")
    if scale is not None:
        one = noise_step(
            "measure an answer", distribution, k * _GRID, (k * _GRID) ** 2, scale * _GRID
        )
        steps.append(repeated(one, most))
    return steps


def _count_step(guarantee: Guarantee, plan: Mapping[str, Any], settings: Mapping[str, Any]) -> Step:
    """The step of the noisy number of records.

    Cards of version 0.1 state the bound that its scale rounds up to, but not the scale.
    """
    k, what = guarantee.max_records_per_unit, "count the records"
    if _COUNT_SCALE in plan:
        return laplace_step(what, k, checked_number(_COUNT_SCALE, plan[_COUNT_SCALE], above=0))
    bound = checked_number("total_bound", settings.get("total_bound"), least=1)
    log_term = math.log(1 / (plan["failure_probability"] * _COUNT_FAILURE))
    least = max((bound - 1) / log_term * (1 - 1e-12), math.ulp(0.0))
    at_worst = laplace_step(what, k, least)
    scale = k / lowered(guarantee.epsilon * _COUNT_SHARE, 64)
    if math.ceil(scale * log_term) != bound:
        return at_worst
    rule = f"Every such version gave that count {_COUNT_SHARE:.0%} of epsilon, as its bound fits"
    unstated = Unstated(_COUNT_SCALE, rule, at_worst.claims)
    return dataclasses.replace(laplace_step(what, k, scale), unstated=unstated)


def comparisons_step(noise: Mapping[str, Any], k: int, most: int) -> Step:
    """Returns the step of questions that are compared with a noisy threshold.

    Args:
        noise: ``threshold_scale``, ``question_scale`` and ``redraws_threshold``.
        k: how far a unit moves a question.
        most: c, how many may be above the threshold.
    """
    threshold = k / positive(noise.get("threshold_scale"))
    question = 2 * k / positive(noise.get("question_scale"))
    ends = number(noise["threshold_scale"]), number(noise["question_scale"])
    redraws = noise.get("redraws_threshold")
    if not isinstance(redraws, bool):
        raise InputError("redraws_threshold", redraws, "must be true or false")
    if redraws:
        claims = Claims.pure(threshold + question).repeated(most)
        numbers = f"{most:,} x ({k} / {ends[0]} + 2 x {k} / {ends[1]})"
        formula = "epsilon = c (k / threshold scale + 2 k / question scale)"
    else:
        claims = Claims.pure(threshold + most * question)
        numbers = f"{k} / {ends[0]} + 2 x {most:,} x {k} / {ends[1]}"
        formula = "epsilon = k / threshold scale + 2 c k / question scale"
    assert claims.epsilon is not None
    numbers += f" = epsilon {above(claims.epsilon)}"
    what = f"compare questions with a threshold, of which c = {most:,} may be above it"
    return Step(what, formula, SPARSE_VECTOR, numbers, claims)


def _setting_figures(
    plan: Mapping[str, Any], settings: Mapping[str, Any], figures: Figures
) -> None:
    """Compares the bounds of a run, which follow from its noise."""
    beta, noise = plan["failure_probability"], settings["noise"]
    total_bound = 0.0
    if plan.get("num_records") == "noisy":
        if _COUNT_SCALE in plan:
            log_term = math.log(1 / (beta * _COUNT_FAILURE))
            total_bound = float(math.ceil(plan[_COUNT_SCALE] * log_term))
            figures.same("total_bound", settings.get("total_bound"), total_bound)
        total_bound = settings["total_bound"]
        beta *= 1 - _COUNT_FAILURE
    is_textbook, share = plan.get("calibration") == "textbook", beta / 3
    asked = plan["num_questions"] * (2 if is_textbook else 1)
    thresholds = noise["max_above"] if noise["redraws_threshold"] else 1
    margin = (
        math.ceil(noise["threshold_scale"] * _GRID * math.log(thresholds / share))
        + math.ceil(noise["question_scale"] * _GRID * math.log(asked / share))
    ) / _GRID
    log_term = math.log(noise["max_above"] / share)
    scale = noise["answer_scale"] * _GRID
    update = math.ceil(scale * log_term) / _GRID
    if noise["answer_noise"] == "discrete_gaussian":
        update = scale * math.sqrt(2 * (log_term + math.log(2))) / _GRID
    figures.same("update_bound", settings.get("update_bound"), update)
    gap = settings["gap"]
    if is_textbook:
        threshold = settings["threshold"] / _GRID  # rounded up to the grid
        figures.at_least("threshold", threshold, 2 * gap + total_bound)
        figures.at_least("hypothesis_bound", settings["hypothesis_bound"], threshold + margin)
    else:
        threshold = gap + total_bound + margin
        figures.equal("threshold", settings["threshold"], math.ceil(threshold * _GRID))
        figures.same(
            "hypothesis_bound", settings["hypothesis_bound"], threshold + margin + 2 / _GRID
        )
    if settings["exhausted_bound"] is not None:
        exhausted = gap + total_bound + 2 / _GRID
        figures.same("exhausted_bound", settings["exhausted_bound"], exhausted)
    is_vacuous = settings["hypothesis_bound"] >= settings["total"]
    figures.equal("is_vacuous", settings.get("is_vacuous"), is_vacuous)
