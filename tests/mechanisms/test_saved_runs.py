"""Saved runs of online multiplicative weights: resumed, damaged, copied, killed and paid for."""

import dataclasses
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import signal

import numpy as np
import pytest
from noise_sources import NoNoise, Seeded
from private_mw_laws import cells, small_run
from tiny import REPLACE, domain_of, promise

import beam_dp as dp
from beam_dp.mechanisms.online import plan as online_plan, saved_runs
from beam_dp.mechanisms.online.plan import ready
from beam_dp.mechanisms.online.saved_runs import (
    check_private_mw,
    resume_private_mw,
    save_private_mw,
)
from beam_dp.mechanisms.sparse_vector import HaltedError
from beam_dp.privacy.ledger.entries import LedgerError
from beam_dp.queries.linear import negation
from beam_dp.secret.summaries.histogram import Histogram

GUARANTEE = promise(REPLACE, 0.0, 5.0)
PLAN = dp.plan_private_mw(domain_of(8), GUARANTEE, 80_000, num_questions=4, max_updates=3)
HISTOGRAM = Histogram(PLAN.domain, np.array([80_000, 0, 0, 0, 0, 0, 0, 0]))
PROCESSES = multiprocessing.get_context("forkserver")


def resume(
    folder: pathlib.Path, ledger: dp.Ledger | None = None, noise: NoNoise | None = None
) -> dp.PrivateMW:
    return resume_private_mw(folder, PLAN, HISTOGRAM, noise or NoNoise(), ledger)


def test_saved_run_resumes_with_the_same_answers(tmp_path):
    whole, saved = small_run(3), small_run(3)
    domain = whole.plan.domain
    queries = [cells(domain, code) for code in range(4)]
    queries.append(dp.LinearQueries(domain).explicit(np.linspace(0, 1, 8)))
    queries.append(dp.LinearQueries(domain).parity({"a0": [1, 3]}))
    queries.append(negation(cells(domain, 5)))
    expected = [whole.answer(query) for query in queries]
    found = [saved.answer(query) for query in queries[:5]]
    save_private_mw(saved, tmp_path / "run")
    with pytest.raises(HaltedError, match="was saved"):
        saved.answer(queries[0])
    resumed = resume(tmp_path / "run")
    assert resumed.transcript == saved.transcript
    assert resumed._sparse._values() == saved._sparse._values()
    assert resumed.weights.tolist() == saved.weights.tolist()
    found += [resumed.answer(query) for query in queries[5:]]
    assert found == expected
    # Only once.
    with pytest.raises(dp.InputError, match="resumed only once"):
        resume(tmp_path / "run")
    with pytest.raises(dp.InputError, match="must not exist"):
        save_private_mw(resumed, tmp_path / "run")


def test_public_files_do_not_contain_the_secret(tmp_path):
    run = small_run(3, Seeded(3))
    run.answer(cells(run.plan.domain, 0))
    threshold = run._sparse._noisy_threshold
    save_private_mw(run, tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "hypothesis.npz",
        "secret.json",
        "transcript.json",
    ]
    text = (tmp_path / "run" / "transcript.json").read_text()
    assert str(threshold) not in text
    secret = tmp_path / "run" / "secret.json"
    assert json.loads(secret.read_text())["state"]["noisy_threshold"] == threshold
    assert secret.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("transcript.json", lambda text: text.replace('"total": 8', '"total": 9')),
        ("transcript.json", lambda text: text[:-5]),
        ("transcript.json", lambda text: text.replace('"version": 2', '"version": 1')),
        ("secret.json", lambda text: text.replace("noisy", "quiet")),
        ("secret.json", lambda text: "[]"),
        ("secret.json", lambda text: "{"),
    ],
)
def test_damaged_runs_are_refused(tmp_path, name, change):
    run = small_run(3)
    run.answer(cells(run.plan.domain, 0))
    save_private_mw(run, tmp_path / "run")
    path = tmp_path / "run" / name
    path.write_text(change(path.read_text()))
    with pytest.raises(dp.InputError, match=r"^folder: "):
        resume(tmp_path / "run")


