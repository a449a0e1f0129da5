"""The command `beam-dp ledger`, which declares budgets and prints what was spent."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_dp.checks import is_integer, is_number
from beam_dp.errors import InputError
from beam_dp.flags.command_line import Command
from beam_dp.flags.flag import JSON, Flag, FlagError, check_together, number, one_of, refused
from beam_dp.privacy.ledger.entries import GROUPS, spent_by
from beam_dp.privacy.rounding import down_to_digits
from beam_dp.views.terminal import below_each_other, plain_table, plain_text, short_value

if TYPE_CHECKING:
    from rich.console import RenderableType

    from beam_dp.privacy.ledger.entries import Dataset
    from beam_dp.privacy.ledger.ledger import Ledger

# Flags of --declare; all flags except the last two are required.
_DECLARATION = tuple(
    dataclasses.replace(flag, help=f"with --declare: {flag.help}")
    for flag in (
        Flag("epsilon", "total epsilon, > 0", "E"),
        Flag("delta", "total delta, from 0 to 1e-5; 0 allows only releases without delta", "X"),
        Flag("privacy_unit", "the unit of every release: a column name, or record", "U"),
        Flag("neighboring", "the relation of every release: add_or_remove_one or replace_one", "R"),
        Flag(
            "composition",
            "how releases add up: pure_first (default), auto, zcdp, gaussian or with_slack",
            "C",
        ),
        Flag("allow_large_delta", "allow a total delta above 1e-5", is_switch=True),
    )
)
_FLAGS = (
    Flag("url", "a SQLite file, or postgresql://USER@HOST/DATABASE", "URL", is_positional=True),
    Flag("declare", "declare the total budget of a dataset", "NAME"),
    *_DECLARATION,
    Flag(
        "by",
        "sum up what was spent, by dataset and some of year, date, release, who, purpose",
        "NAME,...",
    ),
    Flag("csv", "with --by: print CSV", is_switch=True),
    JSON,
)
# Descriptions of the kinds of privacy loss, for the remaining budget.
_KINDS = (
    ("pure", "a release without delta, such as one with Laplace noise"),
    ("gaussian", "a release with Gaussian noise"),
    ("zcdp", "any other release, such as mwem in rounds"),
)
# Descriptions of the rules that add up the losses of releases.
_COMPOSITIONS = {
    "pure_first": "epsilons add up until a release needs delta; it and later ones share the rest",
    "auto": "zcdp or gaussian, as the first release decides",
    "zcdp": "sums rho; releases without delta may instead sum epsilons",
    "gaussian": "sums mu^2; releases without delta may instead sum epsilons",
    "with_slack": "like auto, but keeps half of delta for histograms of keys",
}
# What the state of an entry without a release says of its job.
_STATES = {
    "spent": "paid, and nothing was drawn (unless version 0.1.0 or code of your own paid); start"
    " the command again, which pays again",
    "submitted": "noise may have been drawn; once the job has ended, run beam-dp finish OUTPUT; a"
    " release there whose card names this entry is complete and paid for; without one, start the"
    " command again, which pays again (windows go on without)",
}


def _run(options: argparse.Namespace) -> None:
    """Declares a budget, or prints the spent and the remaining budget."""
    from rich.console import Console

    from beam_dp.privacy.ledger.ledger import Ledger

    ledger = Ledger(options.url)
    if options.declare is not None:
        _declare(ledger, options)
    else:
        for flag in _DECLARATION:
            if getattr(options, flag.name) is not None:
                raise FlagError(f"--{flag.name} needs --declare NAME")
    check_together(vars(options), ("csv", "by"))
    if options.by is not None:
        head, rows = _sums(ledger, options)
        if options.csv:
            cells = [map(_inert, row) for row in rows]
            csv.writer(sys.stdout, lineterminator="\n").writerows([head, *cells])
            return
        shown = [tuple(map(short_value, row)) for row in rows]
        Console().print(plain_table(head, shown, range(len(head) - 3, len(head))))
        return
    reports = [_report(ledger, dataset) for dataset in ledger.datasets()]
    if options.json:
        print(json.dumps({"ledger": ledger.name, "datasets": reports}, ensure_ascii=False))
        return
    Console().print(_table(ledger.name, reports))


def _sums(ledger: Ledger, options: argparse.Namespace) -> tuple[Sequence[str], list[Any]]:
    """Returns the columns and rows of --by."""
    if options.json:
        raise FlagError("--json must not be given with --by")
    names = [*dict.fromkeys(name.strip() for name in options.by.split(","))]
    for name in names:
        if name not in GROUPS:
            raise refused("by", name, one_of(name, GROUPS))
    entries = [paid for each in ledger.datasets() for paid in ledger.entries(each.dataset_id)]
    return ("dataset", *names, "releases", "epsilon", "delta"), spent_by(entries, names)


def _inert(cell: object) -> object:
    """Returns a cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(tuple("=+-@")) else cell


