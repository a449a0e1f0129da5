"""`beam-dp plan`: jobs from its flags, tables of options as text or JSON, and their commands."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import pathlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from beam_dp.domain.discover import OpenDomain, open_attribute
from beam_dp.domain.files import read_domain, read_open_domain
from beam_dp.domain.ordered import BinnedAttribute
from beam_dp.domain.universe import Domain, released_edges
from beam_dp.errors import InputError, magnitude, shown
from beam_dp.flags.command_line import command_of
from beam_dp.flags.flag import integer, number, values_of
from beam_dp.flags.shared import TARGET_BOUND, TARGET_ERROR, read_guarantee
from beam_dp.mechanisms.discovery.plan import DEFAULT_SHARE, plan_domain, plans_before
from beam_dp.mechanisms.marginals.plan import MAX_CANDIDATES
from beam_dp.mechanisms.resources import release_resources
from beam_dp.mechanisms.sketches.errors import KeyProfile
from beam_dp.planning import answers, job as jobs, ranking as rankings, textbook
from beam_dp.planning.job import Job, Option, PlanningJob, QueryCountJob
from beam_dp.planning.ranking import Ranking, Target, TargetRanking
from beam_dp.planning.synthetic_databases import PROGRAM
from beam_dp.planning.theorems.theorem import CALIBRATIONS, MAX_EXACT, MAX_QUERIES, Calibration
from beam_dp.privacy.guarantee import Guarantee, Neighboring, large_epsilon
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.workload import Workload, parse_workload
from beam_dp.views.terminal import counted, guarantee_text, plain_table, short, surely

Flags = Mapping[str, str]  # flags as typed, without those that are not given


class Plan(NamedTuple):
    """A plan as text and as JSON, with the command line of its best option."""

    shown: RenderableType
    json: dict[str, Any]
    command: str | None = None


def plan_of(flags: Flags) -> Plan:
    """Returns the options for a job, best first, or the least epsilons for a target."""
    target = read_target(flags)
    if target is not None and "domain" in flags:
        read_domain(flags["domain"])  # refuses attributes to discover
    job = job_of(flags if target is None else with_epsilon(flags, 1.0))
    if target is None:
        ranking = ranking_of(job, flags)
        best, spent, title = ranking.best, "", _title(job)
        options = [(option, flags) for option in ranking.options]
        legend, fields = _legend_of_ranking(ranking), ranking.to_json()
    else:
        least_epsilons = rankings.rank_for_target(job, target)
        best, spent = least_epsilons.best.option, f", with epsilon {least_epsilons.best.epsilon:g}"
        title = target_title(target, job.guarantee)
        options = [
            (least.option, with_epsilon(flags, least.epsilon or 0.0))
            for least in least_epsilons.reached
        ]
        legend, fields = _legend_of_target(least_epsilons), least_epsilons.to_json()
    columns = _columns(job, target)
    rows, command = [], None
    for (option, line_flags), entry in zip(options, fields["options"], strict=True):
        epsilon = [] if target is None else [line_flags["epsilon"]]
        cells = [*epsilon, *(cell(option) for cell in columns.values())]
        rows.append(Row(_name(option), option, cells))
        entry["command"] = command_line(job, option, line_flags)
        if option is best:
            command = entry["command"]
    if target is not None:
        rows += [Row(_name(option), option, ()) for option in least_epsilons.refused]
        columns = {"epsilon": _expected, **columns}
    head = f"{_best_text(best, spent)}\n{title}"
    return Plan(options_table(head, [*columns], rows, legend, "all" in flags), fields, command)


def _columns(job: Job, target: Target | None) -> dict[str, Callable[[Any], str]]:
    """Returns the columns of a table of options after their names: headings, and their cells."""
    is_bound = target is not None and target.of_bound
    if not isinstance(job, PlanningJob):
        if target is not None:
            return {"error": bound_text if is_bound else _expected, "numbers": _numbers}
        return {
            "error": _expected,
            "of one key": lambda option: _or_dash(option.error_of_one, short),
            "bound": lambda option: _or_dash(option.bound, lambda _: bound_text(option)),
            "numbers": _numbers,
        }
    error = _expected_or_measured if target is None else _expected
    columns: dict[str, Callable[[Any], str]] = {"error": error, "bound": bound_text}
    if target is None and job.max_error_fraction is not None:
        columns["records"] = lambda option: _or_dash(option.records_needed, short)
    return {
        **columns,
        "memory": lambda option: _or_dash(option.resources, lambda of: bytes_text(of.memory_bytes)),
        "time": lambda option: _or_dash(option.resources, lambda of: duration_text(of.seconds)),
    }


def _legend_of_ranking(ranking: Ranking) -> list[str]:
    """Returns the lines below a table of options."""
    job, best = ranking.job, ranking.best
    lines = _legend_of_errors(job)
    if not isinstance(job, PlanningJob):
        return [
            *lines,
            f"bound: {surely(job.failure_probability)}, no answer is off by more; '-': each answer"
            " comes with its own bound",
            f"Answering 0 to every query would err by {short(ranking.error_of_nothing or 0)}.",
        ]
    errors = [_expected_or_measured(option) for option in ranking.options if not option.refusal]
    if "unknown" in errors:
        lines.append("unknown: the error depends on the data")
    if any(error.startswith("(") for error in errors):
        lines.append("(in brackets): the error of measured answers only")
    if job.max_error_fraction is not None:
        share = f"{job.max_error_fraction:.3g} of them"
        lines.append(f"records: the number needed for a bound of at most {share}")
    if best is not None and best.noisy_cells is not None:
        lines.append(
            f"too noisy to use with {_name(best)}: {best.noisy_cells:,} of"
            f" {job.num_queries:,} cells, if the records are spread evenly (their error bar is"
            " longer than half of the count)"
        )
    return [*lines, *_time_of_job(job, best)]


def _legend_of_target(ranking: TargetRanking) -> list[str]:
    """Returns the lines below a table of the least epsilons."""
    job = ranking.job
    lines = _legend_of_errors(job)
    if ranking.target.of_bound and not isinstance(job, PlanningJob):
        sure = surely(job.failure_probability)
        lines = [f"error: {sure}, no answer is off by more than this many records"]
    lines += [
        f"not reached: the smallest error of {_name(least.option)} is {short(least.error)} records"
        for least in ranking.beyond
    ]
    return lines + large_epsilon_lines(ranking.best.epsilon or 0)


def plan_of_queries(flags: Flags) -> Plan:
    """Returns the number of queries that each mechanism can answer."""
    job = query_count_job(flags)
    counts = count_queries(job)
    title = (
        "The number of queries for which no answer is off by more than"
        f" {job.target_error:,.6g} records, {surely(job.failure_probability)};"
        f" {_records(job.num_records, job.num_records_is_public)}, {guarantee_text(job.guarantee)}"
    )
    legend = ["queries: the largest number for which a theorem guarantees this error"]
    if any(not count.num_queries for count in counts if count.refusal is None):
        legend.append("none: this theorem guarantees the error for no query")
    largest = max(count.num_queries for count in counts)
    if job.num_cells is not None and largest.bit_length() > job.num_cells:
        legend.append(f"There are 2^{job.num_cells:,} different queries of values 0 and 1.")
    rows = [
        Row(f"{count.mechanism}, {count.calibration}", count, [counted_queries(count.num_queries)])
        for count in counts
    ]
    return Plan(
        options_table(title, ["queries"], rows, legend, "all" in flags),
        {**job.to_json(), "options": [count.to_json() for count in counts]},
    )


def counted_queries(count: int) -> str:
    """Returns a number of queries as a short text."""
    if count == 0:
        return "none"
    if count < MAX_EXACT:
        return f"{count:,}"
    power = round(math.log10(count))
    return f"10^{power:,} or more" if count == MAX_QUERIES else f"about 10^{power:,}"


class Row(NamedTuple):
    """One row of a table: an option, the option's name, and the cells as strings."""

    name: str
    option: Option | QueryCount
    cells: Sequence[str]