@pytest.mark.parametrize("step", ["savez", "fsync"])
def test_run_is_not_saved_again_after_a_failed_save(tmp_path, monkeypatch, step):
    """At worst the first folder can be resumed, never both."""
    run = small_run(3)
    query = cells(run.plan.domain, 0)
    value = run.answer(query).value

    def fail(*_: object, **__: object) -> None:
        raise OSError("no room left")

    with monkeypatch.context() as patched:
        patched.setattr(np if step == "savez" else saved_runs.os, step, fail)
        with pytest.raises(OSError, match="no room left"):
            save_private_mw(run, tmp_path / "first")
    for again in (lambda: save_private_mw(run, tmp_path / "second"), lambda: run.answer(query)):
        with pytest.raises(HaltedError, match="the run was saved"):
            again()
    assert [path.name for path in tmp_path.iterdir()] == ["first"]
    if step == "savez":
        assert not (tmp_path / "first" / "secret.json").exists()
    # What was answered can still be read, and be given to a new run.
    assert run.transcript[0][1].value == value and run.weights[0] > 0.2


def test_state_with_other_settings_is_refused_and_not_used(tmp_path, monkeypatch):
    """Another version of this package may choose other noise for the same plan."""
    run = small_run(None)
    save_private_mw(run, tmp_path / "run")

    def resume() -> None:
        resume_private_mw(tmp_path / "run", run.plan, HISTOGRAM, NoNoise())

    with monkeypatch.context() as patched:
        patched.setattr(online_plan, "_GROWTH", 7.0)
        online_plan._settle.cache_clear()
        assert run.plan.settle(80_000) != run.settings
        for refused in (lambda: check_private_mw(tmp_path / "run", run.plan), resume):
            with pytest.raises(dp.InputError) as error:
                refused()
            text = str(error.value)
            assert "must have the settings that this version of beam_dp chooses" in text
            assert re.search(r": [a-z_.]+ was [0-9.]+, and is [0-9.]+$", text), text
    online_plan._settle.cache_clear()
    resume()


@pytest.mark.parametrize("change", [{"settings": None}, {"total": "80000"}, {"settings": {}}])
def test_transcript_with_invalid_settings_or_total_is_refused(tmp_path, change):
    """As whoever wrote it meant it: the digest is right."""
    run = small_run(3)
    save_private_mw(run, tmp_path / "run")
    transcript = json.loads((tmp_path / "run" / "transcript.json").read_text())
    (tmp_path / "run" / "transcript.json").write_text(json.dumps({**transcript, **change}))
    secret = json.loads((tmp_path / "run" / "secret.json").read_text())
    del secret["sha256"]
    secret["sha256"] = saved_runs._digest(tmp_path / "run", secret)
    (tmp_path / "run" / "secret.json").write_text(json.dumps(secret))
    with pytest.raises(dp.InputError, match=r"^folder: "):
        check_private_mw(tmp_path / "run", run.plan)


def test_read_only_folder_is_refused_before_its_state_is_used(tmp_path, monkeypatch):
    run = small_run(3)
    save_private_mw(run, tmp_path / "run")
    with monkeypatch.context() as patched:
        patched.setattr(saved_runs.os, "access", lambda *_: False)  # root may write anywhere
        with pytest.raises(dp.InputError, match="must be a directory that can be written"):
            resume(tmp_path / "run")
    resume(tmp_path / "run")


def test_secret_is_deleted_before_noise_is_drawn(tmp_path, monkeypatch):
    """Not only until the machine loses power."""
    run = small_run(3)
    save_private_mw(run, tmp_path / "run")
    noise = NoNoise()
    synced = []
    monkeypatch.setattr(
        saved_runs,
        "sync_directory",
        lambda path: synced.append((sorted(each.name for each in path.iterdir()), noise.draws[:])),
    )
    resume(tmp_path / "run", noise=noise)
    assert synced == [(["hypothesis.npz", "transcript.json"], [])]


def ledger_at(folder: pathlib.Path) -> dp.Ledger:
    ledger = dp.Ledger(str(folder / "ledger.sqlite"))
    ledger.declare("visits", 100.0, 0.0, GUARANTEE.privacy_unit, REPLACE)
    return ledger


def paid_run(ledger: dp.Ledger) -> dp.PrivateMW:
    token = ledger.spend("visits", PLAN.guarantee, PLAN.loss, "private_mw")
    return dp.PrivateMW(PLAN, HISTOGRAM, NoNoise(), ledger_token=token)


def saved_run(folder: pathlib.Path) -> dp.Ledger:
    ledger = ledger_at(folder)
    run = paid_run(ledger)
    run.answer(cells(PLAN.domain, 0))
    save_private_mw(run, folder / "run")
    return ledger


