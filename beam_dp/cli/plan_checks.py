"""Which flags of `beam-dp plan` go together, and what shows without planning; no heavy imports."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from beam_dp.cli.plan_flags import (
    FLAGS,
    HORIZON,
    NOT_OF_SPARSE,
    NOT_OF_WINDOWS,
    NUM_CELLS,
    OF_QUERIES,
    OF_SPARSE,
    OF_WINDOWS,
    TARGET_BOUND,
    TARGET_ERROR,
    TYPED_OF_WINDOWS,
)
from beam_dp.errors import InputError
from beam_dp.flags.files import check_files
from beam_dp.flags.flag import Flag, FlagError, check_texts

_RELATION_OF_WINDOWS = "add_or_remove_one"


def check_plan(texts: Mapping[str, str | None]) -> None:
    """Refuses flags that are missing, do not go together, are no numbers, or name no files.

    Args:
        texts: the text of each flag of `beam-dp plan`; None where it was not given.

    Raises:
        FlagError: a flag is missing, or its text is refused.
        InputError: naming a flag that is given beside others, without its dashes.
    """
    if texts["num_records"] == "noisy":
        condition = "must be about how many records there are: a public guess, to compare errors by"
        raise InputError("num_records", texts["num_records"], condition)
    if asks_for_queries(texts):
        _check_queries(texts)
        return
    condition = "must be given with --target_error, and without --workload"
    _refuse(texts, (NUM_CELLS,), condition)
    if _is_target_given(texts):
        texts = {**texts, "epsilon": "1"}  # what is asked for
    if texts["windows"] is not None:
        _check_windows(texts)
    else:
        _refuse(texts, (*OF_WINDOWS, *TYPED_OF_WINDOWS), "must be given with --windows")
        if texts["max_sparsity"] is not None:
            _check_sparse(texts)
        else:
            _refuse(texts, OF_SPARSE, "must be given with --max_sparsity")
            check_texts(FLAGS, texts)
    check_files(FLAGS, texts)


def asks_for_queries(texts: Mapping[str, str | None]) -> bool:
    """Returns whether it is asked how many queries there may be: an error, and nothing to answer.

    Args:
        texts: the text of each flag of `beam-dp plan`; None where it was not given.
    """
    others = ("workload", "windows", "num_keys", "largest_count")
    if texts[TARGET_ERROR.name] is None or any(texts[name] is not None for name in others):
        return False
    # Of queries of keys, which need no workload, an error may be to find the epsilon for.
    return texts["max_sparsity"] is None or texts["epsilon"] is not None


def _check_queries(texts: Mapping[str, str | None]) -> None:
    others = tuple(flag for flag in FLAGS if flag.name not in OF_QUERIES)
    condition = "must be given with --workload: without it --target_error counts queries"
    _refuse(texts, others, condition)
    universe = ("domain", NUM_CELLS.name)
    if all(texts[name] is not None for name in universe):
        raise InputError(NUM_CELLS.name, texts[NUM_CELLS.name], "must not be given with --domain")
    if all(texts[name] is None for name in (*universe, "max_sparsity")):
        raise FlagError(
            "--workload: missing; must be given, or else --domain, --num_cells or --max_sparsity,"
            " and --epsilon, to be told how many queries keep --target_error"
        )
    known = {flag.name: flag for flag in FLAGS if flag.name in OF_QUERIES}
    known["domain"] = dataclasses.replace(known["domain"], required=False)
    if texts["epsilon"] is None:
        raise FlagError(
            "--epsilon: missing; must be given without --workload, to be told how many queries keep"
            " --target_error"
        )
    check_texts(known.values(), texts)
    check_files(FLAGS, texts)


def _is_target_given(texts: Mapping[str, str | None]) -> bool:
    """Whether an error is given; refuses another one, or an epsilon, beside it."""
    given = [flag.name for flag in (TARGET_ERROR, TARGET_BOUND) if texts[flag.name] is not None]
    if not given:
        return False
    name, *others = given
    if others:
        raise InputError(others[0], texts[others[0]], f"must not be given with --{name}")
    if texts["epsilon"] is not None:
        condition = f"must not be given with --{name}, which finds it"
        raise InputError("epsilon", texts["epsilon"], condition)
    return True


def _check_windows(texts: Mapping[str, str | None]) -> None:
    others = tuple(flag for flag in FLAGS if flag.name in NOT_OF_WINDOWS)
    condition = "must not be given with --windows: no window has a public number of records"
    _refuse(texts, others, condition)
    if texts["neighboring"] not in (None, _RELATION_OF_WINDOWS):
        condition = (
            f"must be {_RELATION_OF_WINDOWS} with --windows: a unit that is replaced would move"
            " between windows"
        )
        raise InputError("neighboring", texts["neighboring"], condition)
    check_texts(
        [flag for flag in FLAGS if flag.name not in (*NOT_OF_WINDOWS, "neighboring")], texts
    )
    check_texts([dataclasses.replace(flag, required=True) for flag in HORIZON], texts)


def _check_sparse(texts: Mapping[str, str | None]) -> None:
    others = tuple(flag for flag in FLAGS if flag.name in NOT_OF_SPARSE)
    _refuse(texts, others, "must not be given with --max_sparsity: keys need no domain")
    check_texts([flag for flag in FLAGS if flag.name not in NOT_OF_SPARSE], texts)
    check_texts([dataclasses.replace(flag, required=True) for flag in OF_SPARSE[:3]], texts)


def _refuse(texts: Mapping[str, str | None], flags: tuple[Flag, ...], condition: str) -> None:
    for flag in flags:
        if texts[flag.name] is not None:
            raise InputError(flag.name, texts[flag.name], condition)
