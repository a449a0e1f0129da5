"""Runs that are timed: elapsed seconds, and processor seconds of all threads and processes."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import pickle
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

IN_PROCESS = ("--runner=FnApiRunner",)
TWO_PROCESSES = (
    "--runner=FnApiRunner",
    "--direct_running_mode=multi_processing",
    "--direct_num_workers=2",
)


class Timed(NamedTuple):
    """How long a run took.

    Args:
        seconds: elapsed.
        cpu_seconds: of this process and of those that it started and that ended.
        result: of the run.
    """

    seconds: float
    cpu_seconds: float
    result: Any

    def per(self, num_rows: int) -> Timed:
        """Returns microseconds a row."""
        return Timed(self.seconds / num_rows * 1e6, self.cpu_seconds / num_rows * 1e6, self.result)


def timed(run: Callable[[], Any]) -> Timed:
    """Runs once."""
    before, start = os.times(), time.perf_counter()
    result = run()
    seconds, after = time.perf_counter() - start, os.times()
    return Timed(seconds, sum(after[:4]) - sum(before[:4]), result)


def interleaved(contenders: dict[str, Callable[[], Any]], repeats: int) -> dict[str, Timed]:
    """Runs all in turn, several times; returns the medians and the last result of each."""
    runs: dict[str, list[Timed]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, run in contenders.items():
            runs[name].append(timed(run))
    return {name: _middle(found) for name, found in runs.items()}


def _middle(runs: list[Timed]) -> Timed:
    return Timed(
        statistics.median(each.seconds for each in runs),
        statistics.median(each.cpu_seconds for each in runs),
        runs[-1].result,
    )


def apart(run: Callable[[str], Any], path: str, repeats: int) -> tuple[Timed, int]:
    """Runs in a fresh process each time; returns the medians, and the largest peak of memory, MiB.

    The start of the process is not timed, but what its imports hold is in the peak.
    """
    context = multiprocessing.get_context("spawn")
    found = []
    for _ in range(repeats):
        with context.Pool(1) as pool:
            found.append(pool.apply(_timed_with_peak, (run, path)))
    return _middle([each for each, _ in found]), max(peak for _, peak in found)


def _timed_with_peak(run: Callable[[str], Any], path: str) -> tuple[Timed, int]:
    found = timed(lambda: run(path))
    # Not getrusage, whose peak is at least that of the process that started this one.
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", pathlib.Path("/proc/self/status").read_text())
    return found, int(peak) // 1024


def run_pipeline(
    build: Callable[[beam.Pipeline], beam.PCollection], options: tuple[str, ...] = IN_PROCESS
) -> list[Any]:
    """Runs on FnApiRunner, and returns the elements."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "results")
        with beam.Pipeline(options=PipelineOptions(list(options))) as pipeline:
            results = build(pipeline) | "List" >> beam.combiners.ToList()
            _ = results | "Keep" >> beam.Map(_pickle_to, str(path))
        loaded: list[Any] = pickle.loads(path.read_bytes())
    return loaded


def _pickle_to(elements: list[Any], path: str) -> None:
    pathlib.Path(path).write_bytes(pickle.dumps(elements, protocol=5))
