"""From the flags of `beam-dp plan` to a sparse job, and from an option to its command line."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from beam_dp.cli.plan_command import read_guarantee
from beam_dp.cli.plan_flags import (
    FLAGS,
    NOT_OF_SPARSE,
    OF_SPARSE,
)
from beam_dp.cli.programs import command_of
from beam_dp.errors import InputError
from beam_dp.flags.numbers import (
    integer,
    number,
)
from beam_dp.mechanisms.sketches.key_profile import KeyProfile
from beam_dp.planning.sketches.job import DEFAULT_SIZE, SparseOption, SparsePlanningJob
from beam_dp.planning.sketches.ranking import ONLINE_PROGRAM, SparseRanking
from beam_dp.privacy.guarantee import Neighboring


def sparse_job_of(
    texts: Mapping[str, str | None], switches: Mapping[str, bool]
) -> SparsePlanningJob:
    """Returns the job that flags describe; reads nothing.

    Args:
        texts: the text of each of ``FLAGS``; None where it was not given.
        switches: whether each of ``SWITCHES`` was.

    Raises:
        InputError: naming the flag, without its dashes.
    """
    for name in NOT_OF_SPARSE:
        if texts[name] is not None:
            condition = "must not be given with --max_sparsity: keys need no domain"
            raise InputError(name, texts[name], condition)
    needed = [flag for flag in FLAGS if flag.required and flag.name not in NOT_OF_SPARSE]
    for flag in (*needed, *OF_SPARSE[:3]):
        if texts[flag.name] is None:
            raise InputError(flag.name, None, f"must be given: {flag.help}")
    given = {name: text for name, text in texts.items() if text is not None}
    guarantee = read_guarantee(given, switches)
    is_public = switches["num_records_is_public"]
    questions = given.get("num_questions")
    return SparsePlanningJob(
        guarantee=guarantee,
        profile=KeyProfile(
            integer("num_records", given["num_records"]),
            integer("num_keys", given["num_keys"]),
            integer("largest_count", given["largest_count"]),
        ),
        max_sparsity=integer("max_sparsity", given["max_sparsity"]),
        max_size=integer("size", given.get("size", str(DEFAULT_SIZE))),
        num_questions=None if questions is None else integer("num_questions", questions),
        num_records_is_public=is_public or guarantee.neighboring is Neighboring.REPLACE_ONE,
        failure_probability=number("failure_probability", given.get("failure_probability", "0.05")),
    )


def sparse_command_line(
    job: SparsePlanningJob, option: SparseOption, texts: Mapping[str, str | None]
) -> str | None:
    """Returns what to type to run an option; None where it can't do the job.

    Args:
        job: that was planned.
        option: one of its options.
        texts: the text of each of ``FLAGS``.
    """
    if option.program is None or not option.is_feasible:
        return None
    guarantee = job.guarantee
    flags = {
        "input": texts["input"] or "INPUT",
        "key": texts["key"] or "KEY",
        "max_sparsity": str(job.max_sparsity),
        "epsilon": texts["epsilon"] or f"{guarantee.epsilon:.17g}",
        "delta": texts["delta"] or f"{guarantee.delta:.17g}",
        "neighboring": guarantee.neighboring.value,
        "privacy_unit": guarantee.privacy_unit,
        "max_records_per_unit": str(guarantee.max_records_per_unit),
        "mechanism": option.mechanism,
        **dict(option.parameters),
    }
    if option.program == ONLINE_PROGRAM:
        flags["queries"] = "QUERIES"
        flags["num_records"] = str(job.given_num_records)
        flags["failure_probability"] = f"{job.failure_probability:g}"
    flags["output"] = texts["output"] or "OUTPUT"
    words = [f"--{name} {shlex.quote(value)}" for name, value in flags.items()]
    if guarantee.delta > 1e-5:
        words.append("--allow_large_delta")
    return " ".join([command_of(option.program), *words])


def sparse_ranking_json(ranking: SparseRanking, texts: Mapping[str, str | None]) -> dict[str, Any]:
    """Returns a ranking with the command lines of its options."""
    found = ranking.to_json()
    for entry, option in zip(found["options"], ranking.options, strict=True):
        entry["command"] = sparse_command_line(ranking.job, option, texts)
    return found
