"""Measures this project with tools that other projects wrote, each in its own environment.

    BEAM_DP_DATA=DIR python benchmarks/judges/judge.py --record benchmarks/results/judges
    python benchmarks/judges/judge.py nist --quick

A judge is a folder beside this file: ``requirements.txt`` names what is installed for it,
``rows.py`` says what is measured, and ``asked.py`` runs where the judge is installed. Figures that
speak against this project are kept like all others. Several judges are asked at the same time, one
a processor; one that fails stops no other.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import importlib
import os
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parents[1])]

from benchmarks.judges.environment import Environment  # noqa: E402
from benchmarks.recorded import keep  # noqa: E402
from benchmarks.tables import table  # noqa: E402

JUDGES = sorted(path.parent.name for path in FOLDER.glob("*/rows.py"))


def main() -> None:
    """Asks the judges that are named, or all, and prints a table of each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("judges", nargs="*", help=f"by default all: {', '.join(JUDGES)}")
    parser.add_argument("--quick", action="store_true", help="a part that takes a minute or two")
    parser.add_argument("--record", type=pathlib.Path, help="a folder for a JSON file of each")
    options = parser.parse_args()
    for name in options.judges:
        if name not in JUDGES:
            parser.error(f"{name!r} is not a judge; valid: {', '.join(JUDGES)}")
    names = options.judges or JUDGES
    if len(names) == 1:
        ask(names[0], options)
        return
    flags = ["--quick"] * options.quick
    if options.record is not None:
        flags += ["--record", str(options.record)]

    def run(name: str) -> int:
        return subprocess.run([sys.executable, __file__, name, *flags], check=False).returncode

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        sys.exit(any(list(pool.map(run, names))))


def ask(name: str, options: argparse.Namespace) -> None:
    """Asks one judge, keeps what it says, and prints it."""
    environment, found = Environment(name), {}
    module = importlib.import_module(f"benchmarks.judges.{name}.rows")
    for row in module.rows(environment, options.quick):
        found[row.what] = row  # of more runs than the one before
        if options.record is not None:
            options.record.mkdir(exist_ok=True)
            path = options.record / f"{name}.json"
            keep(path, list(found.values()), tools=environment.versions())
    print(f"{name}\n\n{table(list(found.values()))}", flush=True)


if __name__ == "__main__":
    main()
