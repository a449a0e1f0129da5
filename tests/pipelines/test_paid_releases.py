"""Payments: before a program runs, by one entry, and from the budget that paid for edges."""

import copy
import dataclasses
import errno
import json
import os
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import jobs
import numpy as np
import pyarrow as pa
import pytest
from engines.programs import PROGRAMS, Program
from pytest import CaptureFixture, MonkeyPatch

import beam_dp as dp
from beam_dp.privacy.ledger.entries import LaterToken, Origin, Token
from beam_dp.privacy.loss import Loss
from beam_dp.releases.leftovers import finish_writing
from beam_dp.storage.store import LocalStore
from beam_dp.yaml import ReleaseIntervals
from pipelines import (
    answer_queries,
    release_intervals,
    release_synthetic_database,
    release_windows,
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
def test_release_is_paid_for_and_marked_complete(tmp_path, ledger_url):
    ledger = declared_in(ledger_url)
    said = {"purpose": "the monthly report", "who": "Zoë"}
    assert main(paid_flags(tmp_path, ledger_url, **said)) == 0
    (entry,) = ledger.entries("visits")
    assert entry.origin == Origin("Zoë", "the monthly report", str(tmp_path / "out"))
    release = dp.read_release(str(tmp_path / "out"))
    assert (entry.state, entry.draw_id) == ("released", release.draw_id)
    assert release.plan["ledger_release"] == entry.release_id == "visits/1"
    assert (entry.mechanism, entry.guarantee) == ("mwem", release.guarantee)
    assert entry.parameters["num_records"] == "noisy"
    assert ledger.total("visits") == pytest.approx(1000.0)


@pytest.mark.job
def test_failed_job_has_spent_its_budget(tmp_path, capfd):
    url = str(tmp_path / "ledger.sqlite")
    ledger = declared_in(url)
    argv = paid_flags(tmp_path, url, num_records="500")
    jobs.damage_pages(tmp_path / "people.parquet")
    assert main(argv) == 1
    (entry,) = ledger.entries("visits")
    assert entry.state == "submitted"


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


def transform(guarantee: dp.Guarantee, token: Token) -> dp.ReleaseSyntheticDatabase:
    workload = dp.marginals(AGES, ways=1)
    return dp.ReleaseSyntheticDatabase(AGES, workload, guarantee, dp.Laplace(), ledger_token=token)


def promise(epsilon: float) -> dp.Guarantee:
    return dp.Guarantee(epsilon, 0.0, "add_or_remove_one", "record", 1)  # type: ignore[arg-type]


def add_release(pipeline: beam.Pipeline, token: Token, output: Path) -> None:
    rows = pipeline | beam.Create(jobs.people().select(["age"]).to_pylist())
    _ = rows | transform(promise(1.0), token) | dp.WriteRelease(str(output))


@pytest.mark.job
@pytest.mark.parametrize("is_paid_later", [False, True])
def test_card_names_the_entry_of_the_token(tmp_path, is_paid_later):
    ledger = declared_in(str(tmp_path / "ledger.sqlite"))
    stated = "laplace", promise(1.0), Loss.pure(1.0)
    token: Token = LaterToken("visits", *stated)
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        if is_paid_later:
            add_release(pipeline, token, tmp_path / "out")
        paid = ledger.spend("visits", promise(1.0), Loss.pure(1.0), "laplace")
        if is_paid_later:
            assert isinstance(token, LaterToken)
            token.pay(paid)
        else:
            token = paid
            add_release(pipeline, token, tmp_path / "out")
    release = dp.read_release(str(tmp_path / "out"))
    assert release.plan["ledger_release"] == "visits/1"
    ledger.mark_released(token, release.draw_id)
    assert ledger.entries("visits")[0].draw_id == release.draw_id


@pytest.mark.job
def test_unpaid_job_writes_no_release(tmp_path):
    token = LaterToken("visits", "laplace", promise(1.0), Loss.pure(1.0))
    pipeline = beam.Pipeline(runner="FnApiRunner")
    add_release(pipeline, token, tmp_path / "out")
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


DRAW = "0f" * 16
FROM_RELEASE = copy.deepcopy(jobs.DOMAIN)
FROM_RELEASE["attributes"][0]["edges_from"] = {"ledger_release": "visits/1", "draw_id": DRAW}
# Each program, and the flags of a valid job of it.
PROGRAMS_WITH_EDGES: dict[str, tuple[Callable[[list[str]], int], Callable[..., list[str]]]] = {
    "synthetic": (release_synthetic_database.main, jobs.job_flags),
    "intervals": (release_intervals.main, jobs.interval_flags),
    "windows": (release_windows.main, jobs.window_flags),
    "answers": (answer_queries.main, jobs.job_flags),
}


def flags_of(program: str, folder: Path, ledger: dp.Ledger | None, **flags: str) -> list[str]:
    paid = {} if ledger is None else {"ledger": ledger.name, "dataset_id": "visits"}
    own: dict[str, str | None] = {"privacy_unit": "record", "max_records_per_unit": None}
    if program == "answers":
        own |= {"workload": None, "queries": "intervals:age", "mechanism": "laplace"}
    only_age = {"attributes": FROM_RELEASE["attributes"][:1]}
    domain = {"domain": json.dumps(only_age)} if program == "windows" else {}
    argv = PROGRAMS_WITH_EDGES[program][1](folder, **{**own, **domain, **paid, **flags})
    (folder / "domain.json").write_text(json.dumps(FROM_RELEASE), encoding="utf-8")
    return argv


def ledger_of(folder: Path, draw_id: str) -> dp.Ledger:
    ledger = dp.Ledger(str(folder / f"{draw_id[:4]}.sqlite"))
    ledger.declare("visits", 9000.0, 1e-9, "record", "add_or_remove_one")
    ledger.declare("others", 9000.0, 1e-9, "record", "add_or_remove_one")
    guarantee = dp.Guarantee(1.0, 0.0, "add_or_remove_one", "record", 1)
    ledger.mark_released(ledger.spend("visits", guarantee, Loss.pure(1.0), "tree"), draw_id)
    return ledger


@pytest.mark.job
@pytest.mark.parametrize("program", PROGRAMS_WITH_EDGES)
def test_only_the_budget_that_paid_for_edges_may_pay_again(tmp_path, capfd, program):
    ledger, other = ledger_of(tmp_path, DRAW), ledger_of(tmp_path, "1f" * 16)
    for argv, told in (
        (
            flags_of(program, tmp_path, None),
            "--ledger is required, the ledger of the earlier release",
        ),
        (
            flags_of(program, tmp_path, other),
            "must be the ledger of the earlier release: the edges of 'age' come from",
        ),
        (
            flags_of(program, tmp_path, ledger, dataset_id="others"),
            "--dataset_id: 'others' is not valid: must be 'visits'",
        ),
    ):
        jobs.refused_line(PROGRAMS_WITH_EDGES[program][0], argv, capfd, told, folder=tmp_path)
    for each in (ledger, other):
        assert [len(each.entries(name)) for name in ("visits", "others")] == [1, 0]
    argv = flags_of(program, tmp_path, ledger)
    assert PROGRAMS_WITH_EDGES[program][0]([*argv, "--validate_only", "--json"]) == 0
    card = json.loads(capfd.readouterr().out)
    assert card["ledger"]["dataset_id"] == "visits"


def test_releases_in_memory_and_in_YAML_must_use_the_budget_of_their_edges(tmp_path):
    domain = dp.parse_domain({"attributes": FROM_RELEASE["attributes"][:1]})
    guarantee = dp.Guarantee(1.0, 0.0, "add_or_remove_one", "record", 1)
    asked = {"age": np.array([20, 30])}, domain, dp.marginals(domain, ways=1), guarantee
    with pytest.raises(dp.InputError, match="ledger is required, the ledger of"):
        dp.release(pa.table(asked[0]), *asked[1:])
    ledger = ledger_of(tmp_path, DRAW)
    with pytest.raises(dp.InputError, match="dataset_id: 'others' is not valid: must be 'visits'"):
        dp.release(pa.table(asked[0]), *asked[1:], ledger=ledger, dataset_id="others")
    assert len(ledger.entries("others")) == 0
    config = {"epsilon": 1, "delta": 0, "neighboring": "add_or_remove_one",
              "privacy_unit": "record", "attribute": "age", "output": "out"}  # fmt: skip
    with pytest.raises(ValueError, match=r"^ledger is required, the ledger of"):
        ReleaseIntervals(**config, domain=FROM_RELEASE)


@pytest.mark.parametrize("kind", ["synthetic", "intervals"])
def test_transform_accepts_only_a_token_of_the_budget_that_paid(tmp_path, kind):
    domain = dp.parse_domain({"attributes": FROM_RELEASE["attributes"][:1]})
    guarantee = dp.Guarantee(1.0, 0.0, "add_or_remove_one", "record", 1)
    ledger = ledger_of(tmp_path, DRAW)

    def made(token: Token | None, domain: dp.Domain = domain) -> object:
        if kind == "intervals":
            return dp.ReleaseIntervals(domain, "age", guarantee, "tree", token)
        workload = dp.marginals(domain, ways=1)
        return dp.ReleaseSyntheticDatabase(
            domain, workload, guarantee, dp.Laplace(), ledger_token=token
        )

    def paid(dataset_id: str) -> Token:
        mechanism = "intervals" if kind == "intervals" else "laplace"
        return ledger.spend(dataset_id, guarantee, Loss.pure(1.0), mechanism)

    source = "the edges of 'age' come from the release 'visits/1'"
    told = f"must be of 'visits', the budget of the earlier release: {source}"
    for token, given in ((None, "None"), (paid("others"), "'others'")):
        with pytest.raises(dp.InputError, match=f"^ledger_token: {given} is not valid: {told}"):
            made(token)
    made(paid("visits"))
    made(None, dp.parse_domain({"attributes": jobs.DOMAIN["attributes"][:1]}))


def declared(folder: Path, unit: str) -> dp.Ledger:
    ledger = dp.Ledger(str(folder / "ledger.sqlite"))
    ledger.declare("people", 1e6, 1e-6, unit, "add_or_remove_one")
    return ledger


def draft_in(output: Path) -> None:
    """What the writer of another job leaves while it runs, or when it is killed."""
    draft = output / f".draft-{'0' * 32}-1"
    draft.mkdir(parents=True)
    (draft / "records-000.avro").write_bytes(b"private")


OTHER_JOB = "must not contain drafts of another job: stop that job if it is running, then run"


@pytest.mark.job
def test_refuses_drafts_of_another_job_before_paying_for_a_table(tmp_path):
    ledger = declared(tmp_path, "record")
    domain = dp.read_domain('{"age": 2}')
    given = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    paid: dict[str, Any] = {"ledger": ledger, "dataset_id": "people", "output": tmp_path / "out"}
    draft_in(tmp_path / "out")
    table = pa.table({"age": [0, 1, 1]})
    with pytest.raises(dp.InputError, match=f"output: .* {OTHER_JOB}"):
        dp.release(table, domain, dp.marginals(domain, ways=1), given, **paid)
    assert ledger.entries("people") == []
    assert finish_writing(tmp_path / "out") is False
    dp.release(table, domain, dp.marginals(domain, ways=1), given, **paid)


def noted(function: Callable[..., Any], calls: list[Any]) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        calls.append(args)
        return function(*args, **named)

    return call


def test_validate_only_makes_no_temporary_files_in_the_output(tmp_path, monkeypatch):
    argv = [*jobs.job_flags(tmp_path), "--validate_only"]
    written: list[Any] = []
    for name in ("mkdir", "link"):
        monkeypatch.setattr(os, name, noted(getattr(os, name), written))
    assert release_synthetic_database.main(argv) == 0
    assert [args for args in written if str(tmp_path) in str(args)] == []


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


def argv(program: Program, folder: Path, output: str, *more: str) -> list[str]:
    replaced = {flag.partition("=")[0] for flag in more} | {"--output"}
    flags = [flag for flag in program.flags(folder) if flag.partition("=")[0] not in replaced]
    return [*flags, f"--output={folder / output}", *more]


Earlier = Callable[[str], Path]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory) -> Earlier:
    """Returns a release of a program, made once, for which no ledger paid."""
    folders: dict[str, Path] = {}

    def release_of(name: str) -> Path:
        if name not in folders:
            folder = tmp_path_factory.mktemp("earlier")
            assert PROGRAMS[name].main(argv(PROGRAMS[name], folder, "out")) == 0
            folders[name] = folder / "out"
        return folders[name]

    return release_of


