"""The part of `beam-dp plan` that says how many queries may be asked, for an error to be kept."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from beam_dp.cli.plan_command import failure_probability, is_public
from beam_dp.cli.plan_table import Row, options_table
from beam_dp.domain.files import read_domain
from beam_dp.flags.numbers import integer, number
from beam_dp.flags.shared import read_guarantee
from beam_dp.planning.query_counts import QueryCount, QueryCountJob, count_queries
from beam_dp.reports.terminal import guarantee_text
from beam_dp.theorems.query_counts import MAX_EXACT, MAX_QUERIES

if TYPE_CHECKING:
    from rich.console import RenderableType


def plan_queries(texts: Mapping[str, str | None], as_json: bool) -> None:
    """Prints how many queries each mechanism may be asked, the most first; reads no data.

    Args:
        texts: the text of each flag of `beam-dp plan`, as ``check_plan`` lets them pass; None
            where it was not given.
        as_json: whether to print JSON, of all of them.

    Raises:
        FlagError: a flag is missing.
        InputError: naming the flag, without its dashes.
    """
    from rich.console import Console

    job = _job_of({name: text for name, text in texts.items() if text is not None})
    counts = count_queries(job)
    if as_json:
        print(json.dumps({**job.to_json(), "options": [each.to_json() for each in counts]}))
        return
    Console().print(_table(job, counts, show_refused=texts["all"] is not None))


def counted_queries(count: int) -> str:
    """Returns a number of queries in a few words.

    Example:
        >>> counted_queries(0), counted_queries(7396), counted_queries(10**123)
        ('none', '7,396', 'about 10^123')
    """
    if count == 0:
        return "none"
    if count < MAX_EXACT:
        return f"{count:,}"
    power = round(math.log10(count))
    return f"10^{power:,} or more" if count == MAX_QUERIES else f"about 10^{power:,}"


def _job_of(given: Mapping[str, str]) -> QueryCountJob:
    guarantee = read_guarantee(given)
    if "domain" in given:
        num_cells: int | None = read_domain(given["domain"]).num_cells
    else:
        num_cells = integer("num_cells", given["num_cells"]) if "num_cells" in given else None
    sparsity = given.get("max_sparsity")
    return QueryCountJob(
        guarantee=guarantee,
        num_records=integer("num_records", given["num_records"]),
        num_records_is_public=is_public(given, guarantee),
        target_error=number("target_error", given["target_error"]),
        failure_probability=failure_probability(given),
        num_cells=num_cells,
        max_sparsity=None if sparsity is None else integer("max_sparsity", sparsity),
    )


def _table(job: QueryCountJob, counts: list[QueryCount], *, show_refused: bool) -> RenderableType:
    origin = "public" if job.num_records_is_public else "private, a guess"
    title = (
        f"how many queries may be asked so that no answer is wrong by more than"
        f" {job.target_error:,.6g} records, except with probability {job.failure_probability:g};"
        f" {job.num_records:,} records ({origin}), {guarantee_text(job.guarantee)}"
    )
    legend = ["queries: the most for which a theorem keeps the error; fewer may be asked, too"]
    if any(not each.num_queries for each in counts if each.refusal is None):
        legend.append("none: no query at all is known to be answered that well")
    most = max(each.num_queries for each in counts)
    if job.num_cells is not None and most.bit_length() > job.num_cells:
        legend.append(f"There are 2^{job.num_cells:,} different queries of values 0 and 1.")
    rows = [
        Row(f"{each.mechanism}, {each.calibration}", each, [counted_queries(each.num_queries)])
        for each in counts
    ]
    return options_table(title, ["queries"], rows, legend, show_refused=show_refused)
