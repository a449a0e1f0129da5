"""What `--validate_only` prints: a page of facts for people, or all of it as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.text import Text

from beam_dp.mechanisms.checks import NumRecords
from beam_dp.mechanisms.contract import Plan
from beam_dp.mechanisms.marginals.measure_all import MeasureAllPlan
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.privacy.ledger.entries import Origin
from beam_dp.privacy.rounding import down_to_digits
from beam_dp.reports.terminal import plain_table, plain_text, promise_facts, short

_SHOWN_WARNINGS = 3


def print_preview(
    what: str,
    plan: Plan,
    facts: Mapping[str, str],
    places: Mapping[str, str],
    ledger: Mapping[str, Any] | None,
    origin: Origin | None,
    warnings: Sequence[str] = (),
) -> None:
    """Prints what would be released, under which promise, how wrong, at what cost, and where.

    ``places``: where it reads and writes.
    ``ledger``: what the JSON says of the ledger; None without one.
    """
    rows = {
        "what": what,
        "mechanism": plan.mechanism,
        **promise_facts(plan.promised),
        **facts,
        **_left_out_facts(plan),
        "memory": f"about {plan.memory_bytes / 1e6:,.0f} MB on the worker that draws the noise",
        "budget": _cost(ledger),
    }
    if origin is not None:
        rows["by"] = origin.who + ("" if origin.purpose is None else f", for {origin.purpose}")
    shown = plain_table(("would be released", ""), (rows | dict(places)).items())
    below = [f"warning: {warning}" for warning in warnings[:_SHOWN_WARNINGS]]
    below.append("Nothing was read, paid or written. --json prints all that is known before.")
    Console().print(Group(shown, Text(), *map(plain_text, below)))


def marginals_error(plan: MarginalsPlan) -> str:
    """Returns how wrong a table of a plan of marginals is expected to be, in half a line."""
    if isinstance(plan, MeasureAllPlan):
        error = f"{short(plan.predicted_cell_error)} records"
        return f"{error} expected of a cell, root mean squared, before the fit"
    return "depends on the data; the card will state it where it is known"


def number_text(num_records: NumRecords) -> str:
    """Returns whether the number of records is public, in half a line."""
    if num_records == "noisy":
        return "their number is private: a noisy count is paid from the budget"
    return f"{num_records:,}, which is public"


def bound_text(bound: float, failure_probability: float) -> str:
    """Returns what all answers are within, in half a line."""
    return f"all within {short(bound)} records, except with probability {failure_probability:g}"


def _left_out_facts(plan: Plan) -> dict[str, str]:
    if plan.left_out is None:
        return {}
    share = plan.left_out.to_json()["budget"]["left_out"]["epsilon"]
    return {"left out": f"records outside the domain are counted, with {share:.4g} of epsilon"}


def _cost(ledger: Mapping[str, Any] | None) -> str:
    """Returns which budget pays, and what it has left."""
    if ledger is None:
        return "no ledger: nobody adds up what is released from this data"
    total = ledger["budget"]
    told = f"{ledger['dataset_id']}: epsilon {total['epsilon']:g}, delta {total['delta']:g}"
    if "remaining_epsilon" in ledger:
        left = down_to_digits(ledger["remaining_epsilon"], 4)
        told += f"; before this release epsilon {left:g} is left for one of its kind"
    return told
