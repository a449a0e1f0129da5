"""Releases and exact counts at the sizes that the main job is for: time, memory, and error.

    python benchmarks/size.py --quick
    python benchmarks/size.py --data FOLDER --record benchmarks/results/size.json
    python benchmarks/size.py --only releases --tables eight --records 20000000 --processes 1

Each row is one program as a process of its own, with its start. Rows of releases: a command of
`beam-dp` at epsilon 1 and delta 1e-9, mostly all pairs of a synthetic database with a noisy number
of records. Their stages are those of their lines of progress: `start` ends where the size of the
job is printed, and `count` holds the start of Beam and the pass. Workers in other processes print
no such lines: all their stages are one.

Errors are total variation distances of pairs from the exact ones, averaged: of the released
records, and of the noise alone, which is in the unbiased tables of the release's measurements.

Rows of counts: all pairs exactly, by this project's pass, by a bare reader, and by chDB, DuckDB,
Polars and Spark where the interpreter of ``--peers`` has them. What is sent is the sum of what the
bundles of the pass emit. Flink runs where `make flink` has put its job server.

With ``--record`` each row is kept as soon as it is measured, in the place of the row about the same
thing, so that the benchmark can be run in parts.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import math
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from beam_dp.releases.kinds import read_release  # noqa: E402
from beam_dp.releases.synthetic_database.measured_tables import unbiased_tables  # noqa: E402
from beam_dp.releases.synthetic_database.release import SyntheticDatabase  # noqa: E402
from benchmarks.pair_counts import BARE, OWN, Pairs, bare_pairs, own_options  # noqa: E402
from benchmarks.pass_inputs import write_latent  # noqa: E402
from benchmarks.pass_runs import Watched, watched  # noqa: E402
from benchmarks.recorded import Figure, Row, add_flag, keep  # noqa: E402
from benchmarks.tables import table, told  # noqa: E402

OPTIONS = own_options()
COUNTS = str(ROOT / "benchmarks" / "pair_counts.py")
PROMISE = "--epsilon=1 --delta=1e-9 --neighboring=add_or_remove_one"
SYNTHETIC = "release-synthetic-database --num_records=noisy"
DISJOINT = f"{SYNTHETIC} --mechanism=laplace --workload=marginals:c0,c1;c2,c3;c4,c5;c6,c7"
SPARSE = "release-projection --key=c0 --key_type=integer --max_sparsity=64 --mechanism"
WINDOWS = (
    "release-windows --workload=marginals:c2 --event_time=c0 --arrival=c1 --replay"
    " --start=1970-01-01T00:00Z --window=1h --num_windows=168 --grace=7d"
)
OF_PEOPLE = "--privacy_unit=c0 --max_records_per_unit=3"
WEEK, KEYS, PEOPLE = 7 * 24 * 3600, (10**8,), 40_000_000
EIGHT = (9, 16, 7, 15, 6, 5, 2, 42)
RECORDS, MOST = (200_000, 20_000_000, 200_000_000), 1_000_000_000
# Rough costs, in seconds: of a program, of a released record, of a pair of a record by all engines.
_START, _RELEASED, _COUNTED, _ENGINES = 15, 0.6e-6, 0.3e-6, 10


@dataclasses.dataclass(frozen=True)
class Table:
    """A made table, and what is asked for.

    Args:
        name: of its row.
        shape: numbers of codes of its columns.
        seconds: roughly, of what does not grow with the number of records.
        command: the release, with its flags.
        records: numbers of records.
        undeclared: columns before those of the domain.
        has_empty_cells: whether many combinations of codes have no record.
        unit: the flags about the privacy unit.
    """

    name: str
    shape: tuple[int, ...]
    seconds: float = 5
    command: str = f"{SYNTHETIC} --workload=marginals:2"
    records: tuple[int, ...] = RECORDS
    undeclared: int = 0
    has_empty_cells: bool = False
    unit: str = "--privacy_unit=record"

    @property
    def sizes(self) -> dict[str, int]:
        """Its columns, with their numbers of codes."""
        return {f"c{i}": size for i, size in enumerate(self.shape)}

    @property
    def declared(self) -> dict[str, int]:
        """The columns of its domain; none for a release of keys."""
        return dict(list(self.sizes.items())[self.undeclared :])

    def described(self, num_records: int) -> str:
        """Returns the start of the name of a row."""
        cells = f"{math.prod(self.shape[self.undeclared :] or self.shape):,}"
        kind = "cells" if self.declared else "keys"
        return f"{self.name}, {cells} {kind}, {num_records:,} records"


TABLES = {
    "five": Table("5 columns", (9, 16, 7, 6, 2)),
    "seven": Table("7 columns", EIGHT[:-1], 10),
    "eight": Table("8 columns", EIGHT, 40, records=(*RECORDS, MOST)),
    "adult": Table("8 columns of Adult's sizes", (16, 32, 9, 32, 7, 15, 6, 5), 60),
    "five_empty": Table("5 columns, many empty cells", (9, 16, 7, 6, 2), has_empty_cells=True),
    "eight_empty": Table("8 columns, many empty cells", EIGHT, 40, has_empty_cells=True),
    "people": Table(
        f"5 columns, {PEOPLE:,} people",
        (PEOPLE, 9, 16, 7, 6, 2),
        # FnApiRunner shuffles in memory, with 116 bytes a record.
        records=(200_000, 20_000_000, 100_000_000),
        undeclared=1,
        unit=OF_PEOPLE,
    ),
    "nine": Table("9 columns", (*EIGHT, 26), 60),
    "disjoint": Table("8 columns, 4 disjoint pairs", EIGHT, command=DISJOINT),
    "ten": Table("10 columns", (2, 2, 3, 3, 4, 5, 7, 8, 10, 25), 20, records=(1304,)),
    "binary": Table("23 binary columns", (2,) * 23, 50, records=(47_461,)),
    "intervals": Table("intervals", (2**16,), command="release-intervals --attribute=c0"),
    "windows": Table("168 windows, in random order", (WEEK, WEEK, 1024), 5, WINDOWS, undeclared=2),
    "sketch": Table("count sketch", KEYS, 5, f"{SPARSE} count_sketch --num_rows=5", undeclared=1),
    "project": Table("SparseProject", KEYS, 10, f"{SPARSE} sparse_project", undeclared=1),
}
COUNTED = ("five", "eight")  # the tables whose pairs other engines count as well


def stages(lines: Sequence[tuple[float, str]], seconds: float) -> dict[str, Figure]:
    """Returns how long each stage took, from a program's lines of progress and when they came."""
    begun = [("start", 0.0)]
    for when, line in lines:
        text = line.partition(" s] ")[2]
        if text and not text.startswith("working"):
            name = "count" if "; runner " in text else "end" if text == "released" else text
            begun.append((name.partition(":")[0], when))
    if [name for name, _ in begun] == ["start", "count", "end"]:
        begun[1] = ("all stages", begun[1][1])
    found: dict[str, float] = {}
    ends = [when for _, when in begun[1:]] + [seconds]
    for (name, start), end in zip(begun, ends, strict=True):
        found[name] = found.get(name, 0.0) + end - start
    return {name: Figure(each, "seconds") for name, each in found.items()}


