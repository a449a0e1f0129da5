"""Runs that are timed: elapsed seconds, processor seconds of all processes, peaks of memory."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import pickle
import resource
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

IN_PROCESS = ("--runner=FnApiRunner",)
TWO_PROCESSES = (
    "--runner=FnApiRunner",
    "--direct_running_mode=multi_processing",
    "--direct_num_workers=2",
)
SECONDS_BETWEEN_LOOKS = 0.1


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
    return found, peak_memory(os.getpid()) // 2**20


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time of a process; 0 if it has ended."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_memory(pid: int) -> int:
    """Returns the largest resident size of a process so far, in bytes; 0 if it has ended."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(
        int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")
    )


class Watch(threading.Thread):
    """Looks at the peak memory and the CPU time of processes while they run.

    Args:
        processes: returns their numbers; they may start and end meanwhile.
    """

    def __init__(self, processes: Callable[[], Iterable[int]]) -> None:
        super().__init__(daemon=True)
        self._processes = processes
        self._over = threading.Event()
        self.peaks: dict[int, int] = {}
        self.cpu_seconds: dict[int, float] = {}

    def run(self) -> None:
        """Looks now and then."""
        while not self._over.wait(SECONDS_BETWEEN_LOOKS):
            for pid in self._processes():
                peak = peak_memory(pid)
                if peak:
                    self.peaks[pid] = peak
                    self.cpu_seconds[pid] = cpu_seconds(pid) or self.cpu_seconds.get(pid, 0.0)

    def stop(self) -> None:
        """Ends the watch."""
        self._over.set()
        self.join()


class Watched(NamedTuple):
    """How a program ran, with all processes that it started.

    Args:
        seconds: elapsed.
        cpu_seconds: of all processes that were waited for.
        peak: of memory, in MiB: the sum of the peaks of all processes.
        lines: on standard error, each with the seconds that had elapsed.
        exit_code: of the program; negative where a signal ended it.
    """

    seconds: float
    cpu_seconds: float
    peak: float
    lines: list[tuple[float, str]]
    exit_code: int


def watched(command: Sequence[str], limit: float) -> Watched:
    """Runs a program in a session of its own; kills the session after some seconds."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        watch = Watch(lambda: _session(process.pid))
        timer = threading.Timer(limit, os.killpg, (process.pid, signal.SIGKILL))
        watch.start()
        timer.start()
        try:
            lines = [(time.perf_counter() - start, line.strip()) for line in process.stderr]
            process.wait()
        finally:
            timer.cancel()
            watch.stop()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    peak = sum(watch.peaks.values()) / 2**20
    return Watched(seconds, spent, peak, lines, process.returncode)


def _session(leader: int) -> list[int]:
    """Returns the processes of a session."""
    found = []
    for each in os.listdir("/proc"):
        try:
            if each.isdigit() and os.getsid(int(each)) == leader:
                found.append(int(each))
        except ProcessLookupError:
            continue
    return found


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
