"""Payments: before a program runs, by one entry, and from the budget that paid for edges."""

import dataclasses
import errno
import functools
import os
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import jobs
import pytest
from program_jobs import JOBS, ONE_OF_EACH, texts
from pytest import MonkeyPatch

import beam_dp as dp
from beam_dp.privacy.ledger.entries import LaterToken, Origin, Token
from beam_dp.privacy.loss import Loss
from beam_dp.storage.store import LocalStore
from pipelines import (
    answer_queries,
    running,
)
from pipelines.release_synthetic_database import main, parse_arguments


def declared_in(url: str, epsilon: float = 1000.0, delta: float = 1e-9) -> dp.Ledger:
    ledger = dp.Ledger(url)
    ledger.declare("visits", epsilon, delta, "record", "add_or_remove_one")
    return ledger


def paid_flags(folder: Path, url: str, **overrides: str | None) -> list[str]:
    return jobs.job_flags(folder, ledger=url, dataset_id="visits", **overrides)


@pytest.mark.job
def test_release_is_paid_from_either_database_and_says_why(tmp_path, ledger_url):
    ledger = declared_in(ledger_url)
    said = {"purpose": "the monthly report", "who": "Zoë"}
    assert main(paid_flags(tmp_path, ledger_url, **said)) == 0
    (entry,) = ledger.entries("visits")
    assert entry.origin == Origin("Zoë", "the monthly report", str(tmp_path / "out"))
    assert entry.state == "released" and entry.parameters["num_records"] == "noisy"


@pytest.mark.job
def test_job_that_cannot_be_marked_draws_nothing(tmp_path, capfd, monkeypatch):
    """Otherwise an entry that says `spent` would not say that nothing was drawn."""
    url = str(tmp_path / "ledger.sqlite")
    ledger = declared_in(url)

    def full(*_: object) -> None:
        raise dp.LedgerError("ledger", url, "must be on a disk with room left")

    monkeypatch.setattr(dp.Ledger, "mark_submitted", full)
    assert main(paid_flags(tmp_path, url)) == 1
    err = capfd.readouterr().err
    assert f"error: visits/1 was paid, but its job was not submitted: ledger: {url!r}" in err
    assert [entry.state for entry in ledger.entries("visits")] == ["spent"]
    assert not (tmp_path / "out").exists()


@pytest.mark.job
@pytest.mark.parametrize("rows", ["1000", None])
def test_full_disk_is_found_before_the_payment(tmp_path, capfd, monkeypatch, rows):
    url = str(tmp_path / "ledger.sqlite")
    ledger = declared_in(url)
    rest = {"num_synthetic_records": rows, "epsilon": "1", "records_format": "csv"}
    argv = paid_flags(tmp_path, url, **rest)
    expected = parse_arguments(argv).plan.disk_bytes
    assert main([*argv, "--validate_only"]) == 0
    assert "MB of released records" in (out := capfd.readouterr().out) or "MB more" in out
    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "free_bytes", lambda _: expected - 1)
        jobs.refused_line(
            main, argv, capfd, "--output: .* must be on a disk with room for the records"
        )
    assert ledger.entries("visits") == []
    assert main(argv) == 0
    (size,) = (path.stat().st_size for path in (tmp_path / "out").glob("*.csv"))
    assert rows is None or expected / 10 < size <= expected


AGES = dp.Domain((dp.IntegerAttribute("age", 0, 100),))


def promise(epsilon: float) -> dp.Guarantee:
    return dp.Guarantee(epsilon, 0.0, "add_or_remove_one", "record", 1)  # type: ignore[arg-type]


@pytest.mark.job
def test_unpaid_job_writes_no_release(tmp_path):
    token = LaterToken("visits", "laplace", promise(1.0), Loss.pure(1.0))
    pipeline = beam.Pipeline(runner="FnApiRunner")
    workload = dp.marginals(AGES, ways=1)
    release = dp.ReleaseSyntheticDatabase(
        AGES, workload, promise(1.0), dp.Laplace(), ledger_token=token
    )
    _ = pipeline | beam.Create([{"age": 7}]) | release | dp.WriteRelease(str(tmp_path / "out"))
    with pytest.raises(RuntimeError):
        pipeline.run()
    assert not (tmp_path / "out" / "card.json").exists()


def test_later_token_contains_its_entry_once_it_is_paid_for():
    token = LaterToken("visits", "laplace", promise(1.0), Loss.pure(1.0))
    assert pickle.loads(pickle.dumps(token)) is token
    with pytest.raises(RuntimeError, match="was not paid for"):
        _ = token.release_id
    paid = Token("visits", 7, "laplace", promise(1.0), Loss.pure(1.0))
    with pytest.raises(dp.InputError, match="ledger_token: 'visits/7' is not valid"):
        token.pay(dataclasses.replace(paid, mechanism="gaussian"))
    token.pay(paid)
    assert token.release_id == "visits/7"
    assert pickle.loads(pickle.dumps(token)) == paid


