"""Every program on Prism, unmodified, compared with the same program on FnApiRunner."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import pytest
from engines.contracts import PROGRAMS, card, check_answers, check_contract
from jobs import breaks_later, everything_under, files_of_one_draw, job_flags

from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.storage.local import LocalStore
from beam_dp.summaries.histogram import HistogramAccumulator
from pipelines import release_synthetic_database

pytestmark = pytest.mark.engines
SECRET = "a count of 4711"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_keeps_its_contract(name: str, tmp_path: pathlib.Path, prism: list[str]) -> None:
    check_contract(name, tmp_path, prism)


def test_answers_are_near_the_truth_and_a_bad_line_has_an_error(
    tmp_path: pathlib.Path, prism: list[str]
) -> None:
    check_answers(tmp_path, prism)


def test_a_paid_release_says_nothing_of_beams_and_is_marked(
    tmp_path: pathlib.Path, prism: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    ledger = Ledger(str(tmp_path / "ledger.sqlite"))
    ledger.declare("people", 1000.0, 1e-9, "record", "add_or_remove_one")
    argv = [*job_flags(tmp_path, ledger=ledger.name, dataset_id="people"), *prism]
    assert release_synthetic_database.main(argv) == 0
    (entry,) = ledger.entries("people")
    assert (entry.state, entry.draw_id) == ("released", card(tmp_path / "out")["draw_id"])
    assert everything_under(tmp_path / "out") == files_of_one_draw(tmp_path / "out")
    _, err = capfd.readouterr()
    warning, *lines = err.splitlines()
    assert warning.startswith("warning: epsilon 1000 protects little: ")
    assert all(re.match(r"\[ +[0-9.]+ s\] ", line) for line in lines), err


@pytest.mark.parametrize(
    ("owner", "method", "line"),
    [
        (HistogramAccumulator, "from_shards", "the job failed with RuntimeError"),
        (LocalStore, "create_exclusively", "the job failed with RuntimeError"),
    ],
)
def test_a_job_that_fails_publishes_nothing_and_says_nothing_of_records(
    owner: type,
    method: str,
    line: str,
    tmp_path: pathlib.Path,
    prism: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    tried: list[Any] = []

    def fail(*_: Any) -> Any:
        tried.append(method)
        raise ArithmeticError(SECRET)  # by its name: a traceback shows this line

    ledger = Ledger(str(tmp_path / "ledger.sqlite"))
    ledger.declare("people", 1000.0, 1e-9, "record", "add_or_remove_one")
    argv = [*job_flags(tmp_path, ledger=ledger.name, dataset_id="people"), *prism]
    breaks_later(monkeypatch)
    # The workers are threads of this process.
    monkeypatch.setattr(owner, method, fail)
    assert release_synthetic_database.main(argv) == 1
    assert tried
    (entry,) = ledger.entries("people")
    assert entry.state == "spent"
    assert everything_under(tmp_path / "out") == []
    out, err = capfd.readouterr()
    assert out == "" and len(re.findall(rf"^error: {line}[^\n]*$", err, re.M)) == 1, err
    assert SECRET not in err and "Traceback" not in err


def test_a_run_that_is_saved_is_refused_on_prism(
    tmp_path: pathlib.Path, prism: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    program = PROGRAMS["private_mw"]
    state = f"--state={tmp_path / 'state'}"
    assert program.main([*program.argv(tmp_path, tmp_path / "out"), state, *prism]) == 2
    _, err = capfd.readouterr()
    assert re.fullmatch(r"error: --state: '.*/state' is refused; .* --runner [^\n]+\n", err), err
    assert not (tmp_path / "state").exists() and not (tmp_path / "out").exists()
