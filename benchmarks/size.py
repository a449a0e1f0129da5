"""Synthetic releases at the sizes that the main job is for: time, memory, and error.

    python benchmarks/size.py --quick
    python benchmarks/size.py --tables eight --records 20000000 --processes 1
    python benchmarks/size.py --peers --tables eight --records 200000000

Each row is one run of `beam-dp release-synthetic-database` as a process of its own: all pairs,
epsilon 1, delta 1e-9, a noisy number of records. Its stages are those of its lines of progress:
`start` ends where it prints the size of the job, and `count` holds the start of Beam and the pass.
Workers in other processes print no such lines: all their stages are one.

Errors are total variation distances of pairs from the exact ones, averaged: of the released
records, and of the noise alone, which is in the unbiased tables of the release's measurements.

``--peers`` counts all pairs exactly instead, with this project's pass, with a bare reader, and with
DuckDB and Polars where they are installed.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import logging
import math
import pathlib
import sys
import tempfile
from collections.abc import Iterator, Sequence

logging.disable(logging.WARNING)

import apache_beam as beam  # noqa: E402 - its import already logs
import numpy as np  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from beam_dp.domain.files import parse_domain  # noqa: E402
from beam_dp.releases.kinds import read_release  # noqa: E402
from beam_dp.releases.synthetic_database.measured_tables import unbiased_tables  # noqa: E402
from beam_dp.releases.synthetic_database.release import SyntheticDatabase  # noqa: E402
from beam_dp.summaries.histogram import MarginalsAccumulator  # noqa: E402
from beam_dp.transforms import EncodeRecords, ReadRecords, Summarise  # noqa: E402
from benchmarks.pass_inputs import write_latent  # noqa: E402
from benchmarks.pass_peers import BARE, Pairs, bare_pairs, pair_counters  # noqa: E402
from benchmarks.pass_runs import (  # noqa: E402
    IN_PROCESS,
    TWO_PROCESSES,
    apart,
    run_pipeline,
    watched,
)
from benchmarks.recorded import Figure, Row, add_flag, keep  # noqa: E402
from benchmarks.tables import table, told  # noqa: E402

OPTIONS = {"1 process": IN_PROCESS, "2 processes": TWO_PROCESSES}
RELEASE = "release-synthetic-database"
EIGHT = (9, 16, 7, 15, 6, 5, 2, 42)
DISJOINT = "marginals:c0,c1;c2,c3;c4,c5;c6,c7"


@dataclasses.dataclass(frozen=True)
class Table:
    """A made table, and what is asked for.

    Args:
        name: of its row.
        shape: numbers of codes of its columns.
        num_records: where it is always the same.
        mechanism: of the release.
        workload: of the release.
    """

    name: str
    shape: tuple[int, ...]
    num_records: int | None = None
    mechanism: str = "mwem"
    workload: str = "marginals:2"

    @property
    def sizes(self) -> dict[str, int]:
        """Its columns, with their numbers of codes."""
        return {f"c{i}": size for i, size in enumerate(self.shape)}

    def described(self, num_records: int) -> str:
        """Returns the start of the name of a row."""
        return f"{self.name}, {math.prod(self.shape):,} cells, {num_records:,} records"


TABLES = {
    "five": Table("5 columns", (9, 16, 7, 6, 2)),
    "seven": Table("7 columns", EIGHT[:-1]),
    "eight": Table("8 columns", EIGHT),
    "adult": Table("8 columns of Adult's sizes", (16, 32, 9, 32, 7, 15, 6, 5)),
    "disjoint": Table("8 columns, 4 disjoint pairs", EIGHT, None, "laplace", DISJOINT),
    "ten": Table("10 columns", (2, 2, 3, 3, 4, 5, 7, 8, 10, 25), 1304),
    "binary": Table("23 binary columns", (2,) * 23, 47_461),
}


def stages(lines: Sequence[tuple[float, str]], seconds: float) -> dict[str, Figure]:
    """Returns how long each stage took, from a program's lines of progress and when they came."""
    names = {"release of": "count", "released": "end"}
    begun = [("start", 0.0)]
    for when, line in lines:
        text = line.partition(" s] ")[2]
        if text and not text.startswith("working"):
            name = next((names[each] for each in names if text.startswith(each)), text)
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


