"""The systems that are compared, how each is asked, and what sets it apart."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
from typing import Any

from benchmarks.judges.environment import interpreter

FOLDER = pathlib.Path(__file__).resolve().parent
OWN = "beam_dp"
# Those that the names of their systems tell.
PACKAGES = (OWN, "pipeline-dp")


@dataclasses.dataclass(frozen=True)
class Contender:
    """A system with its settings.

    Args:
        name: what ``--only`` and the tables call it.
        package: whose version is told. A file of ``requirements`` names what is installed for it,
            in an environment of its own; this project needs none.
        adapter: a program of this folder; none where the package cannot be had.
        options: settings, by the system's own names.
        note: what a reader must know beside its numbers.
        needs: an environment variable that must name a folder; none: nothing more is needed.
    """

    name: str
    package: str
    adapter: str | None
    options: dict[str, Any]
    note: str
    needs: str = ""

    @property
    def python(self) -> str:
        """The interpreter that has it."""
        if self.package == OWN:
            return sys.executable
        return interpreter(self.package, FOLDER / "requirements" / f"{self.package}.txt")

    @property
    def lacking(self) -> str:
        """Why it cannot be run; nothing if it can."""
        if self.adapter is None:
            return "no package"
        return f"{self.needs} is not set" if self.needs and self.needs not in os.environ else ""

    @property
    def label(self) -> str:
        """Its name, with its package where the name does not tell."""
        return self.name if self.package in PACKAGES else f"{self.name} ({self.package})"

    @property
    def version(self) -> str:
        """The version of a peer's package."""
        told = f"import importlib.metadata as m; print(m.version({self.package!r}))"
        asked = subprocess.run([self.python, "-c", told], capture_output=True, check=True)
        return asked.stdout.decode().strip()

    def measure(self, folder: pathlib.Path, limit: int) -> dict[str, Any]:
        """Runs its adapter on a folder that holds what it is given.

        Returns:
            ``outcome`` ("done", "over the limit" or "failed: ..."), ``cpu_seconds``, ``peak_mb``.
        """
        assert self.adapter is not None
        command = [self.python, FOLDER / self.adapter, folder]
        run = subprocess.run(
            [sys.executable, FOLDER / "measured.py", str(limit), *command],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        found: dict[str, Any] = json.loads(run.stdout)
        code = found.pop("exit_code")
        if code == 0:
            return {"outcome": "done", **found}
        if code == -signal.SIGXCPU or (code == -signal.SIGKILL and found["cpu_seconds"] >= limit):
            return {"outcome": "over the limit", **found}
        said = run.stderr.strip().splitlines() or [f"exit code {code}"]
        return {"outcome": f"failed: {said[-1][:100]}", **found}


RECORDS = (
    Contender(
        "beam_dp", OWN, "run_beam_dp.py", {}, "All defaults; Gaussian noise is calibrated exactly."
    ),
    Contender(
        "beam_dp, attributes alone",
        OWN,
        "run_beam_dp.py",
        {"ways": 1},
        "The baseline: everything is spent on counts of single attributes, as if independent.",
    ),
    Contender(
        "MST",
        "dpmm",
        "run_dpmm.py",
        {"mechanism": "MST"},
        "All defaults; a tree of pairs, whatever marginals are asked for.",
    ),
    Contender(
        "AIM, 300 iterations",
        "dpmm",
        "run_dpmm.py",
        {"mechanism": "AIM", "n_iters": 300, "max_model_size": 10},
        "Fewer iterations of its fit and models up to 10 MB, to be done in minutes.",
    ),
    Contender(
        "AIM",
        "dpmm",
        "run_dpmm.py",
        {"mechanism": "AIM", "n_iters": 1000, "max_model_size": 80},
        "Its own defaults, which its authors ask for in comparisons.",
    ),
    Contender(
        "AIM, models of 1 MB",
        "mbi",
        "run_mbi.py",
        {"max_model_size": 1},
        "The package holds no mechanism: `aim.py` of its repository at commit 361705d is run. Two"
        " of its lines are replaced from outside: the estimator it asks for has another interface"
        " since 2.0.0, and `worst_approximated` runs without compiling. JAX uses 64-bit floats,"
        " without which its records cannot be drawn. 1 MB is what its authors name for debugging.",
        "MBI_MECHANISMS",
    ),
    Contender(
        "AIM, models of 80 MB",
        "mbi",
        "run_mbi.py",
        {"max_model_size": 80},
        "The same with its own default, which its authors ask for in comparisons.",
        "MBI_MECHANISMS",
    ),
    Contender(
        "PrivSyn",
        "privsyn-core",
        "run_privsyn.py",
        {},
        "All defaults. This package is no measure of the method: its updates do not reach the"
        " records that it returns, and columns stay 0 where the pairs it selects form a forest.",
    ),
    Contender(
        "SWIFT",
        "dpsynth",
        None,
        {},
        "No package of it is published, and its interface still changes: no adapter is kept.",
    ),
)
PASS = (
    Contender(
        "beam_dp",
        OWN,
        "count_beam_dp.py",
        {},
        "Its pass counts all 2^20 cells of the 8 columns, exactly: noise comes after the pass.",
    ),
    Contender(
        "PipelineDP",
        "pipeline-dp",
        "count_pipeline_dp.py",
        {},
        "It counts the 8 codes of one column, a public list, with Gaussian noise; its bound is on"
        " all rows of a unit together (`max_contributions`).",
    ),
)
