"""Runs the notebooks of this folder as Jupyter would, and stops at the first cell that fails.

    make notebooks                           # or: python examples/notebooks/run.py [NAME ...]

Notebooks are committed without outputs. With `--keep DIR`, the notebooks are also written to this
folder with their outputs, as `make docs` does.
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
from nbclient.exceptions import CellExecutionError, CellTimeoutError

FOLDER = pathlib.Path(__file__).resolve().parent
SECONDS = 900  # cuts off a notebook that hangs; 5 to 20 are usual


class _Notebook(NotebookClient):
    """A notebook that knows which cell it runs."""

    current = 0

    async def async_execute_cell(self, cell: Any, cell_index: int, **options: Any) -> Any:
        self.current = cell_index
        return await super().async_execute_cell(cell, cell_index, **options)


def failure(path: pathlib.Path, keep: pathlib.Path | None = None) -> str:
    """Runs a notebook; returns one line about the cell that failed, empty if none did.

    Args:
        path: the notebook.
        keep: a folder for the notebook with its outputs, written if every cell ran.
    """
    book = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(path.parent)}}
    end = time.monotonic() + SECONDS
    notebook = _Notebook(
        book,
        resources=where,
        timeout_func=lambda _: max(1, int(end - time.monotonic())),
        # Jupyter's kernel would warn that it talks over TCP, on this machine alone.
        extra_arguments=["--log-level=ERROR", "--InlineBackend.figure_formats={'svg'}"],
    )
    # Cells that are for a shell find `beam-dp` beside the Python that runs this.
    programs = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    try:
        notebook.execute(env={**os.environ, "PATH": programs})
    except CellExecutionError as error:
        told = _last_words(book.cells[notebook.current], f"{error.ename}: {error.evalue}")
    except CellTimeoutError:
        told = f"the notebook takes more than {SECONDS} seconds"
    except RuntimeError as error:  # the kernel did not start, or died
        told = str(error)
    else:
        if keep is not None:
            nbformat.write(book, keep / path.name)
        return ""
    line = book.cells[notebook.current].source.partition("\n")[0]
    return f"{path.name}: cell {notebook.current + 1}, {line!r}: {' '.join(told.split())}"


def _last_words(cell: Any, told: str) -> str:
    """What a shell printed last says more than that it failed; of Python, ``told`` says it."""
    printed = "".join(each.text for each in cell.outputs if each.output_type == "stream")
    lines = printed.split("\n") if cell.source.startswith("%%sh") else []
    return next((line for line in reversed(lines) if line.strip()), told)


def main() -> None:
    """Runs the named notebooks, by default all."""
    names = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", metavar="NAME", nargs="*", help="one of " + ", ".join(names))
    parser.add_argument(
        "--keep", metavar="DIR", type=pathlib.Path, help="write notebooks with their outputs"
    )
    options = parser.parse_args()
    asked = options.names or names
    if unknown := [name for name in asked if name not in names]:
        sys.exit(f"error: NAME: {unknown[0]!r} is not valid: must be one of {', '.join(names)}")
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    for name in asked:
        started = time.monotonic()
        if told := failure(FOLDER / f"{name}.ipynb", options.keep):
            sys.exit(f"error: {told}")
        print(f"{name}: every cell ran, {time.monotonic() - started:.0f} seconds", flush=True)


if __name__ == "__main__":
    main()
