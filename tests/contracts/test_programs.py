"""What every program promises, each once: over the small jobs of ``program_jobs``.

A job runs once, paid by a ledger, with each of its bundles done three times, and then again over
its own output. Tests look at what is left: files, ledger, draws, and what was printed.
"""

import errno
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import pytest
from jobs import everything_under
from program_jobs import CHECKS, JOBS, OUTSIDE, RELEASES, shortened, texts
from program_runs import Killed, assert_covers, dies, done, run, watched

from beam_dp.cli.main import main as beam_dp
from beam_dp.flags.command_line import PROGRAMS
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.privacy.loss import Loss
from beam_dp.releases.kinds import read_any, verify_release
from pipelines import program, release_windows, run_yaml


def jobs_of(names: Iterable[str], *marks: pytest.MarkDecorator) -> list[Any]:
    """One job of each program runs in every test run; the others start Beam once more."""
    names = list(names)
    first = {JOBS[name].program: name for name in reversed(names)}
    return [
        pytest.param(name, marks=marks if name in first.values() else (*marks, pytest.mark.job))
        for name in names
    ]


every_release = pytest.mark.parametrize("name", jobs_of(RELEASES))
every_program = pytest.mark.parametrize(
    "name", [case.values[0] for case in jobs_of(RELEASES) if not case.marks]
)
WINDOWS = ("windows", "windows of persons")
YAML = "intervals, by a YAML file"


def test_every_program_has_a_job():
    assert {job.program for job in JOBS.values()} == set(PROGRAMS)
    assert {JOBS[name].program for name in JOBS if name not in RELEASES} == set(CHECKS)


@every_release
def test_job_pays_once_for_the_release_that_names_the_payment(name):
    found = done(name)
    entry = found.entry
    assert f"spent: {entry.release_id} in the ledger" in found.ran.err or name == YAML
    if name in WINDOWS:
        horizon = json.loads((found.folder / "out" / "horizon.json").read_text())
        assert (entry.state, entry.draw_id) == ("released", horizon["horizon_id"])
        assert entry.parameters["horizon_id"] == horizon["horizon_id"]
        return
    for place in found.job.releases:
        text = json.dumps({"ledger_release": entry.release_id})[1:-1]
        assert text in json.dumps(found.card(place)), place
    if name == YAML:  # its pipeline may go on after the release
        assert entry.state == "submitted"
    else:
        first = found.card(found.job.paid_first)
        assert (entry.state, entry.draw_id) == ("released", first["draw_id"])
    whole = found.card().get("records_per_unit") or found.card().get("discovered")
    promise = found.card()["guarantee"] if whole is None else whole.get("whole")
    assert promise is None or entry.guarantee.to_json() == promise


@every_release
def test_payment_covers_all_steps_on_the_cards_that_it_paid_for(name):
    """Otherwise a ledger lets releases add up to more than its budget."""
    found = done(name)
    verified = verify_release(read_any(found.folder / "out"))
    assert verified.holds, verified.faults
    assert_covers(
        found.entry, found.folder / "out", *([] if name in WINDOWS else found.job.releases)
    )
    assert verified.epsilon >= 0.95 * verified.promise.epsilon or name not in FULLY_SPENT


# The others keep a part of their budget for data that these jobs do not have.
FULLY_SPENT = ("synthetic database", "small_db", "intervals", "projection", *WINDOWS)


@every_release
def test_replayed_bundles_leave_one_draw(name):
    """All files that are left, hidden ones too, name draws that were published, and no others."""
    found = done(name)
    folder, drawn = found.folder / "out", set(found.ran.draws)
    cards = [folder / place / "card.json" for place in found.job.releases]
    published = {json.loads(path.read_text())["draw_id"] for path in cards}
    if name in WINDOWS:
        published.add(json.loads((folder / "horizon.json").read_text())["horizon_id"])
    else:
        assert len(drawn) == 3 * len(cards)  # the bundle with the draw was done again, too
    assert published <= drawn and len(published) == len(cards) + (name in WINDOWS)
    others = drawn - published
    for path in folder.rglob("*"):
        assert not path.name.startswith(".draft-")
        assert (
            path.is_dir()
            or path.name in ("card.json", "horizon.json")
            or any(draw in path.name for draw in published)
        )
        data = path.read_bytes() if path.is_file() else b""
        assert not [other for other in others if other.encode() in data]


