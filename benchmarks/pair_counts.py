"""Counts all pairs of columns of Parquet files exactly, by one engine in a process of its own.

    python benchmarks/pair_counts.py
    python benchmarks/pair_counts.py ENGINE PATTERN SIZES RESULT

Without arguments it prints the engines that this interpreter can import, with their versions, as
JSON. ``SIZES`` is JSON as well: the number of codes of each column. ``RESULT`` is a file for the
counts of each pair, in the order of ``pairs``. Engines use all processors, unless their names say
otherwise. An engine "of cells" first counts the rows of each combination of all columns.
"""

from __future__ import annotations

import functools
import glob
import importlib.metadata
import importlib.util
import itertools
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

BARE = "pyarrow in one thread, and `bincount`"
OWN = "beam_dp, "  # and the way to run it
_BATCH_ROWS = 2**17
# Of each pair of columns, in the order of the sizes: counts, one axis a column.
Pairs = dict[tuple[str, str], np.ndarray]


def own_options() -> dict[str, tuple[str, ...]]:
    """Returns flags of Beam for each way to run this project; Flink where its job server is."""
    from benchmarks.pass_runs import IN_PROCESS, TWO_PROCESSES

    options = {"1 process": IN_PROCESS, "2 processes": TWO_PROCESSES}
    for jar in glob.glob(str(ROOT / "flink-jars" / "*.jar"))[:1]:
        flink = "--runner=FlinkRunner", "--flink_master=[local]", "--parallelism=4"
        options["Flink"] = *flink, f"--flink_job_server_jar={jar}"
    return options


def pairs(sizes: Iterable[str]) -> list[tuple[str, str]]:
    """Returns all pairs of columns."""
    return list(itertools.combinations(sizes, 2))


def bare_pairs(pattern: str, sizes: Mapping[str, int]) -> Pairs:
    """Returns counts of all pairs of columns from one thread of pyarrow and numpy."""
    import pyarrow.parquet

    found = _no_counts(sizes)
    for path in sorted(glob.glob(pattern)):
        file = pyarrow.parquet.ParquetFile(path)
        for batch in file.iter_batches(_BATCH_ROWS, columns=list(sizes), use_threads=False):
            codes = {name: batch.column(name).to_numpy() for name in sizes}
            for (first, second), counts in found.items():
                cells = codes[first] * sizes[second] + codes[second]
                counts += np.bincount(cells, minlength=counts.size).reshape(counts.shape)
    return found


def duckdb_pairs(pattern: str, sizes: Mapping[str, int], of_cells: bool) -> Pairs:
    """Returns counts of all pairs of columns from one query of DuckDB."""
    import duckdb

    query = _query(f"'{pattern}'", sizes, of_cells)
    return _from_sets(duckdb.sql(query).fetchall(), sizes)


def chdb_pairs(pattern: str, sizes: Mapping[str, int], of_cells: bool) -> Pairs:
    """Returns counts of all pairs of columns from one query of ClickHouse, in this process."""
    import chdb

    query = _query(f"file('{pattern}', Parquet)", sizes, of_cells)
    rows = chdb.query(f"{query} settings group_by_use_nulls = 1", "ArrowTable").to_pylist()
    return _from_sets((row.values() for row in rows), sizes)


def spark_pairs(pattern: str, sizes: Mapping[str, int], of_cells: bool) -> Pairs:
    """Returns counts of all pairs of columns from one query of Spark, in one Java process."""
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[*]")
        .config("spark.driver.memory", "8g")
        .config("spark.sql.shuffle.partitions", str(4 * (os.cpu_count() or 1)))
        .getOrCreate()
    )
    session.read.parquet(*sorted(glob.glob(pattern))).createOrReplaceTempView("records")
    rows = session.sql(_query("records", sizes, of_cells)).collect()
    java = session.sparkContext._gateway.proc
    session.stop()
    java.stdin.close()  # ends Java, whose time counts only once it has been waited for
    java.wait()
    return _from_sets(rows, sizes)


def _query(source: str, sizes: Mapping[str, int], of_cells: bool) -> str:
    """Returns SQL that counts the rows of each pair, with nulls in the other columns."""
    names, number = ", ".join(sizes), "count(*)"
    sets = ", ".join(f"({first}, {second})" for first, second in pairs(sizes))
    if of_cells:
        source = f"(select {names}, count(*) as number from {source} group by {names}) as cells"
        number = "sum(number)"
    return f"select {names}, {number} from {source} group by grouping sets ({sets})"


