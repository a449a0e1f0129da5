"""The command line on the directory of a horizon: describe, answer and finish."""

from __future__ import annotations

import json
import pathlib

import pytest
from horizons import DOMAIN, FIRST, WORKLOAD, card_of, commit_window, leveled, released_horizon
from window_plans import person, plan_of

from beam_dp.cli.main import main
from beam_dp.flags.flag import FlagError
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.mechanisms.windows.plan import plan_window_databases
from beam_dp.queries.workload import Workload
from beam_dp.releases.windows.answer import windows_of
from beam_dp.releases.windows.horizon_files import begin_horizon, read_windows

PLAN = leveled()
MARGINAL = ("--marginal", "a1")


@pytest.fixture
def week(tmp_path) -> str:
    """Six windows and two blocks; windows 0, 1, 2, 4 and the first block are released."""
    released_horizon(str(tmp_path), PLAN, (0, 1, 2, 4), (0,))
    return str(tmp_path)


def said(capfd: pytest.CaptureFixture[str], *argv: str) -> str:
    """Checks that a command succeeds without errors; returns the output with single spaces."""
    assert main(argv) == 0
    out, err = capfd.readouterr()
    assert err == ""
    return " ".join(out.split())


def refusal(capfd: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(argv) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1
    return err.strip()


def test_describe_shows_the_promise_the_content_and_the_errors(week, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    text = said(capfd, "describe", week)
    for part in (
        "at most 2 of any 6 consecutive windows of 1h, at most 1 in each",
        "protects one person_id in any 6 consecutive windows of 1h",
        "4 of 6 windows are released.",
        "6 of 1h, 2026-11-23T00:00:00Z to 2026-11-23T06:00:00Z; each waits 30m",
        "0 to 2 2026-11-23T00:00:00Z 2026-11-23T03:00:00Z",
        "4 2026-11-23T04:00:00Z 2026-11-23T05:00:00Z",
        "blocks 1 of 2 released, 3 windows",
        "event_time t",
        f"horizon {FIRST}",
    ):
        assert part in text
    error = read_windows(week).windows[0].variance(("a1",)) ** 0.5
    assert f"a1 {error:.4g}" in text


def test_describe_works_before_any_window_is_released(tmp_path, capfd):
    begin_horizon(tmp_path, card_of(plan_of(168, person(7, 24), WORKLOAD)), FIRST)
    text = said(capfd, "describe", str(tmp_path))
    assert "0 of 168 windows are released." in text
    assert "all 168 windows together at most epsilon 7, delta 7e-09" in text


def test_describe_json_contains_horizon_id_and_released_numbers(week, capfd):
    found = json.loads(said(capfd, "describe", week, "--json"))
    assert found["horizon_id"] == FIRST
    assert found["released"] == {"windows": [0, 1, 2, 4], "blocks": [0]}


def test_sum_of_windows_is_answered_with_its_standard_error(week, capfd):
    (expected,) = read_windows(week).answer(Workload(DOMAIN, (("a1",),)), slice(0, 3))
    (found,) = json.loads(said(capfd, "answer", week, "--windows", "0:3", *MARGINAL, "--json"))
    assert found["records"] == expected.values.tolist()
    assert found["standard_error"] == expected.standard_error
    text = said(capfd, "answer", week, "--windows", ":3", *MARGINAL)
    assert text.startswith("windows 0 to 2: 2026-11-23T00:00:00Z to 2026-11-23T03:00:00Z a1 ")
    assert f"standard error of a count is {expected.standard_error:,.1f} records" in text


def test_one_window_is_answered_by_its_number(week, capfd):
    expected = read_windows(week).windows[4].tables["a1",].tolist()
    for text in ("4", "-2", "4:5", "-2:-1"):
        (found,) = json.loads(said(capfd, "answer", week, "--windows", text, *MARGINAL, "--json"))
        assert found["records"] == expected


def test_linear_queries_have_a_standard_error(week, tmp_path, capfd):
    path = tmp_path / "queries"
    path.write_text('{"interval": {"attribute": "a1", "low": 1, "high": 2}}\n')
    asked = ("answer", week, "--windows", "1:3", "--queries", str(path))
    (found,) = json.loads(said(capfd, *asked, "--json"))
    assert 0 < found["standard_error"] < found["bound"]
    text = said(capfd, *asked)
    assert "standard error" in text and f"{found['standard_error']:,.1f}" in text


def test_error_names_windows_that_are_not_released(week, capfd):
    line = refusal(capfd, "answer", week, "--windows", ":", *MARGINAL)
    assert line == "error: --windows: ':' is not valid: must be released; not released yet: 3, 5"
    assert "not released yet: 3" in refusal(capfd, "answer", week, "--windows", "2:5", *MARGINAL)


def test_windows_flag_selects_the_same_as_python_slices():
    numbers = range(9)
    for first in ("", *map(str, range(-9, 9))):
        for stop in ("", *map(str, range(-9, 10))):
            ends = (int(end) if end else None for end in (first, stop))
            expected = numbers[slice(*ends)]
            try:
                assert numbers[windows_of(f"{first}:{stop}", 9)] == expected
            except FlagError:
                assert len(expected) == 0


def test_synthetic_databases_of_windows_are_answered_one_window_at_a_time(tmp_path, capfd):
    plan = plan_window_databases(MWEM(), WORKLOAD, PLAN.horizon, person(2, 3), 1.0, 1e-9)
    begin_horizon(tmp_path, card_of(plan), FIRST)
    for number in (0, 1):
        commit_window(plan, str(tmp_path), number, FIRST)
    directory = str(tmp_path)
    assert "2 of 6 windows are released." in said(capfd, "describe", directory)
    assert "a1" in said(capfd, "answer", directory, "--windows", "1", *MARGINAL)
    line = refusal(capfd, "answer", directory, "--windows", ":2", *MARGINAL)
    assert line.startswith("error: --windows: ':2' is not valid: must be one window")


def test_finish_prints_released_windows_and_removes_all_drafts(week, capfd):
    for place in ("", "windows/000003/", "levels/3/000001/"):
        draft = pathlib.Path(week, f"{place}.draft-x")
        draft.mkdir(parents=True)
        (draft / "tables").write_text("private")
    line = said(capfd, "finish", week)
    assert line == f"{week}: 4 of 6 windows are released, 1 of 2 blocks; drafts removed: 3"
    assert not list(pathlib.Path(week).rglob(".draft-*"))
    assert said(capfd, "finish", week).endswith("drafts removed: 0")


def test_finish_names_the_window_with_a_lost_file(week, capfd):
    next(pathlib.Path(week, "windows", "000001").glob("tables-*")).unlink()
    line = refusal(capfd, "finish", week)
    assert f"'{week}/windows/000001' is not valid: card.json names no files" in line