@pytest.mark.job
def test_state_in_read_only_folder_gives_a_one_line_error(tmp_path, monkeypatch, capfd):
    (tmp_path / "queries.jsonl").write_text('{"conjunction": {"sex": "Female"}}')
    mkdir = os.mkdir

    def read_only(path: Any, *args: Any, **named: Any) -> None:
        if ".saving-" in os.fspath(path):
            raise OSError(errno.EROFS, "Read-only file system")
        mkdir(path, *args, **named)

    named = {"queries": str(tmp_path / "queries.jsonl"), "state": str(tmp_path / "state")}
    ledger, argv = jobs.paid_by(
        jobs.job_flags(tmp_path, jobs.people(20), workload=None, **named), tmp_path
    )
    monkeypatch.setattr(os, "mkdir", read_only)
    pattern = r"^error: --state: '.*state' is not valid: .*: Read-only file system$"
    jobs.refused_line(answer_queries.main, argv, capfd, pattern, folder=tmp_path)
    assert ledger.entries("people") == []


def losing(monkeypatch: MonkeyPatch, winner: Path, output: Path) -> None:
    """Lets another draw be committed just before the job runs."""
    run = running._run_to_end

    def run_to_end(*arguments: object) -> str | None:
        shutil.copytree(winner, output)
        return run(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(running, "_run_to_end", run_to_end)


def argv(name: str, folder: Path, output: str = "out", **changed: str) -> list[str]:
    return texts({**JOBS[name].flags(folder), "output": str(folder / output), **changed})


Earlier = Callable[[str], Path]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory) -> Earlier:
    """Returns a release of a job, made once, for which no ledger paid."""

    @functools.cache
    def release_of(name: str) -> Path:
        folder: Path = tmp_path_factory.mktemp("earlier")
        assert JOBS[name].main(argv(name, folder)) == 0
        return folder / "out"

    return release_of


@pytest.mark.job
@pytest.mark.parametrize(
    ("name", "changed", "told"),
    [
        *((name, {"epsilon": "500"}, "guarantee.epsilon is 10") for name in ONE_OF_EACH),
        ("synthetic database", {"workload": "marginals:age,sex"}, "workload"),
        ("synthetic database", {"mechanism": "laplace"}, "mechanism"),
        ("projection", {"max_sparsity": "11"}, "max_sparsity"),
        ("projection", {}, "hash_key"),  # each job draws one of its own
        ("intervals", {"strategy": "tree"}, "mechanism"),
        ("answers, private_mw", {"num_questions": "7"}, "plan"),
    ],
)
def test_detects_release_with_another_guarantee_or_plan(
    name, changed, told, earlier, tmp_path, monkeypatch, capfd
):
    losing(monkeypatch, earlier(name), tmp_path / "out")
    capfd.readouterr()
    assert JOBS[name].main(argv(name, tmp_path, **changed)) == 1
    out, err = capfd.readouterr()
    start = r"^error: --output: '[^']+' contains the release of another job: "
    assert len(re.findall(f"{start}{re.escape(told)}", err, re.M)) == 1, err
    assert out == "" and "released" not in err and "answered" not in err, err


@pytest.mark.job
@pytest.mark.parametrize("name", ["intervals", "answers, laplace"])
@pytest.mark.parametrize(
    ("is_paid", "reason"),
    [
        ((False, True), "no ledger paid for it"),
        ((True, False), "people/1 paid for it"),
        ((True, True), "people/1 paid for it"),
    ],
)
def test_detects_release_paid_for_by_another_entry(
    name, is_paid, reason, earlier, tmp_path, monkeypatch, capfd
):
    main = JOBS[name].main
    ledger, _ = jobs.paid_by(argv(name, tmp_path), tmp_path, 3000.0, 1e-8)
    paid = {"ledger": ledger.name, "dataset_id": "people"}
    if is_paid[0]:
        assert main(argv(name, tmp_path, "earlier", **paid)) == 0
    losing(monkeypatch, tmp_path / "earlier" if is_paid[0] else earlier(name), tmp_path / "out")
    assert main(argv(name, tmp_path, **(paid if is_paid[1] else {}))) == 1
    err = capfd.readouterr().err
    assert f"another job: {reason}; this job's draw was discarded" in err
    states = [entry.state for entry in ledger.entries("people")]
    assert states == ["released"] * is_paid[0] + ["submitted"] * is_paid[1]
    if is_paid[1]:
        assert f"people/{len(states)} stays marked as submitted" in err
