"""The distributed pass against its limits: ratios, from interleaved runs on one machine.

    python benchmarks/distributed_pass.py --quick
    python benchmarks/distributed_pass.py --output FILE

``peers/side_by_side.py`` compares the pass that limits a unit's records with PipelineDP.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import logging
import os
import pathlib
import platform
import sys
import tempfile
from collections.abc import Callable

logging.disable(logging.WARNING)

import apache_beam as beam  # noqa: E402 - its import already logs
import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from beam_dp.summaries import HistogramAccumulator  # noqa: E402
from beam_dp.summaries.choice import choose_accumulator  # noqa: E402
from beam_dp.transforms import (  # noqa: E402
    EncodeRecords,
    LimitContributions,
    ReadRecords,
    Summarise,
)
from benchmarks.pass_inputs import (  # noqa: E402
    ADULT,
    ALL_3_WAY,
    DOMAIN,
    FEW,
    FULL,
    MAX_RECORDS_PER_UNIT,
    QUICK,
    Sizes,
    write_data,
)
from benchmarks.pass_peers import (  # noqa: E402
    bare_avro,
    bare_csv,
    bare_parquet,
    beam_count_per_element,
    beam_count_per_marginal,
)
from benchmarks.pass_runs import (  # noqa: E402
    IN_PROCESS,
    TWO_PROCESSES,
    Timed,
    apart,
    interleaved,
    run_pipeline,
    timed,
)

Figure = Callable[[float, float], str]  # of this pass and the other, in the same unit


def our_histogram(
    pattern: str, unit: str = "record", options: tuple[str, ...] = IN_PROCESS
) -> np.ndarray:
    """The pass of this project: files to exact counts."""
    accumulator = HistogramAccumulator(DOMAIN)

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        columns = [*DOMAIN.names, *([] if unit == "record" else [unit])]
        encoded = (
            pipeline | ReadRecords(pattern, columns) | EncodeRecords(DOMAIN, unit, as_cells=True)
        )
        if unit != "record":
            encoded = encoded | LimitContributions(DOMAIN, MAX_RECORDS_PER_UNIT)
        return encoded | Summarise(accumulator)

    return accumulator.from_shards(run_pipeline(build, options)).counts


def our_marginals(path: str, unit: str = "record") -> dict[tuple[str, ...], np.ndarray]:
    """All 3-way marginals of the wide table, in the pass of this project."""
    accumulator = choose_accumulator(ADULT, ALL_3_WAY)

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        columns = [*ADULT.names, *([] if unit == "record" else [unit])]
        encoded = pipeline | ReadRecords(path, columns) | EncodeRecords(ADULT, unit, as_cells=False)
        if unit != "record":
            encoded = encoded | LimitContributions(ADULT, MAX_RECORDS_PER_UNIT)
        return encoded | Summarise(accumulator)

    return dict(accumulator.from_shards(run_pipeline(build)).tables)


def bounded_count(path: str) -> int:
    """Where few enough records of a unit are its own: how many records bounding must keep."""
    of_unit = np.bincount(pa.parquet.read_table(path).column("unit").to_numpy())
    return int(np.minimum(of_unit, MAX_RECORDS_PER_UNIT).sum())


def times(ours: float, other: float) -> str:
    """How many times the other's time."""
    return f"{ours / other:.2f}"


def part(ours: float, other: float) -> str:
    """Which part of the other's time."""
    return f"1/{other / ours:,.0f}"


def above(ours: float, other: float) -> str:
    """How much above the other's time."""
    return f"{ours - other:.2f}"


def alone(ours: float, _: float) -> str:
    """The time itself."""
    return f"{ours:.2f}"


def row(
    what: str, target: str, figure: Figure, ours: Timed, other: Timed | None = None, unit: str = "s"
) -> str:
    """A row of the table: the figure by elapsed and by processor time, and what it is made of."""
    against = ours if other is None else other
    by_time = figure(ours.seconds, against.seconds)
    by_cpu = figure(ours.cpu_seconds, against.cpu_seconds)
    both = [
        "-" if each is None else f"{each.seconds:,.2f} / {each.cpu_seconds:,.2f} {unit}"
        for each in (ours, other)
    ]
    return f"| {what} | {target} | {by_time} | {by_cpu} | {both[0]} | {both[1]} |"