def _declare(ledger: Ledger, options: argparse.Namespace) -> None:
    values: dict[str, Any] = {}
    *required, composition, allow_large_delta = _DECLARATION
    for flag in required:
        values[flag.name] = getattr(options, flag.name)
        if values[flag.name] is None:
            meaning = flag.help.removeprefix("with --declare: ")
            raise FlagError(f"--{flag.name} is required with --declare: {meaning}")
    if options.composition is not None:
        values[composition.name] = options.composition
    for name in ("epsilon", "delta"):
        values[name] = number(name, values[name])
    is_large = getattr(options, allow_large_delta.name) is not None
    try:
        ledger.declare(options.declare, **values, allow_large_delta=is_large)
    except InputError as error:
        if error.name != "dataset_id":
            raise
        raise InputError("declare", error.value, error.condition) from None


def _report(ledger: Ledger, dataset: Dataset) -> dict[str, Any]:
    from beam_dp.privacy.loss import KINDS

    account = ledger.account(dataset.dataset_id)
    return {
        **dataclasses.asdict(dataset),
        "spent_epsilon": account.spent_epsilon(),
        "filters": list(account.filters()),
        "remaining_epsilon": {kind: account.largest_epsilon(kind, dataset.delta) for kind in KINDS},
        "remaining_slack": account.largest_slack(),
        "entries": [entry.to_json() for entry in ledger.entries(dataset.dataset_id)],
    }


def _table(name: str, reports: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Returns a table of all budgets and payments, from the values that --json prints."""
    parts: list[RenderableType] = [plain_text(f"budgets of {name}")]
    for report in reports:
        rows = [
            ("protects", f"{report['privacy_unit']}, {report['neighboring'].replace('_', ' ')}"),
            ("budget", f"epsilon {report['epsilon']:g}, delta {report['delta']:g}"),
            ("adds up", f"{report['composition']}: {_COMPOSITIONS[report['composition']]}"),
            ("spent", f"epsilon {report['spent_epsilon']:.4g} at this delta"),
        ]
        left = _left_lines(report["remaining_epsilon"], report["remaining_slack"])
        rows += zip(("left", *("" for _ in left[1:])), left, strict=True)
        parts.append(plain_table((report["dataset_id"], ""), rows))
    entries = [entry for report in reports for entry in report["entries"]]
    if entries:
        rows = [row for entry in entries for row in _entry_rows(entry)]
        parts.append(plain_table(("release", ""), rows))
        states = {entry["state"] for entry in entries}
        rows = [(state, meaning) for state, meaning in _STATES.items() if state in states]
        if rows:
            parts.append(plain_table(("state", ""), rows))
    return below_each_other(parts)


def _left_lines(epsilons: Mapping[str, float], slack: float) -> list[str]:
    """Returns the remaining budget for one more release, one line per kind of loss.

    Numbers are rounded down, so that a release with a printed number fits. ``slack``: the delta for
    a release that may fail with some probability, such as a histogram of keys.
    """
    left = {kind: down_to_digits(epsilon, 4) for kind, epsilon in epsilons.items()}
    lines = [f"epsilon {left[kind]:g} for {words}" for kind, words in _KINDS if left[kind] > 0]
    rest = down_to_digits(slack, 4)
    if lines and rest > 0:  # a histogram of keys also needs some epsilon
        lines.append(f"delta {rest:g} for a histogram of keys")
    if not lines:
        return ["nothing"]
    if len(lines) <= len(_KINDS):
        return [*lines, "nothing for others"]
    return lines if len(set(left.values())) > 1 else [f"epsilon {left['pure']:g}", lines[-1]]


def _entry_rows(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns rows with the mechanism, time, author, purpose and output of an entry."""
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
    """Returns the mechanism; for a horizon, also the total loss of all its periods."""
    text, parameters = str(entry["mechanism"]), entry["parameters"]
    is_horizon = isinstance(parameters, dict) and "horizon_id" in parameters
    worst = parameters.get("worst_case") if is_horizon else None
    if not isinstance(worst, dict):
        return text
    periods, epsilon, delta = (worst.get(name) for name in ("periods", "epsilon", "delta"))
    if not (is_integer(periods) and periods > 1 and is_number(epsilon) and is_number(delta)):
        return text
    return f"{text} (all together {periods:,} times: epsilon {epsilon:g}, delta {delta:g})"


COMMANDS = {"ledger": Command(_FLAGS, _run)}