def options_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Row],
    legend: Sequence[str],
    show_refused: bool,
) -> RenderableType:
    """Returns a table of options, best first, in 80 columns; impossible options are only counted.

    The notes on options, the legend and, with ``show_refused``, the refusals are below the table.
    """
    notes: dict[str, int] = {}
    shown, refusals = [], []
    for name, option, cells in rows:
        if option.refusal is not None:
            refusals.append(f"{name}: not possible: {option.refusal}")
            continue
        mark = notes.setdefault(option.note, len(notes) + 1) if option.note else None
        shown.append((name + (f" [{mark}]" if mark else ""), *cells))
    below = [f"[{mark}] {note}" for note, mark in notes.items()]
    if refusals and not show_refused:
        more = counted(len(refusals), "other mechanism")
        refusals = [f"{more} cannot do this job; --all explains why"]
    table = plain_table(("mechanism", *columns), shown, range(1, len(columns) + 1))
    head = Text(title)
    head.stylize("bold", 0, len(title.partition("\n")[0]))
    return Group(head, Text(), table, Text(), *map(Text, [*legend, *below, *refusals]))


def _best_text(best: Option | None, spent: str) -> str:
    """Returns the answer of a plan in one line: the best mechanism and its error."""
    if best is None:
        return "No mechanism can do this job; --all explains why."
    if best.expected_error is None:
        return f"Best: {_name(best)}{spent}. Its error depends on the data."
    error = short(best.expected_error)
    if best.error_range is not None:
        error = " to ".join(map(short, best.error_range))
    return f"Best: {_name(best)}{spent}. Expect an error of {error} records."