def compare_parquet(folder: pathlib.Path, sizes: Sizes, repeats: int) -> list[str]:
    """Rows of the table of results: Parquet."""
    few = str(folder / f"few-{FEW}.parquet")
    fixed = interleaved({"few": lambda: our_histogram(few)}, repeats)["few"]
    rows = [row(f"Beam's fixed cost: the pass of {FEW:,} rows", "-", alone, fixed)]
    each_row = []
    for kind in ("uint8", "int64"):
        pattern = str(folder / f"{kind}-{sizes.parquet}-*.parquet")
        found = interleaved(
            {
                "bare": functools.partial(bare_parquet, pattern),
                "ours": functools.partial(our_histogram, pattern),
            },
            repeats,
        )
        bare, ours = found["bare"], found["ours"]
        np.testing.assert_array_equal(ours.result, bare.result)
        each_row.append(ours.per(sizes.parquet))
        what = f"Parquet, 8 {kind} columns, {sizes.parquet:,} rows, 4 files"
        what += ": time over bare one-thread pyarrow + bincount"
        rows.append(row(what, "<= 1.05", times, ours, bare))
    path = str(folder / f"peer-{sizes.peer_rows}.parquet")
    peer = timed(lambda: beam_count_per_element(path))
    np.testing.assert_array_equal(peer.result, bare_parquet(path))
    what = f"microseconds a row over ReadFromParquet, Map, Count.PerElement ({sizes.peer_rows:,})"
    rows.append(row(what, "<= 1/100", part, min(each_row), peer.per(sizes.peer_rows), "us"))
    return rows


def compare_processes(folder: pathlib.Path, sizes: Sizes, repeats: int) -> list[str]:
    """Rows of the table of results: Parquet in two worker processes."""
    rows = []
    for kind, name in (("few", "few-*"), ("uint8", "uint8-*"), ("int64", "int64-*")):
        num_rows = FEW if kind == "few" else sizes.parquet
        pattern = str(folder / f"{name.removesuffix('*')}{num_rows}*.parquet")
        found = interleaved(
            {
                "bare": functools.partial(bare_parquet, pattern),
                "ours": functools.partial(our_histogram, pattern, options=TWO_PROCESSES),
            },
            repeats,
        )
        np.testing.assert_array_equal(found["ours"].result, found["bare"].result)
        what = f"Parquet in 2 worker processes, {kind}, {num_rows:,} rows"
        if kind == "few":
            rows.append(row(f"{what}: their start", "-", alone, found["ours"]))
        else:
            what += ": time over bare one-thread pyarrow + bincount"
            rows.append(row(what, "<= 0.7", times, found["ours"], found["bare"]))
    return rows


def compare_avro(folder: pathlib.Path, sizes: Sizes, repeats: int) -> list[str]:
    """Rows of the table of results: Avro."""
    path = str(folder / f"rows-{sizes.avro}.avro")
    found = interleaved(
        {"bare": lambda: bare_avro(path), "ours": lambda: our_histogram(path)}, repeats
    )
    bare, ours = found["bare"], found["ours"]
    assert ours.result.sum() == bare.result == sizes.avro
    what = f"Avro, {sizes.avro:,} rows: microseconds a row above bare fastavro"
    return [row(what, "<= 2", above, ours.per(sizes.avro), bare.per(sizes.avro), "us")]


def compare_csv(folder: pathlib.Path, sizes: Sizes, repeats: int) -> list[str]:
    """Rows of the table of results: CSV."""
    rows = []
    for kind, described, target in (("rows", "", "1.2"), ("quoted", ", all quoted", "1.5")):
        path = str(folder / f"{kind}-{sizes.csv}.csv")
        found = interleaved(
            {
                "ours": functools.partial(our_histogram, path),
                # Who comes next gets the memory of a whole table anew, in twice the time: nobody's.
                "untold": functools.partial(bare_csv, path, False),
                "threads": functools.partial(bare_csv, path, True),
                "one thread": functools.partial(bare_csv, path, False),
            },
            repeats,
        )
        assert found["ours"].result.sum() == sizes.csv
        for name in ("threads", "one thread"):
            what = f"CSV{described}, {sizes.csv:,} rows: time over the bare pyarrow reader, {name}"
            rows.append(row(what, f"<= {target}", times, found["ours"], found[name]))
    return rows


