"""The part of the `beam-dp` command that plans a job."""

from __future__ import annotations

import argparse
import json
from typing import Any

from beam_dp.cli_parser import Once, RefusedError
from beam_dp.errors import InputError, shown
from beam_dp.planning.flags import FLAGS, SWITCHES


def add_plan(commands: Any) -> None:
    """Adds the command's arguments to those of `beam-dp`."""
    plan = commands.add_parser(
        "plan", help="every mechanism for a job, before any data is read", allow_abbrev=False
    )
    for flag in FLAGS:
        plan.add_argument(f"--{flag.name}", metavar=flag.metavar, action=Once, help=flag.help)
    for flag in SWITCHES:
        plan.add_argument(f"--{flag.name}", action="store_true", help=flag.help)
    plan.add_argument("--json", action="store_true", help="JSON for machines")


def run_plan(options: argparse.Namespace) -> None:
    """Prints what every mechanism would make of a job.

    Args:
        options: of `beam-dp plan`.

    Raises:
        RefusedError: if a flag is refused.
    """
    from rich.console import Console

    from beam_dp.planning.command import command_line, job_of, ranking_json
    from beam_dp.planning.ranking import rank_mechanisms
    from beam_dp.planning.table import ranking_table

    texts = {flag.name: getattr(options, flag.name) for flag in FLAGS}
    switches = {flag.name: getattr(options, flag.name) for flag in SWITCHES}
    try:
        job = job_of(texts, switches)
    except InputError as error:
        if error.name not in texts:
            raise
        condition = error.condition.replace("unless allow_", "unless --allow_")
        told = "missing" if error.value is None else f"{shown(error.value)} is refused"
        raise RefusedError(f"--{error.name}: {told}; {condition}") from None
    ranking = rank_mechanisms(job)
    if options.json:
        print(json.dumps(ranking_json(ranking, texts), ensure_ascii=False))
        return
    Console().print(ranking_table(ranking))
    if ranking.best is not None:
        print(command_line(ranking, ranking.best, texts))
