"""Saved runs of online multiplicative weights: resumed, damaged, of another plan."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest
from noise_sources import NoNoise, Seeded
from private_mw_laws import cells, small_run

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.online import plan as online_plan, saved_runs
from beam_dp.mechanisms.online.saved_runs import (
    check_private_mw,
    resume_private_mw,
    save_private_mw,
)
from beam_dp.mechanisms.sparse_vector.mechanisms import HaltedError
from beam_dp.queries.disjunction import negation
from beam_dp.queries.reader import LinearQueries
from beam_dp.summaries.histogram import Histogram


def test_saved_run_resumes_with_the_same_answers(tmp_path):
    whole, saved = small_run(3), small_run(3)
    domain = whole.plan.domain
    queries = [cells(domain, code) for code in range(4)]
    queries.append(LinearQueries(domain).explicit(np.linspace(0, 1, 8)))
    queries.append(LinearQueries(domain).parity({"a0": [1, 3]}))
    queries.append(negation(cells(domain, 5)))
    expected = [whole.answer(query) for query in queries]
    found = [saved.answer(query) for query in queries[:5]]
    save_private_mw(saved, tmp_path / "run")
    with pytest.raises(HaltedError, match="was saved"):
        saved.answer(queries[0])
    histogram = Histogram(domain, saved._counts)
    resumed = resume_private_mw(tmp_path / "run", saved.plan, histogram, NoNoise())
    assert resumed.transcript == saved.transcript
    assert resumed._sparse._values() == saved._sparse._values()
    assert resumed.weights.tolist() == saved.weights.tolist()
    found += [resumed.answer(query) for query in queries[5:]]
    assert found == expected
    # Only once.
    with pytest.raises(InputError, match="resumed once"):
        resume_private_mw(tmp_path / "run", saved.plan, histogram, NoNoise())
    with pytest.raises(InputError, match="must not exist"):
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
    "name, change, message",
    [
        ("transcript.json", lambda text: text.replace('"total": 8', '"total": 9'), "undamaged"),
        ("transcript.json", lambda text: text[:-5], "must hold a saved run"),
        (
            "transcript.json",
            lambda text: text.replace('"version": 2', '"version": 1'),
            "of version 2",
        ),
        ("secret.json", lambda text: text.replace("noisy", "quiet"), "undamaged"),
        ("secret.json", lambda text: "[]", "undamaged"),
        ("secret.json", lambda text: "{", "secret that was not used"),
    ],
)
def test_damaged_runs_are_refused(tmp_path, name, change, message):
    run = small_run(3)
    run.answer(cells(run.plan.domain, 0))
    save_private_mw(run, tmp_path / "run")
    path = tmp_path / "run" / name
    path.write_text(change(path.read_text()))
    with pytest.raises(InputError, match=message):
        resume_private_mw(
            tmp_path / "run", run.plan, Histogram(run.plan.domain, run._counts), NoNoise()
        )


def test_runs_of_another_plan_are_refused_and_stay(tmp_path):
    run = small_run(3)
    save_private_mw(run, tmp_path / "run")
    other = dataclasses.replace(run.plan, num_questions=5)
    histogram = Histogram(run.plan.domain, run._counts)
    with pytest.raises(InputError, match="plan of the saved run"):
        resume_private_mw(tmp_path / "run", other, histogram, NoNoise())
    with pytest.raises(InputError, match="must hold a saved run"):
        resume_private_mw(tmp_path / "none", run.plan, histogram, NoNoise())
    domain = Domain((IntegerAttribute("b", 0, 7),))
    renamed = dataclasses.replace(run.plan, domain=domain)
    with pytest.raises(InputError, match="plan of the saved run"):
        resume_private_mw(tmp_path / "run", renamed, Histogram(domain, run._counts), NoNoise())
    assert resume_private_mw(tmp_path / "run", run.plan, histogram, NoNoise()).updates_left == 3


def test_a_run_is_saved_once(tmp_path):
    run = small_run(3)
    with pytest.raises(InputError, match="must not exist"):
        save_private_mw(run, tmp_path)
    save_private_mw(run, tmp_path / "first")  # nothing was handed over before
    with pytest.raises(HaltedError, match=r"^the run was saved: resume it from there$"):
        save_private_mw(run, tmp_path / "second")
    assert [path.name for path in tmp_path.iterdir()] == ["first"]


@pytest.mark.parametrize("step", ["savez", "fsync"])
def test_a_run_whose_saving_failed_is_not_saved_again(tmp_path, monkeypatch, step):
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


def test_a_state_of_other_settings_is_refused_and_stays(tmp_path, monkeypatch):
    """Another version of this package may choose other noise for the same plan."""
    run = small_run(None)
    histogram = Histogram(run.plan.domain, run._counts)
    save_private_mw(run, tmp_path / "run")
    with monkeypatch.context() as patched:
        patched.setattr(online_plan, "_GROWTH", 7.0)
        online_plan._settle.cache_clear()
        assert run.plan.settle(80_000) != run.settings
        for refused in (
            lambda: check_private_mw(tmp_path / "run", run.plan),
            lambda: resume_private_mw(tmp_path / "run", run.plan, histogram, NoNoise()),
        ):
            with pytest.raises(InputError) as error:
                refused()
            text = str(error.value)
            assert "must have the settings that this version of beam_dp chooses" in text
            assert re.search(r": [a-z_.]+ was [0-9.]+, and is [0-9.]+$", text), text
    online_plan._settle.cache_clear()
    resume_private_mw(tmp_path / "run", run.plan, histogram, NoNoise())


@pytest.mark.parametrize("change", [{"settings": None}, {"total": "80000"}, {"settings": {}}])
def test_a_transcript_without_its_settings_is_refused(tmp_path, change):
    """As whoever wrote it meant it: the digest is right."""
    run = small_run(3)
    save_private_mw(run, tmp_path / "run")
    transcript = json.loads((tmp_path / "run" / "transcript.json").read_text())
    (tmp_path / "run" / "transcript.json").write_text(json.dumps({**transcript, **change}))
    secret = json.loads((tmp_path / "run" / "secret.json").read_text())
    del secret["sha256"]
    public = ["transcript.json", "hypothesis.npz"]
    secret["sha256"] = saved_runs._digest(tmp_path / "run", public, secret)
    (tmp_path / "run" / "secret.json").write_text(json.dumps(secret))
    with pytest.raises(InputError, match=r"^folder: "):
        check_private_mw(tmp_path / "run", run.plan)


def test_a_folder_that_cannot_be_written_is_refused_before_its_state_is_used(tmp_path, monkeypatch):
    run = small_run(3)
    save_private_mw(run, tmp_path / "run")
    histogram = Histogram(run.plan.domain, run._counts)
    with monkeypatch.context() as patched:
        patched.setattr(saved_runs.os, "access", lambda *_: False)  # root may write anywhere
        with pytest.raises(InputError, match="must be a directory that can be written"):
            resume_private_mw(tmp_path / "run", run.plan, histogram, NoNoise())
    resume_private_mw(tmp_path / "run", run.plan, histogram, NoNoise())


def test_a_secret_is_gone_for_good_before_anything_is_drawn(tmp_path, monkeypatch):
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
    histogram = Histogram(run.plan.domain, run._counts)
    resume_private_mw(tmp_path / "run", run.plan, histogram, noise)
    assert synced == [(["hypothesis.npz", "transcript.json"], [])]