def test_copy_of_the_folder_is_refused(tmp_path):
    ledger = saved_run(tmp_path)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    run = resume(tmp_path / "run", ledger)
    assert run.answer(cells(PLAN.domain, 0)).updates_left == 2
    with pytest.raises(LedgerError, match="'visits/1' that was not used: the next is 2") as error:
        resume(tmp_path / "copy", ledger)
    assert "\n" not in str(error.value)
    # The counter goes on with the run: each of its states once.
    save_private_mw(run, tmp_path / "second")
    shutil.copytree(tmp_path / "second", tmp_path / "second copy")
    run = resume(tmp_path / "second copy", ledger)
    with pytest.raises(LedgerError, match="the next is 3"):
        resume(tmp_path / "second", ledger)
    save_private_mw(run, tmp_path / "third")
    assert check_private_mw(tmp_path / "third", PLAN).state_number == 3
    assert len(ledger.entries("visits")) == 1  # nothing more was paid


def test_paid_run_resumes_only_with_its_ledger(tmp_path):
    ledger = saved_run(tmp_path)
    with pytest.raises(dp.InputError, match=r"^ledger is required: its entry 'visits/1'"):
        resume(tmp_path / "run")
    other = dp.Ledger(str(tmp_path / "other.sqlite"))
    other.declare("visits", 100.0, 0.0, GUARANTEE.privacy_unit, REPLACE)
    with pytest.raises(LedgerError, match="must come from this ledger"):
        resume(tmp_path / "run", other)
    resume(tmp_path / "run", ledger)


def test_unpaid_run_resumes_without_a_ledger(tmp_path):
    ledger = ledger_at(tmp_path)
    save_private_mw(dp.PrivateMW(PLAN, HISTOGRAM, NoNoise()), tmp_path / "run")
    assert check_private_mw(tmp_path / "run", PLAN) is None
    with pytest.raises(dp.InputError, match=r"^ledger: .* must not be given: no ledger paid"):
        resume(tmp_path / "run", ledger)
    resume(tmp_path / "run")


@pytest.mark.part
@pytest.mark.parametrize("name", ["transcript.json", "hypothesis.npz", "secret.json"])
def test_damaged_folder_is_refused_and_keeps_the_state(tmp_path, name):
    """Every byte matters."""
    ledger = saved_run(tmp_path)
    path = tmp_path / "run" / name
    content = path.read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(dp.InputError, match=r"^(folder|plan): ") as error:
            resume(tmp_path / "run", ledger)
        assert "\n" not in str(error.value)
    path.write_bytes(content)
    resume(tmp_path / "run", ledger)


def test_refused_resume_states_the_difference_and_keeps_the_state(tmp_path):
    ledger = saved_run(tmp_path)
    wrong = dataclasses.replace(PLAN, num_questions=5)
    with pytest.raises(dp.InputError, match=r"saved run: num_questions was 4, and is 5$"):
        resume_private_mw(tmp_path / "run", wrong, HISTOGRAM, NoNoise(), ledger)
    with pytest.raises(dp.InputError, match=r"^histogram: "):
        bigger = Histogram(domain_of(9), np.zeros(9, np.int64))
        resume_private_mw(tmp_path / "run", PLAN, bigger, NoNoise(), ledger)
    domain = dp.Domain((dp.IntegerAttribute("b", 0, 7),))
    renamed, counts = dataclasses.replace(PLAN, domain=domain), Histogram(domain, HISTOGRAM.counts)
    with pytest.raises(dp.InputError, match="plan of the saved run"):
        resume_private_mw(tmp_path / "run", renamed, counts, NoNoise(), ledger)
    with pytest.raises(dp.InputError, match="must contain a saved run"):
        resume(tmp_path / "none", ledger)
    resume(tmp_path / "run", ledger)


def be_killed(folder: str, url: str | None, is_removed: bool) -> None:
    """Dies where the secret is to be removed, or right after that, and nothing else happened."""
    unlink = os.unlink

    def die(path: pathlib.Path) -> None:
        if is_removed:
            unlink(path)
        os.kill(os.getpid(), signal.SIGKILL)

    saved_runs.os.unlink = die  # type: ignore[assignment]
    resume(pathlib.Path(folder), None if url is None else dp.Ledger(url))