def _name(option: Option) -> str:
    """Returns the name of an option in the table."""
    if not isinstance(option, jobs.SparseOption):
        return f"{option.mechanism}, {option.calibration}"
    forms = {"num_rows": "rows: {}", "noise": "{}", "histogram_share": "share: {}"}
    parameters = dict(option.parameters)
    parts = [forms[name].format(parameters[name]) for name in forms if name in parameters]
    return ", ".join([option.mechanism, *parts])


def _or_dash(value: Any, text: Callable[[Any], str]) -> str:
    return "-" if value is None else text(value)


def _expected(option: Option) -> str:
    return "unknown" if option.expected_error is None else short(option.expected_error)


def _expected_or_measured(option: Option) -> str:
    if option.expected_error is None and option.measured_error is not None:
        return f"({short(option.measured_error)})"
    return _expected(option)


def bound_text(option: Option) -> str:
    """Returns the bound on all errors of an option as text, or a text if there is no bound."""
    if option.bound is None:
        return "none"
    return "vacuous" if option.bound.vacuous else short(option.bound.max_error)


def _numbers(option: jobs.SparseOption) -> str:
    return _or_dash(option.size, lambda size: f"{size:,}")


def bytes_text(memory: float) -> str:
    """Returns a number of bytes as text, with few digits."""
    return f"{memory / 1e6:,.0f} MB" if memory < 1e9 else f"{short(memory / 1e9)} GB"


def duration_text(seconds: float) -> str:
    """Returns a duration as text, with few digits."""
    if seconds < 100:
        return f"{seconds:.1g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{short(seconds / 3600)} h"


# Shorter jobs are not mentioned, and longer jobs are a warning.
_SHORT_SECONDS, _LONG_SECONDS = 30, 600
_SHOWN_BYTES = 1e8


def _legend_of_errors(job: Job) -> list[str]:
    """Returns lines with the meaning and unit of the errors in a table."""
    if not isinstance(job, PlanningJob):
        of = f"a query of {job.max_sparsity:,} keys"
        return [f"error: expected error (root mean square, in records) of {of}"]
    of = "cell" if isinstance(job.workload, Workload) else "answer"
    return [
        f"error: expected error (root mean square, in records) of one {of}",
        f"bound: {surely(job.failure_probability)}, no {of} is off by more",
    ]


def _title(job: Job) -> str:
    promise = guarantee_text(job.guarantee)
    if isinstance(job, PlanningJob):
        records = _records(job.num_records, job.num_records_is_public)
        cells = magnitude(job.domain.num_cells)
        return f"{cells} cells, {job.num_queries:,} answers; {records}; {promise}"
    profile = job.profile
    return (
        f"Queries of up to {job.max_sparsity:,} keys;"
        f" {_records(profile.num_records, job.num_records_is_public)}, {profile.num_keys:,} keys,"
        f" at most {profile.largest_count:,} records of one; {promise}"
    )


def _records(num_records: int, is_public: bool) -> str:
    return f"{num_records:,} records ({'public' if is_public else 'private, a guess'})"


def target_title(target: Target, guarantee: Guarantee) -> str:
    """Returns what a plan with a target finds, as text."""
    what = "bound" if target.of_bound else "expected error"
    relation = guarantee.neighboring.value.replace("_", " ")
    return (
        f"The smallest epsilon with which the {what} is at most {target.error:,.6g} records;"
        f" delta {guarantee.delta:g}, {relation}"
    )


def _time_of_job(job: PlanningJob, option: Option | None) -> list[str]:
    """Returns a line with the cost of a whole job, for a long job that writes records."""
    if option is None or option.resources is None or option.program != PROGRAM:
        return []
    domain = job.domain
    binned = sum(isinstance(attribute, BinnedAttribute) for attribute in domain)
    distinct = min(domain.num_cells, job.num_records, MAX_CANDIDATES)
    attributes = domain.num_attributes
    whole = release_resources(option.resources, job.num_records, distinct, attributes, binned)
    size = bytes_text(option.disk_bytes)
    disk = [f"the records that {_name(option)} releases take up to {size} on disk"]
    disk = disk if option.disk_bytes >= _SHOWN_BYTES else []
    if whole.seconds < _SHORT_SECONDS:
        return disk
    line = f"the whole job with {_name(option)} takes about {duration_text(whole.seconds)} of"
    line += f" processor time and {bytes_text(whole.memory_bytes)} of memory in one process"
    return [f"warning: {line}" if whole.seconds > _LONG_SECONDS else line, *disk]


