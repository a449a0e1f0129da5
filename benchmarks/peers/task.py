"""What a system is asked for, in files: read inside each system's own Python.

A folder holds ``task.json`` and ``records.npy``. An adapter is a program that is given the folder
as its one argument, and leaves the records that it releases as ``released.npy`` beside them. This
file needs numpy and nothing else, for it is imported in every environment.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True)
class Task:
    """Records to be released anew, and under which guarantee.

    Args:
        sizes: the number of codes of each attribute, by name; codes count from 0.
        codes: the records, one row each and one column an attribute, as integers.
        ways: how many attributes each marginal joins that the release is for; all such marginals
            weigh the same.
        epsilon: of adding or removing one record.
        delta: the same.
        seed: for what a system draws from a generator that can be seeded.
        options: settings of this system, by its own names.
    """

    sizes: dict[str, int]
    codes: NDArray[np.int64]
    ways: int
    epsilon: float
    delta: float
    seed: int
    options: dict[str, Any]

    def write(self, folder: pathlib.Path) -> None:
        """Leaves the task in a folder."""
        np.save(folder / "records.npy", self.codes)
        stated = {field: getattr(self, field) for field in _STATED}
        (folder / "task.json").write_text(json.dumps(stated), encoding="utf-8")

    @classmethod
    def read(cls, folder: pathlib.Path) -> Task:
        """Returns what ``write`` left."""
        stated = json.loads((folder / "task.json").read_text(encoding="utf-8"))
        return cls(codes=np.load(folder / "records.npy"), **stated)


_STATED = [field.name for field in dataclasses.fields(Task) if field.name != "codes"]


def released(folder: pathlib.Path) -> NDArray[np.int64]:
    """Returns the records that an adapter left."""
    codes: NDArray[np.int64] = np.load(folder / "released.npy")
    return codes


def run(release: Callable[[Task], NDArray[np.int64]]) -> None:
    """Does the task of the folder that the command line names, and leaves the records there."""
    folder = pathlib.Path(sys.argv[1])
    np.save(folder / "released.npy", release(Task.read(folder)))
