"""Saving and resuming of runs: flags, and the folder that holds a secret.

The step that answers saves its run to a private folder of the job, beside the one that --state
names. When the answers are written, the state of their draw is moved to that name, complete, and
the private folder is removed with whatever other attempts left in it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from beam_dp.errors import InputError
from beam_dp.mechanisms.online.private_mw import Payment
from beam_dp.mechanisms.online.private_mw_plan import PrivateMWPlan
from beam_dp.mechanisms.online.saved_runs import (
    any_transcript,
    check_ledger,
    check_private_mw,
)
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.privacy.ledger.url import LedgerError
from beam_dp.storage.of_url import is_url, local_path


def new_state(text: str, output: str) -> Path:
    """Returns the folder that a run can be saved to; writes nothing.

    Raises:
        InputError: if it exists, is not local, is in no folder that can be written, or has to do
            with the output, which is public.
    """
    path = local_path(text, "state")
    if os.path.lexists(path):
        raise InputError("state", text, "must not exist")
    parent = path.absolute().parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InputError("state", text, "must be in a directory that exists and can be written")
    secret, public = path.resolve(), Path(output).resolve()
    if not is_url(output) and (secret.is_relative_to(public) or public.is_relative_to(secret)):
        raise InputError("state", text, "must be apart from --output, which is public")
    return path


def saved_num_questions(text: str) -> int:
    """Returns for how many questions a saved run was planned: the default when it is resumed.

    Raises:
        InputError: if there is no saved run.
    """
    condition = "must hold a saved run"
    try:
        number = any_transcript(local_path(text, "resume"))["plan"]["num_questions"]
    except (InputError, KeyError, TypeError):
        raise InputError("resume", text, condition) from None
    if not isinstance(number, int):
        raise InputError("resume", text, condition)
    return number


def read_payment(
    path: Path, plan: object, ledger: Ledger | None, given: Mapping[str, str]
) -> Payment | None:
    """Returns who paid for a saved run, if it can be resumed; uses nothing.

    Raises:
        InputError: if it is of another plan, damaged or was resumed before, or the ledger is not
            the one that paid.
    """
    assert isinstance(plan, PrivateMWPlan)  # --resume is of no other mechanism
    try:
        payment = check_private_mw(path, plan)
    except InputError as error:
        raise InputError("resume", str(path), error.condition) from None
    check_ledger(payment, ledger)
    if payment is not None and ledger is not None:
        paid_from = payment.token.dataset_id
        if given["dataset_id"] != paid_from:
            condition = f"must be {paid_from!r}, which paid for the saved run"
            raise InputError("dataset_id", given["dataset_id"], condition)
        try:
            ledger.check_state(payment.token, payment.state_number)
        except LedgerError as error:
            if error.name == "state_number":
                raise LedgerError("resume", str(path), error.condition) from None
            raise
    return payment


@contextmanager
def private_folder(state: Path) -> Iterator[Path]:
    """A new folder beside the state, that only its owner may read; removed at the end.

    Raises:
        InputError: if it can't be made.
    """
    parent = state.absolute().parent
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".saving-{state.name}-", dir=parent))
    except OSError as error:
        condition = f"must be in a directory that can be written: {error.strerror}"
        raise InputError("state", str(state), condition) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def keep_state(save_in: Path, draw_id: str, state: Path) -> bool:
    """Moves the state of the draw that was written to its name; returns whether it is there."""
    try:
        os.rename(save_in / draw_id, state)
    except OSError as error:
        print(f"error: --state: the run was not saved: {error.strerror}", file=sys.stderr)
        return False
    print(f"Saved: {state}; it holds a secret, and can be resumed once with --resume")
    return True
