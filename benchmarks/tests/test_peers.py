"""The comparison with peers measures what an adapter releases, and says what came of each run."""

from __future__ import annotations

import json
import pathlib
import sys

import numpy as np
import pytest
from patience import HANG_SECONDS

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain

BENCHMARKS = pathlib.Path(__file__).parents[1]
SIZES = (2, 3, 4)
# What an adapter does with its task, as in an environment that has numpy alone.
ADAPTER = """
import sys
sys.path.insert(0, {folder!r})
import numpy as np
from task import Task, run
def release(task):
    assert (task.ways, task.epsilon, task.delta) == (2, 1.0, 1e-9)
    {body}
run(release)
"""
BODIES = {
    "the same": "return task.codes",
    "the first": "return np.repeat(task.codes[task.seed : task.seed + 1], 5, axis=0)",
    "outside": "return task.codes + 1",
    "broken": "raise ValueError('no such thing')",
    "endless": "while True: pass",
}

pytestmark = pytest.mark.part


@pytest.fixture
def compared(monkeypatch, tmp_path):
    """Runs the comparison on a small table with a fake peer: what is kept, and the page."""
    monkeypatch.syspath_prepend(str(BENCHMARKS / "peers"))
    import accuracy_tables
    import contenders
    import page
    import side_by_side

    class Fake(contenders.Contender):
        python = sys.executable

    domain = Domain(tuple(IntegerAttribute(n, 0, s - 1) for n, s in zip("abc", SIZES, strict=True)))
    columns = [np.arange(600) % size for size in SIZES]
    monkeypatch.setattr(accuracy_tables, "load", lambda name: (domain, columns))
    monkeypatch.setattr(side_by_side, "TABLES", {"small": 2})

    def run(*flags: str, body: str = "the same"):
        adapter = tmp_path / "adapter.py"
        adapter.write_text(ADAPTER.format(folder=str(BENCHMARKS / "peers"), body=BODIES[body]))
        fake = Fake("fake", "numpy", str(adapter), {}, "Nothing is private.")
        systems = (*contenders.RECORDS, fake)
        for module in (side_by_side, page):
            monkeypatch.setattr(module, "RECORDS", systems)
        files = [tmp_path / "kept.json", tmp_path / "page.md"]
        places = ["--results", str(files[0]), "--output", str(files[1]), "--tables", "small"]
        monkeypatch.setattr(sys, "argv", ["side_by_side.py", *places, *flags])
        side_by_side.main()
        return json.loads(files[0].read_text())["runs"], files[1].read_text()

    return run


def row(page: str, name: str) -> list[str]:
    """The cells of a system's row."""
    (line,) = [each for each in page.splitlines() if each.startswith(f"| {name} ")]
    return [cell.strip() for cell in line.strip("|").split("|")]


FAKE = ("--only", "fake")


def test_compares_released_records_with_true_ones(compared):
    runs, page = compared(*FAKE, "--seeds", "2")
    assert [run["seed"] for run in runs] == [0, 1]
    assert all(run["errors"] == {"2": [0, 0], "3": [0, 0]} for run in runs)
    assert all(run["cpu_seconds"] > 0 and run["peak_mb"] > 1 for run in runs)
    assert row(page, "fake (numpy)")[1:4] == ["2", *2 * ["0.0000 ± 0.0000 / 0.0000 ± 0.0000"]]
    assert f"fake (numpy) ({np.__version__}, " in page
    # One record for all: each cell but one is empty. Marginals of (a, b), (a, c), (b, c) have 6, 4
    # (for a follows c) and 12 full cells, all three together 12.
    runs, page = compared(*FAKE, "--seeds", "1", body="the first")
    (run,) = runs
    assert run["errors"]["2"] == pytest.approx([(5 / 6 + 3 / 4 + 11 / 12) / 3, 11 / 12])
    assert run["errors"]["3"] == pytest.approx([11 / 12, 11 / 12])


@pytest.mark.parametrize(
    ("body", "limit", "told"),
    [
        ("outside", int(HANG_SECONDS), "failed: records outside the domain"),
        ("broken", int(HANG_SECONDS), "failed: ValueError: no such thing"),
        ("endless", 1, "over the limit of 1 CPU s"),
    ],
)
def test_page_records_a_failed_run_of_another_library(compared, body, limit, told):
    runs, page = compared(*FAKE, "--limit", str(limit), body=body)
    assert len(runs) == 1
    assert row(page, "fake (numpy)")[1:] == [told, "", "", "", ""]


def test_running_this_project_alone_keeps_results_of_other_libraries(compared):
    compared(*FAKE, "--seeds", "1")
    own = ("--only", "beam_dp", "--seeds", "1")
    runs, page = compared(*own)
    assert [run["name"] for run in runs] == ["fake", "beam_dp"]
    total_variation, largest = runs[1]["errors"]["2"]
    # Both are near 0.01; Gaussian noise makes them 20 times larger with a chance far below 1e-12.
    assert 0 < total_variation < 0.2 and 0 < largest < 0.2
    assert row(page, "fake (numpy)")[1] == "1"
    assert row(page, "MST (dpmm)")[1] == "not run"
    assert row(page, "SWIFT (dpsynth)")[1] == "not run: no package"
    assert [run["name"] for run in compared(*own)[0]] == ["fake", "beam_dp"]


def test_one_pass_keeps_rows_within_the_limit(compared, monkeypatch):
    import side_by_side

    monkeypatch.setattr(side_by_side, "PASS_ROWS", 2000)
    runs, page = compared("--only", "beam_dp", "--tables", "pass", "--seeds", "1")
    assert [(run["name"], run["kept"]) for run in runs] == [("beam_dp", 1.0)]
    assert "2,000 Parquet rows of 400 units, at most 3 rows a unit" in page
    assert row(page, "PipelineDP")[1] == "not run"


def test_a_peer_that_lacks_what_it_needs_is_not_run(compared, monkeypatch):
    monkeypatch.delenv("MBI_MECHANISMS", raising=False)
    runs, page = compared("--only", "AIM, models of 1 MB")
    assert runs == [] and row(page, "AIM, models of 1 MB (mbi)")[1] == "not run"
