"""Files of released answers: the card, and rows in Avro.

A directory of answers holds ``answers-DRAW.avro`` and ``card.json``, committed as ``store`` says.
Answers to a stream come in batches, ``answers-RUN-NUMBER.avro``, and have no card.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from beam_dp.checks import checked_integer
from beam_dp.errors import InputError
from beam_dp.releases.files.answers_avro import (
    read_rows,
    write_rows,
)
from beam_dp.releases.files.container import DamagedFileError
from beam_dp.releases.files.records_card import (
    SCHEMA_VERSION,
    PayloadFile,
    parse_card_text,
    payload_file,
)
from beam_dp.releases.synthetic_database import library_versions
from beam_dp.storage.of_url import store_for

KIND = "answers"


@dataclass(frozen=True)
class OnlineAnswers:
    """Answers of one run, complete. Public.

    Args:
        draw_id: of the run that gave them.
        rows: the answers, by the names of ``answers_avro.ANSWER_SCHEMA``.
        card: what the card says beside the payload, as JSON values: mechanism, guarantee, plan.
    """

    draw_id: str
    rows: Sequence[Mapping[str, Any]]
    card: Mapping[str, Any]

    def payload(self) -> dict[str, Callable[[BinaryIO], object]]:
        """Returns what writes each file, by name."""
        return {answers_file(self.draw_id): lambda file: write_rows(self.rows, self.draw_id, file)}

    def card_text(self, files: Mapping[str, PayloadFile]) -> str:
        """Returns the text of ``card.json``."""
        card = {
            "schema_version": SCHEMA_VERSION,
            "kind": KIND,
            "draw_id": self.draw_id,
            **self.card,
            "num_answers": sum(row["error"] is None for row in self.rows),
            "num_refused": sum(row["error"] is not None for row in self.rows),
            "versions": library_versions(),
            "files": {
                name: {"sha256": file.sha256, "bytes": file.num_bytes}
                for name, file in files.items()
            },
        }
        return json.dumps(card, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def read_card(self, text: str) -> AnswersCard:
        """Returns a card of answers; see ``read_answers_card``."""
        return read_answers_card(text)


@dataclass(frozen=True)
class AnswersCard:
    """What a card of answers says of its payload.

    Args:
        draw_id: of the run.
        files: the payload, by file name.
        num_rows: answers and refused queries together.
    """

    draw_id: str
    files: Mapping[str, PayloadFile]
    num_rows: int


def read_answers_card(text: str) -> AnswersCard:
    """Returns the card of answers that a ``card.json`` holds.

    Raises:
        InputError: if it holds none.
    """
    parsed = parse_card_text(text)
    if not isinstance(parsed, dict) or parsed.get("kind") != KIND:
        raise InputError("card", type(parsed).__name__, f"must be of kind {KIND!r}")
    draw_id, files = parsed.get("draw_id"), parsed.get("files")
    if not isinstance(draw_id, str) or not re.fullmatch("[0-9a-f]{32}", draw_id):
        raise InputError("draw_id", draw_id, "must be 32 hexadecimal digits")
    if not isinstance(files, dict) or set(files) != {answers_file(draw_id)}:
        raise InputError("files", type(files).__name__, "must be the payload of the card's draw")
    num_rows = 0
    for name in ("num_answers", "num_refused"):
        num_rows += checked_integer(name, parsed.get(name), 0)
    payload = {name: payload_file(name, entry) for name, entry in files.items()}
    return AnswersCard(draw_id, payload, num_rows)


def answers_file(draw_id: str, number: int | None = None) -> str:
    """Returns the name of a file of answers: of a whole run, or of one batch of a stream."""
    return f"answers-{draw_id}.avro" if number is None else f"answers-{draw_id}-{number:08d}.avro"


def write_batch(
    rows: Sequence[Mapping[str, Any]],
    draw_id: str,
    number: int,
    directory: str | os.PathLike[str],
) -> bool:
    """Writes one batch of a stream's answers; whoever comes first wins.

    Args:
        rows: the answers.
        draw_id: of the run.
        number: of the batch in its run; a batch that is done again has the same one.
        directory: local, ``gs://BUCKET/FOLDER`` or ``s3://BUCKET/FOLDER``; of this stream alone.

    Returns:
        Whether this attempt was the first. Its file appears complete or not at all.
    """
    store = store_for(directory, "output")
    name = answers_file(draw_id, number)
    draft = store.open_draft(draw_id)
    try:
        return store.publish(draft, name, lambda file: write_rows(rows, draw_id, file))
    finally:
        with contextlib.suppress(FileNotFoundError):
            store.remove_draft(draft)


def read_answers(path: str | os.PathLike[str]) -> list[Mapping[str, Any]]:
    """Returns the answers in a file.

    Raises:
        InputError: if it is no file of answers.
    """
    try:
        with open(path, "rb") as file:
            return list(read_rows(file.read()))
    except (OSError, DamagedFileError):
        raise InputError("answers", os.fspath(path), "must be a file of answers") from None
