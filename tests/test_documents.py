"""What people read: links lead somewhere, tables of flags are those of the programs."""

from __future__ import annotations

import json
import pathlib
import re
import runpy

import pytest

ROOT = pathlib.Path(__file__).parent.parent
README = ROOT / "README.md"
NOTEBOOKS = sorted(ROOT.glob("examples/notebooks/*.ipynb"))
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


def test_contributing_guide_lists_every_folder_in_thirty_lines():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    listing = re.findall(
        r"^    .*$", text.partition("## Where things are")[2].partition("##")[0], re.M
    )
    folders = {path.parent.name for path in ROOT.glob("beam_dp/**/__init__.py")} | {"pipelines"}
    named = {name for line in listing for name in re.findall(r"(\w+)/", line)}
    assert sorted(folders - named) == []
    assert len(listing) <= 30


def test_flag_tables_match_the_programs():
    page = runpy.run_path(str(ROOT / "tools" / "write_flags.py"))["page"]()
    assert (ROOT / "docs" / "flags.md").read_text("utf-8") == page, "run `make generated`"


def test_readme_is_short_and_names_existing_flags():
    text = README.read_text("utf-8")
    known = re.findall(r"--(\w+)", (ROOT / "docs" / "flags.md").read_text("utf-8"))
    assert set(re.findall(r"(?<=[ `])--(\w+)(?=[ `=\n])", text)) <= {*known, "runner"}
    assert len(text.splitlines()) <= 150
