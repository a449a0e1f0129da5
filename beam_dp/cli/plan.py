"""The command `beam-dp plan`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from beam_dp.cli.plan_checks import asks_for_queries, check_plan
from beam_dp.cli.plan_flags import FLAGS
from beam_dp.errors import InputError, shown
from beam_dp.flags.flag import FlagError
from beam_dp.flags.numbers import number


def add_plan(commands: Any) -> None:
    """Adds the command's arguments to those of `beam-dp`."""
    plan = commands.add_parser("plan", help="every mechanism for a job, before any data is read")
    plan.add_flags(FLAGS)
    plan.add_argument("--json", action="store_true", help="JSON for machines")


def run_plan(options: argparse.Namespace) -> None:
    """Prints what every mechanism would make of a job.

    Raises:
        FlagError: if a flag is refused.
    """
    texts = {flag.name: getattr(options, flag.name) for flag in FLAGS}
    try:
        _plan(texts, options.json)
    except InputError as error:
        # Arguments of functions whose flags have other names.
        name = {"max_size": "size", "projection_width": "size"}.get(error.name, error.name)
        if name not in texts:
            raise
        condition = error.condition.replace("unless allow_", "unless --allow_")
        told = "missing" if error.value is None else f"{shown(error.value)} is refused"
        raise FlagError(f"--{name}: {told}; {condition}") from None


def _plan(texts: Mapping[str, str | None], as_json: bool) -> None:
    check_plan(texts)
    _rank(texts, as_json)
    if texts["epsilon"] is not None:
        _warn_of_epsilon(texts["epsilon"])
    if texts["domain"] is not None and not as_json:
        from rich.console import Console
        from rich.text import Text

        from beam_dp.cli.plan_command import edges_lines
        from beam_dp.domain.files import read_domain

        for line in edges_lines(read_domain(texts["domain"])):
            Console().print("", Text(line), sep="\n")


def _warn_of_epsilon(text: str) -> None:
    from beam_dp.privacy.advice import large_epsilon

    if (told := large_epsilon(number("epsilon", text))) is not None:
        print(f"warning: {told}", file=sys.stderr)


def _rank(texts: Mapping[str, str | None], as_json: bool) -> None:
    # What plans takes a second to import.
    if asks_for_queries(texts):
        from beam_dp.cli.plan_queries import plan_queries

        plan_queries(texts, as_json)
        return
    from rich.console import Console

    from beam_dp.cli.plan_target import plan_target, read_target

    target = read_target(texts)
    if texts["windows"] is not None:
        from beam_dp.cli.plan_windows import plan_windows

        plan_windows(texts, target, as_json)
        return
    if target is not None:
        plan_target(texts, target, as_json)
        return
    from beam_dp.cli.plan_command import command_line, job_of, ranking_json, sparse_job_of
    from beam_dp.cli.plan_table import ranking_table, sparse_ranking_table
    from beam_dp.planning.ranking import Ranking, rank_mechanisms
    from beam_dp.planning.sketches.ranking import SparseRanking, rank_sparse_mechanisms

    ranking: Ranking | SparseRanking
    show_refused = texts["all"] is not None
    if texts["max_sparsity"] is None:
        ranking = rank_mechanisms(job_of(texts))
        table = ranking_table(ranking, show_refused=show_refused)
    else:
        ranking = rank_sparse_mechanisms(sparse_job_of(texts))
        table = sparse_ranking_table(ranking, show_refused=show_refused)
    if as_json:
        print(json.dumps(ranking_json(ranking, texts), ensure_ascii=False))
        return
    Console().print(table)
    if ranking.best is not None:
        print(f"\n{command_line(ranking.job, ranking.best, texts)}")
