"""Jobs from the flags of `beam-dp plan`, and the command lines of its options."""

from __future__ import annotations

import contextlib
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from beam_dp.domain.discover import OpenDomain, open_attribute
from beam_dp.domain.files import read_open_domain
from beam_dp.domain.universe import Domain, released_edges
from beam_dp.errors import InputError, shown
from beam_dp.flags.command_line import command_of
from beam_dp.flags.flag import integer, number, values_of
from beam_dp.flags.shared import TARGET_BOUND, TARGET_ERROR, read_guarantee
from beam_dp.mechanisms.discovery.plan import DEFAULT_SHARE, plan_domain
from beam_dp.mechanisms.sketches.errors import KeyProfile
from beam_dp.planning.job import Job, Option, PlanningJob, QueryCountJob, SparsePlanningJob
from beam_dp.planning.ranking import (
    Ranking,
    rank_discovering_mechanisms,
    rank_mechanisms,
    rank_sparse_mechanisms,
)
from beam_dp.planning.target import Target
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.workload import Workload, parse_workload

Given = Mapping[str, str]  # flags as typed, without those that are not given


def job_of(given: Given) -> Job:
    """Returns the job for flags that ``check_plan`` accepted; reads the domain but no records."""
    if "max_sparsity" in given:
        return SparsePlanningJob(
            profile=KeyProfile(**values_of(KeyProfile, given)),
            max_sparsity=integer("max_sparsity", given["max_sparsity"]),
            max_size=integer("size", given.get("size", str(SparsePlanningJob.max_size))),
            num_questions=_integer("num_questions", given),
            **read_promise(given),
        )
    return PlanningJob(
        workload=read_workload(given["workload"], largest_domain(given["domain"])),
        num_records=integer("num_records", given["num_records"]),
        max_error_fraction=number("max_error", given["max_error"])
        if "max_error" in given
        else None,
        **read_promise(given),
    )


def query_count_job(given: Given) -> QueryCountJob:
    """Returns the job that computes, for these flags, how many queries may be asked."""
    num_cells = _integer("num_cells", given)
    if "domain" in given:
        num_cells = largest_domain(given["domain"]).num_cells
    return QueryCountJob(
        num_records=integer("num_records", given["num_records"]),
        target_error=number("target_error", given["target_error"]),
        num_cells=num_cells,
        max_sparsity=_integer("max_sparsity", given),
        **read_promise(given),
    )


def _integer(name: str, given: Given) -> int | None:
    return integer(name, given[name]) if name in given else None


def largest_domain(text_or_path: str) -> Domain:
    """Returns the domain of a file; the largest one, if attributes are to be discovered."""
    domain = read_open_domain(text_or_path)
    return domain.bounded() if isinstance(domain, OpenDomain) else domain


def ranking_of(job: Job, given: Given) -> Ranking:
    """Returns the options for a job, which may be about the domain of a file."""
    if isinstance(job, SparsePlanningJob):
        return rank_sparse_mechanisms(job)
    domain = read_open_domain(given["domain"])
    if isinstance(domain, OpenDomain):
        return rank_discovering_mechanisms(job, domain)
    return rank_mechanisms(job)


def read_promise(given: Given) -> dict[str, Any]:
    """Returns the arguments that are common to all jobs."""
    guarantee = read_guarantee(given)
    is_public = guarantee.neighboring is Neighboring.REPLACE_ONE
    return {
        "guarantee": guarantee,
        "num_records_is_public": is_public or "num_records_is_public" in given,
        "failure_probability": number(
            "failure_probability", given.get("failure_probability", "0.05")
        ),
    }


def read_target(given: Given) -> Target | None:
    """Returns the target error; None if an epsilon is given instead."""
    for flag in (TARGET_ERROR, TARGET_BOUND):
        if flag.name in given:
            return Target(number(flag.name, given[flag.name]), flag is TARGET_BOUND)
    return None


def read_workload(spec: str, domain: Domain) -> Workload | LinearWorkload:
    """Returns a workload of marginals if ``spec`` has only marginals, else of linear queries."""
    try:
        return parse_workload(spec, domain)
    except InputError:
        if spec.startswith("marginals:"):
            raise
        return parse_linear_workload(spec, domain)


