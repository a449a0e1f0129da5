"""What a program says about the accuracy of online answers, before and after the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from beam_dp.mechanisms.linear_answers.answers import WorkloadAnswersPlan
from beam_dp.transforms.drawing.answer_queries import AnswerPlan


def is_vacuous(plan: AnswerPlan) -> bool:
    """Whether it is known before that a bound says nothing."""
    if plan.num_records == "noisy":
        return False
    if isinstance(plan, WorkloadAnswersPlan):
        return plan.bound() >= plan.num_records
    return plan.settle(plan.num_records).is_vacuous


def accuracy(
    plan: AnswerPlan,
    failure_probability: float,
    card: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
) -> str:
    """What is promised of the answers that have a bound, and how many have none."""
    but = f"but with probability {failure_probability:g}"
    if isinstance(plan, WorkloadAnswersPlan):
        return f"Every answer is within {plan.bound():,.1f} records, {but}."
    num_answers = sum(row["error"] is None for row in rows)
    num_bounded = sum(row["bound"] is not None for row in rows)
    num_unbounded = num_answers - num_bounded
    verb = "answer has" if num_unbounded == 1 else "answers have"
    without = f"{num_unbounded:,} {verb} no bound."
    if num_bounded == 0:
        return without
    settings = card["settings"]
    vacuous = " (vacuous: not below the number of records)" if settings["is_vacuous"] else ""
    bounds = (
        f"Every answer from the hypothesis is within {settings['hypothesis_bound']:,.1f} records,"
        f" every other one within {settings['update_bound']:,.1f}, {but}{vacuous}."
    )
    if num_unbounded == 0:
        return bounds
    return f"Of those that have a bound: {bounds[0].lower()}{bounds[1:]} {without}"
