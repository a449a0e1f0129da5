"""Files of released answers: the card, and the rows in Avro; reading checks every byte.

A directory of answers contains ``answers-DRAW.avro`` and ``card.json``; see ``files.commit``.
Answers to a stream are written in batches, ``answers-RUN-NUMBER.avro``, without a card.

Blocks are not compressed, so the size of a file bounds the memory that reading the file takes.
"""

from __future__ import annotations

import contextlib
import io
import os
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, overload

import fastavro

from beam_dp.checks import checked_integer
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.files.card import Card, Payload
from beam_dp.storage.avro import Packed, decode, encode, in_blocks, read_blocks, write_blocks
from beam_dp.storage.open import store_for
from beam_dp.storage.store import DamagedFileError

_NUMBER = ["null", "double"]
_ROUTES = "hypothesis, update, exhausted or measured; null for a refused query."

ANSWER_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Answer",
    "doc": "An answer to a linear query, in records; see docs/online.md.",
    "fields": [
        {"name": "id", "type": ["null", "string"], "doc": "As the query had it."},
        {"name": "query", "type": "string", "doc": "The query, as JSON."},
        {"name": "value", "type": _NUMBER, "doc": "Null for a refused query."},
        {"name": "standard_error", "type": _NUMBER, "doc": "Of noise; null where there is none."},
        {"name": "bound", "type": _NUMBER, "doc": "Of the error; null where none is proved."},
        {"name": "route", "type": ["null", "string"], "doc": _ROUTES},
        {"name": "updates_left", "type": ["null", "long"]},
        {"name": "questions_left", "type": ["null", "long"]},
        {"name": "error", "type": ["null", "string"], "doc": "Why a query was refused, or null."},
    ],
}

_PARSED = fastavro.parse_schema(ANSWER_SCHEMA)  # else fastavro would parse it for each row

Row = Mapping[str, Any]

TYPES = {"guarantee": dict, "num_answers": int, "num_refused": int}
_HEAD = ("schema_version", "kind", "draw_id", "files")  # fields of every card


def answers_file(draw_id: str, number: int | None = None) -> str:
    """Returns the name of the file with the answers of a whole run, or of one batch of a stream."""
    return f"answers-{draw_id}.avro" if number is None else f"answers-{draw_id}-{number:08d}.avro"


def payload(release: AnswersRelease) -> dict[str, bytes]:
    """Returns the content of the only file, by its name."""
    return {answers_file(release.draw_id): rows_bytes(release.rows, release.draw_id)}


def read(card: Card, payload: Payload) -> AnswersRelease:
    """Reads a release from its card and payload."""
    name = answers_file(card.draw_id)
    card.check_files([name])
    card.check_types(TYPES)
    num_rows = 0
    for field in ("num_answers", "num_refused"):
        num_rows += checked_integer(field, card.fields.get(field), 0)
    rows = payload.read(name, lambda data: read_rows(data, num_rows))
    said = {name: value for name, value in card.fields.items() if name not in _HEAD}
    guarantee = Guarantee.from_json(card.fields["guarantee"])
    return AnswersRelease(draw_id=card.draw_id, guarantee=guarantee, rows=rows, stated=said)


class AnswerRows(Sequence[Row]):
    """Rows that are decoded on access: a decoded row takes far more memory than its bytes.

    ``places``: two numbers per row: the index of its block, and its offset in the block.
    """

    def __init__(self, blocks: Sequence[bytes], places: array[int]) -> None:
        self._blocks = blocks
        self._places = places

    def __len__(self) -> int:
        return len(self._places) // 2

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self[position] for position in range(len(self))[index]]
        place = 2 * range(len(self))[index]
        number, start = self._places[place : place + 2]
        file = io.BytesIO(self._blocks[number])
        file.seek(start)
        row: Row = decode(_PARSED, file)
        return row


def write_batch(
    rows: Sequence[Mapping[str, Any]], draw_id: str, number: int, directory: str | os.PathLike[str]
) -> bool:
    """Writes one batch to the directory of its stream, unless another attempt has written it."""
    store = store_for(directory, "output")
    name = answers_file(draw_id, number)
    draft = store.open_draft(draw_id)
    try:
        return store.publish(draft, name, rows_bytes(rows, draw_id))
    finally:
        with contextlib.suppress(FileNotFoundError):
            store.remove_draft(draft)


def rows_bytes(rows: Sequence[Row], draw_id: str) -> bytes:
    """Returns answers as an Avro container file.

    The same rows and draw id always give the same bytes.
    """
    blocks = in_blocks([Packed.of([encode(_PARSED, row) for row in rows])])
    return write_blocks(ANSWER_SCHEMA, draw_id, "answers", blocks)


def read_rows(data: bytes, num_rows: int | None = None) -> AnswerRows:
    """Returns the rows of a file; raises DamagedFileError unless there are ``num_rows`` rows."""
    blocks: list[bytes] = []
    places, num_read = array("q"), 0
    for number, block in read_blocks(data, ANSWER_SCHEMA):
        num_read += number
        if num_rows is not None and num_read > num_rows:
            raise DamagedFileError("has more answers than its card says")
        file = io.BytesIO(block)
        for _ in range(number):
            places.extend((len(blocks), file.tell()))
            decode(_PARSED, file)
        if file.read(1):
            raise DamagedFileError("has bytes after the records of a block")
        blocks.append(block)
    if num_rows is not None and num_read != num_rows:
        raise DamagedFileError("has fewer answers than its card says")
    return AnswerRows(blocks, places)
