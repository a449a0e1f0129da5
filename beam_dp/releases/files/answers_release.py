"""Reading of answers that were committed as a release."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from beam_dp.errors import InputError, shown
from beam_dp.releases.files.answers import (
    KIND,
    read_answers_card,
)
from beam_dp.releases.files.answers_avro import read_rows
from beam_dp.releases.files.container import DamagedFileError
from beam_dp.releases.files.kinds import (
    CARD,
    read_payload,
)
from beam_dp.releases.files.records_card import (
    ReleaseError,
    parse_card_text,
)
from beam_dp.storage.of_url import (
    names_finish,
    store_for,
)


@dataclass(frozen=True)
class AnswersRelease:
    """Answers, and the card that says what was promised with them. Public.

    Args:
        card: what ``card.json`` says, as JSON values.
        rows: the answers, by the names of ``answers_avro.ANSWER_SCHEMA``.
    """

    card: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]


@names_finish
def read_answers_release(directory: str | os.PathLike[str]) -> AnswersRelease | None:
    """Reads the answers that a directory holds, and verifies them.

    Args:
        directory: that ``WriteAnswers`` wrote; local, ``gs://BUCKET/FOLDER`` or
            ``s3://BUCKET/FOLDER``.

    Returns:
        The answers; None where the card is missing, no JSON, or of another kind.

    Raises:
        ReleaseError: if the answers are not as the card says.
    """
    name = os.fspath(directory)
    store = store_for(directory, "release")
    try:
        text = store.read(CARD).decode()
        parsed = parse_card_text(text)
    except (DamagedFileError, InputError, OSError, UnicodeDecodeError):
        return None
    if not isinstance(parsed, dict) or parsed.get("kind") != KIND:
        return None
    try:
        card = read_answers_card(text)
        (file,) = card.files
        rows = read_rows(read_payload(store, file, card.files), card.num_rows)
    except InputError as error:
        condition = f"{CARD}: {error.name} = {shown(error.value)}: {error.condition}"
        raise ReleaseError(name, condition) from None
    except DamagedFileError as error:
        raise ReleaseError(name, f"{file} {error}") from None
    except OSError as error:
        raise ReleaseError(name, f"{file} cannot be read: {error.strerror}") from None
    except MemoryError:
        raise ReleaseError(name, f"{file} is larger than the memory of this process") from None
    return AnswersRelease(parsed, rows)