def errors(release: SyntheticDatabase, exact: Pairs) -> dict[str, Figure]:
    """Returns average total variation distances of the pairs that were asked for."""
    workload, measured = release.workload, release.measurements
    assert measured is not None
    number = int(next(iter(exact.values())).sum())
    unbiased = unbiased_tables(workload, measured.described, measured.tables)
    released, noise = {}, {}
    for names in workload:
        shares = release.record_marginal(names) / release.num_records
        released[names] = np.abs(shares - exact[names] / number).sum() / 2
        if release.estimates.covers(release.domain.axes(names)):
            noise[names] = np.abs(unbiased[names] - exact[names]).sum() / (2 * number)
    of_measured = Figure.mean([released[names] for names in noise], "small share").value
    alone = math.fsum(noise.values()) / len(noise)
    return {
        "error, of the noise's": Figure(of_measured / alone, "times"),
        "error": Figure(math.fsum(released.values()) / len(released), "small share"),
        "noise alone": Figure(alone, "small share"),
        "pairs measured": Figure(len(noise) / len(released), "parts of all"),
    }


def costs(run: Watched) -> dict[str, Figure]:
    """Returns what a program took, with all processes that it started."""
    return {
        "elapsed": Figure(run.seconds, "seconds"),
        "CPU time": Figure(run.cpu_seconds, "seconds"),
        "peak memory": Figure(run.peak, "MiB"),
    }


def release_row(
    made: Table, num_records: int, way: str, pattern: str, exact: Pairs, limit: float
) -> Row:
    """Returns the row of one release; of one that fails or takes too long, with no run."""
    what = f"{made.described(num_records)}, {way}"
    with tempfile.TemporaryDirectory() as temporary:
        output = f"{temporary}/release"
        stated = f"{made.command} {PROMISE} {made.unit}".split()
        command = [sys.executable, "-m", "beam_dp.cli", *stated]
        command += [f"--input={pattern}", f"--output={output}", *OPTIONS[way]]
        if made.declared:
            command.append(f"--domain={json.dumps(made.declared)}")
        run = watched(command, limit)
        figures = {**costs(run), **stages(run.lines, run.seconds)}
        if run.exit_code:
            return Row(what, figures, runs=0)
        if not exact:
            return Row(what, figures)
        release = read_release(output, kind=SyntheticDatabase)
        return Row(what, {**errors(release, exact), **figures})


