"""The command `beam-dp plan`: its flags, and the valid combinations of flags.

This module has no slow imports, so invalid flags are refused quickly, before anything is planned.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping, Sequence

from beam_dp.errors import InputError
from beam_dp.flags import shared, windows
from beam_dp.flags.command_line import Command, check_files, importing
from beam_dp.flags.flag import JSON, Flag, FlagError, check_texts, integer_flag, number, number_flag
from beam_dp.flags.shared import TARGET_BOUND, TARGET_ERROR

_RELATION_OF_WINDOWS = "add_or_remove_one"
# The first three are required for sparse queries.
_OF_SPARSE = (
    integer_flag(
        "max_sparsity",
        "instead of a workload: plan queries about a column of keys, with at most M keys each",
        "M",
        limits={"least": 1, "most": 2**31},
    ),
    integer_flag(
        "num_keys",
        "with --max_sparsity: a public guess of the number of distinct keys",
        "N",
    ),
    integer_flag(
        "largest_count",
        "with --max_sparsity: a public guess of the number of records of the most frequent key",
        "N",
    ),
    integer_flag(
        "size",
        "with --max_sparsity: the largest number of values in the release (default: 2^20)",
        "N",
    ),
    integer_flag(
        "num_questions",
        "with --max_sparsity: the number of queries that share a bound; also plans mechanisms"
        " that answer one query at a time",
        "K",
    ),
    Flag("key", "with --max_sparsity: for the printed command line", "COLUMN"),
)
_NOT_OF_SPARSE = ("domain", "workload", "max_error")
_NUM_CELLS = integer_flag(
    "num_cells",
    "with --target_error, instead of --workload and --domain: the number of cells of the domain",
    "U",
    limits={"least": 1, "most": 2**1000},
)
# Flags allowed if --target_error asks how many queries can be answered.
_OF_QUERIES = (
    "domain",
    "num_records",
    "epsilon",
    "delta",
    "neighboring",
    "privacy_unit",
    "max_records_per_unit",
    "failure_probability",
    TARGET_ERROR.name,
    _NUM_CELLS.name,
    "max_sparsity",
    "all",
    "num_records_is_public",
    "allow_large_delta",
)
# Refused with --windows, because the number of records in a window is not public, and there is no
# bound for comparison.
_NOT_OF_WINDOWS = (
    "num_records",
    "num_records_is_public",
    "failure_probability",
    "max_error",
    TARGET_BOUND.name,
    _NUM_CELLS.name,
    *(flag.name for flag in _OF_SPARSE),
)
FLAGS = (
    dataclasses.replace(shared.DOMAIN, help=f"{shared.DOMAIN.help}; not with --max_sparsity"),
    Flag(
        "workload",
        "queries: marginals:2 for all pairs, conjunctions:2, intervals:age, or a file of queries",
        "SPEC",
        True,
        form="file",
    ),
    integer_flag(
        "num_records",
        "the number of records; a guess if the number is private",
        "N",
        True,
        limits={"least": 1, "most": shared.MAX_RECORDS},
    ),
    shared.EPSILON,
    shared.DELTA,
    shared.NEIGHBORING,
    shared.PRIVACY_UNIT,
    shared.MAX_RECORDS_PER_UNIT,
    number_flag(
        "failure_probability",
        "the probability that a bound fails, > 0 and < 1 (default: 0.05)",
        "B",
        limits={"least": 1e-100, "below": 1},
    ),
    number_flag(
        "max_error",
        "also show the number of records that keeps all errors below this share of the records",
        "A",
        limits={"above": 0, "most": 1, "note": ", a share of the records"},
    ),
    TARGET_ERROR,
    TARGET_BOUND,
    _NUM_CELLS,
    *_OF_SPARSE,
    windows.PLANS,
    *windows.PLANNED,
    Flag("input", "for the printed command line; nothing is read", "GLOB"),
    Flag("output", "for the printed command line; nothing is written", "DIR"),
    Flag("all", "also explain why the other mechanisms cannot do the job", is_switch=True),
    Flag(
        "num_records_is_public",
        "the number of records is public, as it always is under replace_one",
        is_switch=True,
    ),
    shared.ALLOW_LARGE_DELTA,
    JSON,
)


# Arguments whose flags have a different name.
_FLAG_OF = {"max_size": "size", "projection_width": "size", "max_error_fraction": "max_error"}


def _run(options: argparse.Namespace) -> None:
    """Prints the options for a job, with one or more options per mechanism."""
    texts: dict[str, str | None] = {flag.name: getattr(options, flag.name) for flag in FLAGS}
    try:
        check_plan(texts)
        with importing():
            from beam_dp.planning import tables  # this import takes long

        flags = {name: text for name, text in texts.items() if text is not None}
        if asks_for_queries(texts):
            plan = tables.plan_of_queries(flags)
        elif "windows" in flags:
            from beam_dp.planning.windows import plan_of_windows

            plan = plan_of_windows(flags)
        else:
            plan = tables.plan_of(flags)
    except InputError as error:
        if error.name not in _FLAG_OF:
            raise
        raise InputError(_FLAG_OF[error.name], error.value, error.condition) from None
    if "json" in flags:
        print(json.dumps(plan.json, ensure_ascii=False))
    else:
        from rich.console import Console
        from rich.text import Text

        console = Console()
        console.print(plan.shown)
        if plan.command is not None:
            print(f"\n{plan.command}")
        if "domain" in flags:
            for line in tables.domain_lines(flags):
                console.print("", Text(line), sep="\n")
    if "epsilon" in flags:
        from beam_dp.privacy.guarantee import large_epsilon

        if (advice := large_epsilon(number("epsilon", flags["epsilon"]))) is not None:
            print(f"warning: {advice}", file=sys.stderr)


def check_plan(texts: Mapping[str, str | None]) -> None:
    """Refuses flags that are missing, exclude each other, or are invalid numbers or files."""
    if texts["num_records"] == "noisy":
        condition = "must be a number: a public guess of the number of records"
        raise InputError("num_records", texts["num_records"], condition)
    if asks_for_queries(texts):
        _check_queries(texts)
        return
    _refuse(texts, (_NUM_CELLS.name,), "needs --target_error, and no --workload")
    if _is_target_given(texts):
        texts = {**texts, "epsilon": "1"}  # placeholder: epsilon is the result
    unused: tuple[str, ...] = ()
    needed: Sequence[Flag] = ()
    if texts["windows"] is not None:
        _check_windows(texts)
        unused, needed = (*_NOT_OF_WINDOWS, "neighboring"), windows.PLANNED_HORIZON
    else:
        _refuse(texts, [flag.name for flag in windows.PLANNED], "needs --windows")
        if texts["max_sparsity"] is None:
            _refuse(texts, [flag.name for flag in _OF_SPARSE], "needs --max_sparsity")
        else:
            condition = "cannot be combined with --max_sparsity: keys need no domain"
            _refuse(texts, _NOT_OF_SPARSE, condition)
            unused, needed = _NOT_OF_SPARSE, _OF_SPARSE[:3]
    check_texts([flag for flag in FLAGS if flag.name not in unused], texts)
    check_texts([dataclasses.replace(flag, required=True) for flag in needed], texts)
    given = {name: text for name, text in texts.items() if text is not None}
    if texts["windows"] is None:
        shared.read_guarantee(given)
    else:
        for flag in windows.UNIT:
            shared.read_limit_of_unit(flag, given)
    check_files(FLAGS, texts)


def asks_for_queries(texts: Mapping[str, str | None]) -> bool:
    """Returns whether to count queries: the flags have an error but no workload."""
    others = ("workload", "windows", "num_keys", "largest_count")
    if texts[TARGET_ERROR.name] is None or any(texts[name] is not None for name in others):
        return False
    # Queries of keys need no workload. Without an epsilon, the flags ask for the least epsilon.
    return texts["max_sparsity"] is None or texts["epsilon"] is not None


def _check_queries(texts: Mapping[str, str | None]) -> None:
    others = [flag.name for flag in FLAGS if flag.name not in (*_OF_QUERIES, "json")]
    ask = "--target_error asks how many queries can be answered"
    _refuse(texts, others, f"needs --workload (without it, {ask})")
    universe = ("domain", _NUM_CELLS.name)
    if all(texts[name] is not None for name in universe):
        raise InputError(
            _NUM_CELLS.name, texts[_NUM_CELLS.name], "cannot be combined with --domain"
        )
    if all(texts[name] is None for name in (*universe, "max_sparsity")):
        raise FlagError(
            "--workload is required; or, to find how many queries keep --target_error, --epsilon"
            " and one of --domain, --num_cells and --max_sparsity"
        )
    if texts["epsilon"] is None:
        raise FlagError(
            "--epsilon is required without --workload, to find how many queries keep --target_error"
        )
    flags = [flag for flag in FLAGS if flag.name in _OF_QUERIES and flag.name != "domain"]
    check_texts([dataclasses.replace(shared.DOMAIN, required=False), *flags], texts)
    check_files(FLAGS, texts)


def _is_target_given(texts: Mapping[str, str | None]) -> bool:
    """Returns whether an error is given; refuses a second error, or an error with an epsilon."""
    error, bound = TARGET_ERROR.name, TARGET_BOUND.name
    if texts[error] is not None:
        _refuse(texts, (bound,), f"cannot be combined with --{error}")
    elif texts[bound] is None:
        return False
    name = bound if texts[error] is None else error
    _refuse(texts, ("epsilon",), f"cannot be combined with --{name}, which finds it")
    return True


def _check_windows(texts: Mapping[str, str | None]) -> None:
    condition = "cannot be combined with --windows: no window has a public number of records"
    _refuse(texts, _NOT_OF_WINDOWS, condition)
    if texts["neighboring"] not in (None, _RELATION_OF_WINDOWS):
        condition = (
            f"must be {_RELATION_OF_WINDOWS} with --windows: a unit that is replaced would move"
            " between windows"
        )
        raise InputError("neighboring", texts["neighboring"], condition)


def _refuse(texts: Mapping[str, str | None], names: Iterable[str], condition: str) -> None:
    for name in names:
        if texts[name] is not None:
            raise InputError(name, texts[name], condition)


COMMANDS = {"plan": Command(FLAGS, _run)}
