"""What documents tell of recorded runs: tables, and how they were made."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import pathlib
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

# The page of all kept runs of peers stands beside what runs them.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))

import page

from benchmarks import error_pictures
from benchmarks.recorded import RESULTS, Figure, Row, Run, read
from benchmarks.tables import markdown, table

OWN = "beam_dp"
PARTS_HEAD = "table, marginals, epsilon"
BESIDE = ("records", "free selection", "structure", "rounded structure", "unbiased", "linear")
ERROR_PARTS = ("structure", "noise", "paid selection", "rounding", "not measured")
ERRORS = ("total variation", "largest cell")
WEIGHTED = "weighted total variation"
# Pages show the commands of a file, or only the first one if there are more.
SHOWN = 8
BINS_ERRORS = ("distance", "mean", "quantiles", "intervals", "pairs")
BINS_BESIDE, BINS_SIZE = "exact counts", "50,000 records"
BINS_SHOWN = ("cells", "exact counts", "declared quantiles")
BASELINES = {"independent": "attributes alone", "raw_gaussian": "noise on each marginal"}


@functools.cache
def runs(name: str) -> tuple[Run, ...]:
    """Returns what a file of the results holds; nothing before its first run."""
    path = RESULTS / f"{name}.json"
    return tuple(read(path)) if path.exists() else ()


def rows(name: str) -> list[Row]:
    """Returns the rows of all runs of a file."""
    return [row for run in runs(name) for row in run.rows]


@functools.cache
def peers() -> dict[str, Any]:
    """Returns what is kept of this project and its peers."""
    kept: dict[str, Any] = json.loads((RESULTS / "peers.json").read_text("utf-8"))
    return kept


def page_of_peers() -> str:
    """Returns the page of all kept runs of peers."""
    return page.text(peers())


def how(name: str) -> str:
    """Returns when, where and with which commands a file was recorded."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs(name):
        groups.setdefault((run.date, run.machine, run.versions, run.commit), []).append(run)
    parts = []
    for (date, machine, versions, commit), found in groups.items():
        loads = sorted(run.load for run in found if run.load is not None)
        load = f", a load of {_range(loads)} beforehand" if loads else ""
        commands = [run.command for run in found]
        more = ""
        if len(commands) > SHOWN:
            more = f"`benchmarks/results/{name}.json` has all {len(commands)} commands.\n"
            commands = commands[:1]
        lines = "\n".join(commands)
        parts.append(
            f"Recorded {date} at commit {commit}: {machine}{load}; {versions}.\n\n"
            f"```sh\n{lines}\n```\n{more}"
        )
    return "\n".join(parts)


def _range(values: Sequence[float]) -> str:
    low, high = (f"{value:.1f}" for value in (values[0], values[-1]))
    return low if low == high else f"{low} to {high}"


def recorded_table(name: str) -> str:
    """Returns all that a file holds: a table for each set of figures, and how it was made."""
    parts = []
    for _, found in itertools.groupby(rows(name), key=lambda row: tuple(row.figures)):
        parts.append(table(list(found)))
    return "\n".join([*parts, how(name)])


def beside_peers() -> str:
    """Returns errors and times of each system as ratios to ours, and when it was run."""
    parts = []
    for name, found in systems():
        names = [each for each in found[0].figures if each.endswith("ratio")]
        about = peers()["tables"][name]
        parts += [f"### {_heading(name, about)}\n", table(found, "system", names)]
    return "\n".join([*parts, how_peers(lambda run: run["table"] != "pass")])


def _tables() -> list[str]:
    """Returns the tables of records."""
    return [name for name in peers()["tables"] if name != "pass"]


def systems() -> Iterable[tuple[str, list[Row]]]:
    """Yields tables of records, and their rows: errors as asked for, and as ratios to ours."""
    for name in _tables():
        ways = peers()["tables"][name]["ways"]
        found = {
            label: (page.figures(runs, ways), len(runs))
            for label, runs in page.done(peers(), name).items()
        }
        own, _ = found[OWN]
        yield (
            name,
            [
                Row(label, {**_over(figures, own), **figures}, runs)
                for label, (figures, runs) in found.items()
            ],
        )


