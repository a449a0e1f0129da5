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
from beam_dp.planning.job import Option, PlanningJob, QueryCountJob, SparsePlanningJob
from beam_dp.planning.ranking import (
    Ranking,
    rank_discovering_mechanisms,
    rank_mechanisms,
)
from beam_dp.planning.target import Target
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.workload import Workload, parse_workload


def job_of(texts: Mapping[str, str | None]) -> PlanningJob | SparsePlanningJob:
    """Returns the job for flags that ``check_plan`` accepted; reads the domain but no records."""
    given = {name: text for name, text in texts.items() if text is not None}
    promised = read_promise(given)
    if "max_sparsity" in given:
        questions = given.get("num_questions")
        return SparsePlanningJob(
            profile=KeyProfile(**values_of(KeyProfile, given)),
            max_sparsity=integer("max_sparsity", given["max_sparsity"]),
            max_size=integer("size", given.get("size", str(SparsePlanningJob.max_size))),
            num_questions=None if questions is None else integer("num_questions", questions),
            **promised,
        )
    max_error = given.get("max_error")
    return PlanningJob(
        workload=read_workload(given["workload"], largest_domain(given["domain"])),
        num_records=integer("num_records", given["num_records"]),
        max_error_fraction=None if max_error is None else number("max_error", max_error),
        **promised,
    )


def query_count_job(texts: Mapping[str, str | None]) -> QueryCountJob:
    """Returns the job that computes, for these flags, how many queries may be asked."""
    given = {name: text for name, text in texts.items() if text is not None}
    num_cells = integer("num_cells", given["num_cells"]) if "num_cells" in given else None
    if "domain" in given:
        num_cells = largest_domain(given["domain"]).num_cells
    sparsity = given.get("max_sparsity")
    return QueryCountJob(
        num_records=integer("num_records", given["num_records"]),
        target_error=number("target_error", given["target_error"]),
        num_cells=num_cells,
        max_sparsity=None if sparsity is None else integer("max_sparsity", sparsity),
        **read_promise(given),
    )


def largest_domain(text_or_path: str) -> Domain:
    """Returns the domain of a file; the largest one, if attributes are to be discovered."""
    domain = read_open_domain(text_or_path)
    return domain.bounded() if isinstance(domain, OpenDomain) else domain


def ranking_of(job: PlanningJob, text_or_path: str) -> Ranking:
    """Returns the options for a job about the domain of a file."""
    domain = read_open_domain(text_or_path)
    if isinstance(domain, OpenDomain):
        return rank_discovering_mechanisms(job, domain)
    return rank_mechanisms(job)


def read_promise(given: Mapping[str, str]) -> dict[str, Any]:
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


def read_target(texts: Mapping[str, str | None]) -> Target | None:
    """Returns the target error; None if an epsilon is given instead."""
    for flag in (TARGET_ERROR, TARGET_BOUND):
        text = texts[flag.name]
        if text is not None:
            return Target(number(flag.name, text), flag is TARGET_BOUND)
    return None


def read_workload(spec: str, domain: Domain) -> Workload | LinearWorkload:
    """Returns a workload of marginals if ``spec`` has only marginals, else of linear queries."""
    try:
        return parse_workload(spec, domain)
    except InputError:
        if spec.startswith("marginals:"):
            raise
        return parse_linear_workload(spec, domain)


def command_line(
    job: PlanningJob | SparsePlanningJob, option: Option, texts: Mapping[str, str | None]
) -> str | None:
    """Returns the command that runs an option; None if the option has no program."""
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
    flags["output"] = texts["output"] or "OUTPUT"
    return typed(option.program, flags, guarantee.delta)


def paying_flags(domain: Domain) -> dict[str, str]:
    """Returns the flags for the budget that paid for released edges, which must pay again."""
    ids = [each.dataset_id for _, each in released_edges(domain) if each.dataset_id is not None]
    return {"ledger": "LEDGER", "dataset_id": ids[0]} if ids else {}


def domain_lines(text_or_path: str, texts: Mapping[str, str | None]) -> list[str]:
    """Returns lines about attributes to discover, or about released edges and who must pay."""
    domain = read_open_domain(text_or_path)
    if isinstance(domain, OpenDomain):
        names = ", ".join(shown(each.name) for each in domain.open)
        share = f"{100 * DEFAULT_SHARE:g} % of the budget"
        sought: dict[str, str] = {}
        with contextlib.suppress(InputError):  # then each option says why it is refused
            given = {name: text for name, text in texts.items() if text is not None}
            sought = plan_domain(domain, read_guarantee(given)).sought
        return [
            f"{names}: {share} finds values or bins first. The errors are those for as many as may"
            " be found, with the rest of the budget. Which share of the records will be in other is"
            " not known before the release.",
            *(f"{found}: {text}" for found, text in sought.items()),
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


def _queries(job: PlanningJob | SparsePlanningJob, spec: str) -> str:
    """Returns the value for --queries, without weights, which only releases accept."""
    workload = getattr(job, "workload", None)
    is_weighted = isinstance(workload, Workload) and set(workload.weights) != {1.0}
    return "QUERIES" if is_weighted and pathlib.Path(spec).is_file() else spec
