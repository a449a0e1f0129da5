"""The program that answers queries: its files, its refusals, and what it pays."""

import json
import os
import re
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

import fastavro
import jobs
import pytest

import beam_dp as dp
from beam_dp.mechanisms.online import saved_runs
from pipelines.answer_job import keep_state
from pipelines.answer_queries import main

QUERIES = [
    '{"id": "women", "conjunction": {"sex": "Female"}}',
    '{"conjunction": {"sex": "Femal"}}',
    "",
    '{"interval": {"attribute": "age", "low": 20, "high": 60}}',
    '{"id": 7, "conjunction": {"sex": "Female"}}',
]


def flags(folder: Path, lines: Sequence[str] = QUERIES, **overrides: str | None) -> list[str]:
    return jobs.answer_flags(folder, lines, **overrides)


def answers(folder: Path) -> list[dict]:
    """As any program reads Avro."""
    (path,) = folder.glob("answers-*.avro")
    with path.open("rb") as file:
        return [dict(row) for row in fastavro.reader(file)]


@pytest.mark.job
def test_answers_are_within_their_bounds_and_bad_lines_are_reported(tmp_path, capfd):
    argv = flags(tmp_path, direct_runner_bundle_repeat="2")
    assert main(argv) == 0
    rows = answers(tmp_path / "out")
    table = jobs.people()
    women = table["sex"].to_pylist().count("Female")
    middle = sum(20 <= age < 60 for age in table["age"].to_pylist())
    assert [row["id"] for row in rows] == ["women", None, None, "7"]
    assert rows[1]["error"] and rows[1]["value"] is None
    for row, truth in ((rows[0], women), (rows[2], middle), (rows[3], women)):
        assert abs(row["value"] - truth) <= row["bound"] < 100
    assert rows[3]["value"] == rows[0]["value"]
    out, err = capfd.readouterr()
    assert re.search(r"warning: --queries: line 2: .*'Femal'", err)
    assert "3 answers, 1 refused" in out
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert card["mechanism"] == "private_mw" and card["num_answers"] == 3
    assert card["settings"]["is_vacuous"] is False and card["plan"]["num_questions"] == 4
    assert "ledger_release" not in card
    assert len(jobs.everything_under(tmp_path / "out")) == 2
    assert main(argv) == 2  # an existing release is never overwritten


@pytest.mark.job
def test_card_marks_a_useless_bound_as_vacuous(tmp_path, capfd):
    argv = flags(tmp_path, epsilon="0.001", delta="0", num_records="500")
    assert main(argv) == 0
    assert "no better than the number of records" in capfd.readouterr().err
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert card["settings"]["is_vacuous"] is True


@pytest.mark.job
def test_last_line_counts_answers_without_a_bound(tmp_path, capfd):
    lines = [json.dumps({"prefix": {"attribute": "age", "high": age}}) for age in (20, 40, 60)]
    for num_questions in ("3", "1"):
        output = str(tmp_path / num_questions)
        assert main(flags(tmp_path, lines, num_questions=num_questions, output=output)) == 0
        num_unbounded = sum(row["bound"] is None for row in answers(Path(output)))
        last = capfd.readouterr().out.splitlines()[-1]
        assert num_unbounded == 3 - int(num_questions)
        assert last.startswith("Of those that have a bound") == (num_unbounded > 0)
        assert last.endswith("2 answers have no bound.") == (num_unbounded > 0)


