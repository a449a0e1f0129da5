"""Every program plans and builds once, tries its output, then pays, and knows its own release."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from calls import calls_of
from engines.programs import PROGRAMS, Program
from jobs import job_flags, paid_by, people, refused_line
from pytest import CaptureFixture, MonkeyPatch
from yaml_jobs import PAID_JOBS, RELEASE, build, paid, read, run, step

import beam_dp as dp
from beam_dp.errors import InputError
from beam_dp.mechanisms.intervals.plan import plan_intervals
from beam_dp.mechanisms.linear_answers.answers import plan_workload_answers
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.mechanisms.online.private_mw_plan import plan_private_mw
from beam_dp.mechanisms.online.sparse_mw import plan_sparse_mw
from beam_dp.mechanisms.sketches.mechanisms import CountSketch
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.releases.leftovers import finish_writing
from pipelines import answer_queries, program, release_synthetic_database, running

PLANNERS: dict[str, Callable[..., Any]] = {
    "release_synthetic_database": MWEM.plan,
    "release_projection": CountSketch.plan,
    "release_intervals": plan_intervals,
    "answer_queries, private_mw": plan_private_mw,
    "answer_queries, sparse_mw": plan_sparse_mw,
    "answer_queries, laplace": plan_workload_answers,
}
PLANNERS_OF_YAML: dict[str, Callable[..., Any]] = {
    "synthetic database": MWEM.plan,
    "projection": CountSketch.plan,
    "intervals": plan_intervals,
    "private_mw": plan_private_mw,
    "laplace": plan_workload_answers,
}


def declared(folder: Path, unit: str) -> Ledger:
    ledger = Ledger(str(folder / "ledger.sqlite"))
    ledger.declare("people", 1e6, 1e-6, unit, "add_or_remove_one")
    return ledger


@pytest.mark.job
@pytest.mark.parametrize(
    ("end", "payment"),
    [("run", "with a ledger"), ("run", "without"), ("validated", "with a ledger")],
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_command_line_job_is_planned_and_built_once(tmp_path, monkeypatch, name, end, payment):
    flags = PROGRAMS[name].flags(tmp_path)
    if payment == "with a ledger":
        _, flags = paid_by(flags, tmp_path)
    started: list[str] = []
    # The job that was built is not needed here.
    monkeypatch.setattr(
        "pipelines.program.run_pipeline", lambda _, __, outputs: bool(started.extend(outputs))
    )
    with calls_of(PLANNERS[name]) as planned, calls_of(program.build) as built:
        code = PROGRAMS[name].main(
            [*flags, *(["--validate_only", "--json"] if end == "validated" else [])]
        )
    assert (code, started) == ((0, []) if end == "validated" else (1, [str(tmp_path / "out")]))
    assert (len(planned), len(built)) == (1, 1)


@pytest.mark.job
@pytest.mark.parametrize("name", PAID_JOBS)
def test_yaml_job_is_planned_once(tmp_path, name):
    ledger = declared(tmp_path, "household")
    chain = {"type": "chain", "transforms": [read(tmp_path), paid(name, ledger, tmp_path)]}
    with calls_of(PLANNERS_OF_YAML[name]) as planned:
        build(beam.Pipeline(runner=FnApiRunner()), chain)
    assert len(planned) == 1, planned
    assert [entry.state for entry in ledger.entries("people")] == ["submitted"]


def no_links(*_: object, **__: object) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


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
    with pytest.raises(InputError, match=f"output: .* {OTHER_JOB}"):
        dp.release(table, domain, dp.marginals(domain, ways=1), given, **paid)
    assert ledger.entries("people") == []
    assert finish_writing(tmp_path / "out") is False
    dp.release(table, domain, dp.marginals(domain, ways=1), given, **paid)


@pytest.mark.job
@pytest.mark.parametrize("is_paid", [False, True])
def test_transform_refuses_drafts_of_another_job_at_construction(tmp_path, is_paid):
    ledger = declared(tmp_path, "household")
    paid = {"ledger": ledger.name, "dataset_id": "people"} if is_paid else {}
    draft_in(tmp_path / "out")
    with pytest.raises(InputError, match=f"output: .* {OTHER_JOB}"):
        dp.WriteRelease(tmp_path / "out")
    fields = {**RELEASE, **paid, "output": str(tmp_path / "out")}
    with pytest.raises(ValueError, match=f"output: .* {OTHER_JOB}"):
        run(read(tmp_path), step("ReleaseSyntheticDatabase", **fields))
    assert ledger.entries("people") == []


def noted(function: Callable[..., Any], calls: list[Any]) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        calls.append(args)
        return function(*args, **named)

    return call


def test_validate_only_makes_no_temporary_files_in_the_output(tmp_path, monkeypatch):
    argv = [*job_flags(tmp_path), "--validate_only"]
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
    ledger, argv = paid_by(job_flags(tmp_path, people(20), workload=None, **named), tmp_path)
    monkeypatch.setattr(os, "mkdir", read_only)
    pattern = r"^error: --state: '.*state' is not valid: .*: Read-only file system$"
    refused_line(answer_queries.main, argv, capfd, pattern, folder=tmp_path)
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
    assert "guarantee.epsilon is 1000.0 there, and 500.0 in this job" in error


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
    ledger, (*_, url, dataset_id) = paid_by(program.flags(tmp_path), tmp_path, 3000.0, 1e-8)
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
