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

from beam_dp.errors import InputError, shown
from beam_dp.mechanisms.live import HaltedError
from beam_dp.mechanisms.online.plan import OnlinePlan, Settings
from beam_dp.mechanisms.sparse_vector.mechanisms import SparseState
from beam_dp.privacy.advice import warn_of_epsilon
from beam_dp.privacy.ledger.entries import Token
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.storage.local import sync_directory

SavedT = TypeVar("SavedT")

TRANSCRIPT = "transcript.json"
_SECRET = "secret.json"


@dataclasses.dataclass(frozen=True)
class Payment:
    """Which entry of a ledger paid for a run; public.

    Args:
        token: of the entry.
        state_number: of the saved state that the run went on from; 0 for a run that is new.
    """

    token: Token
    state_number: int = 0


def pay(plan: OnlinePlan, token: Token | None) -> Payment | None:
    """Returns the payment of a new run, and warns about a large epsilon.

    Raises:
        InputError: if the token paid for something else.
    """
    warn_of_epsilon(plan.promised.epsilon)
    if token is None:
        return None
    token.check(plan.mechanism, plan.guarantee, plan.loss)
    return Payment(token)


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
            what = _difference(part, parsed.get(part), expected.get(part))
            raise InputError("plan", str(path), f"must be the plan of the saved run: {what}")
    return parsed


def check_settings(name: str, value: str, saved: Any, settings: Settings) -> None:
    """Refuses a state whose noise was drawn for other settings than the plan now has.

    They follow from the plan, but a version of this package may choose others for the same plan.

    Raises:
        InputError: naming the first that differs.
    """
    given = json.loads(json.dumps(settings.to_json()))
    held = json.loads(json.dumps(saved))
    if held != given:
        condition = "must have the settings that this version of beam_dp chooses for the plan"
        raise InputError(name, value, f"{condition}: {_difference('settings', held, given)}")


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


def any_transcript(path: Path) -> dict[str, Any]:
    """Returns the transcript of a folder, of whatever plan.

    Raises:
        InputError: if there is none.
    """
    try:
        parsed = json.loads((path / TRANSCRIPT).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise InputError("folder", str(path), "must hold a saved run")
    return parsed


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


def _difference(part: str, saved: Any, given: Any) -> str:
    """Says in a few words in what two plans, or settings, differ."""
    if part != "domain" and isinstance(saved, dict):
        for name in given:
            old, new = saved.get(name), given[name]
            if old != new and isinstance(old, dict) and isinstance(new, dict):
                return f"{name}.{_difference(name, old, new)}"
            if old != new:
                return f"{name} was {shown(old)}, and is {shown(new)}"
    return f"its {part} is different"


def _digest(path: Path, public: Sequence[str], secret: Mapping[str, Any]) -> str:
    """Returns what binds the secret to the public files, and shows damage of either."""
    found = hashlib.sha256(json.dumps(dict(secret), sort_keys=True).encode())
    for name in public:
        found.update(hashlib.sha256((path / name).read_bytes()).digest())
    return found.hexdigest()