@every_release
def test_second_run_over_a_release_pays_and_draws_nothing(name):
    found = done(name)
    assert (found.again.files, found.again.entries) == (found.ran.files, found.ran.entries)
    if name in WINDOWS:  # the same command resumes a horizon, which is complete
        assert found.again.code == 0
        assert "continues: people/1 in the ledger" in found.again.err
        assert len(found.again.draws) == 1  # a name for a horizon, in vain
    else:
        assert (found.again.code, found.again.out, found.again.draws) == (2, "", ())
        assert re.search(r"^error: .*output: .*must be a directory", found.again.err)
        assert found.again.err.count("\n") == 1


# What cards do not have, or in another form.
UNKNOWN = ("ledger", "queries", "choices", "errors", "records_format")


@pytest.mark.parametrize("name", jobs_of(name for name in RELEASES if name != YAML))
def test_preview_pays_and_draws_nothing_and_equals_the_release(name):
    found = done(name)
    assert found.preview.code == 0, found.preview.err
    assert (found.preview.files, found.preview.entries) == ([], [])
    assert len(found.preview.draws) == (name in WINDOWS)  # a name for a horizon, in vain
    shown = json.loads(found.preview.out)
    ledger = shown.pop("ledger")
    assert (
        ledger["dataset_id"] == "people"
        and ledger["budget"]["epsilon"] == found.entry.guarantee.epsilon
    )
    assert Loss.from_json(ledger["loss"]) == found.entry.loss
    if name in WINDOWS:
        released = json.loads((found.folder / "out" / "horizon.json").read_text())
    else:
        released = found.card()
    if len(found.job.releases) > 1 and name not in WINDOWS:  # what is found is not known before
        shown = {"guarantee": shown["guarantee"]}
        released = {"guarantee": found.entry.guarantee.to_json()}
    if "queries" in shown.get("workload", {}):
        shown.pop("workload")  # its name is known, and the release has the queries
    assert shown.pop("num_records", None) in (None, "noisy", {"noisy": None})
    known = {key: value for key, value in shown.items() if value is not None and key not in UNKNOWN}
    assert known.keys() <= released.keys()
    assert program.difference(released, known) is None


@every_program
def test_preview_and_run_warn_once_about_an_epsilon_above_10(name):
    found = done(name)
    for ran in (found.preview, found.ran):
        if ran is not None:
            told = [line for line in ran.err.splitlines() if "protects little" in line]
            epsilon = found.entry.guarantee.epsilon
            assert len(told) == (epsilon > 10), told


@pytest.mark.parametrize("name", jobs_of(["synthetic database", "intervals", YAML]))
def test_left_out_records_are_counted(name):
    (column,) = ["sex"] if name == "synthetic database" else ["age"]
    counts = done(name).card()["left_out"]["counts"]
    # The scale is at most 0.04: another count in fewer than one of 10^20 runs.
    assert abs(counts[column] - OUTSIDE) <= 2
    assert all(abs(count) <= 2 for other, count in counts.items() if other != column)


@every_release
def test_ledger_that_cannot_pay_refuses_in_one_line(tmp_path, name):
    job = JOBS[name]
    ledger, flags = job.paid_flags(tmp_path, 1e-3)
    ran = run(job, tmp_path, ledger, texts(flags))
    assert (ran.code, ran.out, ran.files, ran.entries) == (2, "", [], [])
    assert re.fullmatch(r"error: [^\n]*epsilon: [^\n]*must fit 'people'[^\n]*\n", ran.err)
    assert len(ran.draws) == (name in WINDOWS)


def no_links(*_: object, **__: object) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


@every_program
@pytest.mark.parametrize("preview", [[], ["--validate_only"]])
def test_output_that_cannot_hold_the_release_is_refused_before_payment(tmp_path, name, preview):
    """A preview writes nothing, so it can't know about links."""
    job, out = JOBS[name], tmp_path / "out"
    ledger, flags = job.paid_flags(tmp_path)
    if name == YAML and preview:
        return
    argv = [*texts(flags), *preview]
    if name not in WINDOWS and not preview:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "link", no_links)
            ran = run(job, tmp_path, ledger, argv)
        assert (ran.code, ran.draws, ran.files, ran.entries) == (2, (), [], [])
        assert re.search(r"^error: .*output: .*: Operation not permitted\n$", ran.err)
    draft = out / f".draft-{'0' * 32}-1"
    draft.mkdir(parents=True)
    (draft / "records-000.avro").write_bytes(b"private")
    ran = run(job, tmp_path, ledger, argv)
    assert (ran.code, ran.out, ran.entries) == (2, "", [])
    assert re.search(r"^error: .*output: .*must not contain drafts of another job", ran.err, re.M)
    assert len(ran.files) == 2 and len(ran.draws) == (name in WINDOWS)


