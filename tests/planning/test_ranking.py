"""The ranking of all mechanisms for a job, its table and its command."""

from __future__ import annotations

import json
import math
import pathlib
import shlex
import subprocess
import sys

import numpy as np
import pytest
from tiny import ADD, REPLACE, domain_of, promise, workload_of

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.errors import InputError
from beam_dp.mechanisms.linear_answers.answers import WorkloadAnswersPlan
from beam_dp.planning.job import PlanningJob
from beam_dp.planning.ranking import Ranking, rank_mechanisms
from beam_dp.queries.linear import Explicit
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.reader import LinearQueries
from pipelines import answer_queries, release_synthetic_database

DELTA = 1e-9


def ranked(num_records: int = 10_000, delta: float = DELTA, **named: object) -> Ranking:
    workload = workload_of(domain_of(8, 4, 2), 2)
    public = bool(named.pop("num_records_is_public", True))
    job = PlanningJob(workload, promise(delta=delta), num_records, public, **named)  # type: ignore[arg-type]
    return rank_mechanisms(job)


def test_every_mechanism_has_a_row_and_the_least_error_is_first():
    ranking = ranked()
    names = {option.mechanism for option in ranking.options}
    assert names == {
        "mwem",
        "gaussian",
        "laplace",
        "small_db",
        "private_mw",
        "laplace_answers",
        "gaussian_answers",
        "intervals",
    }
    errors = [o.expected_error for o in ranking.options if o.expected_error is not None]
    assert errors == sorted(errors) and ranking.best is ranking.options[0]
    for option in ranking.options:
        assert (option.resources is None) != option.is_feasible
        if option.bound is not None and option.expected_error is not None:
            assert option.expected_error < option.bound.max_error


@pytest.mark.slow
def test_cells_that_will_be_too_noisy_are_counted_by_the_rule_of_reports():
    domain = domain_of(100, 4, 2)
    workload = dp.marginals(domain, ways=1)
    guarantee = promise(delta=DELTA)
    for num_records in (20, 1_000, 10**9):
        best = rank_mechanisms(PlanningJob(workload, guarantee, num_records, True)).best
        assert best is not None
        plan = dp.MWEM().plan(domain, workload, guarantee, num_records)
        error = plan.predicted_cell_error  # of a cell, on average over these attributes
        sizes = [domain[name].size for (name,) in workload]
        expected = sum(size for size in sizes if 1.96 * error > 0.5 * num_records / size)
        assert best.noisy_cells == expected
        assert best.to_json()["noisy_cells"] == best.noisy_cells
    assert best.noisy_cells == 0


