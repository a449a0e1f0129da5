"""Runs of ``PrivateMW`` on disk: a public transcript, and a secret that is used up once.

A folder holds ``transcript.json`` (the plan, every query and answer) and ``hypothesis.npz``, both
public, and ``secret.json``: the noisy threshold, which must stay where the data are. No pickle.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from beam_dp.errors import InputError
from beam_dp.mechanisms.private_mw import PrivateAnswer, PrivateMW, SavedRun
from beam_dp.mechanisms.private_mw_plan import PrivateMWPlan
from beam_dp.mechanisms.saved_runs import digest, new_folder, take_secret, write_secret
from beam_dp.noise import NoiseSource
from beam_dp.queries.reader import LinearQueries
from beam_dp.summaries import Histogram

VERSION = 1
_PUBLIC = _TRANSCRIPT, _HYPOTHESIS = "transcript.json", "hypothesis.npz"


def save_private_mw(run: PrivateMW, folder: str | Path) -> None:
    """Writes a run to a new folder and ends the object: only ``resume_private_mw`` goes on.

    Raises:
        InputError: if the folder exists.
    """
    path = new_folder(folder)
    saved = run.hand_over()
    transcript = {
        "version": VERSION,
        **_plan_json(run.plan),
        "settings": run.settings.to_json(),
        "total": saved.total,
        "answers": [
            {"query": query.to_json(), **dataclasses.asdict(answer)}
            for query, answer in saved.answers
        ],
    }
    (path / _TRANSCRIPT).write_text(json.dumps(transcript, allow_nan=False), encoding="utf-8")
    np.savez(path / _HYPOTHESIS, log_weights=saved.log_weights)
    write_secret(path, saved.sparse, _PUBLIC)


def resume_private_mw(
    folder: str | Path, plan: PrivateMWPlan, histogram: Histogram, noise: NoiseSource
) -> PrivateMW:
    """Returns the run that was saved; removes its secret, so that it goes on only once.

    Two runs from one state would each spend the budget: a copy of the secret must never be used.

    Args:
        folder: that ``save_private_mw`` wrote.
        plan: of the run.
        histogram: the same exact counts.
        noise: source of all noise.

    Raises:
        InputError: if it is no such folder, of another plan, damaged, or was resumed before.
    """
    path = Path(folder)
    try:
        parsed = json.loads((path / _TRANSCRIPT).read_text(encoding="utf-8"))
        with np.load(path / _HYPOTHESIS, allow_pickle=False) as arrays:
            log_weights = np.array(arrays["log_weights"], np.float64)
        found = digest(path, _PUBLIC)
    except (OSError, ValueError, KeyError, RecursionError, EOFError):
        raise InputError("folder", str(path), "must hold a saved run") from None
    expected = json.loads(json.dumps({"version": VERSION, **_plan_json(plan)}))
    if not isinstance(parsed, dict) or any(parsed.get(key) != expected[key] for key in expected):
        raise InputError("plan", str(path), "must be the plan of the saved run")
    secret = take_secret(path, found)
    if log_weights.shape != histogram.counts.shape:
        raise InputError("folder", str(path), "must hold an undamaged run")
    queries = LinearQueries(plan.domain)
    answers = []
    for entry in parsed["answers"]:
        query = queries.from_json(entry.pop("query"))
        answers.append((query, PrivateAnswer(**entry)))
    saved = SavedRun(parsed["total"], log_weights, tuple(answers), secret)
    return PrivateMW(plan, histogram, noise, saved=saved)


def _plan_json(plan: PrivateMWPlan) -> dict[str, Any]:
    return {"plan": plan.to_json(), "domain": plan.domain.to_json()}
