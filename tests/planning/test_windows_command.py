"""`beam-dp plan --windows`: the ways to measure windows, and what is refused in which words."""

from __future__ import annotations

import json
import shlex

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plan_words import WINDOWS, argv

from beam_dp.cli.main import main
from beam_dp.domain.files import read_domain
from beam_dp.planning.ranking import rank_window_strategies
from beam_dp.queries.workload import Workload
from beam_dp.windows.horizon import Horizon, WindowUnit
from pipelines import release_windows

GIVEN = {**WINDOWS, "grace": "30m", "epsilon": "1", "delta": "1e-9"}
WORKLOAD = Workload(read_domain(GIVEN["domain"]), (("a",),))
WEEK = Horizon(GIVEN["start"], "1h", 168, "30m")
PEOPLE = WindowUnit("person_id", 1, 7, 168)


def words(*more: str, **changed: str | None) -> list[str]:
    return argv(GIVEN, *more, **{"neighboring": None, **changed})


def test_windows_table_shows_best_options_and_promise(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(words()) == 0
    out = capfd.readouterr().out
    _, _, (_, *strategies), (_, *noises), *_ = (line.split() for line in out.splitlines())
    assert len(noises) == 4 and set(zip(strategies, noises, strict=True)) == {
        (strategy, noise)
        for strategy in ("independent", "levels")
        for noise in ("laplace", "gaussian")
    }
    best = rank_window_strategies(WORKLOAD, WEEK, PEOPLE, 1.0, 1e-9)[0]
    assert strategies[0] == best.strategy == "independent"
    for question, error in best.errors.items():
        (row,) = (line.split() for line in out.splitlines() if line.startswith(f"{question} "))
        assert row[1] == f"{error:.3g}"
    told = " ".join(out.split())
    assert "records of one person_id are used in at most 7 of any 168 consecutive windows" in told


def test_json_lists_all_window_options(capfd):
    asked = words(questions="one,trailing:12", block="10", protected_windows="24")
    assert main([*asked, "--json", "--neighboring", "add_or_remove_one"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["worst_case"]["periods"] == 7
    assert [set(option["errors"]) for option in found["options"]] == [{"one", "trailing:12"}] * 2
    assert {option["strategy"] for option in found["options"]} == {"independent"}
    assert main([*words(block="10", num_windows="20", protected_windows="20"), "--json"]) == 0
    sizes = {option["block"] for option in json.loads(capfd.readouterr().out)["options"]}
    assert {None, 2, 10} <= sizes


def test_record_as_privacy_unit_needs_no_limits(capfd):
    limits = ("max_records_per_unit", "max_windows_per_unit", "protected_windows")
    assert main(words("--json", privacy_unit="record", **dict.fromkeys(limits))) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["promise"].startswith("a record counts in one window")


@pytest.mark.parametrize("changed", [{}, {"max_windows_per_unit": "1"}, {"delta": "0"}])
def test_printed_command_runs_the_best_ranked_strategy(tmp_path, capfd, changed):
    given = {**GIVEN, **changed}
    columns = {"a": [1], "person_id": [2], "t": [3]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    places = {"input": f"{tmp_path}/*.parquet", "event_time": "t", "output": f"{tmp_path}/out"}
    assert main(words(**changed, **places, questions="one,trailing:24")) == 0
    program, command, *flags = shlex.split(capfd.readouterr().out.splitlines()[-1])
    assert (program, command) == ("beam-dp", "release-windows")
    job = release_windows.parse_arguments(flags)
    best, *_ = rank_window_strategies(
        WORKLOAD,
        WEEK,
        WindowUnit("person_id", 1, int(given["max_windows_per_unit"]), 168),
        1.0,
        float(given["delta"]),
        questions=("one", "trailing:24"),
    )
    found = job.plan.public
    assert found["strategy"] == best.strategy
    assert (job.plan.measurements[0].distribution, job.horizon.block) == (
        best.distribution,
        best.block,
    )
    assert job.source().pattern == places["input"] and job.times == ("t", "file_time")
