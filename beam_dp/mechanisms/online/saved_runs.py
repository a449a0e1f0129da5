"""Folders of saved online runs: a secret bound to public files, used once.

Two runs from one state would each spend the budget. A run is handed over once, to one folder, which
is resumed once: its secret is removed then. Where a ledger paid for the run, no copy of the folder
is resumed either: the states of a run are numbered, and the ledger records each that is used.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.online.plan import OnlinePlan
from beam_dp.mechanisms.online.private_mw import (
    Payment,
    PrivateAnswer,
    PrivateMW,
    SavedRun,
    check_settings,
    difference,
)
from beam_dp.mechanisms.online.private_mw_plan import PrivateMWPlan
from beam_dp.mechanisms.sparse_vector.mechanisms import HaltedError, SparseState
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.ledger.entries import Token
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.queries.linear import LinearQuery
from beam_dp.queries.reader import LinearQueries
from beam_dp.storage.local import sync_directory
from beam_dp.summaries.histogram import Histogram

SavedT = TypeVar("SavedT")

TRANSCRIPT = "transcript.json"
_SECRET = "secret.json"


def saved_payment(payment: Payment | None) -> dict[str, Any] | None:
    """Returns what a folder says of who paid: the state that it holds is the next one."""
    if payment is None:
        return None
    token = payment.token
    return {
        "dataset_id": token.dataset_id,
        "number": token.number,
        "mechanism": token.mechanism,
        "state_number": payment.state_number + 1,
    }


def hand_over_to(folder: str | Path, hand_over: Callable[[], SavedT]) -> tuple[Path, SavedT]:
    """Makes a folder that only its owner may read, for what ``hand_over`` returns.

    Raises:
        InputError: if it exists; then nothing was handed over.
        HaltedError: from ``hand_over``; then there is no folder.
    """
    path = Path(folder)
    try:
        path.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise InputError("folder", str(path), "must not exist") from None
    try:
        return path, hand_over()
    except HaltedError:
        path.rmdir()
        raise


def write_run(
    path: Path,
    transcript: Mapping[str, Any],
    state: SparseState,
    payment: Payment | None,
    public: Sequence[str],
) -> None:
    """Writes a transcript, and last a secret state, bound to all public files beside it.

    The digest has no key: it shows damage, not who wrote the files, and it hides nothing.
    """
    text = json.dumps({**transcript, "payment": saved_payment(payment)}, allow_nan=False)
    (path / TRANSCRIPT).write_text(text, encoding="utf-8")
    secret: dict[str, Any] = {"state": state.take(), "payment": saved_payment(payment)}
    secret["sha256"] = _digest(path, public, secret)
    descriptor = os.open(path / _SECRET, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(secret, file)
        file.flush()
        os.fsync(file.fileno())


def read_transcript(path: Path, public: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the transcript of a folder, if its plan is the expected one.

    Args:
        path: the folder.
        public: what the transcript must say: version, plan, and domain if there is one.

    Raises:
        InputError: if there is none, or it is of another plan, naming what differs.
    """
    parsed = any_transcript(path)
    expected = json.loads(json.dumps(public))
    if parsed.get("version") != expected["version"]:
        condition = f"must hold a run of version {expected['version']}"
        raise InputError("folder", str(path), condition)
    for part in ("plan", "domain"):
        if parsed.get(part) != expected.get(part):
            what = difference(part, parsed.get(part), expected.get(part))
            raise InputError("plan", str(path), f"must be the plan of the saved run: {what}")
    return parsed