def _from_sets(rows: Iterable[Any], sizes: Mapping[str, int]) -> Pairs:
    found = _no_counts(sizes)
    for *codes, count in rows:
        told = {name: code for name, code in zip(sizes, codes, strict=True) if code is not None}
        found[tuple(told)][tuple(told.values())] = count
    return found


def polars_pairs(pattern: str, sizes: Mapping[str, int], of_cells: bool) -> Pairs:
    """Returns counts of all pairs of columns from streamed queries of Polars."""
    import polars

    found, rows, number = _no_counts(sizes), polars.scan_parquet(pattern), polars.len()
    if of_cells:
        cells = rows.group_by(list(sizes)).agg(polars.len().alias("number"))
        rows = cells.collect(engine="streaming").lazy()
        number = polars.col("number").sum()
    counted = [rows.group_by(pair).agg(number.alias("number")) for pair in found]
    frames = polars.collect_all(counted, engine="streaming")
    for (pair, counts), frame in zip(found.items(), frames, strict=True):
        counts[tuple(frame[name].to_numpy() for name in pair)] = frame["number"].to_numpy()
    return found


def own_pairs(way: str, pattern: str, sizes: Mapping[str, int]) -> tuple[Pairs, int]:
    """Returns counts of all pairs of columns, and how many bytes the bundles of the pass sent."""
    import apache_beam as beam

    from beam_dp.domain.files import parse_domain
    from beam_dp.secret.summaries.histogram import MarginalsAccumulator
    from beam_dp.transforms.counting.summarise import EncodeRecords, Summarise
    from beam_dp.transforms.reading.read import ReadRecords
    from benchmarks.pass_runs import run_pipeline

    class Measured(MarginalsAccumulator):
        def to_shards(self, state: Any) -> Iterator[tuple[int, bytes]]:
            shards = list(super().to_shards(state))
            file, _ = tempfile.mkstemp(dir=folder)
            os.write(file, str(sum(len(shard) for _, shard in shards)).encode())
            os.close(file)
            return iter(shards)

    domain = parse_domain(sizes)
    accumulator = Measured(domain, pairs(sizes))
    as_cells = accumulator.as_cells

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        read = pipeline | ReadRecords(pattern, domain.names)
        return read | EncodeRecords(domain, "record", as_cells=as_cells) | Summarise(accumulator)

    with tempfile.TemporaryDirectory() as folder:
        counted = accumulator.from_shards(run_pipeline(build, own_options()[way]))
        sent = sum(int(path.read_text()) for path in pathlib.Path(folder).iterdir())
    return {pair: counted.marginal(pair) for pair in pairs(sizes)}, sent


def engines() -> dict[str, Callable[..., Pairs]]:
    """Returns what can be imported here, by names with versions; ours are not among them."""
    known = {
        "chdb": chdb_pairs,
        "duckdb": duckdb_pairs,
        "polars": polars_pairs,
        "pyspark": spark_pairs,
    }
    found: dict[str, Callable[..., Pairs]] = {}
    for name in filter(importlib.util.find_spec, known):
        version = f"{name} {importlib.metadata.version(name)}"
        found[version] = functools.partial(known[name], of_cells=False)
        found[f"{version}, of cells"] = functools.partial(known[name], of_cells=True)
    return found


def _no_counts(sizes: Mapping[str, int]) -> Pairs:
    return {(a, b): np.zeros((sizes[a], sizes[b]), np.int64) for a, b in pairs(sizes)}


def main() -> None:
    """Prints the engines, or counts with one of them."""
    if not sys.argv[1:]:
        print(json.dumps(list(engines())))
        return
    name, pattern, given, result = sys.argv[1:]
    sizes, sent = json.loads(given), 0
    if name.startswith(OWN):
        found, sent = own_pairs(name.removeprefix(OWN), pattern, sizes)
    else:
        found = {BARE: bare_pairs, **engines()}[name](pattern, sizes)
    np.savez(result, *found.values(), sent=sent)


if __name__ == "__main__":
    main()
