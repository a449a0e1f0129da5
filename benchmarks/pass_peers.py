"""What the distributed pass is compared with: bare readers, and what a Beam user writes first."""

from __future__ import annotations

import functools
import glob
import importlib.metadata
import importlib.util
import itertools
from collections.abc import Callable, Mapping

import apache_beam as beam
import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from benchmarks.pass_inputs import ADULT, ALL_3_WAY, DOMAIN
from benchmarks.pass_runs import run_pipeline

BARE = "pyarrow in one thread, and `bincount`"
_BATCH_ROWS = 2**17
# Of each pair of columns, in the order of the sizes: counts, one axis a column.
Pairs = dict[tuple[str, str], np.ndarray]


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


def bare_pairs(pattern: str, sizes: Mapping[str, int]) -> Pairs:
    """Returns counts of all pairs of columns from one thread of pyarrow and numpy."""
    found = _no_counts(sizes)
    for path in sorted(glob.glob(pattern)):
        file = pa.parquet.ParquetFile(path)
        for batch in file.iter_batches(_BATCH_ROWS, columns=list(sizes), use_threads=False):
            codes = {name: batch.column(name).to_numpy() for name in sizes}
            for (first, second), counts in found.items():
                cells = codes[first] * sizes[second] + codes[second]
                counts += np.bincount(cells, minlength=counts.size).reshape(counts.shape)
    return found


def duckdb_pairs(pattern: str, sizes: Mapping[str, int]) -> Pairs:
    """Returns counts of all pairs of columns from one query of DuckDB, with all its threads."""
    import duckdb

    found, names = _no_counts(sizes), ", ".join(sizes)
    sets = ", ".join(f"({first}, {second})" for first, second in found)
    query = f"select {names}, count(*) from '{pattern}' group by grouping sets ({sets})"
    for *codes, count in duckdb.sql(query).fetchall():
        told = {name: code for name, code in zip(sizes, codes, strict=True) if code is not None}
        found[tuple(told)][tuple(told.values())] = count
    return found


def polars_pairs(pattern: str, sizes: Mapping[str, int]) -> Pairs:
    """Returns counts of all pairs of columns from one streamed query of Polars."""
    import polars

    found, rows = _no_counts(sizes), polars.scan_parquet(pattern)
    counted = [rows.group_by(pair).len() for pair in found]
    frames = polars.collect_all(counted, engine="streaming")
    for (pair, counts), frame in zip(found.items(), frames, strict=True):
        counts[tuple(frame[name].to_numpy() for name in pair)] = frame["len"].to_numpy()
    return found


def pair_counters(sizes: Mapping[str, int]) -> dict[str, Callable[[str], Pairs]]:
    """Returns the peers that are installed, the bare reader first."""
    peers = {"duckdb": duckdb_pairs, "polars": polars_pairs}
    installed = {name: each for name, each in peers.items() if importlib.util.find_spec(name)}
    versions = {f"{name} {importlib.metadata.version(name)}": installed[name] for name in installed}
    counters = {BARE: bare_pairs, **versions}
    return {name: functools.partial(count, sizes=sizes) for name, count in counters.items()}


def _no_counts(sizes: Mapping[str, int]) -> Pairs:
    pairs = itertools.combinations(sizes, 2)
    return {(a, b): np.zeros((sizes[a], sizes[b]), np.int64) for a, b in pairs}
