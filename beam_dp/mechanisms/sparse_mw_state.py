"""Runs of ``SparseMW`` on disk: a public transcript, and a secret that is used up once.

A folder holds ``transcript.json`` (the plan, every query, its answer and by how much it moved the
hypothesis), which is public, and ``secret.json``: the noisy threshold, which must stay where the
data are.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from beam_dp.errors import InputError
from beam_dp.mechanisms.private_mw import PrivateAnswer
from beam_dp.mechanisms.saved_runs import digest, new_folder, take_secret, write_secret
from beam_dp.mechanisms.sparse_mw import SavedSparseRun, SparseMW
from beam_dp.mechanisms.sparse_mw_plan import SparseMWPlan
from beam_dp.noise import NoiseSource
from beam_dp.queries.sparse import SparseQuery
from beam_dp.summaries import KeyCounts

VERSION = 1
_TRANSCRIPT = "transcript.json"


def save_sparse_mw(run: SparseMW, folder: str | Path) -> None:
    """Writes a run to a new folder and ends the object: only ``resume_sparse_mw`` goes on.

    Raises:
        InputError: if the folder exists.
    """
    path = new_folder(folder)
    saved = run.hand_over()
    transcript = {
        "version": VERSION,
        "plan": run.plan.to_json(),
        "settings": run.settings.to_json(),
        "total": saved.total,
        "answers": [
            {"query": query.to_json(), "step": step, "answer": dataclasses.asdict(answer)}
            for query, answer, step in saved.answers
        ],
    }
    (path / _TRANSCRIPT).write_text(json.dumps(transcript, allow_nan=False), encoding="utf-8")
    write_secret(path, saved.sparse, [_TRANSCRIPT])


def resume_sparse_mw(
    folder: str | Path, plan: SparseMWPlan, records: KeyCounts, noise: NoiseSource
) -> SparseMW:
    """Returns the run that was saved; removes its secret, so that it goes on only once.

    Two runs from one state would each spend the budget: a copy of the secret must never be used.

    Args:
        folder: that ``save_sparse_mw`` wrote.
        plan: of the run.
        records: the same exact counts.
        noise: source of all noise.

    Raises:
        InputError: if it is no such folder, of another plan, damaged, or was resumed before.
    """
    path = Path(folder)
    try:
        parsed = json.loads((path / _TRANSCRIPT).read_text(encoding="utf-8"))
        found = digest(path, [_TRANSCRIPT])
    except (OSError, ValueError, RecursionError):
        raise InputError("folder", str(path), "must hold a saved run") from None
    expected = json.loads(json.dumps({"version": VERSION, "plan": plan.to_json()}))
    if not isinstance(parsed, dict) or any(parsed.get(key) != expected[key] for key in expected):
        raise InputError("plan", str(path), "must be the plan of the saved run")
    secret = take_secret(path, found)
    answers = tuple(
        (SparseQuery.from_json(row["query"]), PrivateAnswer(**row["answer"]), row["step"])
        for row in parsed["answers"]
    )
    return SparseMW(plan, records, noise, saved=SavedSparseRun(parsed["total"], answers, secret))
