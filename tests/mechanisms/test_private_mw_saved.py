"""Saved runs of online multiplicative weights: resumed, damaged, of another plan."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from noise_sources import NoNoise, Seeded
from private_mw_laws import cells, small_run

from beam_dp.domain import Domain, IntegerAttribute
from beam_dp.errors import InputError
from beam_dp.mechanisms.private_mw_state import resume_private_mw, save_private_mw
from beam_dp.mechanisms.sparse_vector import HaltedError
from beam_dp.queries.reader import LinearQueries
from beam_dp.summaries import Histogram


def test_a_saved_run_goes_on_as_if_nothing_had_happened(tmp_path):
    whole, saved = small_run(3), small_run(3)
    domain = whole.plan.domain
    queries = [cells(domain, code) for code in range(4)]
    queries.append(LinearQueries(domain).explicit(np.linspace(0, 1, 8)))
    queries.append(LinearQueries(domain).parity({"a0": [1, 3]}))
    expected = [whole.answer(query) for query in queries]
    found = [saved.answer(query) for query in queries[:5]]
    save_private_mw(saved, tmp_path / "run")
    with pytest.raises(HaltedError, match="was saved"):
        saved.answer(queries[0])
    histogram = Histogram(domain, saved._counts)
    resumed = resume_private_mw(tmp_path / "run", saved.plan, histogram, NoNoise())
    assert resumed.transcript == saved.transcript
    assert resumed._sparse.secret_state() == saved._sparse.secret_state()
    assert resumed.weights.tolist() == saved.weights.tolist()
    found += [resumed.answer(query) for query in queries[5:]]
    assert found == expected
    # Only once.
    with pytest.raises(InputError, match="resumed once"):
        resume_private_mw(tmp_path / "run", saved.plan, histogram, NoNoise())
    with pytest.raises(InputError, match="must not exist"):
        save_private_mw(resumed, tmp_path / "run")


def test_what_is_public_says_nothing_of_the_secret(tmp_path):
    run = small_run(3, Seeded(3))
    run.answer(cells(run.plan.domain, 0))
    threshold = run._sparse.secret_state()["noisy_threshold"]
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