# --- killed programs


ENOUGH = 1e6  # for many releases


@pytest.mark.job
@every_program
@pytest.mark.parametrize("moment", ["before it pays", "before it runs", "before the mark"])
def test_killed_program_never_draws_twice_for_one_payment(tmp_path, name, moment):
    """By an exception that nothing catches; the same command then does the rest."""
    job = JOBS[name]
    ledger, flags = job.paid_flags(tmp_path, ENOUGH)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed), watched() as draws:
        kill_at(patch, moment)
        job.main(texts(flags))
        assert name == YAML and moment == "before the mark"  # it marks nothing
        dies()
    noise = set(draws[name in WINDOWS :])
    entries = ledger.entries("people")
    # A YAML pipeline is handed to Beam where it pays.
    state = "spent" if moment == "before it runs" and name != YAML else "submitted"
    assert [entry.state for entry in entries] == [state] * (moment != "before it pays")
    assert bool(noise) == (moment == "before the mark")
    before = files_and_bytes(tmp_path / "out")
    ran = run(job, tmp_path, ledger, texts(flags))
    if moment == "before the mark" and name not in WINDOWS:
        assert ran.code == 2 and not ran.draws
        assert files_and_bytes(tmp_path / "out") == before and ran.entries == entries
        return
    assert ran.code == 0, ran.err
    # A horizon knows its payment; other jobs, which draw anew, pay again.
    number = 2 if moment == "before it runs" and name not in WINDOWS else 1
    assert [entry.number for entry in ran.entries] == list(range(1, number + 1))
    assert ran.entries[-1].state == ("submitted" if name == YAML else "released")
    assert verify_release(read_any(tmp_path / "out")).holds
    if moment == "before the mark":
        assert files_and_bytes(tmp_path / "out") == before


def kill_at(patch: pytest.MonkeyPatch, moment: str) -> None:
    if moment == "before it pays":
        for method in ("spend", "spend_once"):
            patch.setattr(Ledger, method, dies)
        return
    function = "mark_submitted" if moment == "before it runs" else "mark_released"
    for module in (program, release_windows):
        patch.setattr(module, function, dies)
    if moment == "before it runs":
        patch.setattr(run_yaml, "run_pipeline", dies)


def files_and_bytes(folder: pathlib.Path) -> dict[str, bytes]:
    paths = [folder / each for each in everything_under(folder)]
    return {str(path): path.read_bytes() for path in paths if path.is_file()}


# Dies where a draft is whole, and nothing of it is published.
_KILLED = """
import os, pathlib, sys
from beam_dp.flags.command_line import import_program
from beam_dp.storage.store import LocalStore
from beam_dp.storage.store import DRAFT_PREFIX
create = LocalStore.create_exclusively

def die_or_create(self, *arguments):
    if any(pathlib.Path(sys.argv[2]).rglob(DRAFT_PREFIX + "*/*.avro")):
        os._exit(9)
    return create(self, *arguments)

LocalStore.create_exclusively = die_or_create
sys.exit(import_program(sys.argv[1]).main(sys.argv[3:]))
"""


@pytest.mark.job
@every_program
def test_killed_process_leaves_no_second_draw(tmp_path, name):
    job = JOBS[name]
    ledger, flags = job.paid_flags(tmp_path, ENOUGH)
    argv, out = shortened(texts(flags)), tmp_path / "out"
    command = [sys.executable, "-W", "ignore", "-c", _KILLED, job.program, str(out), *argv]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 9
    assert [entry.state for entry in ledger.entries("people")] == ["submitted"]
    assert not list(out.rglob("*.avro")) or all(
        ".draft-" in str(path) for path in out.rglob("*.avro")
    )
    if name not in WINDOWS:
        ran = run(job, tmp_path, ledger, argv)  # the killed program may still run
        assert ran.code == 2 and "must not contain drafts of another job" in ran.err
        assert len(ran.entries) == 1 and not ran.draws
        assert beam_dp(["finish", str(out)]) == 0
    ran = run(job, tmp_path, ledger, argv)
    assert ran.code == 0, ran.err
    assert len(ran.entries) == (1 if name in WINDOWS else 2)
    assert verify_release(read_any(out)).holds
