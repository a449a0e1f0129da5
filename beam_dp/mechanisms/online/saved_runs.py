"""Saves and resumes runs of ``PrivateMW``, with a folder or, in a stream, with a log.

A folder contains ``transcript.json`` (the plan, the payment, every query and answer) and
``hypothesis.npz``, both public, and ``secret.json`` with the noisy threshold, which must stay with
the data. The files do not contain pickles.

Two runs from one state would each spend the budget. So a run is handed over once, to one folder,
and the folder is resumed once: resuming removes the secret. If a ledger paid for the run, copies of
the folder are refused too: the states of a run are numbered, and the ledger records used states.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.online import private_mw
from beam_dp.mechanisms.online.plan import OnlinePlan
from beam_dp.mechanisms.online.private_mw import PrivateMWPlan, Start, start_weights
from beam_dp.mechanisms.sparse_vector import HaltedError, SparseState
from beam_dp.privacy.ledger.entries import Token
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.linear import LinearQuery
from beam_dp.queries.reader import LinearQueries, QueryReader, read_line
from beam_dp.secret.summaries.histogram import Histogram
from beam_dp.storage.store import sync_directory

_VERSION = 2
_TRANSCRIPT = "transcript.json"
_HYPOTHESIS = "hypothesis.npz"
_SECRET = "secret.json"
_UNDAMAGED = "must contain an undamaged run"


def save_private_mw(run: private_mw.PrivateMW, folder: str | Path) -> None:
    """Writes a run to a new folder and ends the object: use ``resume_private_mw`` to continue.

    The secret is written last, so that an incomplete folder cannot be resumed. If writing fails,
    the run cannot be saved again; the run's transcript and weights can still start a new run. The
    digest of the files has no key: it detects damage, but does not authenticate the files.
    """
    path = Path(folder)
    try:
        path.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise InputError("folder", str(path), "must not exist") from None
    try:
        saved = run.hand_over()
    except HaltedError:
        path.rmdir()
        raise
    payment = None
    if saved.payment is not None:  # the state in the folder gets the next number
        token = saved.payment.token
        payment = {
            "dataset_id": token.dataset_id,
            "number": token.number,
            "mechanism": token.mechanism,
            "state_number": saved.payment.state_number + 1,
        }
    transcript = {
        **_expected(run.plan),
        "settings": saved.settings,
        "total": saved.total,
        "num_earlier": saved.num_earlier,
        "answers": [
            {"query": query.to_json(), **dataclasses.asdict(answer)}
            for query, answer in saved.answers
        ],
        "payment": payment,
    }
    np.savez(path / _HYPOTHESIS, log_weights=saved.log_weights)
    (path / _TRANSCRIPT).write_text(json.dumps(transcript, allow_nan=False), encoding="utf-8")
    secret: dict[str, Any] = {"state": saved.sparse.take(), "payment": payment}
    secret["sha256"] = _digest(path, secret)
    descriptor = os.open(path / _SECRET, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(secret, file)
        file.flush()
        os.fsync(file.fileno())


def check_private_mw(folder: str | Path, plan: PrivateMWPlan) -> private_mw.Payment | None:
    """Checks a saved run without resuming the run; returns the run's payment."""
    return _checked(Path(folder), plan).payment


def resume_private_mw(
    folder: str | Path,
    plan: PrivateMWPlan,
    histogram: Histogram,
    noise: NoiseSource,
    ledger: Ledger | None = None,
) -> private_mw.PrivateMW:
    """Returns the saved run and removes the saved state, so that the run can be resumed only once.

    If a ledger paid for the run, the ledger first records that the state is used, and refuses a
    copy of the folder. Otherwise only the folder's own secret is removed, and callers must never
    resume a copy of the folder. Nothing is spent.

    ``histogram``: the exact counts of the saved run.
    ``ledger``: required if a ledger paid for the run; otherwise must be None.
    """
    path = Path(folder)
    condition = "must be of the plan's domain"
    plan.domain.check_same(histogram.domain, "histogram", histogram, condition)
    checked = _checked(path, plan)
    answers = _answers(path, checked.transcript, plan.domain)
    state = _use_secret(path, checked.secret, checked.payment, ledger)
    settings, total, num_earlier = (
        checked.transcript[name] for name in ("settings", "total", "num_earlier")
    )
    saved = private_mw.SavedRun(
        settings, total, answers, state, checked.payment, checked.log_weights, num_earlier
    )
    return private_mw.PrivateMW(plan, histogram, noise, saved=saved)


