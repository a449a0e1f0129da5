"""The distributed pass against its limits: ratios, from interleaved runs on one machine.

    python benchmarks/distributed_pass.py --quick
    python benchmarks/distributed_pass.py --peer_python PATH --output FILE

PATH is a Python that has pipeline-dp and apache-beam (they do not belong into this project's
environment); without it the comparison with PipelineDP is skipped, and the output says so.
"""

from __future__ import annotations

import argparse
import glob
import itertools
import logging
import math
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

logging.disable(logging.WARNING)

import apache_beam as beam  # noqa: E402 - its import already logs
import fastavro  # noqa: E402
import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.csv  # noqa: E402
import pyarrow.parquet  # noqa: E402
from apache_beam.runners.portability.fn_api_runner import FnApiRunner  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from beam_dp.domain import Domain, IntegerAttribute  # noqa: E402
from beam_dp.summaries import HistogramAccumulator  # noqa: E402
from beam_dp.summaries.choice import choose_accumulator  # noqa: E402
from beam_dp.transforms import (  # noqa: E402
    EncodeRecords,
    LimitContributions,
    ReadRecords,
    Summarise,
)

SIZES = (8, 4, 4, 8, 4, 4, 8, 8)  # 2^20 cells
DOMAIN = Domain(tuple(IntegerAttribute(f"c{i}", 0, size - 1) for i, size in enumerate(SIZES)))
MAX_RECORDS_PER_UNIT = 3
# As the columns of the Adult table: 10^19 cells, which no 64-bit index numbers.
ADULT_SIZES = (85, 9, 100, 16, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2)
ADULT = Domain(tuple(IntegerAttribute(f"c{i}", 0, size - 1) for i, size in enumerate(ADULT_SIZES)))
ALL_3_WAY = list(itertools.combinations(ADULT.names, 3))


@dataclass(frozen=True)
class Sizes:
    """Rows of each comparison."""

    parquet: int
    peer_rows: int
    avro: int
    csv: int
    bounding: int
    units: int
    pipeline_dp: int
    marginals: int
    marginals_peer: int


FULL = Sizes(
    40_000_000, 1_000_000, 3_000_000, 10_000_000, 5_000_000, 1_000_000, 5_000_000, 5_000_000, 3_000
)  # fmt: skip
QUICK = Sizes(8_000_000, 100_000, 300_000, 2_000_000, 1_000_000, 200_000, 50_000, 1_000_000, 1_000)


def make_table(
    num_rows: int, seed: int, dtype: Any, num_units: int = 0, sizes: tuple[int, ...] = SIZES
) -> pa.Table:
    """A table of codes of the domain, with a unit column where asked for."""
    rng = np.random.default_rng(seed)
    columns = {f"c{i}": rng.integers(0, s, num_rows, dtype) for i, s in enumerate(sizes)}
    if num_units:
        columns["unit"] = rng.integers(0, num_units, num_rows)
    return pa.table(columns)


