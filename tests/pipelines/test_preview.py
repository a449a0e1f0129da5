"""What `--validate_only` prints for people: a page at 80 columns, of every program."""

from __future__ import annotations

from pathlib import Path

import pytest
from engines.programs import PROGRAMS
from preview_pages import check_page
from pytest import CaptureFixture, MonkeyPatch

from beam_dp.privacy.ledger.ledger import Ledger

FACTS = {
    "release_synthetic_database": ("records expected of a cell, root mean squared", "marginals"),
    "release_projection": ("queries of up to", "each answer comes with its own standard error"),
    "release_intervals": ("all intervals of", "root mean squared over all intervals"),
    "answer_queries, private_mw": ("query over 24 cells", "bound depends on the number of records"),
    "answer_queries, sparse_mw": ("keys without end", "bound depends on the number of records"),
    "answer_queries, laplace": ("records expected of an answer", "except with probability 0.05"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_page_says_what_would_be_released(
    tmp_path: Path, capfd: CaptureFixture[str], monkeypatch: MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    flags = PROGRAMS[name].flags(tmp_path)
    unit = next(flag for flag in flags if flag.startswith("--privacy_unit=")).partition("=")[2]
    ledger = Ledger(str(tmp_path / "ledger.sqlite"))
    ledger.declare("people", 1e5, 1e-6, unit, "add_or_remove_one")
    flags += [f"--ledger={ledger.name}", "--dataset_id=people", "--purpose=a report", "--who=Zoë"]
    assert PROGRAMS[name].main([*flags, "--validate_only"]) == 0
    cost = "budget people: epsilon 100000, delta 1e-06"
    check_page(capfd.readouterr().out, *FACTS[name], cost, "by Zoë, for a report")
    assert ledger.entries("people") == [] and not (tmp_path / "out").exists()


def test_json_says_how_a_page_is_printed(tmp_path: Path, capfd: CaptureFixture[str]) -> None:
    line = "error: --json: must be given with --validate_only, whose output it changes\n"
    name = "release_intervals"
    assert PROGRAMS[name].main([*PROGRAMS[name].flags(tmp_path), "--json"]) == 2
    assert capfd.readouterr().err == line