def any_transcript(path: Path) -> dict[str, Any]:
    """Returns a folder's transcript without comparing plans; raises InputError without a file."""
    try:
        parsed = json.loads((path / _TRANSCRIPT).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise InputError("folder", str(path), "must contain a saved run")
    return parsed


def check_ledger(payment: private_mw.Payment | None, ledger: Ledger | None) -> None:
    """Refuses a ledger for an unpaid run, and a paid run without its ledger."""
    if payment is not None and ledger is None:
        condition = f"must be given: its entry {payment.token.release_id!r} paid for the saved run"
        raise InputError("ledger", None, condition)
    if payment is None and ledger is not None:
        raise InputError(
            "ledger", ledger.name, "must not be given: no ledger paid for the saved run"
        )


@dataclasses.dataclass(frozen=True)
class _Checked:
    """The checked content of a folder with a saved run."""

    transcript: dict[str, Any]
    log_weights: NDArray[np.float64]
    secret: bytes = dataclasses.field(repr=False)
    payment: private_mw.Payment | None


def _checked(path: Path, plan: PrivateMWPlan) -> _Checked:
    """Checks the plan, files and settings of a folder; returns the folder's content."""
    transcript = any_transcript(path)
    expected = json.loads(json.dumps(_expected(plan)))
    if transcript.get("version") != _VERSION:
        raise InputError("folder", str(path), f"must contain a run of version {_VERSION}")
    for part in ("plan", "domain"):
        if transcript.get(part) != expected[part]:
            what = private_mw.difference(part, transcript.get(part), expected[part])
            raise InputError("plan", str(path), f"must be the plan of the saved run: {what}")
    log_weights = _log_weights(path, plan.domain)
    try:
        data = (path / _SECRET).read_bytes()
        secret = json.loads(data)
    except (OSError, ValueError, RecursionError):
        raise _no_secret(path) from None
    is_whole = isinstance(secret, dict) and secret.pop("sha256", None) == _digest(path, secret)
    if not is_whole or secret.get("payment") != transcript.get("payment"):
        raise InputError("folder", str(path), _UNDAMAGED)
    total, settings = transcript.get("total"), transcript.get("settings")
    if type(total) is not int or not isinstance(settings, dict):
        raise InputError("folder", str(path), _UNDAMAGED)
    private_mw.check_settings("folder", str(path), settings, plan.settle(total))
    return _Checked(transcript, log_weights, data, _payment(path, transcript, plan))


def _payment(
    path: Path, transcript: Mapping[str, Any], plan: OnlinePlan
) -> private_mw.Payment | None:
    """Returns the payment that a transcript states."""
    try:
        paid = transcript["payment"]
        if paid is None:
            return None
        dataset_id, number, mechanism = (paid[key] for key in ("dataset_id", "number", "mechanism"))
        token = Token(dataset_id, number, mechanism, plan.guarantee, plan.loss)
        return private_mw.Payment(token, paid["state_number"])
    except (KeyError, TypeError):
        raise InputError("folder", str(path), _UNDAMAGED) from None


def _use_secret(
    path: Path, data: bytes, payment: private_mw.Payment | None, ledger: Ledger | None
) -> SparseState:
    """Marks a state as used in the ledger and removes the folder's secret; returns the state.

    If several callers use the same folder, only the caller that removes the secret succeeds.
    Without a ledger, a crash before the removal changes nothing; a crash after it loses the state.
    """
    check_ledger(payment, ledger)
    if not os.access(path, os.W_OK | os.X_OK):
        raise InputError("folder", str(path), "must be a directory that can be written")
    if payment is not None and ledger is not None:
        ledger.use_state(payment.token, payment.state_number)
    try:
        os.unlink(path / _SECRET)
        sync_directory(path)  # otherwise the secret could reappear after a power failure
    except OSError:
        raise _no_secret(path) from None
    return SparseState(json.loads(data)["state"])


def _no_secret(path: Path) -> InputError:
    condition = "must contain an unused secret: a saved run can be resumed only once"
    return InputError("folder", str(path), condition)


def _digest(path: Path, secret: Mapping[str, Any]) -> str:
    """Returns a digest that binds the secret to the public files and detects damage."""
    digest = hashlib.sha256(json.dumps(dict(secret), sort_keys=True).encode())
    for name in (_TRANSCRIPT, _HYPOTHESIS):
        digest.update(hashlib.sha256((path / name).read_bytes()).digest())
    return digest.hexdigest()


def _log_weights(path: Path, domain: Domain) -> NDArray[np.float64]:
    try:
        with np.load(path / _HYPOTHESIS, allow_pickle=False) as arrays:
            log_weights = np.array(arrays["log_weights"], np.float64)
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, BadZipFile):
        # RuntimeError: a damaged archive may look encrypted or may seem to use a newer format.
        raise InputError("folder", str(path), "must contain a saved run") from None
    if log_weights.shape != (domain.num_cells,) or np.isnan(log_weights).any():
        raise InputError("folder", str(path), _UNDAMAGED)
    return log_weights