def compare_bounding(folder: pathlib.Path, sizes: Sizes, repeats: int) -> list[str]:
    """Rows of the table of results: contribution bounding, also of a unit with most records."""
    usual, heavy = (str(folder / f"{name}-{sizes.bounding}.parquet") for name in ("units", "heavy"))
    bound = functools.partial(our_histogram, unit="unit")
    ours, peak = apart(bound, usual, repeats)
    of_one, heavy_peak = apart(bound, heavy, repeats)
    assert ours.result.sum() == bounded_count(usual)
    assert of_one.result.sum() == bounded_count(heavy)
    what = f"{sizes.bounding:,} rows of {sizes.units:,} units, at most {MAX_RECORDS_PER_UNIT} each"
    one = f"{what}, where one unit has 90 % of the rows"
    return [
        row(f"{what}: microseconds a row", "-", alone, ours.per(sizes.bounding), unit="us"),
        row(f"{one}: time over that without it", "<= 1.3", times, of_one, ours),
        f"| {one}: peak of memory over that without it | <= 1.3 | {times(heavy_peak, peak)} | -"
        f" | {heavy_peak:,} MiB | {peak:,} MiB |",
    ]


def compare_marginals(folder: pathlib.Path, sizes: Sizes, repeats: int) -> list[str]:
    """Rows of the table of results: all 3-way marginals of a table too wide for a histogram."""
    path = str(folder / f"adult-{sizes.marginals}.parquet")
    few = str(folder / f"adult-{sizes.marginals_peer}.parquet")
    found = interleaved(
        {"record": lambda: our_marginals(path), "unit": lambda: our_marginals(path, "unit")},
        repeats,
    )
    rows = []
    tables = f"all {len(ALL_3_WAY)} 3-way marginals of {len(ADULT.names)} columns"
    for unit, described in (("record", "a record"), ("unit", "a column, at most 3 records each")):
        assert len({int(table.sum()) for table in found[unit].result.values()}) == 1
        what = f"{tables}, {sizes.marginals:,} Parquet rows, the unit is {described}"
        what += ": microseconds a row"
        rows.append(row(what, "<= 3 (CPU)", alone, found[unit].per(sizes.marginals), unit="us"))
    peer = timed(lambda: beam_count_per_marginal(few))
    for names, table in our_marginals(few).items():
        np.testing.assert_array_equal(table, peer.result[names])
    what = f"microseconds a row over ReadFromParquet, {len(ALL_3_WAY)} tuples a row,"
    what += f" Count.PerElement ({sizes.marginals_peer:,})"
    ours, other = found["record"].per(sizes.marginals), peer.per(sizes.marginals_peer)
    return [*rows, row(what, "<= 1/100", part, ours, other, "us")]


def main() -> None:
    """Prints the table, and writes it where asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes: fixed costs show")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="parquet,processes,avro,csv,bounding,marginals")
    parser.add_argument("--data", help="where inputs are kept; a temporary folder by default")
    parser.add_argument("--output", help="a file to write the table to")
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else FULL
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(arguments.data or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        write_data(folder, sizes)
        how = folder, sizes, arguments.repeats
        comparisons: dict[str, Callable[[], list[str]]] = {
            "parquet": functools.partial(compare_parquet, *how),
            "processes": functools.partial(compare_processes, *how),
            "avro": functools.partial(compare_avro, *how),
            "csv": functools.partial(compare_csv, *how),
            "bounding": functools.partial(compare_bounding, *how),
            "marginals": functools.partial(compare_marginals, *how),
        }
        chosen = [comparisons[name] for name in arguments.only.split(",")]
        rows = list(itertools.chain.from_iterable(compare() for compare in chosen))
    lines = [
        "# The distributed pass",
        "",
        f"`python benchmarks/{pathlib.Path(__file__).name} --only {arguments.only}`: medians of"
        f" {arguments.repeats} interleaved runs on FnApiRunner, {os.cpu_count()} cores, Python"
        f" {platform.python_version()}, apache-beam {beam.__version__}, pyarrow {pa.__version__},"
        f" numpy {np.__version__}. Elapsed and processor time, the latter of all threads and"
        " processes. Beam's fixed cost is included.",
        "",
        "| what | target | by elapsed time | by CPU time | this pass, elapsed / CPU | the other |",
        "| --- | --- | --- | --- | --- | --- |",
        *rows,
    ]
    text = "\n".join(lines)
    print(text)
    if arguments.output:
        pathlib.Path(arguments.output).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
