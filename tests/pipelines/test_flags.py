"""How flags are parsed and refused, and what `--validate_only` prints for people."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from engines.programs import PROGRAMS
from jobs import job_flags, paid_by, refused_line
from preview_pages import check_page

from beam_dp.errors import InputError
from beam_dp.flags import shared
from beam_dp.privacy.guarantee import Guarantee
from pipelines import flags
from pipelines.release_synthetic_database import main

ROOT = Path(__file__).resolve().parent.parent.parent

REQUIRED = [
    f"--{flag.name}={flag.choices[0] if flag.choices else '1'}"
    for flag in shared.COMMON
    if flag.required
]


def parse(*argv: str) -> tuple[dict[str, str], list[str]]:
    return flags.parse(shared.COMMON, argv, program="program", description="A program.")


def refusal(*argv: str) -> str:
    with pytest.raises(flags.FlagError) as caught:
        parse(*argv)
    return flags.one_line(caught.value, shared.COMMON)


def test_keeps_own_flags_as_text_and_passes_beam_flags_through():
    texts, rest = parse(*REQUIRED, "--runner", "FlinkRunner", "--direct_num_workers=2")
    assert texts["epsilon"] == "1"
    assert texts["calibration"] == "tight"
    assert "validate_only" not in texts
    assert rest == ["--runner", "FlinkRunner", "--direct_num_workers=2"]


def test_accepts_negative_number_as_flag_value():
    rest = [flag for flag in REQUIRED if not flag.startswith("--epsilon")]
    for text in ("-1", "-1e-9", "-.5", "-1E+3"):
        assert parse(*rest, "--epsilon", text)[0]["epsilon"] == text


def test_error_line_replaces_argument_in_condition_by_its_flag():
    with pytest.raises(InputError) as caught:
        Guarantee(1.0, 1e-4, "add_or_remove_one", "record", 1)  # type: ignore[arg-type]
    assert flags.one_line(caught.value, shared.COMMON) == (
        "error: --delta: 0.0001 is not valid: must be at most 1e-05,"
        " unless --allow_large_delta is given"
    )


def test_refuses_lone_double_dash():
    assert "-- is not a flag" in refusal(*REQUIRED, "--", "--nonsense")


@pytest.mark.parametrize(
    ("name", "condition", "line"),
    [
        ("epsilon", "must be finite and > 0", "--epsilon: 7 is not valid: must be finite and > 0"),
        ("age.edges", "must hold two\nor more", "age.edges: 7 is not valid: must hold two or more"),
    ],
)
def test_error_adds_dashes_only_to_names_of_flags(name, condition, line):
    error = InputError(name, 7, condition)
    assert flags.one_line(error, shared.COMMON) == f"error: {line}"


FACTS = {
    "release_synthetic_database": ("records expected in a cell (root mean square)", "marginals"),
    "release_projection": ("queries of up to", "each answer comes with its own standard error"),
    "release_intervals": ("all intervals of", "root mean square over all intervals"),
    "answer_queries, private_mw": ("query over 24 cells", "bound depends on the number of records"),
    "answer_queries, sparse_mw": ("arbitrary keys", "bound depends on the number of records"),
    "answer_queries, laplace": ("records expected of an answer", "with probability 95 %"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_preview_shows_facts_cost_and_author_and_spends_nothing(tmp_path, capfd, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    ledger, flags = paid_by(PROGRAMS[name].flags(tmp_path), tmp_path, 1e5)
    told = ["--purpose=a report", "--who=Zoë", "--validate_only"]
    assert PROGRAMS[name].main([*flags, *told]) == 0
    cost = "budget people: epsilon 100000, delta 1e-06"
    check_page(capfd.readouterr().out, *FACTS[name], cost, "by Zoë, for a report")
    assert ledger.entries("people") == [] and not (tmp_path / "out").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_refuses_unreadable_input(tmp_path, capfd):
    argv = job_flags(tmp_path)
    (tmp_path / "people.parquet").chmod(0)
    refused_line(
        main, argv, capfd, r"--input: '.*people\.parquet' is not valid: must", folder=tmp_path
    )


def test_refuses_binary_domain_file(tmp_path, capfd):
    argv = job_flags(tmp_path)
    (tmp_path / "domain.json").write_bytes(b'{"age": \xff}')
    refused_line(
        main,
        argv,
        capfd,
        r"--domain: '.*domain\.json' is not valid: must be UTF-8",
        folder=tmp_path,
    )


def test_domain_file_may_start_with_a_byte_order_mark(tmp_path, capfd):
    argv = [*job_flags(tmp_path), "--validate_only"]
    path = tmp_path / "domain.json"
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert main(argv) == 0, capfd.readouterr().err


@pytest.mark.part
def test_refusal_in_a_new_process_prints_only_one_line(tmp_path):
    argv = job_flags(tmp_path, epsilon="0")
    result = subprocess.run(
        [sys.executable, "-m", "pipelines.release_synthetic_database", *argv],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert re.fullmatch(r"error: --epsilon: 0(\.0)? is not valid: [^\n]+\n", result.stderr)
