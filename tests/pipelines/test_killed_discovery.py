"""A command that discovers a domain goes on after it was killed, and never draws again for free.

A killed program is simulated by an exception that nothing catches, at each moment between and
inside the runs; ``test_a_killed_process_goes_on`` kills processes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from discovery_jobs import Killed, dies, dies_after, domain_of, flags_of, paid, release_of
from jobs import refused_line
from noise_sources import watch_draws
from open_domains import CITY, INCOME, SEX

import beam_dp as dp
from beam_dp.cli.main import main as beam_dp_main
from beam_dp.domain.attributes import PaidRelease
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.releases.domain.release import DomainRelease
from pipelines import discovery, program
from pipelines.release_synthetic_database import main

DRAWS: list[str] = []


@pytest.fixture(autouse=True)
def watched(monkeypatch) -> None:
    watch_draws(monkeypatch, DRAWS)


BEFORE_THE_MARK: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "committed, draw not recorded": lambda patch: patch.setattr(program, "mark_released", dies),
    "committed, draw recorded": lambda patch: dies_after(patch, program, "mark_released"),
    "before planning": lambda patch: patch.setattr(discovery.DomainJob, "entry_of", dies),
    "before the mark": lambda patch: patch.setattr(discovery.DomainJob, "mark", dies),
}


@pytest.mark.mostly_slow(one_in=4)
@pytest.mark.parametrize("moment", BEFORE_THE_MARK)
def test_the_same_command_goes_on_from_the_committed_domain(tmp_path, monkeypatch, moment) -> None:
    ledger, flags = paid(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        BEFORE_THE_MARK[moment](patch)
        main(flags)
    (draw,) = DRAWS
    assert domain_of(tmp_path).draw_id == draw
    assert main(flags) == 0
    assert len(DRAWS) == 2  # the domain is not drawn again
    assert domain_of(tmp_path).draw_id == draw
    assert release_of(tmp_path).discovered.draw_id == draw
    (entry,) = ledger.entries("people")  # nothing is paid again
    assert entry.draw_id == draw
    assert dp.verify_release(release_of(tmp_path)).holds


def test_a_marked_entry_pays_for_no_second_run(tmp_path, monkeypatch, capfd) -> None:
    ledger, flags = paid(tmp_path, epsilon=10.0)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        dies_after(patch, discovery.DomainJob, "mark")
        main(flags)
    first = domain_of(tmp_path)
    assert main(flags) == 0
    assert "this run is paid again" in capfd.readouterr().err
    assert_paid_again(tmp_path, ledger, first)


def assert_paid_again(folder: Path, ledger: Ledger, first: DomainRelease) -> None:
    """The second run has an entry of its own, and the domain is that of the first one."""
    entries, release = ledger.entries("people"), release_of(folder)
    assert [entry.release_id for entry in entries] == ["people/1", "people/2"]
    assert entries[1].guarantee == release.guarantee == first.discovered.main
    assert entries[1].draw_id == release.draw_id
    assert entries[1].loss.slack == 0
    assert release.plan["ledger_release"] == "people/2"
    assert release.discovered is None
    assert release.domain["city"].values_from == PaidRelease("people/1", first.draw_id)
    assert domain_of(folder).draw_id == first.draw_id
    assert dp.verify_release(release).holds


def test_a_marked_entry_and_an_empty_budget_refuse(tmp_path, monkeypatch, capfd) -> None:
    ledger, flags = paid(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        dies_after(patch, discovery.DomainJob, "mark")
        main(flags)
    refused_line(main, flags, capfd, "must fit 'people', which leaves")
    assert len(ledger.entries("people")) == 1
    assert not (tmp_path / "out/card.json").exists()


def test_a_second_program_that_missed_the_mark_is_stopped_by_it(
    tmp_path, monkeypatch, capfd
) -> None:
    """Two programs go on from one domain at the same moment."""
    ledger, flags = paid(tmp_path, epsilon=10.0)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        dies_after(patch, discovery.DomainJob, "mark")
        main(flags)
    monkeypatch.setattr(discovery.DomainJob, "is_marked", lambda *_: False)
    assert main(flags) == 2
    assert "must be a state of 'people/1' that was not used" in capfd.readouterr().err
    assert len(ledger.entries("people")) == len(DRAWS) == 1


def test_a_domain_that_was_paid_but_not_drawn_is_paid_again(tmp_path, monkeypatch) -> None:
    ledger, flags = paid(tmp_path, epsilon=10.0)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(program, "run_pipeline", dies)
        main(flags)
    assert DRAWS == []
    assert main(flags) == 0
    assert [entry.release_id for entry in ledger.entries("people")] == ["people/1", "people/2"]
    assert release_of(tmp_path).plan["ledger_release"] == "people/2"


def killed_after_the_domain(folder: Path, monkeypatch, flags: Sequence[str]) -> None:
    with monkeypatch.context() as patch, pytest.raises(Killed):
        dies_after(patch, program, "mark_released")
        main(list(flags))
    assert domain_of(folder)


OTHERS: dict[str, dict[str, str]] = {
    "input": {},
    "epsilon": {"epsilon": "2"},
    "workload": {"workload": "marginals:1"},
    "domain_share": {"domain_share": "0.2"},
    "within_bins": {"within_bins": "midpoint"},
    "num_synthetic_records": {"num_synthetic_records": "10"},
}


@pytest.mark.mostly_slow(one_in=3)
@pytest.mark.parametrize("name", OTHERS)
def test_another_command_does_not_go_on_from_the_domain(tmp_path, monkeypatch, capfd, name) -> None:
    flags = flags_of(tmp_path)
    killed_after_the_domain(tmp_path, monkeypatch, [*flags, *_ledger(tmp_path)])
    other = flags_of(tmp_path, **OTHERS[name])
    if name == "input":
        other[0] = other[0] + "*"
    line = refused_line(
        main, [*other, *_ledger(tmp_path)], capfd, "contains the domain of another job"
    )
    if name in ("input", "workload", "within_bins", "num_synthetic_records"):
        assert f"flags.{name} is" in line
    assert len(DRAWS) == 1


def test_a_command_without_a_flag_of_the_first_does_not_go_on(tmp_path, monkeypatch, capfd) -> None:
    first = flags_of(tmp_path, num_synthetic_records="10")
    killed_after_the_domain(tmp_path, monkeypatch, [*first, *_ledger(tmp_path)])
    again = [*flags_of(tmp_path), *_ledger(tmp_path)]
    line = refused_line(main, again, capfd, "contains the domain of another job")
    assert "flags.num_synthetic_records is" in line


def test_flags_are_kept_from_others_and_only_until_the_job_is_done(tmp_path, monkeypatch) -> None:
    """Hashes of paths on a card would confirm a guess of where private files are."""
    flags = [*flags_of(tmp_path), *_ledger(tmp_path)]
    killed_after_the_domain(tmp_path, monkeypatch, flags)
    (kept,) = (tmp_path / "out").glob(".draft-job-*")
    assert kept.stat().st_mode & 0o777 == 0o700
    card = (tmp_path / "out/domain/card.json").read_text("utf-8")
    assert "job" not in json.loads(card)["parameters"]
    assert main(flags) == 0
    assert [*(tmp_path / "out").glob(".draft-*")] == []


def _ledger(folder: Path) -> list[str]:
    ledger = Ledger(str(folder / "ledger.sqlite"))
    if not (folder / "ledger.sqlite").exists():
        ledger.declare("people", 10.0, 1e-6, "person", "add_or_remove_one")
        ledger.declare("others", 10.0, 1e-6, "person", "add_or_remove_one")
    return [f"--ledger={ledger.name}", "--dataset_id=people"]


def test_another_domain_file_does_not_go_on(tmp_path, monkeypatch, capfd) -> None:
    flags = flags_of(tmp_path)
    killed_after_the_domain(tmp_path, monkeypatch, [*flags, *_ledger(tmp_path)])
    fewer = {**CITY, "discover": {"max_values": 19, "include": ["Atlantis"]}}
    (tmp_path / "domain.json").write_text(json.dumps({"attributes": [fewer, SEX, INCOME]}))
    refused_line(main, [*flags, *_ledger(tmp_path)], capfd, "another job: domain.attributes")


def test_another_budget_does_not_pay_for_the_rest(tmp_path, monkeypatch, capfd) -> None:
    flags = flags_of(tmp_path)
    killed_after_the_domain(tmp_path, monkeypatch, [*flags, *_ledger(tmp_path)])
    url, _ = _ledger(tmp_path)
    refused_line(main, flags, capfd, "--ledger is required, the ledger of the earlier release")
    refused_line(main, [*flags, url, "--dataset_id=others"], capfd, "--dataset_id: 'others'")
    assert len(DRAWS) == 1


def test_a_domain_without_a_ledger_is_not_paid_later(tmp_path, monkeypatch, capfd) -> None:
    flags = flags_of(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(discovery.DomainJob, "entry_of", dies)
        main(flags)
    refused_line(main, [*flags, *_ledger(tmp_path)], capfd, "which no ledger paid for")
    assert main(flags) == 0


_KILLED = """
import os, sys
from beam_dp.storage.store import LocalStore
from pipelines import discovery, program, release_synthetic_database
owner, name, before, place = {moment}
original = getattr(owner, name)
def call(*arguments, **options):
    found = None if before else original(*arguments, **options)
    if place in str(getattr(arguments[0], "_path", "")):
        os._exit(9)
    return original(*arguments, **options) if before else found