def _over(figures: dict[str, Figure], own: dict[str, Figure]) -> dict[str, Figure]:
    """Returns ratios; nothing is uncertain about that of ours to itself."""
    return {
        f"{name}, ratio": Figure(1.0, "times") if figures is own else figures[name].over(own[name])
        for name in own
    }


def _heading(name: str, about: dict[str, Any]) -> str:
    marginals = f"{about['marginals'][str(about['ways'])]} {about['ways']}-way marginals"
    return f"{name}: {about['records']:,} records of {about['attributes']} columns, {marginals}"


def how_peers(is_asked: Callable[[dict[str, Any]], bool]) -> str:
    """Returns when and where systems were run, one line for each date and machine."""
    ways: dict[tuple[str, ...], list[str]] = {}
    for run in filter(is_asked, peers()["runs"]):
        what = f"{page.LABELS[run['name']]} {run['version']}"
        named = ways.setdefault((run["date"], run["machine"]), [])
        named += [] if what in named else [what]
    lines = [f"- {date}, {machine}: {'; '.join(named)}" for (date, machine), named in ways.items()]
    return "\n".join([*lines, ""])


def pass_beside_readers() -> list[Row]:
    """Returns the rows that compare the pass with a reader, as ratios."""
    found = []
    for row in rows("distributed_pass"):
        if "alone" in row.beside or "pyarrow" in row.beside:
            ratios = {f"by {name} time": _ratio(row, name) for name in ("CPU", "elapsed")}
            what = row.what.partition(":")[0]
            found.append(Row(what, {**row.figures, **ratios}, row.runs, row.beside))
    return found


def _ratio(row: Row, name: str) -> Figure:
    """Returns a recorded ratio, or that of two times where their difference was recorded."""
    kept = row.figures[f"by {name} time"]
    ours, other = row.figures[f"this pass, {name}"], row.figures[f"the other, {name}"]
    return kept if kept.unit == "times" else ours.over(other)


def beside_readers() -> str:
    """Returns the tables of the pass beside readers and beside what a Beam user writes first."""
    names = ("by CPU time", "by elapsed time")
    first = [row for row in rows("distributed_pass") if "Count.PerElement" in row.beside]
    return "\n".join(table(each, "what", names) for each in (pass_beside_readers(), first))


def pass_beside_peer() -> str:
    """Returns the CPU time of the pass that limits the rows of units, beside PipelineDP's."""
    about, kept = peers()["tables"]["pass"], page.done(peers(), "pass")
    times = {
        name: Figure.mean([run["cpu_seconds"] for run in runs], "seconds")
        for name, runs in kept.items()
    }
    rows_of = f"{about['rows']:,} rows of {about['units']:,} units"
    found = [
        Row(
            f"{name}, {rows_of}, at most {about['rows_of_a_unit']} each",
            {
                "CPU time, ratio": each.over(times[OWN]),
                "CPU time": each,
                f"{OWN}, CPU time": times[OWN],
            },
            len(kept[name]),
            OWN,
        )
        for name, each in times.items()
        if name != OWN
    ]
    return "\n".join([table(found), how_peers(lambda run: run["table"] == "pass")])


def accuracy() -> str:
    """Returns the errors of default releases."""
    lines = []
    for row in rows("accuracy"):
        name, ways, epsilon, delta, mechanism = row.what.split(", ")
        if mechanism == "mwem":
            pairs = [
                " / ".join(f"{row.figures[f'{kind}, {error}'].value:.4f}" for error in ERRORS)
                for kind in ("distribution", "records")
            ]
            seconds = row.figures["CPU time"].value
            cost = f"{seconds:.1f}" if seconds < 5 else f"{seconds:.0f}"
            lines.append([f"{name}, {ways}", f"{epsilon}, {delta}", *pairs, cost, str(row.runs)])
    heads = ["table, marginals", "epsilon, delta", "distribution", "released records"]
    return markdown([*heads, "CPU seconds", "runs"], lines)


