"""What `beam-dp ledger` prints: budgets, what is left of them, and who spent them on what."""

from __future__ import annotations

import decimal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_dp.checks import is_integer, is_number
from beam_dp.reports.terminal import below_each_other, plain_table, plain_text
from beam_dp.windows.promise import MECHANISM

if TYPE_CHECKING:
    from rich.console import RenderableType

# What a loss is called where people read what is left for one more release of its kind.
_KINDS = (
    ("pure", "a release that needs no delta, as with Laplace noise"),
    ("gaussian", "one with Gaussian noise"),
    ("zcdp", "any other, such as mwem in rounds"),
)
# How releases of a budget add up, for people.
_COMPOSITIONS = {
    "pure_first": "epsilons, then a filter once a release needs delta",
    "auto": "by a filter that the first release chooses, or epsilons alone",
    "zcdp": "by rho, or epsilons alone",
    "gaussian": "by mu^2, or epsilons alone",
    "with_slack": "as auto, with half of delta kept for histograms of keys",
}


def ledger_table(name: str, reports: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Returns all budgets, and what was paid from them, in lines of words for ``rich`` to print.

    Args:
        name: of the ledger.
        reports: of each dataset, as `beam-dp ledger --json` prints them.
    """
    parts: list[RenderableType] = [plain_text(f"budgets of {name}")]
    for report in reports:
        rows = [
            ("protects", f"{report['privacy_unit']}, {report['neighboring'].replace('_', ' ')}"),
            ("budget", f"epsilon {report['epsilon']:g}, delta {report['delta']:g}"),
            ("adds up", f"{report['composition']}: {_COMPOSITIONS[report['composition']]}"),
            ("spent", f"epsilon {report['spent_epsilon']:.4g} at this delta"),
        ]
        left = left_lines(report["remaining_epsilon"], report["remaining_slack"])
        rows += zip(("left", *("" for _ in left[1:])), left, strict=True)
        parts.append(plain_table((report["dataset_id"], ""), rows))
    entries = [entry for report in reports for entry in report["entries"]]
    if entries:
        rows = [row for entry in entries for row in _entry_rows(entry)]
        parts.append(plain_table(("release", ""), rows))
    return below_each_other(parts)


def left_lines(epsilons: Mapping[str, float], slack: float) -> list[str]:
    """Returns what one more release may have of a budget, a line for each kind that has something.

    Numbers are rounded down, so that a release that asks for one of them fits.

    Args:
        epsilons: of one more release of each kind of loss.
        slack: delta for one more release that is private except with some probability, as one that
            holds a histogram of keys is.

    Example:
        >>> left_lines({"pure": 0.0, "gaussian": 0.4, "zcdp": 0.0}, 0.0)
        ['epsilon 0.4 for one with Gaussian noise', 'nothing for others']
        >>> left_lines({"pure": 0.0, "gaussian": 0.0, "zcdp": 0.0}, 1e-9)
        ['nothing']
    """
    left = {kind: rounded_down(epsilon) for kind, epsilon in epsilons.items()}
    told = [f"epsilon {left[kind]} for {words}" for kind, words in _KINDS if float(left[kind]) > 0]
    held = rounded_down(slack)
    if told and float(held) > 0:  # such a release needs some epsilon, too
        told.append(f"delta {held} for a histogram of keys")
    if not told:
        return ["nothing"]
    return told if len(told) > len(_KINDS) else [*told, "nothing for others"]


def rounded_down(number: float) -> str:
    """Returns a number >= 0 in four digits, never more than it is.

    Example:
        >>> rounded_down(0.33335), rounded_down(2.0), rounded_down(1.99999e-9)
        ('0.3333', '2', '1.999e-09')
    """
    context = decimal.Context(prec=4, rounding=decimal.ROUND_FLOOR)
    return f"{float(context.create_decimal_from_float(number)):g}"


def _entry_rows(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns what was paid for, when and by whom, why, and where it went."""
    guarantee, origin = entry["guarantee"], entry["origin"] or {}
    paid = f"epsilon {guarantee['epsilon']:g}, delta {guarantee['delta']:g}"
    when = str(entry["spent_at"]).replace("T", " ").replace("+00:00", " UTC")
    by = f" by {origin['who']}" if origin else ""
    rows = [
        (entry["release_id"], f"{_mechanism_text(entry)}, {paid}, {entry['state']}"),
        ("", f"{when}{by}"),
    ]
    for name, title in (("purpose", "for"), ("output", "to")):
        if origin.get(name) is not None:
            rows.append(("", f"{title} {origin[name]}"))
    return rows


def _mechanism_text(entry: Mapping[str, Any]) -> str:
    """The mechanism; of windows whose budget renews, also what all of them reveal at worst."""
    text, parameters = str(entry["mechanism"]), entry["parameters"]
    worst = parameters.get("worst_case") if isinstance(parameters, dict) else None
    if text != MECHANISM or not isinstance(worst, dict):
        return text
    periods, epsilon, delta = (worst.get(name) for name in ("periods", "epsilon", "delta"))
    if not (is_integer(periods) and periods > 1 and is_number(epsilon) and is_number(delta)):
        return text
    return f"{text} (all together {periods:,} times: epsilon {epsilon:g}, delta {delta:g})"
