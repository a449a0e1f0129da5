"""Runs stages of continuous integration, and reports the processor time of each.

    python tools/stages.py run FOLDER NAME COMMAND ...
    python tools/stages.py report FOLDER --record FILE

The first runs a stage and notes in the folder what it took; its tests write there what each of them
took, as PYTEST_OPTIONS asks them to. The second prints the table of all stages, and writes it to a
file if they are green. A stage whose name starts with "fetch" is a download, which is not counted.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Limits are for a machine on which this takes so many seconds of processor time.
IMPORT = [str(ROOT / ".venv/bin/python"), "-W", "ignore", "-c", "import apache_beam"]
IMPORT_SECONDS = 1.3
NUM_DEAREST = 20
DEAR_SECONDS = 0.15


def spent(command: list[str], **options: Any) -> tuple[int, float, float]:
    """Runs a command; returns its exit code, and its processor and elapsed seconds."""
    started = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, **options)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime, time.monotonic() - started


def run(folder: pathlib.Path, name: str, command: list[str]) -> int:
    """Runs a stage, notes what it took, and returns its exit code."""
    options = f"{os.environ.get('PYTEST_OPTIONS', '')} --costs={folder / name}.json"
    code, cpu, elapsed = spent(command, env={**os.environ, "PYTEST_OPTIONS": options})
    stage = {"name": name, "code": code, "cpu": round(cpu, 1), "elapsed": round(elapsed, 1)}
    with (folder / "stages").open("a", encoding="utf-8") as file:
        file.write(json.dumps(stage) + "\n")
    print(f"stage {name}: exit code {code}, {cpu:.0f} CPU s, {elapsed:.0f} s", flush=True)
    return code


def import_seconds() -> float:
    """The processor seconds that this machine takes to import Beam: the least of three."""
    quiet = {"stderr": subprocess.DEVNULL}
    return min(spent(IMPORT, **quiet)[1] for _ in range(4))


def git(*arguments: str) -> str:
    """What git says about this checkout."""
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()


def folder_of(test: str) -> str:
    """The folder below ``tests`` or ``beam_dp`` of a test."""
    parts = test.partition("::")[0].split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def tests_of(folder: pathlib.Path) -> dict[str, dict[str, Any]]:
    """The tier and the processor seconds of each test, by name."""
    tests: dict[str, dict[str, Any]] = {}
    for path in folder.glob("*.json"):
        tests |= json.loads(path.read_text("utf-8"))
    return tests


def read_run(folder: pathlib.Path) -> dict[str, Any]:
    """What a run took, on a machine as fast as the limits are for."""
    lines = (folder / "stages").read_text("utf-8").splitlines()
    stages = {stage["name"]: stage for stage in map(json.loads, lines)}
    tests = tests_of(folder)
    machine = import_seconds()
    scale = IMPORT_SECONDS / machine
    by_folder, by_tier = collections.Counter[str](), collections.Counter[str]()
    for name, test in tests.items():
        by_folder[folder_of(name)] += test["seconds"] * scale
        by_tier[test["tier"]] += test["seconds"] * scale
    counted = [each for name, each in stages.items() if not name.startswith("fetch")]
    return {
        "commit": git("rev-parse", "HEAD"),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "import_seconds": round(machine, 2),
        "is_green": not any(stage["code"] for stage in stages.values()),
        "num_tests": len(tests),
        "cpu": round(sum(stage["cpu"] for stage in counted) * scale),
        "stages": {
            name: {"cpu": round(stage["cpu"] * scale), "elapsed": round(stage["elapsed"])}
            for name, stage in stages.items()
        },
        "tiers": {name: round(cpu) for name, cpu in sorted(by_tier.items())},
        "folders": {name: round(cpu) for name, cpu in sorted(by_folder.items())},
        "dearest": {
            name: round(tests[name]["seconds"] * scale, 1)
            for name in sorted(tests, key=lambda name: -tests[name]["seconds"])[:NUM_DEAREST]
        },
    }


def print_table(found: dict[str, Any], before: dict[str, Any]) -> None:
    """Prints what a run took, beside the recorded one."""
    print(
        f"\nprocessor seconds, as on a machine that imports apache_beam in {IMPORT_SECONDS} s; "
        f"this one takes {found['import_seconds']} s. Beside them the change since the recorded run"
    )
    for kind in ("stages", "tiers", "folders"):
        print(f"\n{kind}")
        for name, value in found[kind].items():
            cpu = value["cpu"] if kind == "stages" else value
            old = before.get(kind, {}).get(name, 0)
            change = cpu - (old["cpu"] if isinstance(old, dict) else old)
            took = f"  elapsed {value['elapsed']:5}" if kind == "stages" else ""
            print(f"  {name:30} {cpu:6} {change:+6}{took}")
    print(f"\ndearest tests of {found['num_tests']}")
    for name, seconds in found["dearest"].items():
        print(f"  {seconds:6.1f} {name}")
    print(f"\nCPU of this run, without what it fetched: {found['cpu']} s\n", flush=True)


def report(folder: pathlib.Path, record: pathlib.Path, seed: str | None) -> int:
    """Prints the table, and writes it if every stage is green; returns 1 if one is not."""
    found = read_run(folder)
    print_table(found, json.loads(record.read_text("utf-8")) if record.exists() else {})
    if not found.pop("is_green"):
        return 1
    found |= {"seed": seed} if seed else {}
    record.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 0


def write_costs(folder: pathlib.Path, costs: pathlib.Path, *, is_whole: bool) -> None:
    """Writes what dear tests took, by which later runs choose and order; keeps what did not run."""
    tests, scale = tests_of(folder), IMPORT_SECONDS / import_seconds()
    known = json.loads(costs.read_text("utf-8")) if costs.exists() and not is_whole else {}
    found = {name: test["seconds"] * scale for name, test in tests.items()}
    dear = {**known, **found}
    kept = {name: round(each, 2) for name, each in dear.items() if each >= DEAR_SECONDS}
    costs.write_text(json.dumps(kept, indent=0, sort_keys=True) + "\n", "utf-8")


def main() -> int:
    """Runs or reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    running = commands.add_parser("run")
    running.add_argument("folder", type=pathlib.Path)
    running.add_argument("name")
    running.add_argument("command", nargs=argparse.REMAINDER)
    reporting = commands.add_parser("report")
    reporting.add_argument("folder", type=pathlib.Path)
    reporting.add_argument("--record", type=pathlib.Path, required=True)
    reporting.add_argument("--costs", type=pathlib.Path, help="where to write those of dear tests")
    reporting.add_argument("--seed", help="the seed that the tests were given")
    given = parser.parse_args()
    if given.what == "run":
        return run(given.folder.resolve(), given.name, given.command)
    if given.costs:
        write_costs(given.folder, given.costs, is_whole=given.seed is not None)
    return report(given.folder, given.record, given.seed)


if __name__ == "__main__":
    sys.exit(main())
