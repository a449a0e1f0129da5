"""Results that benchmarks keep, and the tables and pictures that are made of them."""

from __future__ import annotations

import argparse
import math
import pathlib
import re
import sys
import xml.etree.ElementTree

import pytest

from benchmarks import page_pictures, pictures, recorded, tables
from benchmarks.recorded import Figure, Row

pytestmark = pytest.mark.part
BENCHMARKS = pathlib.Path(recorded.__file__).parent
SVG = "{http://www.w3.org/2000/svg}"


def test_new_result_replaces_that_of_the_same_command_and_contains_no_path(tmp_path, monkeypatch):
    path = tmp_path / "kept.json"

    def row(what: str) -> Row:
        return Row(what, {"time": Figure(1.234567, "times", 0.0123456)}, 3, "two", "<= 2")

    def keep(*arguments: str, rows: tuple[str, ...] = ("one",)) -> list[recorded.Run]:
        monkeypatch.setattr(sys, "argv", [f"{BENCHMARKS}/start.py", *arguments])
        monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
        parser = argparse.ArgumentParser()
        recorded.add_flag(parser)
        recorded.keep(parser.parse_known_args(arguments)[0].record, [*map(row, rows)])
        return recorded.read(path)

    where = "--data", "/home/me", f"--other={tmp_path}", "--record", str(path)
    keep(*where, rows=("one", "all"))
    keep("--quick", f"--record={path}")
    runs = keep("--quick", f"--record={path}")
    start = "python benchmarks/start.py"
    assert [run.command for run in runs] == [
        f"{start} --data PATH --other=PATH",
        f"{start} --quick",
    ]
    assert runs[0].rows[0].figures["time"] == Figure(1.2346, "times", 0.012346)
    assert runs[0].rows[0].beside == "two" and runs[0].rows[0].runs == 3
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", runs[0].date)
    assert re.fullmatch(r"\d+ cores \(.+\), \d+ GiB of memory", runs[0].machine)
    # Another command that measured the same thing takes the place of that row alone.
    assert [[each.what for each in run.rows] for run in runs] == [["all"], ["one"]]
    assert len(keep()) == 2  # without the flag nothing is kept
    keep(f"--record={path}", rows=("all", "one"))
    assert [run.command for run in recorded.read(path)] == [start]


def test_means_and_ratios_have_standard_errors():
    mean = Figure.mean([1.0, 2.0, 3.0], "share")
    assert (mean.value, mean.error) == (2, pytest.approx(1 / math.sqrt(3)))
    assert Figure.mean([2.0], "share") == Figure(2.0, "share")
    ratio = Figure(6.0, "share", 0.3).over(Figure(2.0, "share", 0.2))
    assert (ratio.value, ratio.error) == (3, pytest.approx(3 * math.hypot(0.05, 0.1)))
    assert Figure(1.0, "seconds").over(mean) == Figure(0.5, "times")


@pytest.mark.parametrize(
    ("figure", "told"),
    [
        (None, ""),
        (Figure(1 / 600, "times"), "1/600"),
        (Figure(1.234, "times", 0.05), "1.23 ± 0.05"),
        (Figure(1234.5, "times"), "1,234"),
        (Figure(0.0123, "times", 0.002), "0.012 ± 0.002"),
        (Figure(0.02063, "share", 0.0002), "0.0206 ± 0.0002"),
    ],
)
def test_shows_figures_with_their_units(figure, told):
    assert tables.told(figure) == told


def test_picture_by_size_draws_the_best_formulation_of_each_engine(monkeypatch):
    def measured(what: str, seconds: float, runs: int = 1) -> Row:
        return Row(what, {"CPU time": Figure(seconds, "seconds")}, runs)

    counts, release = "all pairs of 8 columns, 9 cells, {} records: ", "5 columns, 9 cells, {} "
    found = [
        measured(counts.format("20,000") + "duckdb 2.0", 7),
        measured(counts.format("20,000") + "duckdb 2.0, of cells", 5),
        measured(counts.format("2,000") + "duckdb 2.0, of cells", 3),
        measured(counts.format("2,000") + "beam_dp, 2 processes", 4),
        measured(counts.format("20,000") + "beam_dp, 2 processes", 9, runs=0),
        measured(counts.replace("8", "5").format("2,000") + "duckdb 2.0", 1),
        measured(release.format("2,000") + "records, 1 process", 2),
        measured(release.format("2,000") + "records, Flink", 6),
    ]
    monkeypatch.setattr(page_pictures, "rows", {"size": found}.__getitem__)
    svg = page_pictures.picture_of_sizes()
    words = xml.etree.ElementTree.fromstring(svg).find(f"{SVG}desc").text
    counted, released = page_pictures._BY_SIZE
    assert words == (
        f"{counted}: duckdb: 2,000: 3, 20,000: 5. {counted}: beam_dp, 2 processes: 2,000: 4."
        f" {released}: 5 columns: 2,000: 2."
    )


def test_drawn_error_bar_is_as_long_as_the_stated_error():
    def ends(error: float) -> list[float]:
        track = pictures.Track("a", "1", [pictures.Mark(2.0, error)])
        axis = pictures.Axis("times", (1, 10))
        svg = pictures.tracks("title", {"group": [track]}, axis, ("",))
        (bar,) = re.findall(
            r'<line class="c3" x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)" y2="\2"', svg
        )
        return [float(bar[0]), float(bar[2])]

    narrow, wide = ends(0.1), ends(0.5)
    width = (narrow[1] - narrow[0]) / math.log10(2.1 / 1.9)
    assert (wide[1] - wide[0]) / math.log10(2.5 / 1.5) == pytest.approx(width, rel=0.02)


def test_draws_line_with_one_point():
    line = pictures.Line("alone", [(10.0, 0.5, 0.0)], 1)
    svg = pictures.lines("title", {"": [line]}, pictures.Axis("x"), pictures.Axis("y"))
    assert "alone: 10: 0.5." in svg and svg.count("<circle") == 1
