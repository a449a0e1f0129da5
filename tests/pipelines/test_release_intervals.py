"""The program that releases interval counts, from files to answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from jobs import interval_flags, people
from pytest import CaptureFixture

from beam_dp.cli import main as cli
from beam_dp.releases.intervals.release import IntervalRelease
from beam_dp.releases.kinds import read_release
from pipelines.release_intervals import main

AGES: dict[str, Any] = {"name": "age", "type": "integer", "min": 10, "max": 79}
STRATEGIES = (
    "best", "histogram", "textbook_tree", "tree", "windows", "sine",
)  # fmt: skip


def domain(**flags: bool) -> dict[str, Any]:
    return {
        "attributes": [
            {**AGES, **flags},
            {"name": "sex", "type": "categorical", "values": ["Female", "Male"]},
            {"name": "constant", "type": "integer", "min": 1, "max": 1},
            {"name": "many", "type": "integer", "min": 0, "max": 2**20},
        ]
    }


def released(folder: Path, **flags: Any) -> IntervalRelease:
    assert main(interval_flags(folder, **{"domain": domain(), **flags})) == 0
    release = read_release(folder / "out")
    assert isinstance(release, IntervalRelease)
    return release


@pytest.mark.job
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_answers_are_close_to_the_counts(tmp_path, strategy):
    release = released(tmp_path, strategy=strategy)
    ages = people()["age"].to_numpy()
    ends = np.array([[10, 79], [20, 20], [33, 61], [78, 79]])
    cells = np.array([release.cells(low, high) for low, high in ends.tolist()]).T
    found = release.answer(*cells, failure_probability=1e-9)
    exact = [np.sum((ages >= low) & (ages <= high)) for low, high in ends.tolist()]
    # With epsilon 1000 and a bound that fails once in 1e9 intervals.
    assert np.all(np.abs(found.values - exact) <= found.bounds + 1e-6)
    assert np.all(np.abs(found.values - exact) < 3)


@pytest.mark.job
@pytest.mark.parametrize("flags", [{}, {"other": True, "nullable": True}])
def test_no_interval_includes_other_or_null(tmp_path, flags):
    table = pa.table({"age": [15, 15, None, 500, 79], "household": [1, 2, 3, 4, 5]})
    flagged = interval_flags(tmp_path, table, domain=domain(**flags), strategy="histogram")
    assert main(flagged) == 0
    release = read_release(tmp_path / "out")
    assert isinstance(release, IntervalRelease)
    assert release.num_leaves == 70
    assert np.rint(release.histogram()).tolist() == [0] * 5 + [2] + [0] * 63 + [1]


@pytest.mark.job
def test_empty_input_gives_a_release(tmp_path):
    release = released(tmp_path, table=people(0))
    assert abs(release.prefixes()[-1]) < 3


def answered(capsys: CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = cli.main(list(argv))
    text = capsys.readouterr()
    return code, text.out, text.err


@pytest.mark.job
def test_beam_dp_answers_intervals_prefixes_and_quantiles(tmp_path, capsys):
    release = released(tmp_path)
    capsys.readouterr()
    out = str(tmp_path / "out")
    code, text, _ = answered(capsys, "answer", out, "--interval", "20", "40", "--json")
    (found,) = json.loads(text)
    low, high = release.cells(20, 40)
    expected = release.answer([low], [high])
    assert code == 0 and found["interval"] == "20 to 40"
    assert found["value"] == expected.values[0]
    assert found["standard_error"] == expected.standard_errors[0]
    assert found["bound"] == expected.bounds[0]
    queries = tmp_path / "queries.jsonl"
    queries.write_text(
        '{"interval": {"attribute": "age", "low": 20, "high": 40}}\n'
        '{"prefix": {"attribute": "age", "high": 79}}\n'
    )
    _, text, _ = answered(capsys, "answer", out, "--queries", str(queries), "--json")
    assert [each["interval"] for each in json.loads(text)] == ["20 to 40", "10 to 79"]
    assert json.loads(text)[0]["value"] == found["value"]
    _, text, _ = answered(capsys, "answer", out, "--quantile", "0.5", "--json")
    ages = people()["age"].to_numpy()
    median = np.sort(ages[(ages >= 10) & (ages <= 79)])
    (quantile,) = json.loads(text)
    assert abs(int(quantile["level"]) - median[len(median) // 2]) <= 2
    for argv in (("answer", out, "--interval", "20", "40"), ("describe", out)):
        code, text, _ = answered(capsys, *argv)
        assert code == 0 and "age" in text


@pytest.mark.job
def test_date_bins_are_counted_and_queried_by_their_edges(tmp_path, capsys):
    rows = {"visit": ["2020-01-02"] * 30 + ["2020-02-03"] * 20 + ["2020-03-01"] * 10 + [None]}
    pa.csv.write_csv(pa.table(rows), tmp_path / "visits.csv")
    visit = {"name": "visit", "type": "date", "nullable": True,
             "edges": ["2020-01-01", "2020-02-01", "2020-03-01", "2020-04-01"]}  # fmt: skip
    named = {"input": str(tmp_path / "visits.csv"), "attribute": "visit", "output": f"{tmp_path}/o"}
    named |= {"neighboring": "replace_one", "privacy_unit": "record", "delta": "0"}
    dated = {"domain": {"attributes": [visit]}, "max_records_per_unit": None}
    assert main(interval_flags(tmp_path, **named, **dated)) == 0
    release = read_release(tmp_path / "o")
    assert isinstance(release, IntervalRelease)
    cells = release.cells("2020-01-01", "2020-03-01")
    assert cells == (0, 1)
    assert abs(release.answer(*cells).values - 50) < 3
    assert cli.main(["answer", str(tmp_path / "o"), "--interval", "2020-02-01", "2020-04-01"]) == 0
    assert "2020-02-01 to 2020-04-01" in capsys.readouterr().out
    assert cli.main(["answer", str(tmp_path / "o"), "--quantile", "0.6"]) == 0
    assert "[2020-02-01, 2020-03-01)" in capsys.readouterr().out