def command_line(job: Job, option: Option, given: Given) -> str | None:
    """Returns the command that runs an option; None if the option has no program."""
    if option.program is None or not option.is_feasible:
        return None
    guarantee = job.guarantee
    flags = {"input": given.get("input", "INPUT")}
    if isinstance(job, PlanningJob):
        flags |= paying_flags(job.domain)
        flags |= {name: given[name] for name in ("domain", "workload")}
    else:
        flags |= {"key": given.get("key", "KEY"), "max_sparsity": str(job.max_sparsity)}
    flags |= {
        "epsilon": given["epsilon"],
        "delta": given["delta"],
        "neighboring": guarantee.neighboring.value,
        "privacy_unit": guarantee.privacy_unit,
        "max_records_per_unit": str(guarantee.max_records_per_unit),
    }
    if option.program in ("release_synthetic_database", "answer_queries"):
        flags["num_records"] = str(job.given_num_records)
    if option.program != "release_intervals":  # this program releases all intervals
        flags["mechanism"] = option.mechanism
        if isinstance(job, PlanningJob):
            flags["calibration"] = option.calibration
    flags |= dict(option.parameters)
    if option.program == "answer_queries":
        flags["queries"] = _queries(job, flags.pop("workload", "QUERIES"))
        flags["failure_probability"] = f"{job.failure_probability:g}"
    if option.program == "release_intervals":
        del flags["workload"]
    flags["output"] = given.get("output", "OUTPUT")
    return typed(option.program, flags, guarantee.delta)


def paying_flags(domain: Domain) -> dict[str, str]:
    """Returns the flags for the budget that paid for released edges, which must pay again."""
    ids = [each.dataset_id for _, each in released_edges(domain) if each.dataset_id is not None]
    return {"ledger": "LEDGER", "dataset_id": ids[0]} if ids else {}


def domain_lines(given: Given) -> list[str]:
    """Returns lines about attributes to discover, or about released edges and who must pay."""
    domain = read_open_domain(given["domain"])
    if isinstance(domain, OpenDomain):
        names = ", ".join(shown(each.name) for each in domain.open)
        share = f"{100 * DEFAULT_SHARE:g} % of the budget"
        sought: dict[str, str] = {}
        with contextlib.suppress(InputError):  # then each option says why it is refused
            sought = plan_domain(domain, read_guarantee(given)).sought
        return [
            f"{names}: {share} finds values or bins first. The errors are those for as many as may"
            " be found, with the rest of the budget. Which share of the records will be in other is"
            " not known before the release.",
            *(f"{name}: {text}" for name, text in sought.items()),
        ]
    return [
        f"{source}: pay from the same budget, {origin.dataset_id!r} in the ledger that paid for"
        " that release, because both releases add up"
        for source, origin in released_edges(domain)
        if origin.dataset_id is not None
    ]


def sought_with_epsilon_1(attributes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Returns what a release may find for the attributes of a draft, by their names."""
    columns = [
        open_attribute(each)
        for each in attributes
        if "discover" in each and isinstance(each["type"], str)
    ]
    if not columns:
        return {}
    guarantee = Guarantee(1.0, 1e-9, Neighboring.ADD_OR_REMOVE_ONE, "record", 1)
    return plan_domain(OpenDomain(tuple(columns)), guarantee).sought


def typed(program: str, flags: Mapping[str, str], delta: float) -> str:
    """Returns the command that runs a program, with --allow_large_delta if delta needs it."""
    words = [f"--{name} {shlex.quote(value)}" for name, value in flags.items()]
    if delta > 1e-5:
        words.append("--allow_large_delta")
    return " ".join([command_of(program), *words])


def _queries(job: Job, spec: str) -> str:
    """Returns the value for --queries, without weights, which only releases accept."""
    workload = getattr(job, "workload", None)
    is_weighted = isinstance(workload, Workload) and set(workload.weights) != {1.0}
    return "QUERIES" if is_weighted and pathlib.Path(spec).is_file() else spec