def test_the_table_says_how_many_cells_will_be_too_noisy(capsys: pytest.CaptureFixture[str]):
    flags = ['--domain={"age": 100, "sex": 2}', "--workload=marginals:2", "--delta=1e-9"]
    unit = ["--neighboring=add_or_remove_one", "--privacy_unit=record", "--epsilon=1"]
    assert main(["plan", *flags, *unit, "--num_records=500"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "too noisy to use with mwem, tight: 200 of 200 cells, if the records" in told


def test_what_promises_nothing_is_called_vacuous():
    few, many = ranked(50, 0.0), ranked(10**9, 0.0)
    vacuous = [each.bound.vacuous for each in few.options if each.mechanism == "private_mw"]
    assert vacuous == [True, True]
    assert not any(o.bound.vacuous for o in many.options if o.mechanism == "private_mw")


def test_pure_privacy_refuses_gaussian_noise_in_words():
    refusals = [o.refusal for o in ranked(delta=0.0).options if o.mechanism == "gaussian"]
    assert len(refusals) == 2 and all("delta" in str(each) for each in refusals)


@pytest.mark.slow
def test_the_inverse_question_is_answered_for_every_bound():
    ranking = ranked(max_error_fraction=0.1)
    for option in ranking.options:
        if option.records_needed is not None:
            again = ranked(option.records_needed + 1, max_error_fraction=0.1)
            same = [
                o
                for o in again.options
                if (o.mechanism, o.calibration) == (option.mechanism, option.calibration)
            ]
            assert same[0].bound is not None
            # The run of the published online algorithm pays for whole updates and integers.
            assert same[0].bound.max_error_fraction <= 0.101 * (
                2 if option.calibration == "textbook" else 1
            )
    assert any(option.records_needed for option in ranking.options)


def test_linear_queries_are_ranked_too():
    """Few cells answer many queries best from their noisy table."""
    workload = parse_linear_workload("intervals:a0", domain_of(16, 2))
    ranking = rank_mechanisms(PlanningJob(workload, promise(delta=DELTA), 10_000, True))
    assert ranking.options[0].mechanism in ("intervals", "mwem", "laplace")
    assert dict(ranking.options[0].parameters)["workload"] == "marginals:a0"
    selecting = [
        o for o in ranking.options if o.calibration == "textbook" and o.mechanism == "mwem"
    ]
    assert [option.is_feasible for option in selecting] == [False]


@pytest.mark.slow
def test_few_wide_queries_are_answered_best_one_by_one():
    domain = domain_of(64, 64, 64)
    queries = LinearQueries(domain)
    asked = [queries.conjunction({"a0": [0, n], "a1": [0, n], "a2": [0, n]}) for n in (20, 30)]
    workload = LinearWorkload(domain, tuple(asked))
    ranking = rank_mechanisms(PlanningJob(workload, promise(delta=DELTA), 10_000, True))
    assert ranking.options[0].mechanism.endswith("_answers")


def test_explicit_values_are_no_sums_of_cells():
    domain = domain_of(4, 2)
    workload = LinearWorkload(domain, (Explicit.of(domain.shape, np.linspace(0, 1, 8)),))
    ranking = rank_mechanisms(PlanningJob(workload, promise(), 10_000, True))
    (option,) = [o for o in ranking.options if (o.mechanism, o.calibration) == ("mwem", "tight")]
    assert option.refusal is not None and "explicit values" in option.refusal


@pytest.mark.parametrize(
    "arguments, name",
    [
        ({"num_records": 0}, "num_records"),
        ({"num_records": 2**41}, "num_records"),
        ({"failure_probability": math.nan}, "failure_probability"),
        ({"max_error_fraction": 0.0}, "max_error_fraction"),
    ],
)
def test_a_job_out_of_range_is_refused(arguments: dict[str, object], name: str):
    with pytest.raises(InputError) as caught:
        ranked(**arguments)  # type: ignore[arg-type]
    assert caught.value.name == name
    workload = workload_of(domain_of(2, 2), 1)
    with pytest.raises(InputError, match="num_records_is_public"):
        PlanningJob(workload, promise(REPLACE), 10, False)


def test_the_python_names_are_exported():
    job = dp.PlanningJob(workload_of(domain_of(2, 2), 1), promise(ADD), 1000, True)
    assert dp.rank_mechanisms(job).best is not None


def flags(tmp_path: pathlib.Path, **changed: str | None) -> list[str]:
    (tmp_path / "domain.json").write_text('{"a": 8, "b": 4, "c": 2}')
    given: dict[str, str | None] = {
        "domain": str(tmp_path / "domain.json"),
        "workload": "marginals:2",
        "num_records": "1e5",
        "epsilon": "1",
        "delta": "1e-9",
        "neighboring": ADD,
        "privacy_unit": "record",
        **changed,
    }
    found = ["plan"]
    for name, value in given.items():
        found += [] if value is None else [f"--{name}", value]
    return found


@pytest.mark.slow
def test_the_table_shows_every_mechanism_and_what_to_type(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(flags(tmp_path, max_error="0.05")) == 0
    text = capsys.readouterr().out
    for word in ("mwem, tight", "private_mw, textbook", "with probability 0.95, no error"):
        assert word in " ".join(text.split())
    command = text.splitlines()[-1]
    assert command.startswith("beam-dp release-synthetic-database ")
    assert "--num_records noisy" in command


@pytest.mark.parametrize("delta, public", [("1e-9", True), ("0", False)])
def test_the_printed_commands_are_accepted_by_the_program(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], delta: str, public: bool
):
    argv = flags(tmp_path, delta=delta, input="x.csv", output=str(tmp_path / "out"))
    assert main([*argv, "--json", *(["--num_records_is_public"] if public else [])]) == 0
    found = json.loads(capsys.readouterr().out)
    accepted = 0
    for option in found["options"]:
        command = option["command"]
        if command is None or option["program"] != "release_synthetic_database":
            continue
        if option["mechanism"] not in release_synthetic_database.MECHANISM.choices:
            continue
        words = shlex.split(command)
        assert words[:2] == ["beam-dp", "release-synthetic-database"]
        job = release_synthetic_database.parse_arguments(words[2:])
        assert job.num_records == (100_000 if public else "noisy")
        assert job.mechanism.name == option["mechanism"]
        job.mechanism.plan(job.domain, job.workload, job.guarantee, job.num_records)
        accepted += 1
    assert accepted >= 3


@pytest.mark.parametrize("form", ["intervals:a", "marginals:2", "a file", "tables"])
@pytest.mark.parametrize("delta", ["1e-9", "0"])
def test_the_printed_commands_of_answers_are_accepted_by_the_program(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], delta: str, form: str
):
    file = tmp_path / "queries.jsonl"
    file.write_text(2 * '{"conjunction": {"b": 2}}\n{"prefix": {"attribute": "a", "high": 3}}\n')
    if form == "a file":
        with file.open("a") as lines:
            lines.write('{"marginal": ["b", "a"]}\n')
    elif form == "tables":
        file.write_text('{"marginal": ["a"]}\n{"marginal": ["b", "a"]}\n')
    spec = str(file) if form in ("a file", "tables") else form
    argv = flags(tmp_path, workload=spec, delta=delta, input="x.csv", output=str(tmp_path / "out"))
    assert main([*argv, "--json", "--num_records_is_public"]) == 0
    accepted = set()
    for option in json.loads(capsys.readouterr().out)["options"]:
        if option["command"] is None or option["program"] != "answer_queries":
            continue
        words = shlex.split(option["command"])
        assert words[:2] == ["beam-dp", "answer-queries"]
        job = answer_queries.parse_arguments(words[2:])
        assert not job.refusals and job.plan.num_records == 100_000
        assert f"{job.plan.guarantee.delta:g}" == f"{float(delta):g}"
        if isinstance(job.plan, WorkloadAnswersPlan):
            # What was predicted is what will be run.
            assert job.plan.standard_error == option["expected_error"]
        accepted.add(option["mechanism"])
    answers = {"laplace_answers", *(["gaussian_answers"] if delta != "0" else [])}
    assert accepted == {"private_mw"} | (set() if form in ("marginals:2", "tables") else answers)


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"epsilon": "0"}, "--epsilon: 0.0 is refused"),
        ({"epsilon": "nan"}, "--epsilon: nan is refused"),
        ({"epsilon": "x"}, "--epsilon: 'x' is refused; must be a number"),
        ({"epsilon": None}, "--epsilon: missing"),
        ({"delta": "0.1"}, "unless --allow_large_delta"),
        ({"domain": "nowhere.json"}, "--domain: 'nowhere.json' is refused"),
        ({"workload": "marginals:9"}, "--workload: 'marginals:9' is refused"),
        ({"workload": "nothing:1"}, "--workload: 'nothing:1' is refused"),
        ({"num_records": "0"}, "--num_records: 0 is refused"),
        ({"num_records": "noisy"}, "'noisy' is refused; must be about how many records there are"),
        ({"num_records": "1.5"}, "--num_records: '1.5' is refused; must be a whole number"),
        ({"num_records": "inf"}, "--num_records: 'inf' is refused"),
        ({"neighboring": "both"}, "--neighboring: 'both' is refused"),
        ({"privacy_unit": "person"}, "--max_records_per_unit: missing"),
        ({"privacy_unit": ""}, "--privacy_unit: '' is refused"),
        ({"max_records_per_unit": "2"}, "--max_records_per_unit: 2 is refused"),
        ({"failure_probability": "1"}, "--failure_probability: 1.0 is refused"),
        ({"max_error": "2"}, "--max_error: 2.0 is refused; must be a number > 0 and <= 1"),
    ],
)
def test_a_bad_flag_costs_one_line(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    changed: dict[str, str | None],
    message: str,
):
    assert main(flags(tmp_path, **changed)) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert message in captured.err


@pytest.mark.slow
def test_planning_imports_no_beam(tmp_path: pathlib.Path):
    code = (
        "import sys; from beam_dp.cli.main import main; main(sys.argv[1:]);"
        "print('apache_beam' in sys.modules)"
    )
    argv = [sys.executable, "-c", code, *flags(tmp_path), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
