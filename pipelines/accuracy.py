"""What a program says about the accuracy of answers, when they are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def accuracy(card: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """What is promised of the answers that have a bound, and how many have none."""
    plan, settings = card["plan"], card.get("settings")
    but = f"except with probability {plan['failure_probability']:g}"
    if settings is None:
        return f"Every answer is within {plan['bound']:,.1f} records, {but}."
    num_answers = sum(row["error"] is None for row in rows)
    num_bounded = sum(row["bound"] is not None for row in rows)
    num_unbounded = num_answers - num_bounded
    verb = "answer has" if num_unbounded == 1 else "answers have"
    without = f"{num_unbounded:,} {verb} no bound."
    if num_bounded == 0:
        return without
    vacuous = " (vacuous: not below the number of records)" if settings["is_vacuous"] else ""
    bounds = (
        f"Every answer from the hypothesis is within {settings['hypothesis_bound']:,.1f} records,"
        f" every other one within {settings['update_bound']:,.1f}, {but}{vacuous}."
    )
    if num_unbounded == 0:
        return bounds
    return f"Of those that have a bound: {bounds[0].lower()}{bounds[1:]} {without}"