def kill(folder: pathlib.Path, ledger: dp.Ledger | None, is_removed: bool = False) -> None:
    url = None if ledger is None else ledger.name
    process = PROCESSES.Process(target=be_killed, args=(str(folder), url, is_removed))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.job
def test_state_is_lost_if_process_is_killed_after_the_ledger_recorded_it(tmp_path):
    ledger = saved_run(tmp_path)
    kill(tmp_path / "run", ledger)
    assert (tmp_path / "run" / "secret.json").exists()  # and of no use
    with pytest.raises(LedgerError, match="was not used: the next is 2"):
        resume(tmp_path / "run", ledger)


@pytest.mark.job
def test_unpaid_run_survives_a_kill_before_its_secret_is_removed_but_not_after(tmp_path):
    """There is no moment at which the secret has another name."""
    for name in ("run", "other"):
        save_private_mw(dp.PrivateMW(PLAN, HISTOGRAM, NoNoise()), tmp_path / name)
    kill(tmp_path / "run", None)
    public = ["hypothesis.npz", "transcript.json"]
    found = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert found == ["hypothesis.npz", "secret.json", "transcript.json"]
    resume(tmp_path / "run")
    kill(tmp_path / "other", None, is_removed=True)
    for name in ("run", "other"):
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == public
        with pytest.raises(dp.InputError, match="an unused secret"):
            resume(tmp_path / name, None)


def test_secret_read_by_several_callers_can_be_used_only_once(tmp_path):
    save_private_mw(dp.PrivateMW(PLAN, HISTOGRAM, NoNoise()), tmp_path / "run")
    found = (tmp_path / "run" / "secret.json").read_bytes()
    assert saved_runs._use_secret(tmp_path / "run", found, None, None).take()["num_above"] == 0
    for _ in range(2):
        with pytest.raises(dp.InputError, match="can be resumed only once"):
            saved_runs._use_secret(tmp_path / "run", found, None, None)


def test_missing_ledger_is_refused_and_the_secret_is_kept(tmp_path, monkeypatch):
    saved_run(tmp_path)
    locked = dp.Ledger(str(tmp_path / "nowhere.sqlite"))
    with pytest.raises(LedgerError, match="must exist"):
        resume(tmp_path / "run", locked)
    assert (tmp_path / "run" / "secret.json").exists()


@pytest.mark.parametrize("counts", [[80_000, 0], [0, 80_000], [40_000, 40_000]])
def test_ledger_entries_do_not_depend_on_the_data(tmp_path, counts):
    ledger = ledger_at(tmp_path)
    token = ledger.spend("visits", PLAN.guarantee, PLAN.loss, "private_mw")
    histogram = Histogram(PLAN.domain, np.array([*counts, 0, 0, 0, 0, 0, 0]))
    run = dp.PrivateMW(PLAN, histogram, NoNoise(), ledger_token=token)
    for number in range(1, 4):
        run.answer(cells(PLAN.domain, number))
        save_private_mw(run, tmp_path / f"run{number}")
        assert check_private_mw(tmp_path / f"run{number}", PLAN).state_number == number
        run = resume_private_mw(tmp_path / f"run{number}", PLAN, histogram, NoNoise(), ledger)
    with ledger._storage.reading() as connection:
        rows = connection.exec_driver_sql("SELECT state_number FROM beam_dp_used_states").all()
    assert [row[0] for row in rows] == [1, 2, 3]


def test_earlier_answers_cost_nothing_in_a_new_or_a_resumed_run(tmp_path):
    run, old, new = (
        dp.PrivateMW(PLAN, HISTOGRAM, NoNoise()),
        *(cells(PLAN.domain, n) for n in (0, 1)),
    )
    answered, noise = run.answer(old), NoNoise()
    plan = ready(dataclasses.replace(PLAN, starts_from_release=True))
    again = dp.PrivateMW(plan, HISTOGRAM, noise, run.weights, earlier=run.transcript)
    num_draws = len(noise.draws)
    free = again.answer(old)
    assert (free.value, free.bound, free.route) == (answered.value, answered.bound, "update")
    assert (free.updates_left, free.questions_left) == (3, 4) and len(noise.draws) == num_draws
    assert again.answer(new).questions_left == 3 and len(noise.draws) > num_draws
    save_private_mw(again, tmp_path / "again")
    resumed = resume_private_mw(tmp_path / "again", plan, HISTOGRAM, NoNoise())
    assert len(resumed.transcript) == 2 and resumed.questions_left == 3
