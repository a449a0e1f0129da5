"""`Ledger`: declares budgets, records releases, and refuses releases that do not fit.

Users declare a total budget for a dataset id. Every release is then recorded before it is made
(``spend``), and marked before it is submitted (``mark_submitted``) and when it is complete
(``mark_released``). No entry is ever changed or removed: a failed release has still spent its
budget, because someone may have seen its noise.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import shlex
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from beam_dp.checks import checked_integer, checked_number
from beam_dp.errors import InputError, shown
from beam_dp.privacy.guarantee import MAX_DELTA, Guarantee, Neighboring
from beam_dp.privacy.ledger import filters, storage
from beam_dp.privacy.ledger.entries import (
    Dataset,
    Entry,
    LedgerError,
    Origin,
    Token,
    account_of,
    check_text,
    over_budget,
)
from beam_dp.privacy.loss import Kind, Loss

WAIT_SECONDS = 30.0
MAX_PARAMETERS = 2**24  # characters of JSON
MAX_DRAW_ID = 40
MAX_STATES = 2**31 - 1


class Ledger:
    """An append-only record of releases, in a sqlite file or a PostgreSQL database.

    Privacy: all releases of one dataset id together are (epsilon, delta)-differentially private
    for the declared budget, relation and unit, even if each release was chosen after seeing the
    earlier releases, as long as every release is paid for here and has the loss that it states.
    ``filters`` contains the proof, and explains why typed epsilons may exceed the budget by one
    part in 2^50. An entry is durable before ``spend`` returns, so the ledger never lacks a release
    that was drawn, even if a process is killed.

    A token pays for one draw of noise, or for one online run. The ledger cannot prevent a token
    from being passed to two transforms or runs, or a pipeline from running twice. Only
    ``mark_released`` detects two completed draws, if both have ids, and only ``use_state`` detects
    that one run was saved as two.

    Args:
        url: a path of a sqlite file, ``sqlite:///PATH`` or ``postgresql://USER@HOST/DATABASE``. A
            sqlite file must be on a local disk: some network filesystems do not enforce locks.
        wait_seconds: how long a call waits for a lock on the ledger, in seconds, > 0. A PostgreSQL
            server has 60 s more to answer. A lost connection is noticed after about 30 s, but a
            server process that is frozen on a running machine blocks the call.

    Raises:
        LedgerError: if the URL has another form. Every method raises this error if the ledger can't
            be reached, is locked or damaged, has a newer schema, or must be written but is
            read-only.

    Example:
        >>> ledger = Ledger("budgets.sqlite")  # doctest: +SKIP
        >>> ledger.declare("visits-2026", 1, 1e-9, "record", "add_or_remove_one")  # doctest: +SKIP
        >>> token = ledger.spend("visits-2026", guarantee, plan.loss, "mwem")  # doctest: +SKIP
    """

    def __init__(self, url: str, *, wait_seconds: float = WAIT_SECONDS) -> None:
        if not isinstance(url, str):
            raise InputError("ledger", url, "must be a sqlite file or a URL, as a string")
        checked_number("wait_seconds", wait_seconds, above=0)
        self._storage = storage.Storage(url, wait_seconds)
        self._rows = storage.Rows(self._storage.name)

    @property
    def name(self) -> str:
        """The URL without its password."""
        return self._storage.name

    def declare(
        self,
        dataset_id: str,
        epsilon: float,
        delta: float,
        privacy_unit: str,
        neighboring: Neighboring | str,
        *,
        composition: filters.Composition | None = None,
        allow_large_delta: bool = False,
    ) -> Dataset:
        """Declares the total budget of a dataset id; creates the ledger if it is missing.

        Args: the arguments of ``Dataset``, and
            composition: the declared composition by default; ``pure_first`` for a new budget.
            allow_large_delta: allows a delta above 1e-5.

        Raises:
            InputError: if a value is out of range.
            LedgerError: if another budget was already declared for the dataset id.
        """
        dataset = Dataset(
            dataset_id,
            epsilon,
            delta,
            privacy_unit,
            neighboring,  # type: ignore[arg-type]  # the relation may be a string
            composition or filters.DEFAULT_COMPOSITION,
        )
        if dataset.delta > MAX_DELTA and not allow_large_delta:
            condition = f"must be at most {MAX_DELTA:g}, unless allow_large_delta is given"
            raise InputError("delta", delta, condition)
        with self._storage.writing(create=True) as connection:
            row = self._storage.dataset(connection, dataset_id, lock=True)
            existing = None if row is None else self._rows.dataset(row)
            if existing and composition is None:
                dataset = dataclasses.replace(dataset, composition=existing.composition)
            if existing is None:
                values = {**dataclasses.asdict(dataset), "neighboring": dataset.neighboring.value}
                connection.execute(storage.DATASETS.insert().values(**values, declared_at=_now()))
            elif existing != dataset:
                condition = (
                    "must be declared once, and has a budget already: epsilon"
                    f" {existing.epsilon:g}, delta {existing.delta:g}, {existing.neighboring},"
                    f" {shown(existing.privacy_unit)}, {existing.composition}"
                )
                raise LedgerError("dataset_id", dataset_id, condition)
        return dataset

    def spend(
        self,
        dataset_id: str,
        guarantee: Guarantee,
        loss: Loss,
        mechanism: str,
        parameters: Mapping[str, Any] | None = None,
        origin: Origin | None = None,
    ) -> Token:
        """Pays for one release, before any of its noise is drawn.

        Args:
            dataset_id: a declared dataset id.
            guarantee: the guarantee of the release.
            loss: the privacy loss of the release (``Plan.loss``).
            mechanism: the name of the mechanism.
            parameters: public parameters, as JSON values.
            origin: the payer, the purpose and the output; by default only the system's user.

        Returns: A token for the transform and for ``mark_released``. The ledger's entry is durable.

        Raises:
            OverBudgetError: if the release does not fit the remaining budget.
            LedgerError: if the dataset id is unknown, or was declared with another unit or
                relation.
            InputError: if the parameters are not JSON, or too long.
        """
        check_text("dataset_id", dataset_id)
        text = _with_origin({} if parameters is None else parameters, origin)
        with self._storage.writing() as connection:
            self._storage.dataset(connection, dataset_id, lock=True)
            return self._spend(connection, dataset_id, guarantee, loss, mechanism, text)

    def spend_once(
        self,
        dataset_id: str,
        guarantee: Guarantee,
        loss: Loss,
        mechanism: str,
        parameters: Mapping[str, Any],
        key: str,
        origin: Origin | None = None,
    ) -> tuple[Entry, bool]:
        """Pays for a release with a unique id, unless an entry with this id was already paid.

        Use ``spend_once`` for a job that may be restarted and then continues the same release. If
        several callers use one id, even concurrently, only one caller pays. An entry keeps its
        origin.

        Privacy: an entry pays for one draw of noise. A caller that gets an existing entry may
        complete the release of that draw, but must not draw again.

        Args: the arguments of ``spend``, and
            key: the name of the parameter that contains the unique id, a string.

        Returns:
            The entry, which is durable, and whether this call paid for it. The entry's ``state``
            says whether the release was already complete.

        Raises: the errors of ``spend``, and
            LedgerError: if the entry with this id paid for another mechanism, guarantee or loss.
        """
        check_text("dataset_id", dataset_id)
        text = _with_origin(parameters, origin)
        check_text(key, parameters.get(key))
        with self._storage.writing() as connection:
            self._storage.dataset(connection, dataset_id, lock=True)
            entry = self._rows.entry_with(connection, dataset_id, key, parameters[key])
            if entry is None:
                token = self._spend(connection, dataset_id, guarantee, loss, mechanism, text)
                return self._entry_of(connection, token), True
        paid = (entry.mechanism, entry.guarantee, entry.loss)
        if paid != (mechanism, guarantee, loss.in_doubles()):
            condition = (
                f"must belong to a release with the mechanism, guarantee and loss of"
                f" {entry.release_id!r}, which paid for it"
            )
            raise LedgerError(key, parameters[key], condition)
        return entry, False

    def check(self, dataset_id: str, guarantee: Guarantee, loss: Loss) -> None:
        """Raises the error that ``spend`` would raise, without spending anything."""
        check_text("dataset_id", dataset_id)
        with self._storage.reading() as connection:
            row = self._storage.dataset(connection, dataset_id)
            self._affordable(connection, row, dataset_id, guarantee, loss)

    def mark_submitted(self, token: Token) -> None:
        """Records that noise may be drawn from now on; call it before the job is submitted.

        A later call changes nothing. Raises LedgerError if the ledger has no such entry.
        """
        with self._storage.writing() as connection:
            self._storage.dataset(connection, token.dataset_id, lock=True)
            if self._entry_of(connection, token).submitted_at is None:
                self._use(connection, token, storage.SUBMITTED)

    def mark_released(self, token: Token, draw_id: str | None = None) -> None:
        """Records that the release of an entry is complete.

        The first of several calls, even concurrent ones, fixes the draw id. A later call with the
        same draw id, or without a draw id, changes nothing.

        ``draw_id``: the draw id of the release on disk, at most 40 characters. Without a draw id
        the ledger can't distinguish a second release from the first.

        Raises:
            LedgerError: if the ledger has no such entry, or the first call had another draw id or
                no draw id: then a second, unpaid release may exist.
        """
        if draw_id is not None:
            check_text("draw_id", draw_id, MAX_DRAW_ID)
        with self._storage.writing() as connection:
            self._storage.dataset(connection, token.dataset_id, lock=True)
            entry = self._entry_of(connection, token)
            if entry.released_at is None:
                connection.execute(
                    storage.COMPLETIONS.insert().values(
                        dataset_id=token.dataset_id,
                        number=token.number,
                        draw_id=draw_id,
                        released_at=_now(),
                    )
                )
            elif draw_id is not None and draw_id != entry.draw_id:
                condition = f"must be {entry.draw_id!r}: {token.release_id!r} paid for that draw"
                if entry.draw_id is None:
                    paid = f"{token.release_id!r} was marked as released without a draw id"
                    condition = f"must not be given: {paid}"
                raise LedgerError("draw_id", draw_id, condition)

    def use_state(self, token: Token, state_number: int) -> None:
        """Records that a saved state of a paid run is used; call it before using the state.

        The saved states of a run are numbered 1, 2, ... Only one call per state number succeeds,
        even for copies of the state. The record is durable before ``use_state`` returns.

        Raises:
            LedgerError: if the state was already used, an earlier state was not used, or the ledger
                has no such entry.
        """
        checked_integer("state_number", state_number, 1, MAX_STATES)
        with self._storage.writing() as connection:
            self._storage.dataset(connection, token.dataset_id, lock=True)
            self._refuse_state(connection, token, state_number)
            self._use(connection, token, state_number)

    def check_state(self, token: Token, state_number: int) -> None:
        """Raises the error that ``use_state`` would raise, without recording anything."""
        checked_integer("state_number", state_number, 1, MAX_STATES)
        with self._storage.reading() as connection:
            self._refuse_state(connection, token, state_number)

    def is_state_used(self, token: Token, state_number: int) -> bool:
        """Returns whether a state of a paid run was used (``use_state``)."""
        checked_integer("state_number", state_number, 1, MAX_STATES)
        query = sa.select(storage.USED_STATES.c.state_number)
        with self._storage.reading() as connection:
            numbers = connection.execute(query.where(_paid_by(storage.USED_STATES, token)))
            return state_number in numbers.scalars().all()

    def datasets(self) -> list[Dataset]:
        """Returns all declared budgets, by name."""
        with self._storage.reading() as connection:
            rows = connection.execute(
                sa.select(storage.DATASETS).order_by(storage.DATASETS.c.dataset_id)
            ).all()
        return [self._rows.dataset(row) for row in rows]

    def entries(self, dataset_id: str) -> list[Entry]:
        """Returns all releases of a dataset id, in order; an empty list for an unknown id."""
        check_text("dataset_id", dataset_id)
        with self._storage.reading() as connection:
            entries = self._rows.entries(connection, storage.RELEASES.c.dataset_id == dataset_id)
            self._rows.refuse_gaps(dataset_id, [entry.number for entry in entries])
            return entries

    def account(self, dataset_id: str) -> filters.Account:
        """Returns the budget of a declared dataset id, with all losses spent from that budget."""
        check_text("dataset_id", dataset_id)
        with self._storage.reading() as connection:
            dataset = self._declared(self._storage.dataset(connection, dataset_id), dataset_id)
            return account_of(dataset, self._rows.tokens(connection, dataset_id))

    def total(self, dataset_id: str) -> float:
        """Returns the total epsilon spent, at the budget's delta (``Account.spent_epsilon``)."""
        return self.account(dataset_id).spent_epsilon()

    def remaining(self, dataset_id: str, kind: Kind = "pure", delta: float | None = None) -> float:
        """Returns the largest epsilon of one more release, at the budget's delta by default."""
        account = self.account(dataset_id)
        return account.largest_epsilon(kind, account.delta if delta is None else delta)

    def _spend(
        self,
        connection: sa.Connection,
        dataset_id: str,
        guarantee: Guarantee,
        loss: Loss,
        mechanism: str,
        parameters: str,
    ) -> Token:
        """Adds an entry, in a transaction that has locked the dataset id."""
        row = self._storage.dataset(connection, dataset_id)
        paid = self._affordable(connection, row, dataset_id, guarantee, loss)
        token = Token(dataset_id, len(paid) + 1, mechanism, guarantee, loss)
        connection.execute(
            storage.RELEASES.insert().values(
                dataset_id=dataset_id,
                number=token.number,
                mechanism=mechanism,
                guarantee=_to_json("guarantee", guarantee.to_json()),
                loss=_to_json("loss", loss.to_json()),
                parameters=parameters,
                spent_at=_now(),
            )
        )
        return token

    def _affordable(
        self,
        connection: sa.Connection,
        row: sa.Row[Any] | None,
        dataset_id: str,
        guarantee: Guarantee,
        loss: Loss,
    ) -> list[Token]:
        """Returns the tokens of all paid releases; raises if one more release does not fit."""
        dataset = self._declared(row, dataset_id)
        for name in ("privacy_unit", "neighboring"):
            asked, declared = str(getattr(guarantee, name)), str(getattr(dataset, name))
            if asked != declared:
                condition = f"must be {declared!r}, as declared for {dataset_id!r}"
                raise LedgerError(name, asked, condition)
        paid = self._rows.tokens(connection, dataset_id)
        if len(paid) >= filters.MAX_RELEASES:
            condition = f"must have fewer than {filters.MAX_RELEASES} releases"
            raise LedgerError("dataset_id", dataset_id, condition)
        account, loss = account_of(dataset, paid), loss.in_doubles()
        if not account.fits(loss):
            raise over_budget(account, paid, dataset_id, guarantee, loss)
        return paid

    def _entry_of(self, connection: sa.Connection, token: Token) -> Entry:
        entries = self._rows.entries(connection, _paid_by(storage.RELEASES, token))
        if not entries or entries[0].loss != token.loss:
            raise LedgerError("token", token.release_id, "must come from this ledger")
        return entries[0]

    def _use(self, connection: sa.Connection, token: Token, state_number: int) -> None:
        connection.execute(
            storage.USED_STATES.insert().values(
                dataset_id=token.dataset_id,
                number=token.number,
                state_number=state_number,
                used_at=_now(),
            )
        )

    def _refuse_state(self, connection: sa.Connection, token: Token, state_number: int) -> None:
        self._entry_of(connection, token)
        number = storage.USED_STATES.c.state_number
        query = sa.select(number).where(_paid_by(storage.USED_STATES, token)).order_by(number)
        used_states = query.where(number != storage.SUBMITTED)
        numbers = list(connection.execute(used_states).scalars())
        used = len(numbers)
        if numbers != list(range(1, used + 1)):
            self._rows.refuse_damage(f"a used state of {token.release_id} is missing")
        if state_number <= used:
            condition = (
                f"must be a state of {token.release_id!r} that was not used: the next is"
                f" {used + 1}, and a copy or a backup is not a new state"
            )
            raise LedgerError("state_number", state_number, condition)
        if state_number > used + 1:
            condition = (
                f"must be {used + 1}, the next of {token.release_id!r}: this ledger has no entry"
                " for later uses; is it a backup?"
            )
            raise LedgerError("state_number", state_number, condition)

    def _declared(self, row: sa.Row[Any] | None, dataset_id: str) -> Dataset:
        if row is not None:
            return self._rows.dataset(row)
        url, flag = shlex.quote(self.name), shlex.quote(f"--declare={dataset_id}")
        condition = (
            f"must be declared first: beam-dp ledger {url} {flag} --epsilon E --delta X"
            " --privacy_unit U --neighboring R"
        )
        raise LedgerError("dataset_id", dataset_id, condition)


def _paid_by(table: sa.Table, token: Token) -> sa.ColumnElement[bool]:
    """Returns the condition for the rows of a table that belong to the release of a token."""
    columns = table.c
    return sa.and_(columns.dataset_id == token.dataset_id, columns.number == token.number)


def _with_origin(parameters: Mapping[str, Any], origin: Origin | None) -> str:
    _to_json("parameters", parameters)  # refuses parameters that are not JSON
    if storage.ORIGIN in parameters:
        condition = "must not be a parameter: the ledger stores the payer and purpose there"
        raise InputError("parameters", storage.ORIGIN, condition)
    return _to_json("parameters", {**parameters, storage.ORIGIN: (origin or Origin()).to_json()})


def _to_json(name: str, value: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(dict(value), ensure_ascii=False, allow_nan=False)
        text.encode()  # refuses a lone surrogate
    except (TypeError, ValueError, RecursionError):
        raise InputError(name, type(value).__name__, "must be finite JSON values") from None
    if len(text) > MAX_PARAMETERS:
        raise InputError(name, len(text), f"must have at most {MAX_PARAMETERS} characters of JSON")
    return text


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