setattr(owner, name, call)
sys.exit(release_synthetic_database.main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "num_paid", "folder"),
    [
        ("program, 'mark_released', True, ''", 1, None),
        ("program, 'mark_released', False, ''", 1, None),
        ("discovery.DomainJob, 'mark', True, ''", 1, None),
        ("discovery.DomainJob, 'mark', False, ''", 2, None),
        # Inside the runs: a draft stays, or a card without its payload.
        ("LocalStore, 'create_exclusively', True, 'out/domain'", 2, "out/domain"),
        ("LocalStore, 'place', True, 'out/domain'", 1, None),
    ],
)
def test_a_killed_process_goes_on(tmp_path, moment, num_paid, folder) -> None:
    ledger, flags = paid(tmp_path, epsilon=10.0)
    command = [sys.executable, "-W", "ignore", "-c", _KILLED.format(moment=moment), *flags]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 9
    if folder is not None:
        assert main(flags) == 2  # the killed program may still run
        assert beam_dp_main(["finish", str(tmp_path / folder)]) == 0
    assert main(flags) == 0
    assert len(ledger.entries("people")) == num_paid
    assert dp.verify_release(release_of(tmp_path)).holds
    assert release_of(tmp_path).domain == domain_of(tmp_path).domain


@pytest.mark.slow
def test_a_second_run_that_was_killed_is_paid_again(tmp_path, capfd) -> None:
    ledger, flags = paid(tmp_path, epsilon=10.0)
    code = _KILLED.format(moment="LocalStore, 'create_exclusively', True, 'out'").replace(
        "if place in", "if str(arguments[0]._path).endswith('/out') and place in"
    )
    command = [sys.executable, "-W", "ignore", "-c", code, *flags]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 9
    first = domain_of(tmp_path)
    refused_line(main, flags, capfd, "must not contain drafts of another job")
    assert beam_dp_main(["finish", str(tmp_path / "out")]) == 0
    assert main(flags) == 0
    assert_paid_again(tmp_path, ledger, first)