@pytest.mark.job
@pytest.mark.parametrize("choice", ["auto", "exponential"])
def test_top_queries_returns_the_largest_in_order(tmp_path, capfd, choice):
    named = {"mechanism": "top_queries", "top": "2", "choice": choice}
    _, argv = jobs.paid_by(flags(tmp_path, **named), tmp_path, 1000.0, 1e-9)
    assert main([*argv, "--validate_only", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["plan"]["top"] == 2
    assert main(argv) == 0
    assert "No missed answer is larger by more than" in capfd.readouterr().out
    rows, table = answers(tmp_path / "out"), jobs.people()
    women = table["sex"].to_pylist().count("Female")
    middle = sum(20 <= age < 60 for age in table["age"].to_pylist())
    assert women > middle + 50
    # Two queries, one of them asked twice; refused queries come last.
    assert [row["id"] for row in rows] == ["women", "7", None, None]
    for row, number in zip(rows, (women, women, middle), strict=False):
        # False alarms: fewer than 1e-14 for Laplace noise.
        assert abs(row["value"] - number) <= 25 * row["standard_error"]
    assert rows[0]["value"] == rows[1]["value"] and rows[3]["error"]
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert card["mechanism"] == "top_queries" and card["ledger_release"] == "people/1"
    assert dp.verify_release(dp.read_release(str(tmp_path / "out"))).holds


EITHER = {"disjunction": {"sex": "Female", "age": [[20, 40]]}}
BOTH = {"conjunction": {"sex": "Female", "age": {"not": [[20, 40]]}}}


@pytest.mark.job
@pytest.mark.parametrize("mechanism", ["private_mw", "laplace", "gaussian"])
def test_answers_queries_of_any_form(tmp_path, capfd, mechanism):
    """A marginal in a file becomes one query for each cell."""
    lines = ['{"marginal": ["sexx"]}', *map(json.dumps, (EITHER, {"not": BOTH}))]
    lines += ['{"id": "by sex", "marginal": ["sex"]}', QUERIES[0]]
    assert main(flags(tmp_path, lines, mechanism=mechanism)) == 0
    refused, either, neither, *by_sex, women = rows = answers(tmp_path / "out")
    assert "line 1: query: 'sexx' is not an attribute" in capfd.readouterr().err
    assert refused["error"] and not any(row["error"] for row in rows[1:])
    columns = (jobs.people()[name].to_pylist() for name in ("sex", "age"))
    held = [(sex == "Female", 20 <= age < 40) for sex, age in zip(*columns, strict=True)]
    exact = [sum(map(any, held)), sum(not (sex and not young) for sex, young in held)]
    sexes = jobs.people()["sex"].to_pylist()
    exact += map(sexes.count, ("Female", "Male"))
    # A bound of noise fails in 5 % of runs; five times a bound, in fewer than one of a million.
    times = 1 if mechanism == "private_mw" else 5
    for row, truth in zip((either, neither, *by_sex), exact, strict=True):
        assert abs(row["value"] - truth) <= times * row["bound"] < len(held) / 2
    assert {row["id"] for row in by_sex} == {"by sex"}
    cells = [json.loads(row["query"])["codes"] for row in by_sex]
    assert cells == [[[axis, [[code, code + 1]]]] for code, ((axis, _),) in enumerate(cells)]
    assert women["value"] == by_sex[0]["value"]


@pytest.mark.job
def test_named_workload_is_answered_query_by_query(tmp_path):
    assert main(flags(tmp_path, queries="marginals:sex", mechanism="laplace")) == 0
    sexes = jobs.people()["sex"].to_pylist()
    for row, level in zip(answers(tmp_path / "out"), ("Female", "Male"), strict=True):
        assert row["error"] is None and json.loads(row["query"])
        assert abs(row["value"] - sexes.count(level)) <= 5 * row["bound"] < 10


WOMEN = '{"id": "women", "conjunction": {"sex": "Female"}}'
MIDDLE = '{"id": "middle", "interval": {"attribute": "age", "low": 20, "high": 60}}'


def flags_of(folder: Path, lines: list[str], output: str, **overrides: str | None):
    path = folder / f"{output}.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    named = {"queries": str(path), "output": str(folder / output), "num_questions": "10"}
    return jobs.job_flags(folder, workload=None, **{**named, **overrides})


def paid(folder: Path, dataset_id: str = "people") -> dict[str, str]:
    return {"ledger": str(folder / "ledger.sqlite"), "dataset_id": dataset_id}


def saved(folder: Path, **overrides: str | None) -> dp.Ledger:
    """A paid run with one answer, saved."""
    ledger = dp.Ledger(str(folder / "ledger.sqlite"))
    ledger.declare("people", 1000.0, 1e-9, "record", "add_or_remove_one")
    named = {"state": str(folder / "state"), **paid(folder), **overrides}
    assert main(flags_of(folder, [WOMEN], "first", **named)) == 0
    return ledger


@pytest.mark.job
def test_saved_run_resumes_once_and_pays_once(tmp_path, capfd):
    ledger = saved(tmp_path)
    state = tmp_path / "state"
    assert "Saved: " in capfd.readouterr().out
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    names = ["hypothesis.npz", "secret.json", "transcript.json"]
    assert sorted(path.name for path in state.iterdir()) == names
    assert [name for name in os.listdir(tmp_path) if "saving" in name] == []
    shutil.copytree(state, tmp_path / "copy")
    named = {"resume": str(state), "state": str(tmp_path / "second"), **paid(tmp_path)}
    argv = flags_of(tmp_path, [MIDDLE, WOMEN], "out", **named)
    assert main([*argv, "--validate_only", "--json"]) == 0
    card = json.loads(capfd.readouterr().out)
    assert card["resumes"] == {"ledger_release": "people/1", "ledger_state": 1}
    assert main(argv) == 0
    first, (middle, women) = answers(tmp_path / "first"), answers(tmp_path / "out")
    assert women["value"] == first[0]["value"]  # what was answered stays so
    truth = sum(20 <= age < 60 for age in jobs.people()["age"].to_pylist())
    assert abs(middle["value"] - truth) <= middle["bound"] < 100
    assert (first[0]["questions_left"], middle["questions_left"]) == (9, 8)
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert (card["ledger_release"], card["ledger_state"]) == ("people/1", 1)
    (entry,) = ledger.entries("people")
    first_card = json.loads((tmp_path / "first" / "card.json").read_text())
    assert entry.draw_id == first_card["draw_id"] != card["draw_id"]
    # Neither the folder nor a copy goes on again, but what was saved last does.
    for name, pattern in (("state", "resumed only once"), ("copy", "the next is 2, and a copy")):
        argv = flags_of(tmp_path, [WOMEN], "again", resume=str(tmp_path / name), **paid(tmp_path))
        jobs.refused_line(main, argv, capfd, pattern)
    argv = flags_of(tmp_path, [WOMEN], "third", resume=str(tmp_path / "second"), **paid(tmp_path))
    assert main(argv) == 0
    assert len(ledger.entries("people")) == 1


@pytest.mark.job
def test_unpaid_run_resumes_without_a_ledger(tmp_path):
    state = str(tmp_path / "state")
    assert main(flags_of(tmp_path, [WOMEN], "first", state=state)) == 0
    # How many questions there may be is taken from the state.
    assert main(flags_of(tmp_path, [WOMEN], "out", resume=state, num_questions=None)) == 0
    assert answers(tmp_path / "out")[0]["value"] == answers(tmp_path / "first")[0]["value"]
    assert not (tmp_path / "state" / "secret.json").exists()


@pytest.mark.job
def test_repeated_attempts_save_one_state(tmp_path):
    """That of the answers that were written; each attempt is a draw of its own."""
    saved(tmp_path, direct_runner_bundle_repeat="2")
    assert [name for name in os.listdir(tmp_path) if "saving" in name] == []
    transcript = json.loads((tmp_path / "state" / "transcript.json").read_text())
    assert transcript["answers"][0]["value"] == answers(tmp_path / "first")[0]["value"]


@pytest.mark.job
def test_repeated_attempt_does_not_use_a_state_twice(tmp_path, capfd):
    ledger = saved(tmp_path)
    state = str(tmp_path / "state")
    again = {"direct_runner_bundle_repeat": "1", **paid(tmp_path)}
    assert main(flags_of(tmp_path, [MIDDLE], "out", resume=state, **again)) == 1
    assert not (tmp_path / "out").exists()
    assert len(ledger.entries("people")) == 1


@pytest.mark.job
def test_job_that_dies_after_its_ledger_update_loses_its_state(tmp_path, capfd, monkeypatch):
    saved(tmp_path)
    named = {"resume": str(tmp_path / "state"), **paid(tmp_path)}
    with monkeypatch.context() as patched:
        patched.setattr(saved_runs.os, "unlink", failing_for("secret.json"))
        assert main(flags_of(tmp_path, [MIDDLE], "out", **named)) == 1
    assert not (tmp_path / "out").exists()
    jobs.refused_line(main, flags_of(tmp_path, [MIDDLE], "out", **named), capfd, "the next is 2")


def failing_for(name: str):
    unlink = os.unlink

    def fail(path, **named):
        if os.fspath(path).endswith(name):
            raise OSError("killed")
        unlink(path, **named)

    return fail


@pytest.mark.job
def test_failed_job_leaves_no_state(tmp_path):
    argv = flags_of(tmp_path, [WOMEN], "out", state=str(tmp_path / "state"), num_records="500")
    jobs.damage_pages(tmp_path / "people.parquet")
    assert main(argv) == 1
    assert [name for name in os.listdir(tmp_path) if "state" in name] == []


def test_unmovable_state_is_reported_and_existing_folder_is_kept(tmp_path, capfd):
    (tmp_path / "private" / "1").mkdir(parents=True)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "theirs").touch()
    assert not keep_state(tmp_path / "private", "1", tmp_path / "state")
    assert re.fullmatch("error: --state: the run was not saved: .*\n", capfd.readouterr().err)
    assert jobs.everything_under(tmp_path / "state") != []
