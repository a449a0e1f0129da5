"""What `beam-dp` costs before any work: help, versions, completions, refusals; and small work.

    python -m benchmarks.start [--repeats 9] [--record benchmarks/results/start.json]

Processor time, user and system, of whole processes, children too; the least of several, because
what else the machine does only adds. Each row states its ratio to `python -c pass` of the same run.
The row of `import apache_beam` is the measure of a machine: limits are written for 1.3 s.
"""

from __future__ import annotations

import argparse
import pathlib
import resource
import subprocess
import sys
import tempfile

import numpy as np
import pandas as pd

from benchmarks.recorded import Figure, Row, add_flag, keep
from benchmarks.tables import table
from benchmarks.undescribed_tables import wages

RELEASE = "release-synthetic-database"
FLAGS = [
    *("--epsilon=1", "--delta=1e-9", "--neighboring=add_or_remove_one", "--privacy_unit=record"),
    *("--num_records=noisy", "--workload=marginals:2", "--output=no/such/release"),
]
# A domain and an input that are there: any file of this checkout.
FILES = [f"--domain={__file__}", f"--input={__file__}"]
PROGRAMS = (
    "answer-queries",
    "check-domain",
    "release-intervals",
    "release-projection",
    "release-windows",
    "run-yaml",
    RELEASE,
)
COMMANDS = ("plan", "describe", "answer", "finish", "ledger", "completion")
CASES = {
    "beam-dp --help": ["--help"],
    "beam-dp --version": ["--version"],
    **{f"{name} --help": [name, "--help"] for name in (*PROGRAMS, *COMMANDS)},
    "beam-dp completion bash": ["completion", "bash"],
    "an unknown flag": [RELEASE, *FLAGS, *FILES, "--epsilom=1"],
    "a flag that Beam does not know either": [RELEASE, *FLAGS, *FILES, "--frobnicate=1"],
    "a bad number": [RELEASE, *FLAGS, *FILES, "--max_records_per_unit=one"],
    "a missing flag": [RELEASE, *FLAGS],
    "a repeated flag": [RELEASE, *FLAGS, *FILES, "--epsilon=2"],
    "a missing domain": [RELEASE, *FLAGS, "--domain=no/such.json", FILES[1]],
    "a missing input": [RELEASE, *FLAGS, FILES[0], "--input=no/such/*.parquet"],
    "a missing workload": [RELEASE, *FLAGS[:-2], *FILES, "--workload=no/such.jsonl", FLAGS[-1]],
    "a guarantee out of range": [RELEASE, "--epsilon=0", *FLAGS[1:], *FILES],
    "plan, a missing flag": ["plan", "--epsilon=1"],
}
SMALL_DOMAIN = """--domain={"age": 3, "sex": 2}"""
SMALL = {
    "plan, 6 cells": ["plan", *FLAGS[:4], SMALL_DOMAIN, "--num_records=1000", FLAGS[5]],
    "check-domain, 3 records": ["check-domain", SMALL_DOMAIN, "--sample=small.csv"],
    "a release of 6 cells with Beam": [
        *(RELEASE, *FLAGS[:-1], SMALL_DOMAIN, "--input=small.csv", "--output=released")
    ],
    "a release of 3,000 rows of 11 columns, types and bins found": [
        *("release", "wages.csv", FLAGS[0], FLAGS[3], "--output=released")
    ],
}


def processor_seconds(arguments: list[str], repeats: int, check: bool = False) -> float:
    """Returns the least processor time that Python takes for some arguments.

    Raises:
        CalledProcessError: if the exit code is not 0 although that is to be checked.
    """
    found = []
    survey = pd.DataFrame(wages(np.random.default_rng(57), 3000)).to_csv(index=False)
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "small.csv").write_text("age,sex\n1,0\n2,1\n0,0\n", "utf-8")
            pathlib.Path(folder, "wages.csv").write_text(survey, "utf-8")
            before = _spent()
            subprocess.run(
                [sys.executable, *arguments], capture_output=True, check=check, cwd=folder
            )
            found.append(_spent() - before)
    return min(found)


def _spent() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Prints a row for each command line, and keeps them where asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=9)
    add_flag(parser)
    options = parser.parse_args()
    least = processor_seconds(["-c", "pass"], options.repeats)
    beam = processor_seconds(["-c", "import apache_beam"], options.repeats)
    rows = [row("`python -c pass`", least, least, options.repeats)]
    rows.append(row("`import apache_beam`", beam, least, options.repeats))
    for name, arguments in {**CASES, **SMALL}.items():
        seconds = processor_seconds(
            ["-m", "beam_dp.cli", *arguments], options.repeats, name in SMALL
        )
        rows.append(row(name, seconds, least, options.repeats))
    print(table(rows, "command line"))
    keep(options.record, rows)


def row(name: str, seconds: float, least: float, repeats: int) -> Row:
    """A command line beside the interpreter alone."""
    figures = {
        "processor time over": Figure(seconds / least, "times"),
        "processor time": Figure(1000 * seconds, "milliseconds"),
    }
    return Row(name, figures, repeats, "`python -c pass`")


if __name__ == "__main__":
    main()
