"""A program knows another job's release in its output, with a ledger and without one."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from engines.programs import PROGRAMS, Program
from pytest import CaptureFixture, MonkeyPatch

import beam_dp as dp
from pipelines import running


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
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Earlier:
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
        r"^error: --output: '[^']+' holds the release of another job: .*$", err, re.M
    )
    assert out == "" and len(errors) == 1 and "released" not in err and "answered" not in err, err
    return str(errors[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_release_of_another_guarantee_is_not_the_jobs(
    name: str,
    earlier: Earlier,
    tmp_path: Path,
    monkeypatch: MonkeyPatch,
    capfd: CaptureFixture[str],
) -> None:
    error = loses(name, earlier, tmp_path, monkeypatch, capfd, "--epsilon=500")
    assert "guarantee.epsilon is 1000.0 there, and 500.0 in this job" in error


@pytest.mark.slow
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
def test_a_release_of_another_plan_is_not_the_jobs(
    name: str,
    flag: str,
    field: str,
    earlier: Earlier,
    tmp_path: Path,
    monkeypatch: MonkeyPatch,
    capfd: CaptureFixture[str],
) -> None:
    assert f"job: {field}" in loses(name, earlier, tmp_path, monkeypatch, capfd, flag)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["release_intervals", "answer_queries, laplace"])
@pytest.mark.parametrize(
    ("is_paid", "reason"),
    [
        ((False, True), "no ledger paid for it"),
        ((True, False), "people/1 paid for it"),
        ((True, True), "people/1 paid for it"),
    ],
)
def test_a_release_that_another_entry_paid_for_is_not_the_jobs(
    name: str,
    is_paid: tuple[bool, bool],
    reason: str,
    earlier: Earlier,
    tmp_path: Path,
    monkeypatch: MonkeyPatch,
    capfd: CaptureFixture[str],
) -> None:
    program, url = PROGRAMS[name], str(tmp_path / "ledger.sqlite")
    given = dict(flag[2:].split("=", 1) for flag in program.flags(tmp_path))
    ledger = dp.Ledger(url)
    ledger.declare("people", 3000.0, 1e-8, given["privacy_unit"], "add_or_remove_one")
    paid = [f"--ledger={url}", "--dataset_id=people"]
    if is_paid[0]:
        assert program.main(argv(program, tmp_path, "earlier", *paid)) == 0
    losing(monkeypatch, tmp_path / "earlier" if is_paid[0] else earlier(name), tmp_path / "out")
    assert program.main(argv(program, tmp_path, "out", *(paid if is_paid[1] else []))) == 1
    err = capfd.readouterr().err
    assert f"another job: {reason}; what this job drew was discarded" in err
    states = [entry.state for entry in ledger.entries("people")]
    assert states == ["released"] * is_paid[0] + ["spent"] * is_paid[1]
    if is_paid[1]:
        assert f"people/{len(states)} stays marked as spent" in err
