"""Rows of the ledger as entries; one that can't be read is damage, and refused."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, NoReturn

import sqlalchemy as sa

from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.entries import Dataset, Entry, Token
from beam_dp.privacy.ledger.origin import Origin
from beam_dp.privacy.ledger.storage import COMPLETIONS, FROM_BACKUP, RELEASES
from beam_dp.privacy.ledger.url import LedgerError
from beam_dp.privacy.loss import Loss

# Among the parameters of a row, so that ledgers of every version hold it, and every version that
# reads it passes it over: no table is changed.
ORIGIN = "origin"


class Rows:
    """What rows say, in transactions of whoever calls.

    Args:
        name: of the ledger, without its password.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def tokens(self, connection: sa.Connection, dataset_id: str) -> list[Token]:
        """Returns what was paid for, in order: without parameters, which may be long."""
        columns = (RELEASES.c.number, RELEASES.c.mechanism, RELEASES.c.guarantee, RELEASES.c.loss)
        query = (
            sa.select(*columns)
            .where(RELEASES.c.dataset_id == dataset_id)
            .order_by(RELEASES.c.number)
        )
        rows = connection.execute(query).all()
        self.refuse_gaps(dataset_id, [row.number for row in rows])
        # Most releases of a dataset ask for one of a few guarantees.
        guarantees: dict[str, Guarantee] = {}
        tokens = []
        for row in rows:
            try:
                if row.guarantee not in guarantees:
                    guarantees[row.guarantee] = Guarantee.from_json(json.loads(row.guarantee))
                loss = Loss.from_json(json.loads(row.loss))
                guarantee = guarantees[row.guarantee]
                tokens.append(Token(dataset_id, row.number, row.mechanism, guarantee, loss))
            except (TypeError, ValueError, RecursionError):
                self.refuse_damage(f"release {dataset_id}/{row.number} is unreadable")
        return tokens

    def entries(self, connection: sa.Connection, condition: sa.ColumnElement[bool]) -> list[Entry]:
        """Returns the entries that a condition selects, in order."""
        joined = RELEASES.outerjoin(
            COMPLETIONS,
            sa.and_(
                RELEASES.c.dataset_id == COMPLETIONS.c.dataset_id,
                RELEASES.c.number == COMPLETIONS.c.number,
            ),
        )
        query = (
            sa.select(RELEASES, COMPLETIONS.c.draw_id, COMPLETIONS.c.released_at)
            .select_from(joined)
            .where(condition)
            .order_by(RELEASES.c.number)
        )
        return [self._entry(row) for row in connection.execute(query).all()]

    def entry_with(
        self, connection: sa.Connection, dataset_id: str, key: str, value: str
    ) -> Entry | None:
        """Returns the entry with a text among its parameters, None where there is none."""
        # Parameters may be long: only those are fetched that hold it, somewhere.
        written = json.dumps({key: value}, ensure_ascii=False)[1:-1]
        holds = RELEASES.c.parameters.contains(written, autoescape=True)
        mine = sa.and_(RELEASES.c.dataset_id == dataset_id, holds)
        found = self.entries(connection, mine)
        for entry in found:
            if not isinstance(entry.parameters, dict):
                self.refuse_damage(f"release {entry.release_id} is unreadable")
            if entry.parameters.get(key) == value:
                return entry
        return None

    def refuse_gaps(self, dataset_id: str, numbers: list[int]) -> None:
        """Raises LedgerError unless the numbers of all releases are there."""
        if numbers != list(range(1, len(numbers) + 1)):
            self.refuse_damage(f"a release of {dataset_id!r} is missing")

    def _entry(self, row: sa.Row[Any]) -> Entry:
        try:
            parameters = json.loads(row.parameters)
            origin = None
            if isinstance(parameters, dict):
                origin = Origin.from_json(parameters.get(ORIGIN))
            if origin is not None:
                del parameters[ORIGIN]
            return Entry(
                dataset_id=row.dataset_id,
                number=row.number,
                mechanism=row.mechanism,
                guarantee=Guarantee.from_json(json.loads(row.guarantee)),
                loss=Loss.from_json(json.loads(row.loss)),
                parameters=parameters,
                spent_at=row.spent_at,
                released_at=row.released_at,
                draw_id=row.draw_id,
                origin=origin,
            )
        except (TypeError, ValueError, RecursionError):
            self.refuse_damage(f"release {row.dataset_id}/{row.number} is unreadable")

    def dataset(self, row: sa.Row[Any]) -> Dataset:
        """Returns the declared budget of a row."""
        fields = [field.name for field in dataclasses.fields(Dataset)]
        try:
            return Dataset(**{name: getattr(row, name) for name in fields})
        except (TypeError, ValueError):
            self.refuse_damage("a declared budget is unreadable")

    def refuse_damage(self, what: str) -> NoReturn:
        """Raises LedgerError, with what helps."""
        raise LedgerError("ledger", self._name, f"must be undamaged: {what}; {FROM_BACKUP}")