def release_row(
    made: Table, num_records: int, processes: str, folder: pathlib.Path, limit: float
) -> Row:
    """Returns the row of one release; of one that fails or takes too long, without errors."""
    pattern = write_latent(folder, made.sizes, num_records)
    what = f"{made.described(num_records)}, {processes}"
    with tempfile.TemporaryDirectory() as temporary:
        output = f"{temporary}/release"
        command = [sys.executable, "-m", "beam_dp.cli", RELEASE, "--epsilon=1", "--delta=1e-9"]
        command += ["--neighboring=add_or_remove_one", "--privacy_unit=record"]
        command += ["--num_records=noisy", f"--domain={json.dumps(made.sizes)}"]
        command += [f"--mechanism={made.mechanism}", f"--workload={made.workload}"]
        command += [f"--input={pattern}", f"--output={output}", *OPTIONS[processes]]
        run = watched(command, limit)
        figures = {
            "elapsed": Figure(run.seconds, "seconds"),
            "CPU time": Figure(run.cpu_seconds, "seconds"),
            "peak memory": Figure(run.peak, "MiB"),
            **stages(run.lines, run.seconds),
        }
        if run.exit_code:
            ended = "at the limit" if run.seconds >= limit else f"with exit code {run.exit_code}"
            return Row(f"{what}: ended {ended}", figures)
        release = read_release(output, kind=SyntheticDatabase)
        return Row(what, {**errors(release, bare_pairs(pattern, made.sizes)), **figures})


def our_pairs(made: Table, processes: str, pattern: str) -> Pairs:
    """Returns counts of all pairs of columns, from the pass of this project."""
    domain = parse_domain(made.sizes)
    pairs = [(a, b) for i, a in enumerate(domain.names) for b in domain.names[i + 1 :]]
    accumulator = MarginalsAccumulator(domain, pairs)
    as_cells = accumulator.as_cells

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        read = pipeline | ReadRecords(pattern, domain.names)
        return read | EncodeRecords(domain, "record", as_cells=as_cells) | Summarise(accumulator)

    counted = accumulator.from_shards(run_pipeline(build, OPTIONS[processes]))
    return {pair: counted.marginal(pair) for pair in pairs}


def peer_rows(made: Table, num_records: int, folder: pathlib.Path) -> Iterator[Row]:
    """Yields rows of exact counts; the peak memory is that of the first process of each."""
    pattern, bare = write_latent(folder, made.sizes, num_records), None
    ours = {f"beam_dp, {each}": functools.partial(our_pairs, made, each) for each in OPTIONS}
    for name, count in {**pair_counters(made.sizes), **ours}.items():
        run, peak = apart(count, pattern, 1)
        bare = bare or run
        assert all((run.result[pair] == counts).all() for pair, counts in bare.result.items())
        figures = {
            "elapsed, times": Figure(run.seconds / bare.seconds, "times"),
            "CPU time, times": Figure(run.cpu_seconds / bare.cpu_seconds, "times"),
            "elapsed": Figure(run.seconds, "seconds"),
            "CPU time": Figure(run.cpu_seconds, "seconds"),
            "peak memory": Figure(peak, "MiB"),
        }
        yield Row(f"all pairs of {made.described(num_records)}: {name}", figures, 1, BARE)


def rows(options: argparse.Namespace, folder: pathlib.Path) -> Iterator[Row]:
    """Yields the rows that are asked for."""
    for made in (TABLES[name] for name in options.tables.split(",")):
        asked = [int(each) for each in options.records.split(",")]
        for num_records in [made.num_records] if made.num_records else asked:
            if options.peers:
                yield from peer_rows(made, num_records, folder)
                continue
            for processes in (each for each in OPTIONS if each[0] in options.processes):
                yield release_row(made, num_records, processes, folder, options.limit)


def main() -> None:
    """Prints a table of what was run, and keeps it where asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="200,000 records of two tables")
    parser.add_argument("--tables", help=f"by default all: {','.join(TABLES)}")
    parser.add_argument("--records", default="200000,20000000,200000000", help="numbers of records")
    parser.add_argument("--processes", default="1,2", help="numbers of worker processes")
    parser.add_argument("--peers", action="store_true", help="count pairs, and release nothing")
    parser.add_argument("--limit", type=float, default=3600, help="elapsed seconds of one release")
    parser.add_argument("--data", help="where tables are kept; a temporary folder by default")
    add_flag(parser)
    options = parser.parse_args()
    options.tables = options.tables or ("five,seven" if options.quick else ",".join(TABLES))
    if options.quick:
        options.records = "200000"
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.data or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        found = []
        for row in rows(options, folder):
            figures = (f"{name} {told(figure)}" for name, figure in row.figures.items())
            print(f"{row.what}: {', '.join(figures)}", file=sys.stderr, flush=True)
            found.append(row)
    print(table(found))
    keep(options.record, found)


if __name__ == "__main__":
    main()