def release_rows(
    made: Table, num_records: int, pattern: str, options: argparse.Namespace
) -> Iterator[Row]:
    """Yields the row of each way to run a release: the run with the median of CPU times."""
    is_compared = made.command.startswith(SYNTHETIC) and not made.undeclared
    exact = bare_pairs(pattern, made.sizes) if is_compared else {}
    for way in ways(num_records, options):
        given = made, num_records, way, pattern, exact, options.limit
        runs = [release_row(*given) for _ in range(options.repeats)]
        runs.sort(key=lambda row: row.figures["CPU time"].value)
        middle = dataclasses.replace(runs[len(runs) // 2], runs=len(runs))
        yield next((row for row in runs if not row.runs), middle)


def ways(num_records: int, options: argparse.Namespace) -> list[str]:
    """Returns how a job is run; the largest only once."""
    found = [way for way in OPTIONS if way.startswith(tuple(options.processes.split(",")))]
    return found[:1] if num_records >= MOST else found


def count_rows(
    made: Table, num_records: int, pattern: str, options: argparse.Namespace
) -> Iterator[Row]:
    """Yields rows of exact counts, which must be equal: each the run of the median CPU time."""
    own = [OWN + way for way in ways(num_records, options)]
    named = dict.fromkeys((BARE, *own), sys.executable)
    told = subprocess.run([options.peers, COUNTS], capture_output=True, check=True).stdout
    named |= dict.fromkeys(json.loads(told), options.peers)
    first, bare = None, None
    for name, python in named.items():
        what = f"all pairs of {made.described(num_records)}: {name}"
        with tempfile.TemporaryDirectory() as temporary:
            result = f"{temporary}/counts.npz"
            command = [python, COUNTS, name, pattern, json.dumps(made.sizes), result]
            runs = [watched(command, options.limit) for _ in range(options.repeats)]
            run = sorted(runs, key=lambda each: each.cpu_seconds)[len(runs) // 2]
            if failed := next((each for each in runs if each.exit_code), None):
                yield Row(what, costs(failed), 0, BARE)
                continue
            found = dict(np.load(result))
        sent, first, bare = found.pop("sent"), first or found, bare or run
        assert all((found[pair] == counts).all() for pair, counts in first.items()), name
        figures = {
            "elapsed, times": Figure(run.seconds / bare.seconds, "times"),
            "CPU time, times": Figure(run.cpu_seconds / bare.cpu_seconds, "times"),
            **costs(run),
        }
        if name in own:
            figures["sent"] = Figure(int(sent) / 2**20, "small MiB")
        yield Row(what, figures, len(runs), BARE)


def jobs(options: argparse.Namespace) -> list[tuple[str, Table, int]]:
    """Returns what is asked for: releases or counts, of which table, of how many records."""
    found = []
    for name in options.tables.split(","):
        made = TABLES[name]
        asked = [int(each) for each in options.records.split(",") if each]
        for num_records in asked if asked and len(made.records) > 1 else made.records:
            for kind in options.only.split(","):
                if kind == "releases" or name in COUNTED:
                    found.append((kind, made, num_records))
    return found


def forecast(asked: Sequence[tuple[str, Table, int]], options: argparse.Namespace) -> str:
    """Returns roughly how long all will take on two cores, and the room on disk."""
    seconds, files = 0.0, {}
    for kind, made, num_records in asked:
        bits = num_records * math.log2(math.prod(made.shape))
        files[made.shape, made.has_empty_cells, num_records] = bits / 8
        if kind == "releases":
            one = _START + made.seconds + _RELEASED * num_records
            seconds += one * len(ways(num_records, options)) * options.repeats
        else:
            one = _COUNTED * num_records * math.comb(len(made.shape), 2)
            seconds += (_ENGINES * _START + one) * options.repeats
    return (
        f"{len(asked)} tables to release or to count: about {seconds / 60:,.0f} minutes on two"
        f" cores, and {sum(files.values()) / 1e9:.1f} GB of files"
    )


def main() -> None:
    """Prints a table of what was run, and keeps it where asked to."""
    logging.disable(logging.WARNING)
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="200,000 records of two tables")
    parser.add_argument("--only", default="releases,counts", help="releases or counts")
    parser.add_argument("--tables", help=f"by default all: {','.join(TABLES)}")
    parser.add_argument("--records", default="", help="numbers of records, of any table")
    parser.add_argument("--processes", default="1,2,Flink", help="1, 2, or Flink with four slots")
    parser.add_argument(
        "--peers", default=sys.executable, help="Python with chDB, DuckDB, Polars or pyspark"
    )
    parser.add_argument("--repeats", type=int, default=1, help="medians of so many runs")
    parser.add_argument("--limit", type=float, default=3600, help="elapsed seconds of one run")
    parser.add_argument("--data", help="where tables are kept; a temporary folder by default")
    add_flag(parser)
    options = parser.parse_args()
    options.tables = options.tables or ("five,seven" if options.quick else ",".join(TABLES))
    if options.quick:
        options.records = "200000"
    asked = jobs(options)
    print(forecast(asked, options), file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.data or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        found: list[Row] = []
        for kind, made, num_records in asked:
            pattern = write_latent(folder, made.sizes, num_records, made.has_empty_cells)
            measure = release_rows if kind == "releases" else count_rows
            for row in measure(made, num_records, pattern, options):
                figures = (f"{name} {told(figure)}" for name, figure in row.figures.items())
                print(f"{row.what}: {', '.join(figures)}", file=sys.stderr, flush=True)
                found.append(row)
                keep(options.record, found)
    for is_count in (False, True):
        print(table([row for row in found if bool(row.beside) == is_count]))


if __name__ == "__main__":
    main()
