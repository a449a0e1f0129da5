"""The histogram pass on a Flink cluster of two task managers, by the number of their slots in use.

    make flink
    PYTHONPATH=tests python -m benchmarks.flink_scale --output benchmarks/results/flink_scale.md

Records are generated on the fly, as Arrow batches, from ranges of numbers; every count is then
compared with what arithmetic says that it must be. The peak memory of a Python worker is the
largest that Linux has seen of its process (VmHWM), which holds the interpreter and all libraries.
Its CPU time includes its start.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import platform
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions
from engines.cluster import SLOTS, FlinkCluster, find_jar, missing

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.secret.summaries.histogram import HistogramAccumulator
from beam_dp.transforms.counting.summarise import EncodeRecords, Summarise
from benchmarks.pass_runs import Watch

BATCH_ROWS = 2**16
LIMIT = 16 * 2**20
CELL_BITS, WIDE_BITS = 20, 26
MAX_GROWTH = 1.1


def domain_of(bits: int) -> Domain:
    """Two columns of equal size, 2^bits cells."""
    size = 2 ** (bits // 2)
    return Domain(tuple(IntegerAttribute(name, 0, size - 1) for name in ("left", "right")))


def records(start: int, stop: int, bits: int) -> pa.RecordBatch:
    """Records number start..stop: record i is in cell i, modulo the number of cells."""
    cells = np.arange(start, stop, dtype=np.int64) % 2**bits
    left, right = np.divmod(cells, 2 ** (bits // 2))
    return pa.record_batch({"left": left, "right": right})


class Generate(beam.DoFn):
    """Numbers of batches to batches."""

    def __init__(self, num_rows: int, bits: int) -> None:
        self.num_rows = num_rows
        self.bits = bits

    def process(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yields one batch."""
        start = number * BATCH_ROWS
        yield records(start, min(start + BATCH_ROWS, self.num_rows), self.bits)


class Keep(beam.DoFn):
    """Writes each shard to a file, which the benchmark can see."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def process(self, shard: tuple[int, bytes]) -> None:
        """Writes one."""
        (pathlib.Path(self.folder) / f"{shard[0]}-{uuid.uuid4().hex}").write_bytes(shard[1])


class MeasuredHistogram(HistogramAccumulator):
    """The library's histogram, which notes the largest shard that a bundle sends."""

    def __init__(self, domain: Domain, folder: str) -> None:
        super().__init__(domain)
        self.folder = folder

    def to_shards(self, state: Any) -> Iterator[tuple[int, bytes]]:
        """Yields the shards of a bundle."""
        largest = 0
        for number, shard in super().to_shards(state):
            largest = max(largest, len(shard))
            yield number, shard
        (pathlib.Path(self.folder) / f"sent-{uuid.uuid4().hex}").write_text(str(largest))


def count(cluster: FlinkCluster, num_rows: int, bits: int, slots: int) -> tuple[str, float, float]:
    """Counts that many records in that many slots, and checks every count.

    Returns:
        A row of the results, the largest peak of a Python worker, in MiB, and the rows for each
        second of CPU time of the workers.
    """
    domain = domain_of(bits)
    cluster.forget_workers()
    watch = Watch(cluster.python_workers)
    with tempfile.TemporaryDirectory() as folder:
        accumulator = MeasuredHistogram(domain, folder)
        watch.start()
        start = time.monotonic()
        with beam.Pipeline(options=PipelineOptions(cluster.flags(slots))) as pipeline:
            _ = (
                pipeline
                | beam.Create(range(-(-num_rows // BATCH_ROWS)))
                | beam.Reshuffle()
                | "Generate" >> beam.ParDo(Generate(num_rows, bits))
                | EncodeRecords(domain, "record", as_cells=True)
                | Summarise(accumulator)
                | "Keep" >> beam.ParDo(Keep(folder))
            )
        seconds = time.monotonic() - start
        watch.stop()
        files = list(pathlib.Path(folder).iterdir())
        sent = [int(file.read_text()) for file in files if file.name.startswith("sent-")]
        kept = [file for file in files if not file.name.startswith("sent-")]
        largest = max(*sent, *(file.stat().st_size for file in kept))
        counts = accumulator.from_shards(
            (int(file.name.partition("-")[0]), file.read_bytes()) for file in kept
        ).counts
    whole, rest = divmod(num_rows, domain.num_cells)
    assert counts.sum() == num_rows
    assert np.array_equal(counts, whole + (np.arange(domain.num_cells) < rest))
    assert largest <= LIMIT
    peaks = sorted(peak / 2**20 for peak in watch.peaks.values())
    of_each = sorted(watch.cpu_seconds.values())
    rate = num_rows / sum(of_each)
    row = (
        f"| {num_rows:,} | 2^{bits} | {slots} | {seconds:.1f} | {num_rows / seconds / 1e6:.2f}"
        f" | {rate / 1e6:.2f} | {', '.join(f'{each:.1f}' for each in of_each)}"
        f" | {', '.join(f'{peak:.0f}' for peak in peaks)} | {len(kept)} | {largest:,} |"
    )
    return row, peaks[-1], rate


def main() -> int:
    """Prints the table, and writes it where asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--rows", default="20000000,200000000", help="two or more numbers, of 2^20 cells"
    )
    parser.add_argument("--slots", default="1,2,4", help="of the largest number of rows")
    parser.add_argument("--wide_rows", type=int, default=200_000_000, help="in one of 2^26 cells")
    parser.add_argument("--output", help="a file to write the table to")
    arguments = parser.parse_args()
    jar = find_jar()
    if jar is None:
        print(f"skipped: {missing()}")
        return 0
    lines = [
        "# The histogram pass on a Flink cluster",
        "",
        "`PYTHONPATH=tests python -m benchmarks.flink_scale`: two task managers and Python workers"
        f" on one machine of {os.cpu_count()} cores, Python {platform.python_version()},"
        f" apache-beam {beam.__version__}, {pathlib.Path(jar).name}. Every count is checked. A job"
        " server and two Java processes share the cores.",
        "",
        "| rows | cells | slots | seconds | million rows a second | and a CPU second of the workers"
        " | CPU seconds of each worker | peak MiB of each | shards | largest shard, bytes |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    print("\n".join(lines), flush=True)
    few, *_, many = sorted(int(rows) for rows in arguments.rows.split(","))
    slots = [int(number) for number in arguments.slots.split(",")]
    jobs = [(few, CELL_BITS, SLOTS), *((many, CELL_BITS, number) for number in slots)]
    if arguments.wide_rows:
        jobs.append((arguments.wide_rows, WIDE_BITS, SLOTS))
    with FlinkCluster(jar) as cluster:
        peaks, rates = {}, {}
        for job in jobs:
            row, peaks[job], rates[job] = count(cluster, *job)
            lines.append(row)
            print(row, flush=True)
    growth = max(peaks[many, CELL_BITS, number] for number in slots) / peaks[jobs[0]]
    shares = [rates[many, CELL_BITS, number] / rates[jobs[1]] for number in slots]
    lines += [
        "",
        f"Peak memory at {many:,} rows over that at {few:,}: {growth:.3f} (at most {MAX_GROWTH})."
        " Rows a CPU second, relative to the first number of slots:"
        f" {', '.join(f'{share:.2f}' for share in shares)}.",
    ]
    print(lines[-1])
    if arguments.output:
        pathlib.Path(arguments.output).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0 if growth <= MAX_GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
