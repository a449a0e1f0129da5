"""The page of all kept runs: one table for each table of records, and one for the pass."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from contenders import PASS, RECORDS, Contender

from benchmarks.recorded import Figure
from benchmarks.tables import told

Run = dict[str, Any]
LABELS = {each.name: each.label for each in (*RECORDS, *PASS)}
_HEAD = """\
# Peers side by side

Written by

    BEAM_DP_DATA=DIR MBI_MECHANISMS=DIR python benchmarks/peers/side_by_side.py

which makes an environment for each peer, from the files of `benchmarks/peers/requirements`. One row
again, leaving the others as they are kept in `peers.json`: `--only NAME --tables TABLE`.

Every system is given the same codes of the same records, the sizes of the domain, the number of
records, and epsilon 1, delta 1e-9 of adding or removing one record; none spends on bins or on the
domain. Each releases as many records as there are. Errors are of those records against the true
ones: total variation averaged over all marginals / the largest error of any cell, both of
normalised marginals, over all 2-way and over all 3-way marginals, whichever a system was asked for.
`±` is the standard error of the mean. CPU seconds and peak memory are of the whole process, with
imports and reading, on one thread of a machine that was busy with other work. A run is ended when
it has used the CPU seconds of its row's limit; its other seeds are then not run. A seed
fixes what a system lets be seeded: not the noise of beam_dp and dpmm.
"""
_DIFFERENCES = """\
## What differs, and which version was run

- All: add-or-remove-one, a record as the unit; of the pass, a unit and its rows.
- Accounting: dpmm adds up zero-concentrated privacy and turns the sum into (epsilon, delta) by the
  bound of Canonne, Kamath and Steinke; beam_dp adds up the squares of Gaussian privacy's mu, which
  is exact for Gaussian noise.
- Randomness: beam_dp takes all that protects from the operating system; dpmm takes its noise from
  OpenDP, and its selections from numpy's generator, which is seeded here.
- dpmm merges rare codes of an attribute before it fits, and its AIM selects from marginals of at
  most 10,000 cells: both are its defaults.
"""


def text(content: dict[str, Any]) -> str:
    """Returns the page.

    Args:
        content: of ``peers.json``: ``tables`` tells of each table, and ``runs`` holds each run.
    """
    parts, notes = [_HEAD], [_DIFFERENCES]
    for name, about in content["tables"].items():
        runs = [run for run in content["runs"] if run["table"] == name]
        parts.append(_pass_section(about, runs) if name == "pass" else _section(name, about, runs))
    for contenders, is_pass in ((RECORDS, False), (PASS, True)):
        runs = [run for run in content["runs"] if (run["table"] == "pass") == is_pass]
        where = "pass, " if is_pass else ""
        notes += [f"- {where}{_note(each, _of(each, runs))}" for each in contenders]
    return "\n".join([*parts, "".join(notes)])


def done(content: dict[str, Any], name: str) -> dict[str, list[Run]]:
    """Returns the runs that finished on a table, by the labels of their systems."""
    here = [run for run in content["runs"] if run["table"] == name and run["outcome"] == "done"]
    found = {each.label: _of(each, here) for each in (PASS if name == "pass" else RECORDS)}
    return {label: runs for label, runs in found.items() if runs}


def figures(runs: Sequence[Run], ways: int) -> dict[str, Figure]:
    """Returns the errors over marginals of so many attributes, and the time."""
    errors = {
        error: Figure.mean([run["errors"][str(ways)][which] for run in runs], "share")
        for which, error in enumerate(("total variation", "largest cell"))
    }
    return {**errors, "CPU time": Figure.mean([run["cpu_seconds"] for run in runs], "seconds")}


def _section(name: str, about: dict[str, Any], runs: Sequence[Run]) -> str:
    ways = about["ways"]
    lines = [
        f"## {name}\n",
        f"{about['records']:,} records of {about['attributes']} attributes; asked for all"
        f" {about['marginals'][str(ways)]} {ways}-way marginals.\n",
        "| system | runs | 2-way | 3-way | CPU s | peak MB |",
        "| --- | --- | --- | --- | --- | --- |",
        *(_row(contender, _of(contender, runs), 4, _record_cells) for contender in RECORDS),
    ]
    return "\n".join(lines) + "\n"


def _pass_section(about: dict[str, Any], runs: Sequence[Run]) -> str:
    num_rows = about["rows"]
    cells = functools.partial(_pass_cells, num_rows)
    lines = [
        "## pass\n",
        f"{num_rows:,} Parquet rows of {about['units']:,} units, at most {about['rows_of_a_unit']}"
        " rows a unit, on FnApiRunner. Kept: rows counted over those that the limit should keep.\n",
        "| system | runs | kept | CPU s | CPU microseconds a row | peak MB |",
        "| --- | --- | --- | --- | --- | --- |",
        *(_row(contender, _of(contender, runs), 4, cells) for contender in PASS),
    ]
    return "\n".join(lines) + "\n"


def _of(contender: Contender, runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run["name"] == contender.name]


def _row(
    contender: Contender, runs: Sequence[Run], width: int, cells: Callable[[list[Run]], list[str]]
) -> str:
    """The cells of the runs that were done, or what came of those that were not."""
    done = [run for run in runs if run["outcome"] == "done"]
    came = [str(len(done))] if done else []
    came += [_not_done(run) for run in runs if run["outcome"] != "done"]
    if not runs:
        came = ["not run: no package" if contender.adapter is None else "not run"]
    found = cells(done) if done else [""] * width
    return "| " + " | ".join([contender.label, "; ".join(came), *found]) + " |"


def _not_done(run: Run) -> str:
    is_over = run["outcome"] == "over the limit"
    return f"{run['outcome']} of {run['limit']} CPU s" if is_over else str(run["outcome"])


def _record_cells(done: list[Run]) -> list[str]:
    errors = [
        f"{told(each['total variation'])} / {told(each['largest cell'])}"
        for each in (figures(done, ways) for ways in (2, 3))
    ]
    return [*errors, f"{_average(done, 'cpu_seconds'):.0f}", f"{_average(done, 'peak_mb'):.0f}"]


def _pass_cells(num_rows: int, done: list[Run]) -> list[str]:
    seconds = _average(done, "cpu_seconds")
    each = f"{seconds / num_rows * 1e6:.2f}"
    kept = _mean([run["kept"] for run in done])
    return [kept, f"{seconds:.1f}", each, f"{_average(done, 'peak_mb'):.0f}"]


def _average(done: Sequence[Run], field: str) -> float:
    return Figure.mean([run[field] for run in done], "").value


def _mean(values: Sequence[float]) -> str:
    """A mean, with its standard error where there are several."""
    return told(Figure.mean(values, "share"))


def _note(contender: Contender, runs: Sequence[Run]) -> str:
    """What to know of a system, and the versions and days of its runs."""
    when = sorted({f"{run['version']}, {run['date']}" for run in runs})
    settings = ", ".join(f"{name} {value}" for name, value in contender.options.items())
    asked = "; ".join([*([settings] if settings else []), *(when or ["not run"])])
    return f"{contender.label} ({asked}): {contender.note}\n"
