"""The command `beam-dp plan`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from beam_dp.cli.plan_flags import (
    FLAGS,
    SWITCHES,
)
from beam_dp.errors import InputError, shown
from beam_dp.flags.parser import (
    Once,
    RefusedError,
)


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
    texts = {flag.name: getattr(options, flag.name) for flag in FLAGS}
    switches = {flag.name: getattr(options, flag.name) for flag in SWITCHES}
    plan = _plan_queries if texts["max_sparsity"] is None else _plan_sparse
    try:
        plan(texts, switches, options.json)
    except InputError as error:
        # Arguments of functions whose flags have other names.
        name = {"max_size": "size", "projection_width": "size"}.get(error.name, error.name)
        if name not in texts:
            raise
        condition = error.condition.replace("unless allow_", "unless --allow_")
        told = "missing" if error.value is None else f"{shown(error.value)} is refused"
        raise RefusedError(f"--{name}: {told}; {condition}") from None


def _plan_queries(
    texts: Mapping[str, str | None], switches: Mapping[str, bool], as_json: bool
) -> None:
    from rich.console import Console

    from beam_dp.cli.plan_command import (
        command_line,
        job_of,
        ranking_json,
    )
    from beam_dp.cli.plan_table import ranking_table
    from beam_dp.planning.ranking import rank_mechanisms

    ranking = rank_mechanisms(job_of(texts, switches))
    if as_json:
        print(json.dumps(ranking_json(ranking, texts), ensure_ascii=False))
        return
    Console().print(ranking_table(ranking))
    if ranking.best is not None:
        print(command_line(ranking, ranking.best, texts))


def _plan_sparse(
    texts: Mapping[str, str | None], switches: Mapping[str, bool], as_json: bool
) -> None:
    from rich.console import Console

    from beam_dp.cli.plan_sketches_command import (
        sparse_command_line,
        sparse_job_of,
        sparse_ranking_json,
    )
    from beam_dp.cli.plan_sketches_table import sparse_ranking_table
    from beam_dp.planning.sketches.ranking import rank_sparse_mechanisms

    ranking = rank_sparse_mechanisms(sparse_job_of(texts, switches))
    if as_json:
        print(json.dumps(sparse_ranking_json(ranking, texts), ensure_ascii=False))
        return
    Console().print(sparse_ranking_table(ranking))
    if ranking.best is not None:
        print(sparse_command_line(ranking.job, ranking.best, texts))
