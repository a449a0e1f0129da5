"""The choice of the largest answers of a workload, and noisy answers to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beam_dp.checks import check_choice, checked_integer
from beam_dp.domain.files import domain_from_json
from beam_dp.noise.bound import choice_margin
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.linear import VALUE_BITS
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.answers.verify_linear import (
    PLAN,
    card_figures,
    distinct_queries,
    error_figures,
    stated_probability,
)
from beam_dp.verification.claims import composed
from beam_dp.verification.fields import check_fields
from beam_dp.verification.steps import Step, flip_step, noise_step, selection_step
from beam_dp.verification.verdict import Figures, Verification, judged

ONE_SHOT = "geometric"
_METHODS = (ONE_SHOT, "exponential", "permute_and_flip")
_THEOREM = "one shot of geometric noise, as Dwork and Roth (2014), Claim 3.9"
_UNIT = 1 << VALUE_BITS
_CHOICE = ("top", "choice", "choice_grid", "choice_scale", "margin")


def verify_top_queries(release: AnswersRelease) -> Verification:
    """Returns what the card of the largest answers comes to.

    Their number is compared with what the card states, unless a query is too long to stand in the
    file whole; that of the others stands on the card alone.
    """
    figures, plan = Figures(), release.card["plan"]
    check_fields("plan", plan, (*PLAN, *_CHOICE), ("ledger_release",))
    card_figures(release, plan, figures)
    steps = top_query_steps(plan, release.guarantee)
    figures.loss("plan.loss", plan["loss"], composed(step.claims for step in steps))
    number, half = plan["top"], stated_probability(plan) / 2
    domain = domain_from_json(release.card.get("domain"), "card")
    chosen, num_cut = distinct_queries(release, domain, figures)
    figures.at_least("top", number, len(chosen) + bool(num_cut), len(chosen) + num_cut)
    figures.at_least("num_queries", plan["num_queries"], number)
    error_figures(release, plan, figures, number, half)
    is_one_shot, num_queries = plan["choice"] == ONE_SHOT, plan["num_queries"]
    margin = choice_margin(is_one_shot, plan["choice_scale"], number, num_queries, half)
    figures.same("margin", plan.get("margin"), margin / plan["choice_grid"])
    return judged("answers", str(release.card["mechanism"]), release.guarantee, steps, figures)


def top_query_steps(plan: Mapping[str, Any], guarantee: Guarantee) -> list[Step]:
    """Returns the steps: the choice, and noise on the answers to what was chosen.

    A unit moves each answer by at most its records, whatever the queries: all of them the same way
    where it is added or removed, and either way where it is replaced.
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
    step = moved * grids[1]
    answers = noise_step(
        f"answer {number:,} queries",
        plan.get("distribution"),
        number * step,
        number * step**2,
        plan.get("scale", 0.0),
    )
    return [choice, answers]