def large_epsilon_lines(epsilon: float) -> list[str]:
    """Returns a warning line if an epsilon is so large that it protects little."""
    text = large_epsilon(epsilon)
    return [] if text is None else [f"warning: {text}; accept a larger error, or ask for less"]


def with_epsilon(flags: Flags, epsilon: float) -> dict[str, str]:
    """Returns the flags as typed, with an epsilon of at most six digits."""
    return {**flags, "epsilon": f"{epsilon:g}"}


@dataclasses.dataclass(frozen=True)
class QueryCount:
    """The number of queries that a theorem allows; 0, with the reason, if there is no plan."""

    mechanism: str
    calibration: Calibration
    num_queries: int = 0
    theorem: str = ""
    assumes: str = ""
    refusal: str | None = None

    @property
    def note(self) -> str:
        """The theorem and its assumptions."""
        return f"{self.theorem}; {self.assumes}"

    def to_json(self) -> dict[str, Any]:
        """Returns the count as JSON values; beyond 10^15 only the logarithm is given."""
        count = self.num_queries
        return {
            **dataclasses.asdict(self),
            "num_queries": count if count < MAX_EXACT else None,
            "log10_num_queries": math.log10(count) if count else None,
        }


# For each mechanism, the number of queries that its theorem allows.
_COUNTS: dict[str, Callable[[QueryCountJob, Calibration], dict[str, Any]]] = {
    "small_db": textbook.small_db_queries,
    "mwem": textbook.mwem_queries,
    "private_mw": answers.private_mw_queries,
    "sparse_mw": answers.sparse_mw_queries,
}


def count_queries(job: QueryCountJob) -> list[QueryCount]:
    """Returns the number of queries that each mechanism can answer, the largest number first.

    A mechanism may answer more queries than its theorem guarantees. For a small database the number
    may be larger than a machine can handle, because the draw is slow.
    """
    counts = [
        _counted(job, name, calibration, count)
        for name, count in _COUNTS.items()
        for calibration in CALIBRATIONS
        if (name, calibration) != ("mwem", "tight")  # there is no theorem for tight MWEM
    ]
    return sorted(counts, key=lambda count: (count.refusal is not None, -count.num_queries))


def _counted(
    job: QueryCountJob,
    name: str,
    calibration: Calibration,
    count: Callable[[QueryCountJob, Calibration], dict[str, Any]],
) -> QueryCount:
    try:
        return QueryCount(name, calibration, **count(job, calibration))
    except InputError as error:
        is_missing = error.value is None
        refusal = f"{error.name} {error.condition}" if is_missing else str(error)
        return QueryCount(name, calibration, refusal=refusal)


def job_of(flags: Flags) -> Job:
    """Returns the job for flags that ``check_plan`` accepted; reads the domain but no records."""
    if "max_sparsity" in flags:
        return jobs.SparsePlanningJob(
            profile=KeyProfile(**values_of(KeyProfile, flags)),
            max_sparsity=integer("max_sparsity", flags["max_sparsity"]),
            max_size=integer("size", flags.get("size", str(jobs.SparsePlanningJob.max_size))),
            num_questions=_integer("num_questions", flags),
            **read_promise(flags),
        )
    return PlanningJob(
        workload=read_workload(flags["workload"], largest_domain(flags["domain"])),
        num_records=integer("num_records", flags["num_records"]),
        max_error_fraction=number("max_error", flags["max_error"])
        if "max_error" in flags
        else None,
        **read_promise(flags),
    )


def query_count_job(flags: Flags) -> QueryCountJob:
    """Returns the job that computes, for these flags, how many queries may be asked."""
    num_cells = _integer("num_cells", flags)
    if "domain" in flags:
        num_cells = largest_domain(flags["domain"]).num_cells
    return QueryCountJob(
        num_records=integer("num_records", flags["num_records"]),
        target_error=number("target_error", flags["target_error"]),
        num_cells=num_cells,
        max_sparsity=_integer("max_sparsity", flags),
        **read_promise(flags),
    )


def _integer(name: str, flags: Flags) -> int | None:
    return integer(name, flags[name]) if name in flags else None


