"""Saved runs of ``SparseMW``: a public transcript, and a secret that is used once.

A folder holds ``transcript.json`` (the plan, who paid, every query, its answer and by how much it
moved the hypothesis), which is public, and ``secret.json``: the noisy threshold, which must stay
where the data are.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from beam_dp.mechanisms.online.private_mw import PrivateAnswer, SavedRun
from beam_dp.mechanisms.online.saved_runs import (
    TRANSCRIPT,
    check_secret,
    hand_over_to,
    payment_of,
    read_transcript,
    saved_settings,
    use_secret,
    write_run,
)
from beam_dp.mechanisms.online.sparse_mw import SparseMW
from beam_dp.mechanisms.online.sparse_mw_plan import SparseMWPlan
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.queries.sparse import SparseQuery
from beam_dp.summaries.element_counts import KeyCounts

VERSION = 2


def save_sparse_mw(run: SparseMW, folder: str | Path) -> None:
    """Writes a run to a new folder and ends the object: only ``resume_sparse_mw`` goes on.

    See ``save_private_mw``.

    Raises:
        InputError: if the folder exists.
        HaltedError: if the run was saved before.
        OSError: if a file cannot be written.
    """
    path, saved = hand_over_to(folder, run.hand_over)
    answers = [
        {
            "query": query.to_json(),
            "step": saved.steps.get(query, 0.0),
            "answer": dataclasses.asdict(answer),
        }
        for query, answer in saved.answers
    ]
    stated = {"settings": saved.settings, "total": saved.total, "answers": answers}
    write_run(path, {**_expected(run.plan), **stated}, saved.sparse, saved.payment, [TRANSCRIPT])


def resume_sparse_mw(
    folder: str | Path,
    plan: SparseMWPlan,
    records: KeyCounts,
    noise: NoiseSource,
    ledger: Ledger | None = None,
) -> SparseMW:
    """Returns the run that was saved; uses its state up: see ``resume_private_mw``.

    Args:
        folder: that ``save_sparse_mw`` wrote.
        plan: of the run.
        records: the same exact counts.
        noise: source of all noise.
        ledger: that paid for the run; given if one did, and only then.

    Raises:
        InputError: if it is no such folder, of another plan, damaged, or was resumed before.
        LedgerError: if the ledger says that the state was used, or can't be reached.
    """
    path = Path(folder)
    transcript = read_transcript(path, _expected(plan))
    found = check_secret(path, transcript, [TRANSCRIPT])
    settings = saved_settings(path, transcript, plan)
    payment = payment_of(path, transcript, plan)
    rows = [(SparseQuery.from_json(row["query"]), row) for row in transcript["answers"]]
    answers = tuple((query, PrivateAnswer(**row["answer"])) for query, row in rows)
    steps = {query: row["step"] for query, row in rows if row["step"]}
    state = use_secret(path, found, payment, ledger)
    saved = SavedRun(settings, transcript["total"], answers, state, payment, steps=steps)
    return SparseMW(plan, records, noise, saved=saved)


def _expected(plan: SparseMWPlan) -> dict[str, Any]:
    return {"version": VERSION, "plan": plan.public}
