"""Saved runs of ``PrivateMW``: a public transcript, and a secret that is used once.

A folder holds ``transcript.json`` (the plan, who paid, every query and answer) and
``hypothesis.npz``, both public, and ``secret.json``: the noisy threshold, which must stay where the
data are. No pickle.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.online.plan import ready
from beam_dp.mechanisms.online.private_mw import PrivateAnswer, PrivateMW, SavedRun
from beam_dp.mechanisms.online.private_mw_plan import PrivateMWPlan
from beam_dp.mechanisms.online.saved_runs import (
    TRANSCRIPT,
    Payment,
    any_transcript,
    check_secret,
    hand_over_to,
    payment_of,
    read_transcript,
    saved_settings,
    use_secret,
    write_run,
)
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.queries.linear import LinearQuery
from beam_dp.queries.reader import LinearQueries
from beam_dp.summaries.histogram import Histogram

VERSION = 2
_HYPOTHESIS = "hypothesis.npz"
_PUBLIC = (TRANSCRIPT, _HYPOTHESIS)


@dataclasses.dataclass(frozen=True)
class Restart:
    """What a new run starts from where the secret of an earlier one is lost; public.

    Args:
        plan: of the new run, whose loss must be paid for again.
        start: the hypothesis of the earlier run, shape (num_cells,), float64, sums to 1.
        earlier: its answers, which stay free.
    """

    plan: PrivateMWPlan
    start: NDArray[np.float64]
    earlier: tuple[tuple[LinearQuery, PrivateAnswer], ...]


def save_private_mw(run: PrivateMW, folder: str | Path) -> None:
    """Writes a run to a new folder and ends the object: only ``resume_private_mw`` goes on.

    The secret is written last, so that a folder that is cut short cannot be resumed. A run is
    handed over once: if writing fails the run cannot be saved again, but its transcript and weights
    can still be read, and be the start of a new run.

    Raises:
        InputError: if the folder exists.
        HaltedError: if the run was saved before.
        OSError: if a file cannot be written.
    """
    path, saved = hand_over_to(folder, run.hand_over)
    transcript = {
        **_expected(run.plan),
        "settings": saved.settings,
        "total": saved.total,
        "num_earlier": saved.num_earlier,
        "answers": [
            {"query": query.to_json(), **dataclasses.asdict(answer)}
            for query, answer in saved.answers
        ],
    }
    assert saved.log_weights is not None
    np.savez(path / _HYPOTHESIS, log_weights=saved.log_weights)
    write_run(path, transcript, saved.sparse, saved.payment, _PUBLIC)


def check_private_mw(folder: str | Path, plan: PrivateMWPlan) -> Payment | None:
    """Checks a saved run without resuming it; returns who paid, and the number of its state.

    Raises:
        InputError: if it is no such folder, of another plan, damaged, or was resumed before.
    """
    path = Path(folder)
    transcript = read_transcript(path, _expected(plan))
    _log_weights(path, plan.domain)
    check_secret(path, transcript, _PUBLIC)
    saved_settings(path, transcript, plan)
    return payment_of(path, transcript, plan)


def resume_private_mw(
    folder: str | Path,
    plan: PrivateMWPlan,
    histogram: Histogram,
    noise: NoiseSource,
    ledger: Ledger | None = None,
) -> PrivateMW:
    """Returns the run that was saved; uses its state up, so that it goes on only once.

    Two runs from one state would each spend the budget. Where a ledger paid for the run, the
    ledger records that the state is used before anything else happens, and a copy of the folder is
    refused. Where none did, only the folder's own secret is removed: a copy of it must never be
    used. Nothing is spent.

    Args:
        folder: that ``save_private_mw`` wrote.
        plan: of the run.
        histogram: the same exact counts.
        noise: source of all noise.
        ledger: that paid for the run; given if one did, and only then.

    Raises:
        InputError: if it is no such folder, of another plan, damaged, or was resumed before.
        LedgerError: if the ledger says that the state was used, or can't be reached.
    """
    path = Path(folder)
    condition = "must be of the plan's domain"
    plan.domain.check_same(histogram.domain, "histogram", histogram, condition)
    transcript = read_transcript(path, _expected(plan))
    log_weights = _log_weights(path, plan.domain)
    found = check_secret(path, transcript, _PUBLIC)
    settings = saved_settings(path, transcript, plan)
    payment = payment_of(path, transcript, plan)
    answers = _answers(path, transcript, plan.domain)
    total, num_earlier = transcript["total"], transcript["num_earlier"]
    state = use_secret(path, found, payment, ledger)
    saved = SavedRun(settings, total, answers, state, payment, log_weights, num_earlier)
    return PrivateMW(plan, histogram, noise, saved=saved)


def restart_private_mw(folder: str | Path, plan: PrivateMWPlan) -> Restart:
    """Returns what a new run takes from the public part of a saved one, whose secret is lost.

    Privacy: reads public files only. The new run costs what its plan says, paid by a new token:

        restart = restart_private_mw("run", plan)
        token = ledger.spend("visits", guarantee, restart.plan.loss, "private_mw")
        PrivateMW(restart.plan, histogram, noise, restart.start, earlier=restart.earlier,
                  ledger_token=token)

    Args:
        folder: that ``save_private_mw`` wrote, with or without its ``secret.json``.
        plan: for the new run: that of the saved one, or another one of its domain.

    Raises:
        InputError: if the folder holds no saved run of the plan's domain, or the plan is not tight.
    """
    path = Path(folder)
    transcript = any_transcript(path)
    if transcript.get("domain") != json.loads(json.dumps(plan.domain.to_json())):
        raise InputError("plan", str(path), "must be of the domain of the saved run")
    return Restart(
        plan=ready(dataclasses.replace(plan, starts_from_release=True)),
        start=softmax(_log_weights(path, plan.domain)),
        earlier=_answers(path, transcript, plan.domain),
    )


def _log_weights(path: Path, domain: Domain) -> NDArray[np.float64]:
    try:
        with np.load(path / _HYPOTHESIS, allow_pickle=False) as arrays:
            log_weights = np.array(arrays["log_weights"], np.float64)
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, BadZipFile):
        # RuntimeError: a damaged archive may look like one that is encrypted or of a newer kind.
        raise InputError("folder", str(path), "must hold a saved run") from None
    if log_weights.shape != (domain.num_cells,) or np.isnan(log_weights).any():
        raise InputError("folder", str(path), "must hold an undamaged run")
    return log_weights


def _answers(
    path: Path, transcript: dict[str, Any], domain: Domain
) -> tuple[tuple[LinearQuery, PrivateAnswer], ...]:
    queries = LinearQueries(domain)
    try:
        return tuple(
            (
                queries.from_json(entry["query"]),
                PrivateAnswer(**{name: entry[name] for name in entry if name != "query"}),
            )
            for entry in transcript["answers"]
        )
    except (KeyError, TypeError, ValueError):
        raise InputError("folder", str(path), "must hold an undamaged run") from None


def _expected(plan: PrivateMWPlan) -> dict[str, Any]:
    return {"version": VERSION, "plan": plan.public, "domain": plan.domain.to_json()}