def _answers(
    path: Path, transcript: dict[str, Any], domain: Domain
) -> tuple[tuple[LinearQuery, private_mw.PrivateAnswer], ...]:
    queries = LinearQueries(domain)
    try:
        return tuple(
            (
                queries.from_json(entry["query"]),
                private_mw.PrivateAnswer(
                    **{name: entry[name] for name in entry if name != "query"}
                ),
            )
            for entry in transcript["answers"]
        )
    except (KeyError, TypeError, ValueError):
        raise InputError("folder", str(path), _UNDAMAGED) from None


def _expected(plan: PrivateMWPlan) -> dict[str, Any]:
    return {"version": _VERSION, "plan": plan.public, "domain": plan.domain.to_json()}


def answer_line(
    run: private_mw.OnlineMW[Any], queries: QueryReader, line: Any
) -> tuple[dict[str, Any], str | None]:
    """Answers one query in the syntax for users; an invalid query gets a row with an error.

    Privacy: the text of a query is public, so error messages may quote it. A refused query reads no
    data.

    Returns:
        A row of the answers, and an entry of the log if the query is new.
    """
    asked = read_line(queries, line)
    row: dict[str, Any] = {"id": asked.id, "query": asked.text, "error": asked.error}
    if asked.query is None:
        nothing = dict.fromkeys(("value", "standard_error", "bound", "route"))
        left = {"updates_left": run.updates_left, "questions_left": run.questions_left}
        return {**row, **nothing, **left}, None
    query = asked.query
    num_answered = run.num_answered
    answer = run.answer(query)
    row |= dataclasses.asdict(answer)
    if run.num_answered == num_answered:
        return row, None
    entry = {
        "query": query.to_json(),
        "answer": dataclasses.asdict(answer),
        "step": run.step(query),
    }
    return row, json.dumps(entry, allow_nan=False)


def checkpoint(run: private_mw.PrivateMW) -> dict[str, Any]:
    """Returns the state that ``run_from_log`` needs in addition to the log; partly secret.

    Unlike ``hand_over``, a checkpoint does not end the run. Use checkpoints only in a stream that
    commits the state and the answers that led to this state in one transaction.

    Privacy: of the run and all runs that resume from its checkpoints, only one may show answers.
    """
    return {
        "settings": run.settings.to_json(),
        "total": run.settings.total,
        "sparse": run._sparse._checkpoint(),
    }


def run_from_log(
    plan: PrivateMWPlan,
    histogram: Histogram,
    noise: NoiseSource,
    start: Start | None,
    state: Mapping[str, Any],
    log: Iterable[str],
) -> private_mw.PrivateMW:
    """Resumes the run that wrote a log.

    The log is public and short: it contains queries, answers and steps of the hypothesis, but no
    dense array. The secret state of the sparse vector is a few integers.

    ``histogram``: the exact counts of the logged run.
    ``start``: the release that the run started from, if any.

    Privacy: nothing is spent. Two runs that resume from one state would each spend the budget.
    """
    queries = LinearQueries(plan.domain)
    log_weights = start_weights(plan, start)
    answers: list[tuple[LinearQuery, private_mw.PrivateAnswer]] = []
    for text in log:
        entry = json.loads(text)
        query = queries.from_json(entry["query"])
        answers.append((query, private_mw.PrivateAnswer(**entry["answer"])))
        if entry["step"]:
            query.add_to(log_weights, entry["step"])
    sparse = SparseState(state["sparse"])
    saved = private_mw.SavedRun(
        state["settings"], state["total"], tuple(answers), sparse, None, log_weights
    )
    return private_mw.PrivateMW(plan, histogram, noise, saved=saved)
