"""A dense projection through Beam, as a share of the speed of its own kernel.

    python benchmarks/projection_pass.py --record benchmarks/results/projection_pass.json

Keys are integers in one Parquet file, T = 4096, r = 48; one local worker. Both are timed in turns
in the same process; medians count, of the times and of their ratio.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
import tempfile
import time

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from beam_dp.hashing.evaluation import active_backend
from beam_dp.hashing.keys import HashKey
from beam_dp.hashing.projections import DenseSigns
from beam_dp.secret.encoding.keys import KeyColumns
from beam_dp.secret.summaries.projection import ProjectionAccumulator
from beam_dp.transforms.counting.count_keys import EncodeKeys
from beam_dp.transforms.counting.summarise import Summarise
from beam_dp.transforms.reading.read import ReadRecords
from benchmarks.recorded import Figure, Row, add_flag, keep
from benchmarks.tables import table

WIDTH, INDEPENDENCE = 4096, 48
NUM_RECORDS, NUM_RECORDS_QUICK = 2**22, 2**16
REPEATS = 3


def through_beam(path: str, signs: DenseSigns) -> float:
    """Seconds of a pipeline that reads, encodes and projects."""
    start = time.perf_counter()
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = (
            pipeline
            | ReadRecords(path)
            | EncodeKeys(KeyColumns("key", "integer"), 1, signs.key, "record")
            | Summarise(ProjectionAccumulator(signs))
        )
    return time.perf_counter() - start


def kernel_alone(keys: np.ndarray, signs: DenseSigns) -> float:
    """Seconds of the projection of all keys in memory, as they are."""
    sums = np.zeros(WIDTH, np.int64)
    start = time.perf_counter()
    for part in np.array_split(keys, 64):
        signs.add(sums, part, np.ones(len(part), np.int64))
    return time.perf_counter() - start


def main() -> None:
    """Prints one row for distinct keys, and one for keys that repeat themselves."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few records, once: fixed costs show")
    add_flag(parser)
    options = parser.parse_args()
    num_records, repeats = (NUM_RECORDS_QUICK, 1) if options.quick else (NUM_RECORDS, REPEATS)
    signs = DenseSigns(HashKey.draw(INDEPENDENCE), WIDTH)
    rng = np.random.default_rng(0)
    print(f"T = {WIDTH}, r = {INDEPENDENCE}, {num_records:,} records, {active_backend()}")
    rows = []
    for name, distinct, wanted in (
        ("all distinct", 2**62, ">= 0.5"),
        ("100 records each", num_records // 100, ""),
    ):
        keys = rng.integers(0, distinct, num_records).astype(np.uint64)
        with tempfile.TemporaryDirectory() as folder:
            path = str(pathlib.Path(folder) / "keys.parquet")
            pq.write_table(pa.table({"key": keys}), path)
            times = [(kernel_alone(keys, signs), through_beam(path, signs)) for _ in range(repeats)]
        kernel, piped = map(statistics.median, zip(*times, strict=True))
        ratio = statistics.median(alone / through for alone, through in times)
        figures = {
            "Beam's speed": Figure(ratio, "times"),
            "the kernel alone, a record": Figure(kernel / num_records * 1e9, "nanoseconds"),
            "through Beam, a record": Figure(piped / num_records * 1e9, "nanoseconds"),
        }
        rows.append(Row(name, figures, repeats, "the kernel alone", wanted))
    print(table(rows, "keys"))
    keep(options.record, rows)


if __name__ == "__main__":
    main()