def error_parts() -> str:
    """Returns errors beside others, and the parts of the errors."""
    found = rows("error_parts")
    if not found:
        return "No run has been recorded yet.\n"
    parts = []
    for error in ERRORS:
        parts += [
            f"The {error} of the released records, beside other errors:\n",
            _shown(found, {f"{n}, {error}": n for n in BESIDE}),
        ]
    names = {f"part: {each}": each for each in ERROR_PARTS}
    parts += ["Parts of the records' total variation:\n", _shown(found, names)]
    kept = [name for name in found[0].figures if name.endswith("% of the rows, total variation")]
    kept = ["records, total variation", "rows of equal error", *kept]
    names = {each: each.removesuffix(", total variation") for each in kept}
    parts += ["The total variation of random samples of the rows:\n", _shown(found, names)]
    return "\n".join([*parts, how("error_parts")])


def _shown(found: Sequence[Row], names: dict[str, str]) -> str:
    """Returns a table of some figures, under other names."""
    return table([_renamed(row, names) for row in found], PARTS_HEAD, list(names.values()))


def by_weights() -> str:
    """Returns the weighted errors of the records where some marginals weigh more."""
    lines = []
    for row in rows("accuracy"):
        of_records = row.figures.get("records, weighted total variation")
        if of_records is not None:
            what, _, mechanism = row.what.rpartition(", ")
            name = {"mwem": "the weights", "unweighted": "equal weights"}[mechanism]
            names = {f"records, {each}": each for each in (WEIGHTED, *ERRORS)}
            lines.append(_renamed(dataclasses.replace(row, what=f"{what}: {name}"), names))
    return table(lines, "table, marginals, epsilon, delta: what the mechanism is told")


def _renamed(row: Row, names: dict[str, str]) -> Row:
    """Returns a row with some of its figures, under other names."""
    figures = {new: row.figures[old] for old, new in names.items() if old in row.figures}
    return dataclasses.replace(row, figures=figures)


