"""The command `beam-dp ledger`, which declares budgets and prints what was spent."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING, Any

from beam_dp.errors import InputError
from beam_dp.flags.flag import FlagError, Once, refused
from beam_dp.flags.numbers import number

if TYPE_CHECKING:
    from beam_dp.privacy.ledger.entries import Dataset
    from beam_dp.privacy.ledger.ledger import Ledger

# The flags that go with `ledger --declare`; all but the last must be given.
DECLARATION = (
    ("epsilon", "E", "total epsilon, > 0"),
    ("delta", "X", "total delta, 0 <= delta <= 1e-5; 0 admits purely private releases only"),
    ("privacy_unit", "U", "the unit of every release: a column, or the word record"),
    ("neighboring", "R", "the relation of every release: add_or_remove_one or replace_one"),
    (
        "composition",
        "C",
        "how releases add up: pure_first (default), auto, zcdp, gaussian or with_slack",
    ),
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

    Raises:
        FlagError: if a flag is refused.
        InputError: if the ledger refuses.
    """
    from rich.console import Console

    from beam_dp.cli.ledger_table import ledger_table
    from beam_dp.privacy.ledger.ledger import Ledger

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
    Console().print(ledger_table(ledger.name, reports))


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
