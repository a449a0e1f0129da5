"""Documents and pictures tell what benchmarks recorded, and nothing else."""

from __future__ import annotations

import re
import xml.etree.ElementTree

import pytest
from source_imports import ROOT

from benchmarks import page_pictures, page_regions, write_pages

PAGE = ROOT / "docs" / "benchmarks.md"
HELD = [path for path in write_pages.documents() if "<!-- recorded: " in path.read_text("utf-8")]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("path", HELD, ids=lambda path: path.name)
def test_documents_show_recorded_figures(path):
    text = path.read_text("utf-8")
    assert text.count("<!-- recorded: ") == len(write_pages.REGION.findall(text))
    assert text == write_pages.filled(text), "run `make generated`"


@pytest.mark.parametrize("name", page_pictures.PICTURES)
def test_pictures_show_recorded_figures_and_have_alt_texts(name):
    text = (ROOT / name).read_text("utf-8")
    assert text == page_pictures.PICTURES[name](), "run `make generated`"
    root = xml.etree.ElementTree.fromstring(text)
    assert int(root.attrib["width"]) <= 400  # beside each other on no phone, below on each
    assert root.find(f"{SVG}title").text and len(root.find(f"{SVG}desc").text) > 100
    assert "prefers-color-scheme:dark" in root.find(f"{SVG}style").text
    inside = [float(each.attrib["x"]) for each in root.iter(f"{SVG}text")]
    assert all(0 <= x <= 400 for x in inside)


def test_page_figures_are_generated_from_every_result_file():
    text = PAGE.read_text("utf-8")
    assert re.findall(r"\d", write_pages.REGION.sub("", text)) == []
    assert set(re.findall(r"<!-- recorded: (.+) -->", text)) <= set(page_regions.REGIONS)
    asked = re.findall(r"<!-- recorded: (.+) -->", "".join(p.read_text("utf-8") for p in HELD))
    assert set(asked) == set(page_regions.REGIONS)


def test_finds_figure_changed_by_hand():
    text = PAGE.read_text("utf-8")
    typed = text.replace("| MST (dpmm) | 2", "| MST (dpmm) | 3", 1)
    assert typed != text and write_pages.filled(typed) == text