def write_data(folder: pathlib.Path, sizes: Sizes) -> None:
    """Writes all inputs that are not there yet."""
    for kind, dtype in (("uint8", np.uint8), ("int64", np.int64)):
        for part in range(4):
            path = folder / f"{kind}-{sizes.parquet}-{part}.parquet"
            if not path.exists():
                table = make_table(sizes.parquet // 4, part, dtype)
                pa.parquet.write_table(table, path)
    for num_rows, num_units in ((sizes.bounding, sizes.units), (sizes.pipeline_dp, 0)):
        path = folder / f"units-{num_rows}.parquet"
        if not path.exists():
            share = num_units or max(1, sizes.units * num_rows // sizes.bounding)
            pa.parquet.write_table(make_table(num_rows, 9, np.int64, share), path)
    path = folder / f"peer-{sizes.peer_rows}.parquet"
    if not path.exists():
        pa.parquet.write_table(make_table(sizes.peer_rows, 7, np.int64), path)
    for num_rows in (sizes.marginals, sizes.marginals_peer):
        path = folder / f"adult-{num_rows}.parquet"
        if not path.exists():
            pa.parquet.write_table(
                make_table(num_rows, 8, np.int64, num_rows // 5, ADULT_SIZES), path
            )
    path = folder / f"rows-{sizes.csv}.csv"
    if not path.exists():
        pyarrow.csv.write_csv(make_table(sizes.csv, 5, np.int64), path)
    path = folder / f"rows-{sizes.avro}.avro"
    if not path.exists():
        fields = [{"name": name, "type": "long"} for name in DOMAIN.names]
        schema = {"type": "record", "name": "Row", "fields": fields}
        rows = make_table(sizes.avro, 6, np.int64).to_pylist()
        with path.open("wb") as file:
            fastavro.writer(file, schema, rows, codec="deflate")


def interleaved(
    contenders: dict[str, Callable[[], Any]], repeats: int
) -> dict[str, tuple[float, Any]]:
    """Runs all in turn, several times; returns the median seconds and the last result of each."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    results: dict[str, Any] = {}
    for _ in range(repeats):
        for name, run in contenders.items():
            start = time.perf_counter()
            results[name] = run()
            seconds[name].append(time.perf_counter() - start)
    return {name: (statistics.median(seconds[name]), results[name]) for name in contenders}


def run_pipeline(build: Callable[[beam.Pipeline], beam.PCollection]) -> list[Any]:
    """Runs on FnApiRunner, and returns the elements."""
    with tempfile.TemporaryDirectory() as folder:
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            results = build(pipeline) | "List" >> beam.combiners.ToList()
            _ = results | "Keep" >> beam.Map(_pickle_to, os.path.join(folder, "results"))
        with open(os.path.join(folder, "results"), "rb") as file:
            import pickle

            loaded: list[Any] = pickle.load(file)
    return loaded


def _pickle_to(elements: list[Any], path: str) -> None:
    import pickle

    with open(path, "wb") as file:
        pickle.dump(elements, file, protocol=5)


def our_histogram(pattern: str, unit: str = "record") -> np.ndarray:
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

    return accumulator.from_shards(run_pipeline(build)).counts


def bare_parquet(pattern: str) -> np.ndarray:
    """One thread of pyarrow and numpy, with nothing around it."""
    counts = np.zeros(DOMAIN.num_cells, np.int64)
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        for path in sorted(glob.glob(pattern)):
            file = pa.parquet.ParquetFile(path)
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, use_threads=False)
                index = np.zeros(table.num_rows, np.int64)
                for name, size in zip(DOMAIN.names, DOMAIN.shape, strict=True):
                    index = index * size + table.column(name).to_numpy()
                counts += np.bincount(index, minlength=DOMAIN.num_cells)
    finally:
        pa.set_cpu_count(threads)
    return counts


def beam_count_per_element(path: str) -> np.ndarray:
    """What a Beam user writes first."""

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        return (
            pipeline
            | beam.io.ReadFromParquet(path)
            | beam.Map(lambda row: tuple(row[name] for name in DOMAIN.names))
            | beam.combiners.Count.PerElement()
        )

    counts = np.zeros(DOMAIN.shape, np.int64)
    for codes, count in run_pipeline(build):
        counts[codes] = count
    return counts.ravel()


def bare_avro(path: str) -> int:
    """The records of fastavro, thrown away."""
    with open(path, "rb") as file:
        return sum(1 for _ in fastavro.reader(file))


def bare_csv(path: str, threads: bool) -> int:
    """The table of pyarrow, thrown away."""
    options = pyarrow.csv.ReadOptions(use_threads=threads)
    return pyarrow.csv.read_csv(path, read_options=options).num_rows


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


def beam_count_per_marginal(path: str) -> dict[tuple[str, ...], np.ndarray]:
    """What a Beam user writes first: one tuple a row and marginal."""

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        return (
            pipeline
            | beam.io.ReadFromParquet(path)
            | beam.FlatMap(_one_tuple_a_marginal)
            | beam.combiners.Count.PerElement()
        )

    tables = {names: np.zeros(ADULT.restrict(names).shape, np.int64) for names in ALL_3_WAY}
    for (number, *codes), count in run_pipeline(build):
        tables[ALL_3_WAY[number]][tuple(codes)] = count
    return tables


def _one_tuple_a_marginal(row: dict[str, int]) -> list[tuple[int, ...]]:
    return [(i, row[a], row[b], row[c]) for i, (a, b, c) in enumerate(ALL_3_WAY)]


PIPELINE_DP = """
import logging, sys, time
logging.disable(logging.WARNING)
import apache_beam as beam, pipeline_dp
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
path, k = sys.argv[1], int(sys.argv[2])
start = time.perf_counter()
with beam.Pipeline(runner=FnApiRunner()) as pipeline:
    rows = pipeline | beam.io.ReadFromParquet(path, columns=["unit", "c0"])
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1, total_delta=1e-9)
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.BeamBackend())
    counts = engine.aggregate(
        rows,
        pipeline_dp.AggregateParams(
            metrics=[pipeline_dp.Metrics.COUNT],
            noise_kind=pipeline_dp.NoiseKind.GAUSSIAN,
            max_partitions_contributed=k,
            max_contributions_per_partition=1,
        ),
        pipeline_dp.DataExtractors(
            privacy_id_extractor=lambda row: row["unit"],
            partition_extractor=lambda row: row["c0"],
            value_extractor=lambda row: 0,
        ),
        public_partitions=list(range(8)),
    )
    accountant.compute_budgets()
    counts | beam.Map(lambda pair: None)
print(time.perf_counter() - start)
"""


def pipeline_dp_seconds(python: str, path: str) -> float:
    """PipelineDP's count of 8 partitions, at most k a unit, in a process of its own."""
    result = subprocess.run(
        [python, "-c", PIPELINE_DP, path, str(MAX_RECORDS_PER_UNIT)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(result.stdout.split()[-1])


def bounded_count(path: str) -> np.ndarray:
    """Where few enough records of a unit are its own: the counts that bounding must keep."""
    table = pa.parquet.read_table(path)
    of_unit = np.bincount(table.column("unit").to_numpy())
    return np.minimum(of_unit, MAX_RECORDS_PER_UNIT)


def compare_parquet(folder: pathlib.Path, sizes: Sizes, repeats: int) -> list[str]:
    """Rows of the table of results: Parquet."""
    rows = []
    seconds_per_row = math.inf
    for kind in ("uint8", "int64"):
        pattern = str(folder / f"{kind}-{sizes.parquet}-*.parquet")
        found = interleaved(
            {"bare": lambda p=pattern: bare_parquet(p), "ours": lambda p=pattern: our_histogram(p)},
            repeats,
        )
        (bare, expected), (ours, counts) = found["bare"], found["ours"]
        np.testing.assert_array_equal(counts, expected)
        seconds_per_row = min(seconds_per_row, ours / sizes.parquet)
        rows.append(
            f"| Parquet, 8 {kind} columns, {sizes.parquet:,} rows, 4 files: time over bare"
            f" one-thread pyarrow + bincount ({bare:.2f} s) | <= 1.3 | {ours / bare:.2f} |"
        )
    path = str(folder / f"peer-{sizes.peer_rows}.parquet")
    ((peer, counts),) = interleaved({"peer": lambda: beam_count_per_element(path)}, 1).values()
    np.testing.assert_array_equal(counts, bare_parquet(path))
    rows.append(
        "| time a row over ReadFromParquet, Map, Count.PerElement"
        f" ({peer / sizes.peer_rows * 1e6:.1f} us a row, {sizes.peer_rows:,} rows) | <= 1/100"
        f" | 1/{peer / sizes.peer_rows / seconds_per_row:.0f} |"
    )
    return rows


def compare_avro(folder: pathlib.Path, sizes: Sizes, repeats: int) -> list[str]:
    """Rows of the table of results: Avro."""
    path = str(folder / f"rows-{sizes.avro}.avro")
    found = interleaved(
        {"bare": lambda: bare_avro(path), "ours": lambda: our_histogram(path)}, repeats
    )
    (bare, num_rows), (ours, counts) = found["bare"], found["ours"]
    assert counts.sum() == num_rows
    return [
        f"| Avro, {num_rows:,} rows: microseconds a row above bare fastavro"
        f" ({bare / num_rows * 1e6:.2f} us) | <= 2 | {(ours - bare) / num_rows * 1e6:.2f} |"
    ]


def compare_csv(folder: pathlib.Path, sizes: Sizes, repeats: int) -> list[str]:
    """Rows of the table of results: CSV."""
    path = str(folder / f"rows-{sizes.csv}.csv")
    found = interleaved(
        {
            "threads": lambda: bare_csv(path, True),
            "ours": lambda: our_histogram(path),
            "one thread": lambda: bare_csv(path, False),
        },
        repeats,
    )
    ours, counts = found["ours"]
    assert counts.sum() == sizes.csv
    return [
        f"| CSV, {sizes.csv:,} rows: time over the bare pyarrow reader, {name}"
        f" ({found[name][0]:.2f} s) | <= 1.2 | {ours / found[name][0]:.2f} |"
        for name in ("threads", "one thread")
    ]


def compare_bounding(
    folder: pathlib.Path, sizes: Sizes, repeats: int, peer_python: str | None
) -> list[str]:
    """Rows of the table of results: contribution bounding."""
    path = str(folder / f"units-{sizes.bounding}.parquet")
    ((ours, counts),) = interleaved({"ours": lambda: our_histogram(path, "unit")}, repeats).values()
    assert counts.sum() == bounded_count(path).sum()
    described = (
        f"| {sizes.bounding:,} rows of {sizes.units:,} units, at most {MAX_RECORDS_PER_UNIT} each"
        f" ({ours:.2f} s)"
    )
    if peer_python is None:
        return [f"{described}: against PipelineDP | <= 1/10 | skipped: no --peer_python |"]
    peer = pipeline_dp_seconds(peer_python, str(folder / f"units-{sizes.pipeline_dp}.parquet"))
    ratio = (peer / sizes.pipeline_dp) / (ours / sizes.bounding)
    return [
        f"{described}: time a row over PipelineDP's count of 8 partitions ({peer:.1f} s for"
        f" {sizes.pipeline_dp:,} rows) | <= 1/10 | 1/{ratio:.0f} |"
    ]


def compare_marginals(folder: pathlib.Path, sizes: Sizes, repeats: int) -> list[str]:
    """Rows of the table of results: all 3-way marginals of a table too wide for a histogram."""
    path = str(folder / f"adult-{sizes.marginals}.parquet")
    few = str(folder / f"adult-{sizes.marginals_peer}.parquet")
    found = interleaved(
        {
            "record": lambda: _with_cpu_seconds(lambda: our_marginals(path)),
            "unit": lambda: _with_cpu_seconds(lambda: our_marginals(path, "unit")),
        },
        repeats,
    )
    rows = []
    for unit, described in (("record", "a record"), ("unit", "a column, at most 3 records each")):
        seconds, (cpu_seconds, tables) = found[unit]
        assert len({int(table.sum()) for table in tables.values()}) == 1
        rows.append(
            f"| all {len(ALL_3_WAY)} 3-way marginals of {len(ADULT_SIZES)} columns,"
            f" {sizes.marginals:,} Parquet rows, the unit is {described}: CPU microseconds a row"
            f" ({seconds:.2f} s elapsed) | <= 3 | {cpu_seconds / sizes.marginals * 1e6:.2f} |"
        )
    ((peer, expected),) = interleaved({"peer": lambda: beam_count_per_marginal(few)}, 1).values()
    for names, table in our_marginals(few).items():
        np.testing.assert_array_equal(table, expected[names])
    ours = found["record"][0] / sizes.marginals
    rows.append(
        f"| time a row over ReadFromParquet, {len(ALL_3_WAY)} tuples a row, Count.PerElement"
        f" ({peer / sizes.marginals_peer * 1e6:,.0f} us a row, {sizes.marginals_peer:,} rows)"
        f" | <= 1/100 | 1/{peer / sizes.marginals_peer / ours:,.0f} |"
    )
    return rows


def _with_cpu_seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    """The processor time of all threads, and the result."""
    start = time.process_time()
    result = run()
    return time.process_time() - start, result


def main() -> None:
    """Prints the table, and writes it where asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes: fixed costs show")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="parquet,avro,csv,bounding,marginals")
    parser.add_argument("--peer_python", default=os.environ.get("BEAM_DP_PEER_PYTHON"))
    parser.add_argument("--data", help="where inputs are kept; a temporary folder by default")
    parser.add_argument("--output", help="a file to write the table to")
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else FULL
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(arguments.data or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        write_data(folder, sizes)
        comparisons: dict[str, Callable[[], list[str]]] = {
            "parquet": lambda: compare_parquet(folder, sizes, arguments.repeats),
            "avro": lambda: compare_avro(folder, sizes, arguments.repeats),
            "csv": lambda: compare_csv(folder, sizes, arguments.repeats),
            "bounding": lambda: compare_bounding(
                folder, sizes, arguments.repeats, arguments.peer_python
            ),
            "marginals": lambda: compare_marginals(folder, sizes, arguments.repeats),
        }
        chosen = [comparisons[name] for name in arguments.only.split(",")]
        rows = list(itertools.chain.from_iterable(compare() for compare in chosen))
    lines = [
        "# The distributed pass",
        "",
        f"`python benchmarks/{pathlib.Path(__file__).name}`: medians of {arguments.repeats}"
        f" interleaved runs on FnApiRunner, {os.cpu_count()} cores, Python"
        f" {platform.python_version()}, apache-beam {beam.__version__}, pyarrow {pa.__version__},"
        f" numpy {np.__version__}. Use the ratios. Beam's fixed cost is included.",
        "",
        "| what | target | measured |",
        "| --- | --- | --- |",
        *rows,
    ]
    text = "\n".join(lines)
    print(text)
    if arguments.output:
        pathlib.Path(arguments.output).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
