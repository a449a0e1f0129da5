"""Windowed counts against a bounded pass over the same files: ratios, from interleaved runs.

    python benchmarks/windows.py --quick
    python benchmarks/windows.py --record benchmarks/results/windows.json

Records arrive in order of arrival, minutes after their event: 168 windows of an hour.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from beam_dp.domain.horizon import Horizon, WindowUnit, counted_windows
from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.secret.summaries.histogram import HistogramAccumulator
from beam_dp.transforms.counting.count_windows import CountWindows
from beam_dp.transforms.counting.summarise import CountCells
from beam_dp.transforms.reading.read import ReadRecords
from benchmarks.pass_runs import interleaved, run_pipeline
from benchmarks.recorded import Figure, Row, add_flag, keep
from benchmarks.tables import table

NUM_WINDOWS, HOUR, GRACE = 168, 3600, 1800
HORIZON = Horizon(0, HOUR, NUM_WINDOWS, GRACE)
NUM_FILES = 8
K = 3
RECORDS = WindowUnit("record", 1, 1, 1)
UNITS = WindowUnit("unit", K, 7, NUM_WINDOWS)


def write_data(folder: pathlib.Path, num_rows: int) -> str:
    """Writes the files, and returns their pattern: times, cells, units with a long tail."""
    rng = np.random.default_rng(1)
    event = np.sort(rng.integers(0, NUM_WINDOWS * HOUR, num_rows))
    delay = rng.exponential(300, num_rows).astype(np.int64)
    order = np.argsort(event + delay, kind="stable")
    event, arrival = event[order], (event + delay)[order]
    cell = rng.integers(0, 2**17, num_rows)
    unit = rng.zipf(1.2, num_rows) % 200_000
    for number, part in enumerate(np.array_split(np.arange(num_rows), NUM_FILES)):
        columns = {
            "event": event[part],
            "arrival": arrival[part],
            "wide": cell[part],
            "cell": cell[part] % 1024,
            "unit": unit[part],
        }
        path = folder / f"rows-{number}.parquet"
        pa.parquet.write_table(pa.table(columns), path, row_group_size=125_000)
    return str(folder / "rows-*.parquet")


def domain_of(column: str) -> Domain:
    """The cells of a column."""
    return Domain((IntegerAttribute(column, 0, 1023 if column == "cell" else 2**17 - 1),))


def windowed(pattern: str, column: str, unit: WindowUnit) -> np.ndarray:
    """The counts of all windows, by this project."""
    domain = domain_of(column)
    accumulator = HistogramAccumulator(domain)

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        count = CountWindows(domain, HORIZON, unit, "event", "arrival", unit_costs=None)
        counted = pipeline | ReadRecords(pattern) | count | beam.MapTuple(_as_list)
        return counted | beam.WindowInto(beam.window.GlobalWindows())

    counts = np.zeros((NUM_WINDOWS, domain.num_cells), np.int64)
    for number, shards in run_pipeline(build):
        counts[number] = accumulator.from_shards(shards).counts
    return counts


def _as_list(number: int, shards: Any) -> tuple[int, list[Any]]:
    return number, list(shards)


def bounded(pattern: str, column: str, unit: WindowUnit) -> np.ndarray:
    """The counts of the whole week, by this project."""
    domain = domain_of(column)
    guarantee = Guarantee(
        1.0, 1e-9, "add_or_remove_one", unit.privacy_unit, unit.max_records_per_unit
    )

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        return pipeline | ReadRecords(pattern) | CountCells(domain, guarantee, unit_costs=None)

    return HistogramAccumulator(domain).from_shards(run_pipeline(build)).counts


def by_numpy(pattern: str, column: str) -> np.ndarray:
    """The counts of all windows, in one array."""
    size = domain_of(column).num_cells
    table = pa.parquet.read_table(pathlib.Path(pattern).parent)
    numbers = counted_windows(HORIZON, *(table[name].to_numpy() for name in ("event", "arrival")))
    keep = numbers >= 0
    cells = numbers[keep] * size + table[column].to_numpy()[keep]
    return np.bincount(cells, minlength=NUM_WINDOWS * size).reshape(NUM_WINDOWS, size)


def per_element(pattern: str) -> int:
    """What a Beam user writes first: an element a record, in windows of event time."""

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        return (
            pipeline
            | beam.io.ReadFromParquet(pattern, columns=["event", "cell"])
            | beam.Map(_stamped)
            | beam.WindowInto(FixedWindows(HOUR))
            | beam.combiners.Count.PerElement()
            | "Out of windows" >> beam.WindowInto(beam.window.GlobalWindows())
        )

    return sum(count for _, count in run_pipeline(build))


def _stamped(row: dict[str, int]) -> TimestampedValue:
    return TimestampedValue(row["cell"], row["event"])


def compare(num_rows: int, peer_rows: int, repeats: int) -> list[Row]:
    """Rows of the table of results."""
    rows: list[Row] = []
    speeds: dict[str, float] = {}  # of 1,024 cells
    with tempfile.TemporaryDirectory() as name:
        pattern = write_data(pathlib.Path(name), num_rows)
        for column, unit, target in (
            ("cell", RECORDS, ">= 0.6"),
            ("cell", UNITS, ">= 0.6"),
            ("wide", RECORDS, ""),
            ("wide", UNITS, ""),
        ):
            found = interleaved(
                {
                    "ours": lambda c=column, u=unit: windowed(pattern, c, u),
                    "bounded": lambda c=column, u=unit: bounded(pattern, c, u),
                },
                repeats,
            )
            (ours, _, counts), (peer, _, _) = found["ours"], found["bounded"]
            if unit is RECORDS:
                np.testing.assert_array_equal(counts, by_numpy(pattern, column))
            else:
                assert (counts <= by_numpy(pattern, column)).all()
            what = f"{unit.privacy_unit}s, {domain_of(column).num_cells:,} cells"
            both = num_rows / ours, num_rows / peer
            rows.append(compared(what, *both, repeats, "`CountCells` of the whole week", target))
            speeds.setdefault(unit.privacy_unit, num_rows / ours)
    with tempfile.TemporaryDirectory() as name:
        pattern = write_data(pathlib.Path(name), peer_rows)
        ((seconds, _, _),) = interleaved({"peer": lambda: per_element(pattern)}, 1).values()
    for kind, target in (("record", ">= 100"), ("unit", ">= 20")):
        both = speeds[kind], peer_rows / seconds
        beside = "windowed `Count.PerElement`"
        rows.append(compared(f"{kind}s, 1,024 cells", *both, 1, beside, target))
    return rows


def compared(what: str, ours: float, other: float, runs: int, beside: str, wanted: str) -> Row:
    """Two speeds in rows a second, and their ratio."""
    figures = {
        "speed, ratio": Figure(ours / other, "times"),
        "windows, rows": Figure(ours, "a second"),
        "the other, rows": Figure(other, "a second"),
    }
    return Row(what, figures, runs, beside, wanted)


def main() -> None:
    """Prints the table of medians, and keeps it where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows, once")
    add_flag(parser)
    options = parser.parse_args()
    sizes = (1_000_000, 50_000, 1) if options.quick else (10_000_000, 200_000, 3)
    print(f"{NUM_WINDOWS} windows of an hour, {sizes[0]:,} rows of Parquet, FnApiRunner")
    rows = compare(*sizes)
    print(table(rows))
    keep(options.record, rows)


if __name__ == "__main__":
    main()