def loses(
    name: str,
    earlier: Earlier,
    tmp_path: Path,
    monkeypatch: MonkeyPatch,
    capfd: CaptureFixture[str],
    *more: str,
) -> str:
    winner = earlier(name)
    capfd.readouterr()
    losing(monkeypatch, winner, tmp_path / "out")
    assert PROGRAMS[name].main(argv(PROGRAMS[name], tmp_path, "out", *more)) == 1
    out, err = capfd.readouterr()
    errors = re.findall(
        r"^error: --output: '[^']+' contains the release of another job: .*$", err, re.M
    )
    assert out == "" and len(errors) == 1 and "released" not in err and "answered" not in err, err
    return str(errors[0])


@pytest.mark.job
@pytest.mark.parametrize("name", PROGRAMS)
def test_detects_release_with_another_guarantee(name, earlier, tmp_path, monkeypatch, capfd):
    error = loses(name, earlier, tmp_path, monkeypatch, capfd, "--epsilon=500")
    assert re.search(r"guarantee\.epsilon is 10(00)?\.0 there, and 500\.0 in this job", error)


@pytest.mark.job
@pytest.mark.parametrize(
    ("name", "flag", "field"),
    [
        ("release_synthetic_database", "--workload=marginals:age,sex", "workload"),
        ("release_synthetic_database", "--mechanism=laplace", "mechanism"),
        ("release_projection", "--max_sparsity=11", "max_sparsity"),
        # The same job once more, which draws a hash key of its own.
        ("release_projection", "--max_sparsity=10", "hash_key"),
        ("release_intervals", "--strategy=tree", "mechanism"),
        ("answer_queries, private_mw", "--num_questions=7", "plan"),
    ],
)
def test_detects_release_with_another_plan(
    name, flag, field, earlier, tmp_path, monkeypatch, capfd
):
    assert f"job: {field}" in loses(name, earlier, tmp_path, monkeypatch, capfd, flag)


@pytest.mark.job
@pytest.mark.parametrize("name", ["release_intervals", "answer_queries, laplace"])
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
    program = PROGRAMS[name]
    ledger, (*_, url, dataset_id) = jobs.paid_by(program.flags(tmp_path), tmp_path, 3000.0, 1e-8)
    paid = [url, dataset_id]
    if is_paid[0]:
        assert program.main(argv(program, tmp_path, "earlier", *paid)) == 0
    losing(monkeypatch, tmp_path / "earlier" if is_paid[0] else earlier(name), tmp_path / "out")
    assert program.main(argv(program, tmp_path, "out", *(paid if is_paid[1] else []))) == 1
    err = capfd.readouterr().err
    assert f"another job: {reason}; this job's draw was discarded" in err
    states = [entry.state for entry in ledger.entries("people")]
    assert states == ["released"] * is_paid[0] + ["submitted"] * is_paid[1]
    if is_paid[1]:
        assert f"people/{len(states)} stays marked as submitted" in err
