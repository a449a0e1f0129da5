"""Whether results can be written is tried before a ledger is paid from, by whatever pays."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from engines.programs import PROGRAMS
from jobs import everything_under, job_flags, people
from pytest import CaptureFixture, MonkeyPatch
from yaml_jobs import RELEASE, read, run, step

import beam_dp as dp
from beam_dp.errors import InputError
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.releases.leftovers import finish_writing
from pipelines import answer_queries, release_synthetic_database


def no_links(*_: object, **__: object) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


def declared(folder: Path, unit: str) -> Ledger:
    ledger = Ledger(str(folder / "ledger.sqlite"))
    ledger.declare("people", 1e6, 1e-6, unit, "add_or_remove_one")
    return ledger


def refusal(capfd: CaptureFixture[str], code: int) -> str:
    """The one line that was printed."""
    out, err = capfd.readouterr()
    assert code == 2, err
    assert out == "" and re.fullmatch(r"error: [^\n]+\n", err), err
    return err


@pytest.mark.mostly_slow(one_in=2, start=1)
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_output_without_hard_links_costs_one_line(
    tmp_path: Path, monkeypatch: MonkeyPatch, capfd: CaptureFixture[str], name: str
) -> None:
    program = PROGRAMS[name]
    flags = program.flags(tmp_path)
    unit = next(flag for flag in flags if flag.startswith("--privacy_unit=")).partition("=")[2]
    ledger = declared(tmp_path, unit)
    argv = [*flags, f"--ledger={ledger.name}", "--dataset_id=people"]
    before = everything_under(tmp_path)
    monkeypatch.setattr(os, "link", no_links)
    line = refusal(capfd, program.main(argv))
    assert re.match(r"error: --output: '.*out' is refused; .*: Operation not permitted$", line)
    assert ledger.entries("people") == [] and everything_under(tmp_path) == before


def draft_in(output: Path) -> None:
    """What the writer of another job leaves while it runs, or when it is killed."""
    draft = output / f".draft-{'0' * 32}-1"
    draft.mkdir(parents=True)
    (draft / "records-000.avro").write_bytes(b"private")


OTHER_JOB = "must hold no drafts of another job: stop that job if it is running, then run"


@pytest.mark.mostly_slow(one_in=2, start=0)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("is_preview", [False, True])
def test_drafts_of_another_job_are_refused_before_a_program_pays(
    tmp_path: Path, capfd: CaptureFixture[str], name: str, is_preview: bool
) -> None:
    program = PROGRAMS[name]
    flags = program.flags(tmp_path)
    unit = next(flag for flag in flags if flag.startswith("--privacy_unit=")).partition("=")[2]
    ledger = declared(tmp_path, unit)
    argv = [*flags, f"--ledger={ledger.name}", "--dataset_id=people"]
    draft_in(tmp_path / "out")
    before = everything_under(tmp_path)
    line = refusal(capfd, program.main([*argv, "--validate_only"] if is_preview else argv))
    assert line.startswith(f"error: --output: '{tmp_path}/out' is refused; {OTHER_JOB} `beam-dp fi")
    assert ledger.entries("people") == [] and everything_under(tmp_path) == before


def test_drafts_of_another_job_are_refused_before_a_table_is_paid_for(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("is_paid", [False, True])
def test_drafts_of_another_job_are_refused_when_a_transform_is_built(
    tmp_path: Path, is_paid: bool
) -> None:
    ledger = declared(tmp_path, "household")
    paid = {"ledger": ledger.name, "dataset_id": "people"} if is_paid else {}
    draft_in(tmp_path / "out")
    with pytest.raises(InputError, match=f"output: .* {OTHER_JOB}"):
        dp.WriteRelease(tmp_path / "out")
    fields = {**RELEASE, **paid, "output": str(tmp_path / "out")}
    with pytest.raises(ValueError, match=f"output: .* {OTHER_JOB}"):
        run(read(tmp_path), step("ReleaseSyntheticDatabase", **fields))
    assert ledger.entries("people") == []


def test_without_a_ledger_it_is_tried_before_the_job_runs(
    tmp_path: Path, monkeypatch: MonkeyPatch, capfd: CaptureFixture[str]
) -> None:
    argv = job_flags(tmp_path)
    monkeypatch.setattr(os, "link", no_links)
    assert "--output" in refusal(capfd, release_synthetic_database.main(argv))


@pytest.mark.slow
def test_a_release_of_yaml_is_refused_before_it_pays(
    tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    ledger = declared(tmp_path, "household")
    paid = {"ledger": ledger.name, "dataset_id": "people", "output": str(tmp_path / "out")}
    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(ValueError, match=r"output: .*: Operation not permitted$"):
        run(read(tmp_path), step("ReleaseSyntheticDatabase", **RELEASE, **paid))
    assert ledger.entries("people") == []


def noted(function: Callable[..., Any], calls: list[Any]) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        calls.append(args)
        return function(*args, **named)

    return call


def test_validate_only_writes_nothing_not_even_for_a_moment(
    tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    argv = [*job_flags(tmp_path), "--validate_only"]
    written: list[Any] = []
    for name in ("mkdir", "link"):
        monkeypatch.setattr(os, name, noted(getattr(os, name), written))
    assert release_synthetic_database.main(argv) == 0
    assert [args for args in written if str(tmp_path) in str(args)] == []


def test_a_state_that_cannot_be_saved_costs_one_line(
    tmp_path: Path, monkeypatch: MonkeyPatch, capfd: CaptureFixture[str]
) -> None:
    ledger = declared(tmp_path, "record")
    (tmp_path / "queries.jsonl").write_text('{"conjunction": {"sex": "Female"}}')
    mkdir = os.mkdir

    def read_only(path: Any, *args: Any, **named: Any) -> None:
        if ".saving-" in os.fspath(path):
            raise OSError(errno.EROFS, "Read-only file system")
        mkdir(path, *args, **named)

    argv = job_flags(
        tmp_path,
        people(20),
        workload=None,
        queries=str(tmp_path / "queries.jsonl"),
        state=str(tmp_path / "state"),
        ledger=ledger.name,
        dataset_id="people",
    )
    before = everything_under(tmp_path)
    monkeypatch.setattr(os, "mkdir", read_only)
    line = refusal(capfd, answer_queries.main(argv))
    assert re.match(r"error: --state: '.*state' is refused; .*: Read-only file system$", line)
    assert ledger.entries("people") == [] and everything_under(tmp_path) == before
