"""Results as data: what was run, when, on which machine, and the figures that it gave.

A benchmark with ``--record FILE`` keeps its rows in a list of runs; a run takes the place of the
one that the same command left there, and a row that of the row about the same thing. Pages and
pictures are made from these files alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import re
import subprocess
import sys
import time
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
# Packages whose versions move figures.
_PACKAGES = {"apache_beam": "apache-beam", "pyarrow": "pyarrow", "numpy": "numpy"}
_LOAD = round(os.getloadavg()[0], 1)  # before anything was measured


@dataclasses.dataclass(frozen=True)
class Figure:
    """A number that was measured.

    Args:
        value: the number.
        unit: what it counts: "times", "seconds", "share", ...
        error: the standard error of the mean, where there are several runs.
    """

    value: float
    unit: str
    error: float | None = None

    @classmethod
    def mean(cls, values: Sequence[float], unit: str) -> Figure:
        """Returns the mean of runs, with its standard error where there are several."""
        mean, runs = math.fsum(values) / len(values), len(values)
        if runs == 1:
            return cls(mean, unit)
        squares = math.fsum((value - mean) ** 2 for value in values) / (runs - 1)
        return cls(mean, unit, math.sqrt(squares / runs))

    def over(self, other: Figure) -> Figure:
        """Returns how many times another's this is; errors of both are small and independent."""
        ratio = self.value / other.value
        if self.error is None or other.error is None:
            return Figure(ratio, "times")
        spread = math.hypot(self.error / self.value, other.error / other.value)
        return Figure(ratio, "times", ratio * spread)


@dataclasses.dataclass(frozen=True)
class Row:
    """What was measured of one thing.

    Args:
        what: the thing.
        figures: by their names.
        runs: how many of them the figures summarise.
        beside: what the thing is compared with, where figures are ratios.
        wanted: what the first figure should be, if something was asked for beforehand.
    """

    what: str
    figures: dict[str, Figure]
    runs: int = 1
    beside: str = ""
    wanted: str = ""


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a benchmark.

    Args:
        command: what was run.
        date: the day.
        machine: its cores and memory, in words.
        load: how many processes wanted a core before; none where it was not kept.
        versions: of Python and of packages.
        commit: of the package that was measured.
        rows: what was found.
    """

    command: str
    date: str
    machine: str
    load: float | None
    versions: str
    commit: str
    rows: tuple[Row, ...]


def add_flag(parser: argparse.ArgumentParser) -> None:
    """Adds the flag that names the file of ``keep``."""
    parser.add_argument("--record", type=pathlib.Path, help="a JSON file to keep the figures in")


def keep(path: pathlib.Path | None, rows: Sequence[Row], tools: str = "") -> None:
    """Keeps the rows of this process in a file, in the place of what its command left there.

    Rows of other commands about the same things go as well, and runs without any other row.

    Args:
        path: of JSON, which need not be there yet; none: nothing is kept.
        rows: what was measured.
        tools: of other projects that measured it, with their versions.
    """
    if path is None:
        return
    used = f"{versions()}, {tools}" if tools else versions()
    run = Run(command(), today(), machine(), _LOAD, used, commit(), tuple(rows))
    told = {(row.what, row.beside) for row in rows}
    runs = {}
    for each in read(path) if path.exists() else []:
        left = tuple(row for row in each.rows if (row.what, row.beside) not in told)
        if left:
            runs[each.command] = dataclasses.replace(each, rows=left)
    runs[run.command] = run
    write(path, list(runs.values()))


def write(path: pathlib.Path, runs: Sequence[Run]) -> None:
    """Writes runs as JSON, a row a line."""
    written = []
    for run in runs:
        fields = {**dataclasses.asdict(run), "rows": []}
        rows = ",\n".join(f"  {_as_json(row)}" for row in run.rows)
        head = json.dumps(fields, indent=1, ensure_ascii=False).removesuffix("[]\n}")
        written.append(f"{head}[\n{rows}\n]}}")
    path.write_text("[" + ",\n".join(written) + "]\n", encoding="utf-8")


def _as_json(row: Row) -> str:
    figures = {
        name: [
            _short(figure.value),
            figure.unit,
            *([] if figure.error is None else [_short(figure.error)]),
        ]
        for name, figure in row.figures.items()
    }
    told = {name: value for name, value in dataclasses.asdict(row).items() if value != ""}
    return json.dumps({**told, "figures": figures}, ensure_ascii=False)


def _short(value: float) -> float:
    """No more digits than mean something."""
    return float(f"{value:.5g}")


def read(path: pathlib.Path) -> list[Run]:
    """Returns what ``write`` wrote."""
    runs = []
    for fields in json.loads(path.read_text("utf-8")):
        rows = tuple(
            Row(
                **{
                    **row,
                    "figures": {name: Figure(*each) for name, each in row["figures"].items()},
                }
            )
            for row in fields["rows"]
        )
        runs.append(Run(**{**fields, "rows": rows}))
    return runs


def command() -> str:
    """Returns the command line of this process, without what is of this machine alone."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    program = pathlib.Path(sys.argv[0]).resolve()
    inside = program.relative_to(ROOT) if program.is_relative_to(ROOT) else program.name
    told = ["python", "-m", spec.name] if spec else ["python", str(inside)]
    given = iter(sys.argv[1:])
    for argument in given:
        name, equals, value = argument.partition("=")
        if name == "--record":
            _ = equals or next(given)
        elif os.sep in argument:
            told.append(f"{name}=PATH" if equals and os.sep in value else "PATH")
        else:
            told.append(argument)
    return " ".join(told)


def today() -> str:
    """Returns the day, as recorded."""
    return time.strftime("%Y-%m-%d")


def machine() -> str:
    """Returns what figures depend on, not which machine it is."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores ({_processor()}), {memory:.0f} GiB of memory"


def _processor() -> str:
    """The model where Linux tells it."""
    try:
        told = pathlib.Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        told = ""
    models = re.findall(r"^model name\s*: (.+)$", told, re.MULTILINE)
    return models[0] if models else platform.machine()


def versions() -> str:
    """Returns the versions of Python and of the packages that this process imported."""
    told = [f"Python {platform.python_version()}"]
    found = {name: each for name, each in _PACKAGES.items() if name in sys.modules}
    told += [f"{each} {importlib.metadata.version(each)}" for each in found.values()]
    return ", ".join(told)


def commit() -> str:
    """Returns the last commit that changed the package, and whether files differ from it."""

    def told(*arguments: str) -> str:
        git = ["git", "-C", str(ROOT), *arguments, "--", "beam_dp"]
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()

    last = told("log", "-1", "--format=%h")
    return f"{last}, changed" if told("status", "--porcelain") else last