def beside_baselines() -> str:
    """Returns how many times a default release's error the baselines have."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows("accuracy"):
        what, _, mechanism = row.what.rpartition(", ")
        found.setdefault(what, {})[mechanism] = row
    compared = []
    for what, each in found.items():
        if not each.keys() & BASELINES.keys():
            continue
        own = each["mwem"].figures
        figures = {
            f"{label}, {error}": each[name]
            .figures[f"distribution, {error}"]
            .over(own[f"distribution, {error}"])
            for name, label in BASELINES.items()
            if name in each
            for error in ERRORS
        }
        compared.append(Row(what, figures, each["mwem"].runs))
    heading = "table, marginals, epsilon, delta"
    return "\n".join([table(compared, heading), how("accuracy")])


def by_queries() -> str:
    """Returns errors beside Gaussian noise on each answer, by how many queries there are."""
    found = rows("error_by_queries")
    parts = []
    for panel, title in error_pictures.PANELS.items():
        parts += [f"### {title}\n", error_pictures.ratios(found, panel, "gaussian")]
    return "\n".join([*parts, how("error_by_queries")])


def errors_by_queries() -> str:
    """Returns the errors themselves, the largest and the mean."""
    found = rows("error_by_queries")
    parts = []
    for panel, title in error_pictures.PANELS.items():
        for figure in ("largest error", "mean error"):
            parts += [f"## {title}: {figure}\n", error_pictures.table(found, panel, figure)]
    return "\n".join([*parts, how("error_by_queries")])


def releases_by_size() -> str:
    """Returns errors and costs of releases, the stages of those in one process, and peers."""
    if not runs("size"):
        return "No run has been recorded yet.\n"
    found = [row for row in rows("size") if not row.beside]
    counts = [row for row in rows("size") if row.beside]
    costs = ("error, of the noise's", "error", "noise alone", "elapsed", "CPU time", "peak memory")
    staged = [row for row in found if "count" in row.figures]
    others = {*costs, "pairs measured"}
    stages = [name for row in staged for name in row.figures if name not in others]
    picture = "![CPU time against the number of records, as in the tables](time_by_records.svg)\n"
    parts = [picture, table(found, "what", costs)]
    parts.append(table(staged, "what", list(dict.fromkeys(stages))))
    for (about, beside), each in itertools.groupby(counts, key=_counted):
        engines = [
            dataclasses.replace(row, what=row.what.partition(": ")[2], beside="") for row in each
        ]
        parts += [f"Exact counts of {about}; ratios to {beside}:\n", table(engines, "engine")]
    return "\n".join([*parts, how("size")])


def _counted(row: Row) -> tuple[str, str]:
    """Returns what a row counts, and what it is compared with."""
    return row.what.partition(": ")[0], row.beside


def error_bars() -> str:
    """Returns the shares of bars that held, and their lengths, by the size of the truth."""
    names = [f"{number} attributes" for number in range(2, 6)]
    names += [f"answers from {size:,}" for size in (0, 1, 10, 100, 1000)]
    return table(rows("error_bars"), "table", names) + "\n" + how("error_bars")


def discovered_bins() -> str:
    """Returns the errors of found bins, as ratios over all columns and for each column."""
    found: dict[tuple[str, str], dict[str, dict[str, Figure]]] = {}
    for row in rows("discovery"):
        about, method = row.what.split(": ")
        column, size = about.split(", ", 1)
        found.setdefault((size, method), {})[column] = row.figures
    ratios, columns = [], []
    for (size, method), each in found.items():
        beside = found[size, BINS_BESIDE]
        mean = {
            error: Figure(
                math.exp(
                    statistics.fmean(
                        math.log(figures[error].value / beside[column][error].value)
                        for column, figures in each.items()
                    )
                ),
                "times",
            )
            for error in BINS_ERRORS
        }
        if method != BINS_BESIDE:
            ratios.append(Row(f"{size}: {method}", mean, _num_draws(), BINS_BESIDE))
        if method in BINS_SHOWN and size == BINS_SIZE:
            for column, figures in each.items():
                columns.append(Row(f"{column}: {method}", figures, _num_draws()))
    columns.sort(key=lambda row: row.what.split(":")[0])
    parts = [table(ratios, "bins", BINS_ERRORS), f"The errors themselves, of {BINS_SIZE}:\n"]
    return "\n".join([*parts, table(columns, "column: bins", BINS_ERRORS), how("discovery")])


# What a copy of so many records is good for, in words.
_USES = {
    1_000: "trying out programs; declare values and bins for more",
    10_000: "columns, and strong relations between two of them",
    1_000_000: "columns, and nearly all relations between two of them",
}


def copies_by_size() -> str:
    """Returns how far copies of a table of people are off, by its number of records."""
    figures = {row.what: row.figures for row in rows("undescribed_tables")}
    lines = []
    for size, use in _USES.items():
        errors = figures[f"wages, {size:,} records, found"]
        mean, sd, correlation = (errors[name].value for name in ("mean", "sd", "correlation"))
        lines.append(
            (f"{size:,}", f"{100 * mean:.1f} %", f"{100 * sd:.0f} %", f"{correlation:.2f}", use)
        )
    names = (
        "rows",
        "mean, of a standard deviation",
        "standard deviation",
        "correlation",
        "good for",
    )
    return markdown(names, lines)


def _num_draws() -> int:
    return rows("discovery")[0].runs


REGIONS: dict[str, Callable[[], str]] = {
    "error beside peers": beside_peers,
    "time beside bare readers": beside_readers,
    "time beside PipelineDP": pass_beside_peer,
    "accuracy": accuracy,
    "error_parts": error_parts,
    "error by weights": by_weights,
    "error beside baselines": beside_baselines,
    "error beside Gaussian noise": by_queries,
    "errors by queries": errors_by_queries,
    "releases by size": releases_by_size,
    "error bars": error_bars,
    "discovered bins": discovered_bins,
    "copies by size": copies_by_size,
    "called as SDV": lambda: table(rows("judges/synthesizers")),
    **{
        f"{name}.json": functools.partial(recorded_table, name)
        for name in (
            *("discovered_domains", "distributed_pass", "gate", "hashing", "means"),
            *("planned", "projection_pass", "small_tables", "start", "windows"),
            *(f"judges/{path.stem}" for path in sorted((RESULTS / "judges").glob("*.json"))),
        )
    },
}
