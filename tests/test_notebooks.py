"""The notebooks of `examples/notebooks`, as they are kept: `make notebooks` runs their cells."""

from __future__ import annotations

import json
import pathlib
import re
import runpy
from typing import Any

import pytest
from test_documents import LINK, NOTEBOOKS, ROOT, prose

FOLDER = ROOT / "examples" / "notebooks"
MAX_LINES = 20  # of code in a cell, without blank ones
by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)


def notebook(path: pathlib.Path) -> dict[str, Any]:
    return json.loads(path.read_text("utf-8"))


def code_cells(path: pathlib.Path) -> list[dict[str, Any]]:
    return [cell for cell in notebook(path)["cells"] if cell["cell_type"] == "code"]


def test_every_audience_has_a_notebook():
    assert [path.stem for path in NOTEBOOKS] == ["analyst", "engineer", "officer"]


@by_name
def test_notebooks_are_committed_without_outputs(path):
    """No outputs of cells, and no traces of the Jupyter version used."""
    for cell in code_cells(path):
        assert (cell["outputs"], cell["execution_count"]) == ([], None), cell["source"]
    assert [cell["metadata"] for cell in notebook(path)["cells"] if cell["metadata"]] == []
    assert notebook(path)["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }


@by_name
def test_notebooks_begin_with_audience_and_duration(path):
    first = notebook(path)["cells"][0]
    assert first["cell_type"] == "markdown"
    title, audience, *_ = "".join(first["source"]).split("\n\n")
    assert title.startswith("# ")
    whom = rf"\*\*For [a-z ]*{path.stem}s\.\*\* \w+ minutes to read, \w+ minutes? to run\."
    assert re.fullmatch(whom, audience)


@by_name
def test_notebook_cells_are_short_and_uniquely_named(path):
    names = [cell["id"] for cell in notebook(path)["cells"]]
    assert len(names) == len({*names})
    for cell in code_cells(path):
        assert sum(line.strip() != "" for line in cell["source"]) <= MAX_LINES, cell["source"]


@by_name
def test_notebooks_link_to_each_other_and_are_linked_from_the_journeys(path):
    others = {other.name for other in NOTEBOOKS} - {path.name}
    assert others <= {*LINK.findall(prose(path))}
    assert f"../examples/notebooks/{path.name}" in LINK.findall(prose(ROOT / "docs/journeys.md"))


@by_name
def test_shell_cells_stop_at_the_first_failure(path):
    """The shell's exit code is that of its last command."""
    for cell in code_cells(path):
        first, *lines = "".join(cell["source"]).replace("\\\n", "").splitlines()
        assert not first.startswith("!"), "IPython ignores the exit code of ! commands"
        if first == "%%sh":
            assert len(lines) == 1 or any(line.strip() == "set -e" for line in lines), lines


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("1 / 0\n", "cell 2, '1 / 0': ZeroDivisionError: division by zero"),
        ("%%sh\nbeam-dp descrbe x", r"cell 2, '%%sh': error: .*descrbe.*"),
        ("import os\nos._exit(3)", "cell 2, 'import os': .*died.*"),
        ("assert 1 + 1 == 2", ""),
    ],
)
def test_reports_failing_cell_in_one_line(code, told, tmp_path):
    pytest.importorskip("nbclient", reason="nbclient is not installed: `make notebooks` does")
    book = notebook(NOTEBOOKS[0])
    words = {**book["cells"][0], "source": "Words."}
    broken = {**code_cells(NOTEBOOKS[0])[0], "source": code}
    (tmp_path / "broken.ipynb").write_text(json.dumps({**book, "cells": [words, broken]}))
    failure = runpy.run_path(str(FOLDER / "run.py"))["failure"]
    assert re.fullmatch(told and f"broken.ipynb: {told}", failure(tmp_path / "broken.ipynb"))
