"""The program that answers queries: its files, its refusals, and what it pays."""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Sequence
from pathlib import Path

import fastavro
import pytest
from jobs import answer_flags, everything_under, job_flags, paid_by, people

from beam_dp.cli import main as cli
from beam_dp.releases.answers.files import ANSWER_SCHEMA
from beam_dp.releases.kinds import read_release, verify_release
from pipelines import release_synthetic_database
from pipelines.answer_queries import main

QUERIES = [
    '{"id": "women", "conjunction": {"sex": "Female"}}',
    '{"conjunction": {"sex": "Femal"}}',
    "",
    '{"interval": {"attribute": "age", "low": 20, "high": 60}}',
    '{"id": 7, "conjunction": {"sex": "Female"}}',
]


def flags(folder: Path, lines: Sequence[str] = QUERIES, **overrides: str | None) -> list[str]:
    return answer_flags(folder, lines, **overrides)


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
    table = people()
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
    assert len(everything_under(tmp_path / "out")) == 2
    assert main(argv) == 2  # an existing release is never overwritten


@pytest.mark.job
@pytest.mark.parametrize("mechanism", ["private_mw", "laplace", "gaussian"])
def test_answers_disjunctions_and_negations(tmp_path, mechanism):
    either = {"disjunction": {"sex": "Female", "age": [[20, 40]]}}
    both = {"conjunction": {"sex": "Female", "age": {"not": [[20, 40]]}}}
    argv = flags(tmp_path, list(map(json.dumps, (either, {"not": both}))), mechanism=mechanism)
    assert main(argv) == 0
    columns = (people()[name].to_pylist() for name in ("sex", "age"))
    held = [(sex == "Female", 20 <= age < 40) for sex, age in zip(*columns, strict=True)]
    exact = [sum(map(any, held)), sum(not (sex and not young) for sex, young in held)]
    for row, truth in zip(answers(tmp_path / "out"), exact, strict=True):
        assert abs(row["value"] - truth) <= row["bound"] < len(held) / 2


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
    _, argv = paid_by(flags(tmp_path, **named), tmp_path, 1000.0, 1e-9)
    assert main([*argv, "--validate_only", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["plan"]["top"] == 2
    assert main(argv) == 0
    assert "No missed answer is larger by more than" in capfd.readouterr().out
    rows, table = answers(tmp_path / "out"), people()
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
    assert verify_release(read_release(str(tmp_path / "out"))).holds


@pytest.mark.job
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_laplace_and_gaussian_answer_a_whole_file_in_one_step(tmp_path, capfd, mechanism):
    named = {"failure_probability": "0.2", "direct_runner_bundle_repeat": "2"}
    _, argv = paid_by(flags(tmp_path, mechanism=mechanism, **named), tmp_path, 1000.0, 1e-9)
    assert main([*argv, "--validate_only", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["mechanism"] == mechanism
    assert main(argv) == 0
    rows = answers(tmp_path / "out")
    women = people()["sex"].to_pylist().count("Female")
    assert [row["id"] for row in rows] == ["women", None, None, "7"]
    # False alarms: fewer than 1e-14 for Laplace noise. The bound may fail in one run of five.
    assert abs(rows[0]["value"] - women) <= 25 * rows[0]["standard_error"]
    assert rows[0]["bound"] < 5
    assert rows[3]["value"] == rows[0]["value"] and rows[0]["route"] == "measured"
    assert rows[1]["error"] and rows[1]["value"] is rows[1]["standard_error"] is None
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert card["mechanism"] == card["plan"]["mechanism"] == mechanism
    assert card["plan"]["num_queries"] == 2 and card["plan"]["failure_probability"] == 0.2
    assert card["plan"]["bound"] == rows[0]["bound"]
    (route,) = (field for field in ANSWER_SCHEMA["fields"] if field["name"] == "route")
    assert rows[0]["route"] in route["doc"]
    assert card["ledger_release"] == "people/1" and card["num_records"] is None
    assert len(everything_under(tmp_path / "out")) == 2


@pytest.mark.job
@pytest.mark.parametrize("mechanism", ["laplace", "private_mw"])
def test_describe_shows_answers_and_answer_refuses_the_release(
    tmp_path, capfd, monkeypatch, mechanism
):
    monkeypatch.setenv("COLUMNS", "120")
    assert main(flags(tmp_path, mechanism=mechanism)) == 0
    capfd.readouterr()
    directory = str(tmp_path / "out")
    assert cli.main(["describe", directory]) == 0
    told = capfd.readouterr().out
    assert re.search(rf"^mechanism +{mechanism} *$", told, re.MULTILINE)
    promise = "epsilon 1000, delta 1e-09, add or remove one"
    assert re.search(rf"^promise +{promise} *$", told, re.MULTILINE)
    routes = collections.Counter(row["route"] for row in answers(tmp_path / "out"))
    del routes[None]
    for route, number in {**routes, "refused": 1}.items():
        assert re.search(rf"^{route} +{number} *$", told, re.MULTILINE)
    assert cli.main(["describe", directory, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["mechanism"] == mechanism
    assert cli.main(["answer", directory, "--marginal", "sex"]) == 2
    assert capfd.readouterr().err.endswith(
        "contains answers and can't answer further queries: see beam-dp describe\n"
    )
    (path,) = (tmp_path / "out").glob("answers-*.avro")
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert cli.main(["describe", directory]) == 2
    assert "does not have the checksum of its card" in capfd.readouterr().err


@pytest.mark.job
@pytest.mark.parametrize("mechanism", ["laplace", "private_mw"])
def test_answers_named_workload_query_by_query(tmp_path, mechanism):
    assert main(flags(tmp_path, queries="marginals:sex", mechanism=mechanism)) == 0
    rows = answers(tmp_path / "out")
    sexes = people()["sex"].to_pylist()
    domain = json.loads((tmp_path / "out" / "card.json").read_text())["domain"]
    (levels,) = [each["values"] for each in domain["attributes"] if each["name"] == "sex"]
    assert len(rows) == len(levels)
    for row, level in zip(rows, levels, strict=True):
        assert row["error"] is None and json.loads(row["query"])
        assert abs(row["value"] - sexes.count(level)) <= row["bound"]


@pytest.mark.job
@pytest.mark.parametrize("mechanism", ["private_mw", "laplace"])
def test_marginal_in_a_file_becomes_one_query_for_each_cell(tmp_path, capfd, mechanism):
    lines = ['{"marginal": ["sexx"]}', '{"id": "by sex", "marginal": ["sex"]}', QUERIES[0]]
    assert main(flags(tmp_path, lines, mechanism=mechanism)) == 0
    rows = answers(tmp_path / "out")
    assert "line 1: query: 'sexx' is not an attribute" in capfd.readouterr().err
    assert rows[0]["error"] and {row["id"] for row in rows[1:-1]} == {"by sex"}
    cells = [json.loads(row["query"])["codes"] for row in rows[1:-1]]
    assert cells == [[[axis, [[code, code + 1]]]] for code, ((axis, _),) in enumerate(cells)]
    assert len(cells) >= 2 and not any(row["error"] for row in rows[1:])
    assert rows[-1]["value"] in [row["value"] for row in rows[1:-1]]


@pytest.mark.job
def test_run_starts_from_a_release(tmp_path):
    release = str(tmp_path / "release")
    assert release_synthetic_database.main(job_flags(tmp_path, output=release)) == 0
    assert main(flags(tmp_path, start_from=release)) == 0
    rows = answers(tmp_path / "out")
    assert rows[0]["error"] is None
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert card["plan"]["starts_from_release"] is True
