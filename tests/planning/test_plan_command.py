"""Commands of `beam-dp plan`: tables at 80 columns, query counts, and windows."""

from __future__ import annotations

import dataclasses
import json
import shlex
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plan_words import KINDS, QUERIES, WINDOWS, argv
from rich.console import Console
from tiny import ADD

from beam_dp.cli.main import main
from beam_dp.cli.plan_tables import (
    Row,
    bound_text,
    counted_queries,
    memory_text,
    options_table,
    time_text,
)
from beam_dp.domain.files import read_domain
from beam_dp.mechanisms.resources import Resources
from beam_dp.planning.job import Option
from beam_dp.planning.ranking import rank_window_strategies
from beam_dp.queries.workload import Workload
from beam_dp.theorems.synthesis import MAX_QUERIES
from beam_dp.theorems.theorem import Bound
from beam_dp.windows.horizon import Horizon, WindowUnit
from pipelines import release_windows

WIDTH = 80


def lines_of(capsys: pytest.CaptureFixture[str], words: list[str]) -> list[str]:
    assert main(words) == 0
    return capsys.readouterr().out.splitlines()


def table_of(lines: list[str]) -> list[str]:
    """The lines of the table: from its header to the next empty line."""
    start = next(n for n, line in enumerate(lines) if line.startswith(("mechanism ", "error ")))
    return lines[start : lines.index("", start)]


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("marginals", {"max_error": "0.001"}),
        ("marginals", {"max_error": "1e-9", "epsilon": "1e-9", "num_records": "1e12"}),
        ("intervals", {}),
        ("conjunctions", {"num_records": "1099511627776"}),
        ("windows", {"questions": "one,trailing:168,running,trailing:2,trailing:3,trailing:4"}),
        ("windows", {"epsilon": "1e-4"}),
        *(
            pytest.param(kind, {"epsilon": None, "target_error": "1234.5"}, marks=pytest.mark.part)
            for kind in ("marginals", "windows")
        ),
        pytest.param("keys", {"delta": "1e-9"}, marks=pytest.mark.part),
        pytest.param("keys", {"epsilon": None, "target_error": "4000"}, marks=pytest.mark.part),
    ],
)
def test_each_option_fits_in_one_line(capsys, monkeypatch, kind, changed):
    words = argv(KINDS[kind], **{"epsilon": "1", **changed})
    monkeypatch.setenv("COLUMNS", "300")
    wide = table_of(lines_of(capsys, words))
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    lines = lines_of(capsys, words)
    assert [line.split() for line in table_of(lines)] == [line.split() for line in wide]
    # The command line at the end is to be copied.
    assert max(map(len, lines[:-1])) <= WIDTH


def test_longest_possible_rows_fit_in_one_line():
    bound = Bound("union", 2**53, 1e300, 0.05)
    option = Option("gaussian_answers", "textbook", None, bound=bound, note="x")
    option = dataclasses.replace(option, resources=Resources(2**70, 1e12))
    assert bound_text(option) == "vacuous"
    cells = ["1.235e-05", "9.9e+99", bound_text(option), memory_text(option), time_text(option)]
    for columns, each in (
        (["epsilon", "error", "bound", "memory", "time"], cells),
        (
            ["error", "bound", "records", "memory", "time"],
            ["(9.9e+99)", cells[2], "9.9e+99", *cells[3:]],
        ),
    ):
        row = Row("gaussian_answers, tight", option, each)
        console = Console(width=WIDTH)
        with console.capture() as capture:
            console.print(options_table("", columns, [row], [], show_refused=False))
        lines = capture.get().splitlines()
        assert any(line.split() == f"{row.name} [1] {' '.join(each)}".split() for line in lines)


def test_flag_all_shows_refusals_instead_of_their_number(capsys):
    words = argv(KINDS["marginals"], epsilon="1")
    few = "\n".join(lines_of(capsys, words))
    assert "4 other mechanisms cannot do this job; --all explains why" in few
    assert "intervals, tight" not in few
    told = " ".join(" ".join(lines_of(capsys, [*words, "--all"])).split())
    assert "intervals, tight: not possible: workload: 26 is not valid: must be intervals" in told
    assert "--all explains why" not in told


