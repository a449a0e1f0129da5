"""README and the notebooks, followed as they are written, print what is expected of them.

The last tests of the wheels: Jupyter is installed into the environment that others found bare.
"""

from __future__ import annotations

import json
import pathlib
import re
import shutil
from typing import Any

import pyarrow.parquet as pq
import pytest
from documents.belongings import MADE
from documents.blocks import ROOT, blocks_of
from documents.not_run import reason
from documents.outputs import missing
from documents.reader import words_of
from documents.tutorials import FIGURES

pytestmark = pytest.mark.wheel
NOTEBOOKS = sorted(path.stem for path in ROOT.glob("examples/notebooks/*.ipynb"))
# Of a terminal, which Jupyter takes itself for: bold and colours.
STYLE = re.compile(r"\x1b\[[0-9;]*m")


def test_readme_can_be_followed(home):
    elsewhere = home.folder / "elsewhere"
    (elsewhere / "visits").mkdir()
    pq.write_table(MADE["visits"](), elsewhere / "visits" / "2024.parquet")
    # Beam warns a pipeline of one's own of a library of Google's; the programs keep that quiet.
    python = "import logging\nlogging.disable(logging.WARNING)\n"
    for block in blocks_of("README.md"):
        if reason(block.page, block.text):
            continue
        if block.kind == "json":
            (elsewhere / block.file).write_text(block.text, encoding="utf-8")
        elif block.kind == "python":
            python += block.text
        else:
            for command, shown in block.commands():
                assert missing(shown, home.run(*words_of(command))) == "", command
    home.run("python", "-c", python)


@pytest.fixture(scope="module")
def ran(home) -> pathlib.Path:
    """The notebooks with what their cells showed, run by Jupyter in the environment."""
    pip = ("-m", "pip", "--quiet", "--disable-pip-version-check", "install")
    home.run("python", *pip, "beam_dp[notebooks]")
    kept = home.folder / "elsewhere" / "ran"
    before = {*(home.folder / "temporary").iterdir()}
    home.run("python", "-B", str(home.examples() / "notebooks" / "run.py"), "--keep", str(kept))
    # Each notebook works in a new folder of its own, and leaves it to whoever runs it.
    for folder in {*(home.folder / "temporary").iterdir()} - before:
        shutil.rmtree(folder)
    return kept


def showed(cell: dict[str, Any]) -> str:
    """What a cell of code showed, as text."""
    parts = [
        output["text"] if "text" in output else output.get("data", {}).get("text/plain", "")
        for output in cell["outputs"]
    ]
    return STYLE.sub("", "".join("".join(part) for part in parts)) + "\n"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_prints_the_expected_lines(ran, name):
    cells = json.loads((ran / f"{name}.ipynb").read_text("utf-8"))["cells"]
    printed = "".join(showed(cell) for cell in cells if cell["cell_type"] == "code")
    assert missing(FIGURES[name], printed) == ""
