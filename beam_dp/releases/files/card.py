"""Reads ``card.json``, the description of a release, and checks the fields that all kinds share."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar

from beam_dp.checks import check_id, is_integer
from beam_dp.domain.texts import checked_json
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError, shown
from beam_dp.releases.release import LeftOut
from beam_dp.storage.avro import SCHEMA_VERSION
from beam_dp.storage.store import DamagedFileError, PayloadFile

T = TypeVar("T")
Rows = Literal["absent", "present", "checked"]

CARD = "card.json"
HORIZON = "horizon.json"  # replaces the card in a directory of many windows
# The folders for single windows and for blocks of N windows in the directory of a horizon.
WINDOWS, LEVELS = "windows", "levels"
_MAX_DEPTH = 64


class ReleaseError(InputError):
    """A directory has no release or a damaged one; one line names the path and the reason.

    Example:
        >>> str(ReleaseError("out", "card.json is missing"))
        "release: 'out' is not valid: card.json is missing"
    """

    def __init__(self, directory: str, condition: str) -> None:
        InputError.__init__(self, "release", directory, condition)
        self.args = (directory, condition)  # pickle calls the class with these arguments


@dataclass(frozen=True)
class Card:
    """The fields that the cards of all kinds share, and the parsed card."""

    kind: str
    draw_id: str
    files: Mapping[str, PayloadFile]
    fields: Mapping[str, Any]

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parses a card from the text of a ``card.json``."""
        parsed = parsed_card(text)
        check_types(parsed, {"kind": str, "draw_id": str, "files": dict})
        draw_id = parsed["draw_id"]
        check_id("draw_id", draw_id)
        files = {name: payload_file(name, entry) for name, entry in parsed["files"].items()}
        card = cls(parsed["kind"], draw_id, files, parsed)
        # Names contain the draw's id and no folder, so no file replaces another draw's file.
        card.check_files([name for name in files if draw_id in os.path.basename(name) == name])
        return card

    def check_files(self, names: Collection[str]) -> None:
        """Raises InputError unless the card names exactly these files."""
        if not names or set(self.files) != set(names):
            condition = "must be the payload of the card's draw"
            raise InputError("files", sorted(self.files), condition)

    def check_types(self, types: Mapping[str, type]) -> None:
        """Raises InputError if fields are missing, or if a version is not a string."""
        check_fields(self.fields, types)

    def left_out(self, domain: Domain) -> LeftOut | None:
        """Returns the counts of records outside the domain; None if the card has no such counts."""
        if "left_out" not in self.fields:
            return None
        left_out = LeftOut.from_json(self.fields["left_out"])
        left_out.check(domain)
        return left_out


class Payload:
    """The files that a card names; reading a file verifies its checksum.

    ``read``: a function that returns the bytes of a file, given the name and the stated size.
    ``rows``: whether files of rows are absent, as in a release from another step of a pipeline, or
    their content has to be checked although the release states its distinct records.
    """

    def __init__(
        self, card: Card, read: Callable[[str, int], bytes], rows: Rows = "present"
    ) -> None:
        self._files = card.files
        self._read = read
        self.rows = rows
        self.place = CARD  # the file to name in an error

    def read(self, name: str, parse: Callable[[bytes], T]) -> T:
        """Returns the parsed content of a file."""
        self.place = name
        data = self._read(name, self._files[name].num_bytes)
        if fingerprint(data) != self._files[name]:
            raise DamagedFileError("does not have the checksum of its card")
        parsed = parse(data)
        self.place = CARD
        return parsed


def card_text(
    kind: str, draw_id: str, fields: Mapping[str, Any], files: Mapping[str, PayloadFile]
) -> str:
    """Returns the text of the ``card.json`` of a release with these files."""
    card = {
        "schema_version": SCHEMA_VERSION,
        "kind": kind,
        "draw_id": draw_id,
        **fields,
        "files": {
            name: {"sha256": file.sha256, "bytes": file.num_bytes} for name, file in files.items()
        },
    }
    return json.dumps(card, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def parsed_card(text: str) -> dict[str, Any]:
    """Parses a card; raises InputError unless this version can read and write the JSON object."""
    parsed = checked_json("card", CARD, text)
    if not isinstance(parsed, dict):
        raise InputError("card", type(parsed).__name__, "must be a JSON object")
    _check_depth_and_texts(parsed)
    version = parsed.get("schema_version")
    if version != SCHEMA_VERSION:
        raise InputError("schema_version", version, f"must be {SCHEMA_VERSION}")
    return parsed


def check_fields(fields: Mapping[str, Any], types: Mapping[str, type]) -> None:
    """Raises InputError if fields are missing, or if a version is not a string."""
    check_types(fields, {**types, "versions": dict})
    versions = fields["versions"]
    if not all(isinstance(version, str) for version in versions.values()):
        raise InputError("versions", len(versions), "must be strings")


def check_types(fields: Mapping[str, Any], types: Mapping[str, type]) -> None:
    """Raises InputError if fields are missing or have another type."""
    for name, kind in types.items():
        if not isinstance(fields.get(name), kind):
            raise InputError("card", name, f"must be present and of type {kind.__name__}")


# The exceptions that reading an untrusted file may raise.
READ_ERRORS = (
    ArithmeticError,
    DamagedFileError,
    LookupError,
    MemoryError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
)


def reading_fault(error: Exception) -> str:
    """Returns the message for one of ``READ_ERRORS``, to print after the name of the file."""
    if isinstance(error, InputError):
        return f": {error.name} = {shown(error.value)}: {error.condition}"
    if isinstance(error, DamagedFileError):
        return f" {error}"
    if isinstance(error, OSError):
        return f" cannot be read: {error.strerror}"
    if isinstance(error, UnicodeDecodeError):
        return " is not UTF-8"
    if isinstance(error, MemoryError):
        return " is larger than the memory of this process"
    return " is damaged"


def is_count(value: object) -> bool:
    """Returns whether a JSON value is an integer from 0 to 2^63 - 1."""
    return is_integer(value) and 0 <= value < 2**63


def payload_file(name: str, entry: Any) -> PayloadFile:
    """Returns the checksum and the size that a card states for a file."""
    fits = (
        isinstance(entry, dict)
        and set(entry) == {"sha256", "bytes"}
        and isinstance(entry["sha256"], str)
        and re.fullmatch("[0-9a-f]{64}", entry["sha256"])
        and is_count(entry["bytes"])
    )
    if not fits:
        raise InputError("files", name, "must have a checksum and a size")
    return PayloadFile(entry["sha256"], entry["bytes"])


def fingerprint(data: bytes) -> PayloadFile:
    """Returns the checksum and the size of a file's content."""
    return PayloadFile(hashlib.sha256(data).hexdigest(), len(data))


def _check_depth_and_texts(parsed: Any) -> None:
    """Rejects JSON that is nested too deeply, or has strings that UTF-8 can't encode.

    This uses no recursion: the parser reads deeper nesting than Python's recursion limit allows.
    """
    level, depth = [parsed], 0
    while level:
        if depth > _MAX_DEPTH:
            raise InputError("card", depth, f"must be nested at most {_MAX_DEPTH} deep")
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += [*value, *value.values()]
            elif isinstance(value, list):
                below += value
            elif isinstance(value, str) and not value.isascii():
                _check_unicode(value)
        level, depth = below, depth + 1


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:  # a JSON escape may be half of a surrogate pair
        raise InputError("card", text, "must contain valid Unicode only") from None
