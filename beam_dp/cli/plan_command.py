"""From the flags of `beam-dp plan` to a job, and from an option to its command line."""

from __future__ import annotations

import pathlib
import shlex
from collections.abc import Mapping
from typing import Any

from beam_dp.cli.programs import command_of
from beam_dp.domain.edges_from import released_edges
from beam_dp.domain.files import read_domain
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.flags.numbers import integer, number
from beam_dp.flags.options import values_of
from beam_dp.flags.shared import read_guarantee
from beam_dp.mechanisms.sketches.errors import KeyProfile
from beam_dp.mechanisms.sketches.plan import DEFAULT_SIZE
from beam_dp.planning.job import Option, PlanningJob
from beam_dp.planning.ranking import Ranking
from beam_dp.planning.sketches.job import SparsePlanningJob
from beam_dp.planning.sketches.ranking import SparseRanking
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.workload import Workload, parse_workload


def job_of(texts: Mapping[str, str | None]) -> PlanningJob:
    """Returns the job that flags describe; reads the domain and a file of queries, and no data.

    Args:
        texts: the text of each flag of `beam-dp plan`, as ``check_plan`` lets them pass; None
            where it was not given.

    Raises:
        FlagError: a flag is missing.
        InputError: naming the flag, without its dashes.
    """
    given = {name: text for name, text in texts.items() if text is not None}
    guarantee = read_guarantee(given)
    max_error = given.get("max_error")
    try:
        return PlanningJob(
            workload=read_workload(given["workload"], read_domain(given["domain"])),
            guarantee=guarantee,
            num_records=integer("num_records", given["num_records"]),
            num_records_is_public=is_public(given, guarantee),
            failure_probability=failure_probability(given),
            max_error_fraction=None if max_error is None else number("max_error", max_error),
        )
    except InputError as error:
        if error.name == "max_error_fraction":
            raise InputError("max_error", error.value, error.condition) from None
        raise


def sparse_job_of(texts: Mapping[str, str | None]) -> SparsePlanningJob:
    """Returns the job about queries of keys that flags describe; reads nothing.

    Args:
        texts: the text of each flag of `beam-dp plan`, as ``check_plan`` lets them pass; None
            where it was not given.

    Raises:
        FlagError: a flag is missing.
        InputError: naming the flag, without its dashes.
    """
    given = {name: text for name, text in texts.items() if text is not None}
    guarantee = read_guarantee(given)
    questions = given.get("num_questions")
    return SparsePlanningJob(
        guarantee=guarantee,
        profile=KeyProfile(**values_of(KeyProfile, given)),
        max_sparsity=integer("max_sparsity", given["max_sparsity"]),
        max_size=integer("size", given.get("size", str(DEFAULT_SIZE))),
        num_questions=None if questions is None else integer("num_questions", questions),
        num_records_is_public=is_public(given, guarantee),
        failure_probability=failure_probability(given),
    )


def is_public(given: Mapping[str, str], guarantee: Guarantee) -> bool:
    """Returns whether the number of records is public, by flags."""
    return "num_records_is_public" in given or guarantee.neighboring is Neighboring.REPLACE_ONE


def failure_probability(given: Mapping[str, str]) -> float:
    """Returns the failure probability that flags give."""
    return number("failure_probability", given.get("failure_probability", "0.05"))


def read_workload(spec: str, domain: Domain) -> Workload | LinearWorkload:
    """Returns marginals where a workload is of nothing else, else linear queries.

    Raises:
        InputError: if it is neither.
    """
    form, colon, _ = spec.partition(":")
    if colon and form == "marginals":
        return parse_workload(spec, domain)
    try:
        return parse_workload(spec, domain)
    except InputError:
        return parse_linear_workload(spec, domain)


def command_line(
    job: PlanningJob | SparsePlanningJob, option: Option, texts: Mapping[str, str | None]
) -> str | None:
    """Returns what to type to run an option; None where no program runs it."""
    if option.program is None or not option.is_feasible:
        return None
    guarantee = job.guarantee
    flags = {"input": texts["input"] or "INPUT"}
    if isinstance(job, PlanningJob):
        flags |= paying_flags(job.domain)
        flags["domain"] = texts["domain"] or "DOMAIN"
        flags["workload"] = texts["workload"] or "WORKLOAD"
    else:
        flags["key"] = texts["key"] or "KEY"
        flags["max_sparsity"] = str(job.max_sparsity)
    flags |= {
        "epsilon": texts["epsilon"] or f"{guarantee.epsilon:.17g}",
        "delta": texts["delta"] or f"{guarantee.delta:.17g}",
        "neighboring": guarantee.neighboring.value,
        "privacy_unit": guarantee.privacy_unit,
        "max_records_per_unit": str(guarantee.max_records_per_unit),
    }
    if option.program in ("release_synthetic_database", "answer_queries"):
        flags["num_records"] = str(job.given_num_records)
    if option.program != "release_intervals":  # which releases all intervals
        flags["mechanism"] = option.mechanism
        if isinstance(job, PlanningJob):
            flags["calibration"] = option.calibration
    flags |= dict(option.parameters)
    if option.program == "answer_queries":
        flags["queries"] = _queries(job, flags.pop("workload", "QUERIES"))
        flags["failure_probability"] = f"{job.failure_probability:g}"
    if option.program == "release_intervals":
        del flags["workload"]
    flags["output"] = texts["output"] or "OUTPUT"
    return typed(option.program, flags, guarantee.delta)


def paying_flags(domain: Domain) -> dict[str, str]:
    """Returns the flags of the budget that must pay, where edges came from a release it paid for.

    Example:
        >>> paying_flags(Domain(()))
        {}
    """
    ids = [origin.dataset_id for _, origin in released_edges(domain)]
    return {"ledger": "LEDGER", "dataset_id": ids[0]} if ids else {}


def edges_lines(domain: Domain) -> list[str]:
    """Returns what is told of edges that came from a release: who must pay, and why."""
    return [
        f"{source}: the same budget must pay, {origin.dataset_id!r} of that ledger, with what is"
        " left of it, for both add up"
        for source, origin in released_edges(domain)
    ]


def typed(program: str, flags: Mapping[str, str], delta: float) -> str:
    """Returns what to type to run a program with flags, and that of a large delta if it is one."""
    words = [f"--{name} {shlex.quote(value)}" for name, value in flags.items()]
    if delta > 1e-5:
        words.append("--allow_large_delta")
    return " ".join([command_of(program), *words])


def _queries(job: PlanningJob | SparsePlanningJob, spec: str) -> str:
    """What --queries is for a workload: marginals have weights for a release only."""
    workload = getattr(job, "workload", None)
    is_weighted = isinstance(workload, Workload) and set(workload.weights) != {1.0}
    return "QUERIES" if is_weighted and pathlib.Path(spec).is_file() else spec


def ranking_json(
    ranking: Ranking | SparseRanking, texts: Mapping[str, str | None]
) -> dict[str, Any]:
    """Returns a ranking with the command lines of its options."""
    found = ranking.to_json()
    for entry, option in zip(found["options"], ranking.options, strict=True):
        entry["command"] = command_line(ranking.job, option, texts)
    return found
