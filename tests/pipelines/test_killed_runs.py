"""A command of several runs goes on after it was killed, and never draws again for free.

Its first runs find the domain, choose the records per unit, or both. A killed program is simulated
by an exception that nothing catches, at each moment between and inside the runs;
``test_killed_process_goes_on`` kills processes.
"""

import errno
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs import refused_line
from noise_sources import watch_draws
from open_domains import CITY, INCOME, SEX
from program_jobs import JOBS, Job, texts
from program_runs import assert_covers

import beam_dp as dp
from beam_dp.cli.main import main as beam_dp_main
from beam_dp.domain.attributes import PaidRelease
from beam_dp.releases.kinds import read_any
from pipelines import program
from pipelines.discovery import DomainJob, FirstJob
from pipelines.records_per_unit import RecordsJob

DRAWS: list[str] = []
DOMAIN = "domain, then records"
CHOICE = "records per unit, then records"
BOTH = "records per unit, domain, records"
ENOUGH = 200.0  # for ten releases
Patch = Callable[[pytest.MonkeyPatch], None]


class Killed(BaseException):
    """What a killed program dies of: nothing catches it."""


def dies(*_: object, **__: object) -> None:
    raise Killed


def dies_after(patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    original = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        original(*arguments, **options)
        raise Killed

    patch.setattr(owner, name, call)


@pytest.fixture(autouse=True)
def watched(monkeypatch) -> None:
    watch_draws(monkeypatch, DRAWS)


def before(owner: Any, name: str) -> Patch:
    return lambda patch: patch.setattr(owner, name, dies)


def after(owner: Any, name: str) -> Patch:
    return lambda patch: dies_after(patch, owner, name)


MOMENTS: dict[str, Patch] = {
    "paid, nothing drawn": before(program, "run_pipeline"),
    "draw committed, not recorded": before(program, "mark_released"),
    "draw recorded": after(program, "mark_released"),
    "before the domain is read": before(DomainJob, "entry_of"),
    "before the mark of the domain": before(DomainJob, "mark"),
    "after the mark of the domain": after(DomainJob, "mark"),
    "before the counts are read": before(RecordsJob, "entry_of"),
    "before the mark of the counts": before(FirstJob, "_use"),
    "after the mark of the counts": after(FirstJob, "_use"),
}
# How many entries of the ledger there are in the end, and how many draws after the kill. What was
# submitted may have been drawn, so it is paid again.
KILLS = [
    (DOMAIN, "paid, nothing drawn", 2, 0),
    (DOMAIN, "draw committed, not recorded", 1, 1),
    (DOMAIN, "draw recorded", 1, 1),
    (DOMAIN, "before the domain is read", 1, 1),
    (DOMAIN, "before the mark of the domain", 1, 1),
    (DOMAIN, "after the mark of the domain", 2, 1),
    (CHOICE, "before the counts are read", 1, 1),
    (CHOICE, "before the mark of the counts", 1, 1),
    (CHOICE, "after the mark of the counts", 2, 1),
    (BOTH, "before the counts are read", 1, 1),
    (BOTH, "before the mark of the counts", 1, 1),
    (BOTH, "after the mark of the counts", 2, 1),
    (BOTH, "before the domain is read", 1, 2),
    (BOTH, "after the mark of the domain", 2, 2),
]


def kill(argv: list[str], job: Job, moment: str) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        MOMENTS[moment](patch)
        job.main(argv)


def found_in(folder: Path, job: Job) -> list[Any]:
    """The releases of all runs that have ended, the first one first."""
    places = [folder / "out" / place for place in job.releases]
    return [read_any(place) for place in places if (place / "card.json").exists()]


@pytest.mark.parametrize(
    ("name", "moment", "num_paid", "num_drawn"),
    [
        pytest.param(*each, marks=pytest.mark.part if each[0] == BOTH else pytest.mark.job)
        for each in KILLS
    ],
)
def test_same_command_goes_on_from_what_is_committed(
    tmp_path, capfd, name, moment, num_paid, num_drawn
):
    job = JOBS[name]
    ledger, flags = job.paid_flags(tmp_path, ENOUGH)
    kill(texts(flags), job, moment)
    drawn, first = list(DRAWS), found_in(tmp_path, job)
    assert [each.draw_id for each in first] == drawn and len(drawn) == num_drawn
    assert job.main(texts(flags)) == 0
    assert ("paid again" in capfd.readouterr().err) == (num_paid == 2 and num_drawn > 0)
    releases = found_in(tmp_path, job)
    # What was committed is not drawn again.
    assert [each.draw_id for each in releases] == DRAWS and DRAWS[:num_drawn] == drawn
    assert len(DRAWS) == len(job.releases)
    for each in releases:
        assert dp.verify_release(each).holds
    entries, release = ledger.entries("people"), releases[-1]
    assert [entry.number for entry in entries] == list(range(1, num_paid + 1))
    assert release.plan["ledger_release"] == f"people/{num_paid}"
    assert entries[-1].guarantee == release.guarantee
    paid = [
        place
        for place, each in zip(job.releases, releases, strict=True)
        if each.plan["ledger_release"] == f"people/{num_paid}"
    ]
    assert_covers(entries[-1], tmp_path / "out", *paid)
    if num_paid == 1:
        named = [each for each in releases if each.KIND == "domain"] or releases
        assert entries[0].draw_id == named[0].draw_id
        assert release.guarantee.epsilon == 20
    if moment == "after the mark of the domain":
        found = first[-1]
        assert entries[1].guarantee == found.discovered.main
        assert entries[1].draw_id == release.draw_id and entries[1].loss.slack == 0
        assert release.discovered is None and release.records_per_unit is None
        assert release.domain["city"].values_from == PaidRelease("people/1", found.draw_id)
    if moment.startswith("after the mark") and name != DOMAIN:
        origin = {"ledger_release": "people/1", "draw_id": first[0].draw_id}
        assert release.plan["records_per_unit_from"] == origin
        path = tmp_path / "out" / "card.json"
        path.write_text(path.read_text().replace(first[0].draw_id, "0" * 32))
        assert not dp.verify_release(read_any(path.parent)).holds
    if moment == "after the mark of the counts":
        assert release.records_per_unit is None
        assert release.guarantee.epsilon == 20 * 0.98
        assert release.guarantee.max_records_per_unit == 3


@pytest.mark.job
def test_marked_entry_and_an_empty_budget_refuse(tmp_path, capfd):
    job = JOBS[DOMAIN]
    ledger, flags = job.paid_flags(tmp_path, 20.0)  # exactly this guarantee
    kill(texts(flags), job, "after the mark of the domain")
    refused_line(job.main, texts(flags), capfd, "must fit 'people', which leaves")
    assert len(ledger.entries("people")) == 1
    assert not (tmp_path / "out/card.json").exists()


@pytest.mark.job
def test_second_program_that_missed_the_mark_is_stopped_by_it(tmp_path, monkeypatch, capfd):
    """Two programs go on from one domain at the same moment."""
    job = JOBS[DOMAIN]
    ledger, flags = job.paid_flags(tmp_path, ENOUGH)
    kill(texts(flags), job, "after the mark of the domain")
    monkeypatch.setattr(DomainJob, "is_marked", lambda *_: False)
    assert job.main(texts(flags)) == 2
    assert "must be a state of 'people/1' that was not used" in capfd.readouterr().err
    assert len(ledger.entries("people")) == len(DRAWS) == 1


# For each job: flags that differ, and the field of the card that shows it.
OTHERS: dict[str, list[tuple[dict[str, str | None], str]]] = {
    DOMAIN: [
        ({"input": "FOLDER/people*.parquet"}, "flags.input is"),
        ({"epsilon": "21"}, "contains the domain of another job"),
        ({"workload": "marginals:1"}, "flags.workload is"),
        ({"domain_share": "0.2"}, "contains the domain of another job"),
        ({"within_bins": "midpoint"}, "flags.within_bins is"),
        ({"num_synthetic_records": None}, "flags.num_synthetic_records is"),
        ({"domain": "FOLDER/fewer.json"}, "another job: domain.attributes"),
        ({"ledger": None, "dataset_id": None}, "--ledger is required, the ledger of the earlier"),
        ({"dataset_id": "others"}, "--dataset_id: 'others'"),
    ],
    CHOICE: [
        ({"epsilon": "21"}, "contains the records per unit of another job"),
        ({"workload": "marginals:1"}, "contains the records per unit of another job"),
        ({"most_records_per_unit": "19"}, "contains the records per unit of another job"),
        ({"ledger": None, "dataset_id": None}, "--ledger is required, the ledger that paid"),
    ],
}


@pytest.mark.job
@pytest.mark.parametrize("name", OTHERS)
def test_only_the_same_command_goes_on(tmp_path, capfd, name):
    job = JOBS[name]
    ledger, paid = job.paid_flags(tmp_path, ENOUGH)
    ledger.declare("others", ENOUGH, 1e-6, "person", "add_or_remove_one")
    flags = {**paid, "num_synthetic_records": "10"}
    kill(texts(flags), job, "draw recorded")
    fewer = {**CITY, "discover": {"max_values": 19, "include": ["Atlantis"]}}
    (tmp_path / "fewer.json").write_text(json.dumps({"attributes": [fewer, SEX, INCOME]}))
    for changed, told in OTHERS[name]:
        argv = [each.replace("FOLDER", str(tmp_path)) for each in texts({**flags, **changed})]
        refused_line(job.main, argv, capfd, told)
    assert len(DRAWS) == len(ledger.entries("people")) == 1
    assert job.main(texts(flags)) == 0


@pytest.mark.job
@pytest.mark.parametrize(
    ("name", "moment", "told"),
    [
        (DOMAIN, "before the domain is read", "which no ledger paid for"),
        (CHOICE, "before the counts are read", "no ledger"),
    ],
)
def test_first_run_without_a_ledger_is_not_paid_later(tmp_path, capfd, name, moment, told):
    job = JOBS[name]
    _, paid = job.paid_flags(tmp_path)
    flags = {**paid, "ledger": None, "dataset_id": None}
    kill(texts(flags), job, moment)
    refused_line(job.main, texts(paid), capfd, told)
    assert job.main(texts(flags)) == 0


_KILLED = """
import os, sys
from beam_dp.storage.store import LocalStore
from pipelines import discovery, program, release_synthetic_database
owner, name, before, place = {moment}
original = getattr(owner, name)
def call(*arguments, **options):
    found = None if before else original(*arguments, **options)
    if str(getattr(arguments[0], "_path", "")).endswith(place):
        os._exit(9)
    return original(*arguments, **options) if before else found
setattr(owner, name, call)
sys.exit(release_synthetic_database.main(sys.argv[1:]))
"""


@pytest.mark.part
@pytest.mark.parametrize(
    ("moment", "num_paid", "unfinished"),
    [
        ("program, 'mark_released', True, ''", 1, None),
        ("program, 'mark_released', False, ''", 1, None),
        ("discovery.DomainJob, 'mark', True, ''", 1, None),
        ("discovery.DomainJob, 'mark', False, ''", 2, None),
        # Inside the runs: a draft stays, or a card without its payload.
        ("LocalStore, 'create_exclusively', True, '/out/domain'", 2, "out/domain"),
        ("LocalStore, 'place', True, '/out/domain'", 1, None),
        ("LocalStore, 'create_exclusively', True, '/out'", 2, "out"),
    ],
)
def test_killed_process_goes_on(tmp_path, capfd, moment, num_paid, unfinished):
    job = JOBS[DOMAIN]
    ledger, flags = job.paid_flags(tmp_path, ENOUGH)
    command = [sys.executable, "-W", "ignore", "-c", _KILLED.format(moment=moment), *texts(flags)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 9
    if unfinished is not None:
        told = "must not contain drafts of another job"
        refused_line(job.main, texts(flags), capfd, told)  # the killed program may still run
        assert beam_dp_main(["finish", str(tmp_path / unfinished)]) == 0
    assert job.main(texts(flags)) == 0
    assert len(ledger.entries("people")) == num_paid
    found, release = found_in(tmp_path, job)
    assert dp.verify_release(release).holds and release.domain == found.domain


@pytest.mark.job
def test_flags_are_kept_from_others_and_only_until_the_job_is_done(tmp_path):
    """Hashes of paths on a card would confirm a guess of where private files are."""
    job = JOBS[DOMAIN]
    _, flags = job.paid_flags(tmp_path)
    kill(texts(flags), job, "draw recorded")
    (kept,) = (tmp_path / "out").glob(".draft-job-*")
    assert kept.stat().st_mode & 0o777 == 0o700
    card = (tmp_path / "out/domain/card.json").read_text("utf-8")
    assert "job" not in json.loads(card)["parameters"]
    assert job.main(texts(flags)) == 0
    assert [*(tmp_path / "out").glob(".draft-*")] == []


def test_paid_job_goes_on_where_its_flags_cannot_be_kept(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pipelines.discovery.note_job", full)
    job = JOBS[DOMAIN]
    _, flags = job.paid_flags(tmp_path)
    assert job.main(texts(flags)) == 0
    assert (tmp_path / "out/card.json").exists()