def any_transcript(path: Path) -> dict[str, Any]:
    """Returns the transcript of a folder, of whatever plan; raises InputError if there is none."""
    try:
        parsed = json.loads((path / TRANSCRIPT).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise InputError("folder", str(path), "must hold a saved run")
    return parsed


def saved_settings(path: Path, transcript: Mapping[str, Any], plan: OnlinePlan) -> dict[str, Any]:
    """Returns the settings that a transcript says the run had, if they are those of the plan.

    Raises:
        InputError: if they are others, or the transcript is damaged.
    """
    total, settings = transcript.get("total"), transcript.get("settings")
    if type(total) is not int or not isinstance(settings, dict):
        raise InputError("folder", str(path), "must hold an undamaged run")
    check_settings("folder", str(path), settings, plan.settle(total))
    return settings


def payment_of(path: Path, transcript: Mapping[str, Any], plan: OnlinePlan) -> Payment | None:
    """Returns what a transcript says of who paid, and of the number of the state.

    Raises:
        InputError: if it is damaged.
    """
    try:
        paid = transcript["payment"]
        if paid is None:
            return None
        dataset_id, number, mechanism = (paid[key] for key in ("dataset_id", "number", "mechanism"))
        token = Token(dataset_id, number, mechanism, plan.guarantee, plan.loss)
        return Payment(token, paid["state_number"])
    except (KeyError, TypeError):
        raise InputError("folder", str(path), "must hold an undamaged run") from None


def check_secret(path: Path, transcript: Mapping[str, Any], public: Sequence[str]) -> bytes:
    """Returns the secret's bytes, if they and the public files are as they were written.

    Raises:
        InputError: if there is no secret, or one of the files is damaged.
    """
    try:
        found = (path / _SECRET).read_bytes()
        secret = json.loads(found)
    except (OSError, ValueError, RecursionError):
        raise _no_secret(path) from None
    is_whole = isinstance(secret, dict) and (
        secret.pop("sha256", None) == _digest(path, public, secret)
    )
    if not is_whole or secret.get("payment") != transcript.get("payment"):
        raise InputError("folder", str(path), "must hold an undamaged run")
    return found


def check_ledger(payment: Payment | None, ledger: Ledger | None) -> None:
    """Refuses a ledger for a run that none paid for, and a run without the ledger that paid.

    Raises:
        InputError: naming the ledger.
    """
    if payment is not None and ledger is None:
        condition = f"must be given: {payment.token.release_id!r} in it paid for the saved run"
        raise InputError("ledger", None, condition)
    if payment is None and ledger is not None:
        raise InputError("ledger", ledger.name, "must not be given: none paid for the saved run")


def use_secret(
    path: Path, found: bytes, payment: Payment | None, ledger: Ledger | None
) -> SparseState:
    """Uses a state up and returns it: first in the ledger, then in the folder.

    Of several that try, one succeeds: the one that removes the secret. Killed before that, where no
    ledger is asked, nothing has happened; killed after it, the state is lost, and no trace of it is
    left.

    Raises:
        LedgerError: if the state was used before, from this folder or from another one.
        InputError: if the secret was used, or ``check_ledger`` refuses.
    """
    check_ledger(payment, ledger)
    if not os.access(path, os.W_OK | os.X_OK):
        raise InputError("folder", str(path), "must be a directory that can be written")
    if payment is not None and ledger is not None:
        ledger.use_state(payment.token, payment.state_number)
    try:
        os.unlink(path / _SECRET)
        sync_directory(path)  # so that the secret does not come back after a loss of power
    except OSError:
        raise _no_secret(path) from None
    return SparseState(json.loads(found)["state"])


def _no_secret(path: Path) -> InputError:
    condition = "must hold a secret that was not used: a saved run is resumed once"
    return InputError("folder", str(path), condition)


def _digest(path: Path, public: Sequence[str], secret: Mapping[str, Any]) -> str:
    """Returns what binds the secret to the public files, and shows damage of either."""
    found = hashlib.sha256(json.dumps(dict(secret), sort_keys=True).encode())
    for name in public:
        found.update(hashlib.sha256((path / name).read_bytes()).digest())
    return found.hexdigest()


VERSION = 2
_HYPOTHESIS = "hypothesis.npz"
_PUBLIC = (TRANSCRIPT, _HYPOTHESIS)


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
