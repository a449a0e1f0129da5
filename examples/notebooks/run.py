"""Runs the notebooks of this folder as Jupyter would, and stops at the first cell that fails.

    make notebooks                           # or: python examples/notebooks/run.py [NAME ...]

What cells show is thrown away: notebooks are kept without outputs.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import time
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

FOLDER = pathlib.Path(__file__).resolve().parent
CELL_SECONDS = 120


class _Notebook(NotebookClient):
    """A notebook that knows which cell it runs."""

    current = 0

    async def async_execute_cell(self, cell: Any, cell_index: int, **options: Any) -> Any:
        self.current = cell_index
        return await super().async_execute_cell(cell, cell_index, **options)


def failure(path: pathlib.Path) -> str:
    """Runs a notebook; returns one line about the cell that failed, empty if none did."""
    book = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(path.parent)}}
    notebook = _Notebook(book, timeout=CELL_SECONDS, kernel_name="python3", resources=where)
    try:
        notebook.execute()
    except CellExecutionError as error:
        told = f"{error.ename}: {error.evalue}"
    except CellTimeoutError:
        told = f"took more than {CELL_SECONDS} seconds"
    except DeadKernelError:
        told = "ended the process that runs the cells"
    else:
        return ""
    line = book.cells[notebook.current].source.partition("\n")[0]
    return f"{path.name}: cell {notebook.current + 1}, {line!r}: {' '.join(told.split())}"


def main() -> None:
    """Runs the named notebooks, by default all."""
    names = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", metavar="NAME", nargs="*", help="one of " + ", ".join(names))
    asked = parser.parse_args().names or names
    if unknown := [name for name in asked if name not in names]:
        sys.exit(f"error: NAME: {unknown[0]!r} is refused; must be one of {', '.join(names)}")
    # Cells that are for a shell find `beam-dp` beside the Python that runs this.
    os.environ["PATH"] = os.pathsep.join(
        [str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]
    )
    for name in asked:
        started = time.monotonic()
        if told := failure(FOLDER / f"{name}.ipynb"):
            sys.exit(f"error: {told}")
        print(f"{name}: every cell ran, {time.monotonic() - started:.0f} seconds", flush=True)


if __name__ == "__main__":
    main()