def test_single_refusal_is_worded_in_the_singular(capsys):
    words = argv(KINDS["intervals"], epsilon="1")
    assert "1 other mechanism cannot do this job; --all explains why" in lines_of(capsys, words)


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("marginals", {"epsilon": "1"}),
        pytest.param("marginals", {"target_error": "50"}, marks=pytest.mark.part),
        ("windows", {"epsilon": "1"}),
    ],
)
def test_plan_with_released_edges_says_which_budget_must_pay(capsys, kind, asked):
    origin = {"ledger_release": "visits/1", "draw_id": "0f" * 16}
    age = {"name": "age", "type": "numeric", "edges": [0, 20, 40], "edges_from": origin}
    domain = json.dumps({"attributes": [age]})
    words = argv(KINDS[kind], domain=domain, workload="marginals:1", **asked)
    told = " ".join(" ".join(lines_of(capsys, words)).split())
    assert "--ledger LEDGER --dataset_id visits" in told
    assert told.endswith(
        "the edges of 'age' come from the release 'visits/1': pay from the same budget, 'visits' in"
        " the ledger that paid for that release, because both releases add up"
    )


# `beam-dp plan --target_error` without a workload: how many queries may be asked.


def planned(capsys: pytest.CaptureFixture[str], **given: str | None) -> dict[str, Any]:
    assert main(argv(QUERIES, "--json", **given)) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.part
@pytest.mark.parametrize(
    "given",
    [
        {"max_sparsity": "16"},
        {"num_cells": "1e300", "max_sparsity": "2147483648", "num_records": "1099511627776"},
        {"num_cells": "1", "num_records": "1e9"},
        {"num_cells": None, "max_sparsity": "1", "target_error": "1e-9"},
        {"num_cells": None, "domain": '{"a": 4, "b": 3}', "delta": "1e-9", "neighboring": ADD},
    ],
)
def test_table_of_query_counts_fits_80_columns(capsys, monkeypatch, given):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(argv(QUERIES, "--all", **given)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    start = next(n for n, line in enumerate(lines) if line.startswith("mechanism "))
    table = lines[start + 1 : lines.index("", start)]
    options = [each for each in planned(capsys, **given)["options"] if each["refusal"] is None]
    assert [line.split(" [")[0] for line in table] == [
        f"{each['mechanism']}, {each['calibration']}" for each in options
    ]
    for line, each in zip(table, options, strict=True):
        queries = line.split("]")[1].strip()
        if each["num_queries"] is not None:
            assert queries == (f"{each['num_queries']:,}" if each["num_queries"] else "none")
        else:
            assert f"10^{each['log10_num_queries']:,.0f}" in queries
    text = " ".join("\n".join(lines).split())
    assert ("the error for no query" in text) == any(each["num_queries"] == 0 for each in options)
    assert all(each["theorem"] in text and each["assumes"] in text for each in options)


def test_domain_flag_gives_the_same_plan_as_its_number_of_cells(capsys):
    domain = planned(capsys, num_cells=None, domain='{"a": 32, "b": 32}')
    assert domain == planned(capsys)
    found = {(each["mechanism"], each["calibration"]): each for each in domain["options"]}
    assert found["small_db", "textbook"]["num_queries"] == 7396
    assert found["private_mw", "tight"]["num_queries"] == 126
    assert "1,024 cells" in found["small_db", "textbook"]["assumes"]
    assert found["sparse_mw", "tight"]["refusal"] == "max_sparsity must be given"


def test_private_number_of_records_lowers_query_counts(capsys):
    public = planned(capsys)["options"]
    private = planned(capsys, neighboring=ADD)["options"]
    of = [{(o["mechanism"], o["calibration"]): o for o in each} for each in (public, private)]
    for key, option in of[1].items():
        if option["refusal"] is None and key[0] in ("small_db", "mwem"):
            assert "a public number of records" in option["assumes"]
    tight = "private_mw", "tight"
    assert of[1][tight]["num_queries"] < of[0][tight]["num_queries"]


def test_large_query_counts_are_printed_as_powers_of_ten():
    assert counted_queries(10**15 - 1) == "999,999,999,999,999"
    assert counted_queries(10**15) == "about 10^15"
    assert counted_queries(MAX_QUERIES) == "10^10,000 or more"


# `beam-dp plan --windows`: the ways to measure windows, and what is refused in which words.


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
