"""This project's pass: at most so many rows a unit, and the exact histogram of what is left."""

from __future__ import annotations

import pathlib
import sys

import numpy as np

# Before what is installed, for this working copy is what is measured.
sys.path[:0] = [str(folder) for folder in pathlib.Path(__file__).resolve().parents[1:3]]

import distributed_pass  # noqa: E402
from pass_inputs import SIZES  # noqa: E402


def main() -> None:
    """Counts the rows of the folder that the command line names."""
    folder = pathlib.Path(sys.argv[1])
    counts = distributed_pass.our_histogram(str(folder / "rows.parquet"), "unit")
    by_code = counts.reshape(SIZES[0], -1).sum(axis=1)
    np.save(folder / "counts.npy", by_code)


if __name__ == "__main__":
    main()
