"""The Avro rows of released answers, written and read without trust.

Blocks are not compressed: a file then takes no more memory than its own size allows. Compressed
ones, which earlier versions wrote, are read as long as they do not expand further than answers do.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, overload

from beam_dp.releases.files.container import (
    DamagedFileError,
    decode_bytes,
    decode_long,
    encode_bytes,
    encode_long,
    read_container,
    read_header,
    write_container,
)
from beam_dp.releases.files.records_card import SCHEMA_VERSION

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

Row = Mapping[str, Any]

_FIELDS: list[tuple[str, Any]] = [(each["name"], each["type"]) for each in ANSWER_SCHEMA["fields"]]
_BLOCK_BYTES = 2**20
# How far a compressed file may expand: so many times, and so many bytes besides.
_EXPANSION, _SMALL = 16, 2**20


class AnswerRows(Sequence[Row]):
    """Rows that are decoded when they are looked at: a row takes far more memory than its bytes.

    Args:
        blocks: the bytes of the rows, checked.
        starts: for each block where its rows begin.
    """

    def __init__(self, blocks: Sequence[bytes], starts: Sequence[array[int]]) -> None:
        self._blocks = blocks
        self._starts = starts
        self._ends: list[int] = []
        for each in starts:
            self._ends.append(len(each) + (self._ends[-1] if self._ends else 0))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Row]:
        for block, starts in zip(self._blocks, self._starts, strict=True):
            for start in starts:
                yield _decode_row(block, start)[0]

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        place = range(len(self))[index]
        for block, starts, end in zip(self._blocks, self._starts, self._ends, strict=True):
            if place < end:
                return _decode_row(block, starts[place - end])[0]
        raise IndexError(index)


def write_rows(rows: Sequence[Row], draw_id: str, file: BinaryIO) -> None:
    """Writes answers as an Avro container file: the same bytes for the same rows and draw."""
    metadata = {"beam_dp.schema_version": str(SCHEMA_VERSION), "beam_dp.draw_id": draw_id}
    sync = hashlib.sha256(f"answers {draw_id}".encode()).digest()[:16]
    write_container(file, ANSWER_SCHEMA, metadata, sync, _blocks(rows), deflate=False)


def read_rows(data: bytes, num_rows: int | None = None) -> AnswerRows:
    """Returns the rows of a file.

    Args:
        data: the whole file.
        num_rows: that there must be; None if it is not known.

    Raises:
        DamagedFileError: if it is no file of answers, or not of so many.

    Cost: about 5 microseconds a row; memory of about two times the file, or 32 times a compressed
    one.
    """
    metadata, _, sync = read_header(data)
    most = len(data)
    max_block_bytes = None
    if metadata.get(b"avro.codec") == b"deflate":
        most = max_block_bytes = _SMALL + _EXPANSION * len(data)
    blocks: list[bytes] = []
    starts: list[array[int]] = []
    expanded = found = 0
    for number, block in read_container(data, ANSWER_SCHEMA, sync, max_block_bytes=max_block_bytes):
        expanded, found = expanded + len(block), found + number
        if expanded > most:
            raise DamagedFileError("expands too far")
        if num_rows is not None and found > num_rows:
            raise DamagedFileError("has more answers than its card says")
        of_block, position = array("q"), 0
        for _ in range(number):
            of_block.append(position)
            _, position = _decode_row(block, position)
        if position != len(block):
            raise DamagedFileError("has bytes after the answers of a block")
        blocks.append(block)
        starts.append(of_block)
    if num_rows is not None and found != num_rows:
        raise DamagedFileError("has fewer answers than its card says")
    return AnswerRows(blocks, starts)


def _blocks(rows: Sequence[Row]) -> Iterator[tuple[int, bytes]]:
    block, number = bytearray(), 0
    for row in rows:
        block += _encode_row(row)
        number += 1
        if len(block) >= _BLOCK_BYTES:
            yield number, bytes(block)
            block.clear()
            number = 0
    if number:
        yield number, bytes(block)


def _encode_row(row: Row) -> bytes:
    parts = []
    for name, kind in _FIELDS:
        value = row[name]
        if isinstance(kind, list):
            parts.append(encode_long(int(value is not None)))
            if value is None:
                continue
            kind = kind[1]
        if kind == "double":
            parts.append(struct.pack("<d", value))
        elif kind == "long":
            parts.append(encode_long(int(value)))
        else:
            parts.append(encode_bytes(value.encode()))
    return b"".join(parts)


def _decode_row(data: bytes, position: int) -> tuple[dict[str, Any], int]:
    row: dict[str, Any] = {}
    for name, kind in _FIELDS:
        if isinstance(kind, list):
            member, position = decode_long(data, position)
            if not 0 <= member <= 1:
                raise DamagedFileError("has a value of a type that its schema has not")
            if not member:
                row[name] = None
                continue
            kind = kind[1]
        if kind == "double":
            if len(data) - position < 8:
                raise DamagedFileError("has a number that is cut short")
            (row[name],) = struct.unpack_from("<d", data, position)
            position += 8
        elif kind == "long":
            row[name], position = decode_long(data, position)
        else:
            text, position = decode_bytes(data, position)
            try:
                row[name] = text.decode()
            except UnicodeDecodeError:
                raise DamagedFileError("has a text that is not UTF-8") from None
    return row, position
