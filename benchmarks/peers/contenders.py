"""The systems that are compared, how each is asked, and what sets it apart."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any


@dataclasses.dataclass(frozen=True)
class Contender:
    """A system with its settings.

    Args:
        name: what ``--only`` and the tables call it.
        package: whose version is told. A flag of this name, with ``_`` for ``-``, takes a Python in
            which it is installed; this project's own needs none.
        adapter: a program of this folder; none where the package cannot be had.
        options: settings, by the system's own names.
        note: what a reader must know beside its numbers.
    """

    name: str
    package: str
    adapter: str | None
    options: dict[str, Any]
    note: str

    @property
    def flag(self) -> str:
        """The flag that takes its Python."""
        return self.package.replace("-", "_")

    @property
    def label(self) -> str:
        """Its name, with its package where the name does not tell."""
        return self.name if self.package in PACKAGES else f"{self.name} ({self.package})"

    def command(self, python: str, folder: pathlib.Path) -> list[str]:
        """Returns what runs its adapter on a folder."""
        assert self.adapter is not None
        return [python, str(pathlib.Path(__file__).parent / self.adapter), str(folder)]


OWN = "beam_dp"
# Those that the names of their systems tell.
PACKAGES = (OWN, "pipeline-dp")
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
