"""What people read: links lead somewhere, flags are those of the programs, notebooks are clean."""

import json
import pathlib
import re
import runpy
import subprocess
import sys
from fnmatch import fnmatch
from typing import Any

import pytest
from documents.blocks import blocks_of
from source_imports import ROOT

README = ROOT / "README.md"
FOLDER = ROOT / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
DOCUMENTS = [
    README,
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *ROOT.glob("docs/*.md"),
    *NOTEBOOKS,
]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(path: pathlib.Path) -> str:
    """Returns a page as Markdown; for a notebook, the text between its code cells."""
    text = path.read_text("utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def anchors(path: pathlib.Path) -> set[str]:
    """Returns what links may name of a page: its headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_to_an_existing_file_and_heading(path):
    broken = []
    for link in LINK.findall(prose(path)):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_page_is_reachable_from_the_readme():
    reached, waiting = set(), [README]
    while waiting:
        path = waiting.pop()
        reached.add(path)
        targets = {
            (path.parent / link.partition("#")[0]).resolve()
            for link in LINK.findall(path.read_text("utf-8"))
        }
        waiting += [each for each in targets - reached if each.suffix == ".md" and each.exists()]
    assert [path.name for path in ROOT.glob("docs/*.md") if path not in reached] == []


def test_contributing_guide_lists_every_folder_in_half_a_page():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    listing = re.findall(
        r"^    .*$", text.partition("## Where things are")[2].partition("##")[0], re.M
    )
    folders = {path.parent.name for path in ROOT.glob("beam_dp/**/__init__.py")} | {"pipelines"}
    named = {name for line in listing for name in re.findall(r"(\w+)/", line)}
    assert sorted(folders - named) == []
    assert len(listing) <= 18


def test_guide_to_benchmarks_names_every_file():
    folder = ROOT / "benchmarks"
    named = re.findall(r"`([\w/*]+(?:\.py|/))[` ]", (folder / "README.md").read_text("utf-8"))
    assert [each for each in named if not [*folder.glob(each)]] == []
    ours = {path.name for path in folder.glob("*.py")}
    unnamed = [each for each in ours if not any(fnmatch(each, name) for name in named)]
    assert unnamed == []


def test_flag_tables_match_the_programs():
    page = runpy.run_path(str(ROOT / "tools" / "write_flags.py"))["page"]()
    assert (ROOT / "docs" / "flags.md").read_text("utf-8") == page, "run `make generated`"


def test_readme_is_short_and_names_existing_flags():
    text = README.read_text("utf-8")
    known = re.findall(r"--(\w+)", (ROOT / "docs" / "flags.md").read_text("utf-8"))
    assert set(re.findall(r"(?<=[ `])--(\w+)(?=[ `=\n])", text)) <= {*known, "runner"}
    assert len(text.splitlines()) <= 150


by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)


def notebook(path: pathlib.Path) -> dict[str, Any]:
    return json.loads(path.read_text("utf-8"))


def code_cells(path: pathlib.Path) -> list[dict[str, Any]]:
    return [cell for cell in notebook(path)["cells"] if cell["cell_type"] == "code"]


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


@pytest.mark.job
@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("1 / 0\n", "cell 2, '1 / 0': ZeroDivisionError: division by zero"),
        *(
            pytest.param(*case, marks=pytest.mark.part)
            for case in (
                ("%%sh\nbeam-dp descrbe x", r"cell 2, '%%sh': error: .*descrbe.*"),
                ("import os\nos._exit(3)", "cell 2, 'import os': .*died.*"),
                ("assert 1 + 1 == 2", ""),
            )
        ),
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


WRONG = """\
import beam_dp as dp
dp.read_release("out", kind=dp.IntervalRelease).answer([1], [2]).no_such_field
dp.read_release("out").answer
dp.Guarantee(1, 0, "add_or_remove_two", "record", 1)
"""


@pytest.mark.part
def test_mypy_accepts_the_readme_and_finds_a_wrong_kind_field_and_relation(tmp_path):
    """What people copy is typed as well as the package; a block may use what an earlier names."""
    blocks = [block.text for block in blocks_of("README.md") if block.kind == "python"]
    assert blocks
    (tmp_path / "readme.py").write_text("".join(blocks), encoding="utf-8")
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml"]
    files = [str(tmp_path / name) for name in ("readme.py", "wrong.py")]
    done = subprocess.run([*command, *files], capture_output=True, text=True, cwd=ROOT, check=False)
    found = re.findall(r"(\w+)\.py:(\d+): error: .*\[([\w-]+)\]", done.stdout)
    lines = (("2", "attr-defined"), ("3", "attr-defined"), ("4", "arg-type"))
    assert found == [("wrong", *line) for line in lines], done.stdout
