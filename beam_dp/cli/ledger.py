"""The command `beam-dp ledger`, which declares budgets and prints what was spent."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from beam_dp.checks import is_integer, is_number
from beam_dp.cli.tables import print_table
from beam_dp.errors import InputError
from beam_dp.flags.flag import FlagError, Once, refused
from beam_dp.flags.numbers import number

if TYPE_CHECKING:
    from beam_dp.privacy.ledger import Dataset, Ledger

# The flags that go with `ledger --declare`; all but the last must be given.
DECLARATION = (
    ("epsilon", "E", "total epsilon, > 0"),
    ("delta", "X", "total delta, 0 <= delta <= 1e-5; 0 admits purely private releases only"),
    ("privacy_unit", "U", "the unit of every release: a column, or the word record"),
    ("neighboring", "R", "the relation of every release: add_or_remove_one or replace_one"),
    ("composition", "C", "how releases add up: auto (default), zcdp, gaussian or with_slack"),
)


def add_ledger(commands: Any) -> None:
    """Adds the command's arguments to those of `beam-dp`."""
    ledger = commands.add_parser("ledger", help="what was spent on which data, and what is left")
    ledger.add_argument(
        "url", metavar="URL", help="sqlite file, or postgresql://USER@HOST/DATABASE"
    )
    ledger.add_argument(
        "--declare", metavar="NAME", action=Once, help="declare the total budget of a dataset id"
    )
    for flag, metavar, meaning in DECLARATION:
        ledger.add_argument(
            f"--{flag}", metavar=metavar, action=Once, help=f"with --declare: {meaning}"
        )
    ledger.add_argument(
        "--allow_large_delta",
        action="store_true",
        help="with --declare: admit a total delta above 1e-5",
    )
    ledger.add_argument("--json", action="store_true", help="JSON for machines")


def run_ledger(options: argparse.Namespace) -> None:
    """Declares a budget, or prints what was spent and what is left.

    Args:
        options: of `beam-dp ledger`.

    Raises:
        FlagError: if a flag is refused.
        InputError: if the ledger refuses.
    """
    from beam_dp.privacy.ledger import Ledger

    ledger = Ledger(options.url)
    if options.declare is not None:
        _declare(ledger, options)
    else:
        for flag in (*(flag for flag, _, _ in DECLARATION), "allow_large_delta"):
            if getattr(options, flag) not in (None, False):
                raise FlagError(f"--{flag}: must be given with --declare NAME")
    reports = [_report(ledger, dataset) for dataset in ledger.datasets()]
    if options.json:
        print(json.dumps({"ledger": ledger.name, "datasets": reports}, ensure_ascii=False))
        return
    rows: list[tuple[str, ...]] = [
        (
            report["dataset_id"],
            f"{report['privacy_unit']}, {report['neighboring'].replace('_', ' ')}",
            f"{report['delta']:g}",
            f"{report['epsilon']:g}",
            f"{report['spent_epsilon']:.4g}",
            " / ".join(f"{left:.4g}" for left in report["remaining_epsilon"].values()),
            f"{report['remaining_slack']:.4g}",
        )
        for report in reports
    ]
    columns = ("dataset", "unit, relation", "delta", "epsilon", "spent", "left", "slack")
    print_table(f"budgets of {ledger.name}", columns, rows)
    print("left: what one more pure, Gaussian or zero-concentrated release may have of epsilon")
    print("slack: the delta left for releases that are private except with some probability")
    entries = [entry for report in reports for entry in report["entries"]]
    if entries:
        rows = [
            (
                entry["release_id"],
                _mechanism_text(entry),
                entry["spent_at"],
                entry["state"],
                f"{entry['guarantee']['delta']:g}",
                f"{entry['guarantee']['epsilon']:g}",
            )
            for entry in entries
        ]
        print_table("releases", ("release", "mechanism", "time", "state", "delta", "epsilon"), rows)


def _mechanism_text(entry: Mapping[str, Any]) -> str:
    """The mechanism; of windows whose budget renews, also what all of them reveal at worst."""
    from beam_dp.windows.promise import MECHANISM

    text, parameters = str(entry["mechanism"]), entry["parameters"]
    worst = parameters.get("worst_case") if isinstance(parameters, dict) else None
    if text != MECHANISM or not isinstance(worst, dict):
        return text
    periods, epsilon, delta = (worst.get(name) for name in ("periods", "epsilon", "delta"))
    if not (is_integer(periods) and periods > 1 and is_number(epsilon) and is_number(delta)):
        return text
    return f"{text} (all together {periods:,} times: epsilon {epsilon:g}, delta {delta:g})"


def _declare(ledger: Ledger, options: argparse.Namespace) -> None:
    values: dict[str, Any] = {}
    for flag, _, meaning in DECLARATION:
        text = getattr(options, flag)
        if text is None:
            if flag == "composition":
                continue
            raise FlagError(f"--{flag}: missing; must be given with --declare: {meaning}")
        values[flag] = text
    try:
        for flag in ("epsilon", "delta"):
            values[flag] = number(flag, values[flag])
        ledger.declare(options.declare, **values, allow_large_delta=options.allow_large_delta)
    except InputError as error:
        flag = "declare" if error.name == "dataset_id" else error.name
        if flag != "declare" and flag not in values:
            raise
        condition = error.condition.replace("unless allow_", "unless --allow_")
        raise refused(flag, error.value, condition) from None


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
