"""Inputs of the benchmarks of the distributed pass and of size: made once, the same in each run."""

from __future__ import annotations

import itertools
import math
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain

SIZES = (8, 4, 4, 8, 4, 4, 8, 8)  # 2^20 cells
DOMAIN = Domain(tuple(IntegerAttribute(f"c{i}", 0, size - 1) for i, size in enumerate(SIZES)))
MAX_RECORDS_PER_UNIT = 3
HEAVY_SHARE = 0.9  # of the records are one unit's
FEW = 1000  # rows that take next to no time
# As the columns of the Adult table: 10^19 cells, which no 64-bit index numbers.
ADULT_SIZES = (85, 9, 100, 16, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2)
ADULT = Domain(tuple(IntegerAttribute(f"c{i}", 0, size - 1) for i, size in enumerate(ADULT_SIZES)))
ALL_3_WAY = list(itertools.combinations(ADULT.names, 3))
LATENT_SEED = 20_261_125
LATENT_SPREAD = 0.6  # of a column around the latent number of its record
CHUNK_ROWS, FILE_ROWS = 2_000_000, 20_000_000
MOST_FILES = 10  # with records of their own


@dataclass(frozen=True)
class Sizes:
    """Rows of each comparison."""

    parquet: int
    peer_rows: int
    avro: int
    csv: int
    bounding: int
    units: int
    marginals: int
    marginals_peer: int


FULL = Sizes(
    40_000_000, 1_000_000, 3_000_000, 10_000_000, 5_000_000, 1_000_000, 5_000_000, 3_000
)  # fmt: skip
QUICK = Sizes(8_000_000, 100_000, 300_000, 2_000_000, 1_000_000, 200_000, 1_000_000, 1_000)


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
    path = folder / f"units-{sizes.bounding}.parquet"
    if not path.exists():
        pa.parquet.write_table(make_table(sizes.bounding, 9, np.int64, sizes.units), path)
    path = folder / f"heavy-{sizes.bounding}.parquet"
    if not path.exists():
        table = pa.parquet.read_table(folder / f"units-{sizes.bounding}.parquet")
        of_one = np.random.default_rng(1).random(sizes.bounding) < HEAVY_SHARE
        units = np.where(of_one, 0, table.column("unit").to_numpy())
        place = table.schema.get_field_index("unit")
        pa.parquet.write_table(table.set_column(place, "unit", pa.array(units)), path)
    path = folder / f"few-{FEW}.parquet"
    if not path.exists():
        pa.parquet.write_table(make_table(FEW, 3, np.int64), path)
    path = folder / f"peer-{sizes.peer_rows}.parquet"
    if not path.exists():
        pa.parquet.write_table(make_table(sizes.peer_rows, 7, np.int64), path)
    for num_rows in (sizes.marginals, sizes.marginals_peer):
        path = folder / f"adult-{num_rows}.parquet"
        if not path.exists():
            pa.parquet.write_table(
                make_table(num_rows, 8, np.int64, num_rows // 5, ADULT_SIZES), path
            )
    for kind, quoted in (("rows", "needed"), ("quoted", "all_valid")):
        path = folder / f"{kind}-{sizes.csv}.csv"
        if not path.exists():
            table = make_table(sizes.csv, 5, np.int64)
            texts = table.cast(pa.schema([(name, pa.string()) for name in table.column_names]))
            options = pyarrow.csv.WriteOptions(quoting_style=quoted)
            pyarrow.csv.write_csv(table if kind == "rows" else texts, path, options)
    path = folder / f"rows-{sizes.avro}.avro"
    if not path.exists():
        fields = [{"name": name, "type": "long"} for name in DOMAIN.names]
        schema = {"type": "record", "name": "Row", "fields": fields}
        rows = make_table(sizes.avro, 6, np.int64).to_pylist()
        with path.open("wb") as file:
            fastavro.writer(file, schema, rows, codec="deflate")


def latent_columns(
    sizes: Iterable[int], start: int, stop: int, has_empty_cells: bool = False
) -> Iterator[np.ndarray]:
    """Yields columns of codes that depend on each other through a latent number of each record.

    A value is spread around that number, on a circle, so that it is uniform and all combinations
    are possible; low codes are the most frequent. With empty cells, a value is the mean of that
    number and of an independent one, so that no record combines the lowest codes with the highest.
    """
    generator = np.random.default_rng([LATENT_SEED, start])
    latent = generator.random(stop - start)
    for size in sizes:
        spread = generator.random(stop - start)
        if has_empty_cells:
            yield ((latent + spread) / 2 * size).astype(np.int64)
        else:
            yield (((latent + LATENT_SPREAD * spread) % 1) ** 2 * size).astype(np.int64)


def write_latent(
    folder: pathlib.Path, sizes: Mapping[str, int], num_records: int, has_empty_cells: bool = False
) -> str:
    """Writes the files of such a table that are not there yet; returns their pattern.

    A longer table than ``MOST_FILES`` files repeats these: the others are links to them.

    Args:
        folder: where they are.
        sizes: the number of codes of each column.
        num_records: in all files.
        has_empty_cells: whether many combinations of codes have no record.
    """
    kind = "half-empty" if has_empty_cells else "latent"
    stem = f"{kind}-{len(sizes)}-columns-{math.prod(sizes.values())}-cells-{num_records}"
    schema = pa.schema([(name, pa.int64()) for name in sizes])
    for part, start in enumerate(range(0, num_records, FILE_ROWS)):
        path = folder / f"{stem}-{part:03}.parquet"
        if path.exists():
            continue
        if part >= MOST_FILES and start + FILE_ROWS <= num_records:
            path.hardlink_to(folder / f"{stem}-{part % MOST_FILES:03}.parquet")
            continue
        draft, stop = path.with_suffix(".draft"), min(start + FILE_ROWS, num_records)
        with pa.parquet.ParquetWriter(draft, schema) as writer:
            for first in range(start, stop, CHUNK_ROWS):
                end = min(first + CHUNK_ROWS, stop)
                columns = latent_columns(sizes.values(), first, end, has_empty_cells)
                writer.write_table(pa.table(dict(zip(sizes, columns, strict=True)), schema))
        draft.rename(path)
    return str(folder / f"{stem}-*.parquet")
