"""What the distributed pass is compared with: bare readers, and what a Beam user writes first."""

from __future__ import annotations

import glob

import apache_beam as beam
import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from benchmarks.pass_inputs import ADULT, ALL_3_WAY, DOMAIN
from benchmarks.pass_runs import run_pipeline


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
