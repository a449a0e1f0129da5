"""The tables of `beam-dp plan` at 80 columns: no cell is wrapped or cut."""

from __future__ import annotations

import dataclasses
import json

import pytest
from plan_words import KINDS, argv
from rich.console import Console

from beam_dp.cli.main import main
from beam_dp.cli.plan_tables import Row, bound_text, memory_text, options_table, time_text
from beam_dp.mechanisms.resources import Resources
from beam_dp.planning.job import Option
from beam_dp.theorems.theorem import Bound

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
        ("marginals", {"epsilon": None, "target_error": "1234.5"}),
        ("windows", {"epsilon": None, "target_error": "1234.5"}),
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
        ("marginals", {"target_error": "50"}),
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