def largest_domain(text_or_path: str) -> Domain:
    """Returns the domain of a file; the largest one, if attributes are to be discovered."""
    domain = read_open_domain(text_or_path)
    return domain.bounded() if isinstance(domain, OpenDomain) else domain


def ranking_of(job: Job, flags: Flags) -> Ranking:
    """Returns the options for a job, which may be about the domain of a file."""
    if isinstance(job, jobs.SparsePlanningJob):
        return rankings.rank_sparse_mechanisms(job)
    domain = read_open_domain(flags["domain"])
    if isinstance(domain, OpenDomain):
        return rankings.rank_discovering_mechanisms(job, domain)
    return rankings.rank_mechanisms(job)


def read_promise(flags: Flags) -> dict[str, Any]:
    """Returns the arguments that are common to all jobs."""
    guarantee = read_guarantee(flags)
    is_public = guarantee.neighboring is Neighboring.REPLACE_ONE
    return {
        "guarantee": guarantee,
        "num_records_is_public": is_public or "num_records_is_public" in flags,
        "failure_probability": number(
            "failure_probability", flags.get("failure_probability", "0.05")
        ),
    }


def read_target(flags: Flags) -> Target | None:
    """Returns the target error; None if an epsilon is given instead."""
    for flag in (TARGET_ERROR, TARGET_BOUND):
        if flag.name in flags:
            return Target(number(flag.name, flags[flag.name]), flag is TARGET_BOUND)
    return None


def read_workload(spec: str, domain: Domain) -> Workload | LinearWorkload:
    """Returns a workload of marginals if ``spec`` has only marginals, else of linear queries."""
    try:
        return parse_workload(spec, domain)
    except InputError:
        if spec.startswith("marginals:"):
            raise
        return parse_linear_workload(spec, domain)


def command_line(job: Job, option: Option, flags: Flags) -> str | None:
    """Returns the command that runs an option; None if the option has no program."""
    if option.program is None or not option.is_feasible:
        return None
    guarantee = job.guarantee
    command = {"input": flags.get("input", "INPUT")}
    if isinstance(job, PlanningJob):
        command |= paying_flags(job.domain)
        command |= {name: flags[name] for name in ("domain", "workload")}
    else:
        command |= {"key": flags.get("key", "KEY"), "max_sparsity": str(job.max_sparsity)}
    command |= {
        "epsilon": flags["epsilon"],
        "delta": flags["delta"],
        "neighboring": guarantee.neighboring.value,
        "privacy_unit": guarantee.privacy_unit,
        "max_records_per_unit": str(guarantee.max_records_per_unit),
    }
    if option.program in ("release_synthetic_database", "answer_queries"):
        command["num_records"] = str(job.given_num_records)
    if option.program != "release_intervals":  # this program releases all intervals
        command["mechanism"] = option.mechanism
        if isinstance(job, PlanningJob):
            command["calibration"] = option.calibration
    command |= dict(option.parameters)
    if option.program == "answer_queries":
        command["queries"] = _queries(job, command.pop("workload", "QUERIES"))
        command["failure_probability"] = f"{job.failure_probability:g}"
    if option.program == "release_intervals":
        del command["workload"]
    command["output"] = flags.get("output", "OUTPUT")
    return typed(option.program, command, guarantee.delta)


def paying_flags(domain: Domain) -> dict[str, str]:
    """Returns the flags for the budget that paid for released edges, which must pay again."""
    ids = [edges.dataset_id for _, edges in released_edges(domain) if edges.dataset_id is not None]
    return {"ledger": "LEDGER", "dataset_id": ids[0]} if ids else {}


def domain_lines(flags: Flags) -> list[str]:
    """Returns lines about attributes to discover, or about released edges and who must pay."""
    domain = read_open_domain(flags["domain"])
    if isinstance(domain, OpenDomain):
        names = ", ".join(shown(column.name) for column in domain.typed().open)
        share = f"{100 * DEFAULT_SHARE:g} % of the budget"
        sought: dict[str, str] = {}
        with contextlib.suppress(InputError):  # then each option says why it is refused
            *before, plan = plans_before(domain, read_guarantee(flags))
            sought = {name: text for first in before for name, text in first.facts.items()}
            sought |= plan.sought
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
    open_ones = [
        entry for entry in attributes if "discover" in entry and isinstance(entry["type"], str)
    ]
    columns = tuple(open_attribute(open_one) for open_one in open_ones)
    guarantee = Guarantee(1.0, 1e-9, Neighboring.ADD_OR_REMOVE_ONE, "record", 1)
    return plan_domain(OpenDomain(columns), guarantee).sought if columns else {}


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
