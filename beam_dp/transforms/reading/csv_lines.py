"""Parses CSV by physical lines, even if a quote is still open at the end of a line.

In pyarrow's parser an open quote swallows the following lines, so that one malformed record
could remove or forge its neighbours: the sensitivity of every count would be unbounded. Here,
blocks without quotes are parsed with quoting off. In other blocks, each line with irregular quotes
is parsed separately, or dropped if its quotes do not close. The ranges of a file that are read in
parallel are cut in ``formats``.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from beam_dp.domain.schemas.file_kinds import (
    MAX_LINE_BYTES as MAX_LINE_BYTES,
    line_end,
    read_header as read_header,
)

BLOCK_BYTES = 2**20  # larger blocks, with their columns, leave the cache

_COMMA, _QUOTE, _LF, _CR = b',"\n\r'
# Whether a byte may precede an opening quote, or follow a closing one. Quotes may be doubled.
_NEXT_TO_QUOTE = np.isin(np.arange(256), (_COMMA, _QUOTE, _LF, _CR))
_PIECE_BYTES = 2**17
# Stands for a line that is too long: like this line, it is no record.
_TOO_LONG = b'"\n'
# The fields of a line that ``csv`` accepts, as written: "" is an empty text, and nothing is null.
_FIELDS = re.compile(r'("[^"]*(?:""[^"]*)*"|[^,"][^,]*|)(?:,|\Z)')


def line_blocks(file: IO[bytes], position: int, start: int, stop: int | None) -> Iterator[bytes]:
    """Yields blocks with the lines that start in ``[start, stop)``; without stop, to the end.

    Ranges that cover a file yield each line once, wherever the ranges are cut. The file must be at
    byte ``position``: max(start - 1, 0), or the start of the first record for the range that
    contains the header.
    """
    carry = b""
    dropping = False  # inside a line that is too long
    for chunk in _range_chunks(file, position, start, stop):
        data = carry + chunk
        # A final CR may be the first half of a CRLF.
        end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1
        lines, carry = data[:end], data[end:]
        # Whether a line is too long must not depend on the boundaries of chunks.
        if lines and (dropping or len(data) > MAX_LINE_BYTES):
            first = line_end(lines) or 0
            if dropping or first > MAX_LINE_BYTES:
                lines = _TOO_LONG + lines[first:]
            dropping = False
        if lines:
            yield lines
        if dropping or len(carry) > MAX_LINE_BYTES:
            carry, dropping = (b"\r" if carry.endswith(b"\r") else b""), True
    if carry and not dropping and len(carry.removesuffix(b"\r")) < MAX_LINE_BYTES:
        yield carry + b"\n"
    elif carry or dropping:
        yield _TOO_LONG


def _range_chunks(file: IO[bytes], position: int, start: int, stop: int | None) -> Iterator[bytes]:
    """Yields the bytes after the first LF or the header, up to the first LF at or past stop - 1."""
    skipping = start > 0 and position < start  # inside the last line of the previous range
    if not skipping and stop is not None and position >= stop:
        return
    while chunk := file.read(BLOCK_BYTES):
        begin = 0
        if skipping:
            begin = chunk.find(b"\n") + 1
            skipping = not begin
            if not skipping and stop is not None and position + begin >= stop:
                return
        if not skipping:
            last = -1 if stop is None else chunk.find(b"\n", max(begin, stop - 1 - position))
            if last >= 0:
                yield chunk[begin : last + 1]
                return
            if begin < len(chunk):
                yield chunk[begin:]
        position += len(chunk)


def parse_lines(
    block: bytes,
    names: Sequence[str],
    columns: Sequence[str],
    integers: Collection[str] = (),
    faults: Counter[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yields the records of a block of whole lines, as columns of strings. Never raises on data.

    A line with too many or too few fields or an open quote is left out, and counted in ``faults``
    by what is wrong; a blank line is not counted. An empty unquoted field is null. Lines with
    irregular quotes or invalid UTF-8 are returned as columns of bytes. If all values of the block
    in the columns ``integers`` are plain integers, these columns are returned as integers, which is
    faster. The reader must treat integers and their strings the same way.
    """
    strays: list[bytes] = []
    if not block.isascii() and not _is_utf8(block):
        # If an invalid line has too many fields, Arrow prints a message about it.
        lines = block.splitlines(keepends=True)
        strays += [line for line in lines if not _is_utf8(line)]
        block = _join([line for line in lines if _is_utf8(line)])
    quote: str | bool = False
    if _QUOTE in block:
        block, odd = _take_out_odd_quotes(block)
        strays += odd
        quote = '"'
    # Arrow would read 0x1F as an integer.
    plain = () if b"x" in block or b"X" in block else frozenset(integers)
    texts = dict.fromkeys(columns, pa.string())
    attempts = [texts | dict.fromkeys(plain, pa.int64()), texts] if plain else [texts]
    faults = Counter() if faults is None else faults
    while block and attempts:
        skipped: Counter[str] = Counter()
        try:
            yield from _read(block, names, attempts.pop(0), quote, skipped).to_batches()
            faults.update(skipped)
            break
        except pa.ArrowInvalid:
            if not attempts:
                strays += block.splitlines(keepends=True)
    yield from _parse_one_by_one(strays, names, columns, faults)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _read(
    block: bytes,
    names: Sequence[str],
    types: Mapping[str, pa.DataType],
    quote: str | bool,
    skipped: Counter[str],
) -> pa.Table:
    def skip(row: Any) -> str:
        skipped[_fault(row.text, row.actual_columns, len(names))] += 1
        return "skip"

    # Columns are addressed by position, because names of unread columns may repeat.
    positions = {column: str(names.index(column)) for column in types}
    table = pyarrow.csv.read_csv(
        pa.BufferReader(block),
        read_options=pyarrow.csv.ReadOptions(
            column_names=[str(position) for position in range(len(names))],
            block_size=len(block),  # no line straddles two blocks
            use_threads=False,  # the caller parses several blocks at once
        ),
        parse_options=pyarrow.csv.ParseOptions(
            quote_char=quote,
            newlines_in_values=False,
            ignore_empty_lines=len(names) > 1,
            invalid_row_handler=skip,
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={positions[column]: kind for column, kind in types.items()},
            include_columns=list(positions.values()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )
    return table.rename_columns(list(types))


def _take_out_odd_quotes(block: bytes) -> tuple[bytes, list[bytes]]:
    """Splits a block into lines that all parsers read alike, and lines with irregular quotes.

    A line is regular if its quotes open after a comma or the line's start, close before a
    comma or the line's end, and are doubled in between. No quote is open after a regular line.
    """
    if _all_regular(block):
        return block, []
    data = np.frombuffer(block, np.uint8)
    quotes, ends = np.flatnonzero(data == _QUOTE), _line_ends(data)
    line = np.searchsorted(ends, quotes)
    first = np.flatnonzero(np.diff(line, prepend=-1))  # each line's first quote
    lengths = np.diff(first, append=quotes.size)
    rank = np.arange(quotes.size) - np.repeat(first, lengths)
    opens = rank % 2 == 0
    # Before the first byte: the last one, a line end.
    next_to = data.take(np.where(opens, quotes - 1, quotes + 1))
    closed = lengths % 2 == 0
    stray = np.union1d(line[~_NEXT_TO_QUOTE.take(next_to)], line[first[~closed]])
    starts = np.concatenate(([0], ends + 1))[stray]
    stops = ends[stray] + 1
    # A removed CRLF must not leave its LF behind, because an empty line can be a record.
    stops += (data[stops - 1] == _CR) & (data[np.minimum(stops, len(block) - 1)] == _LF)
    kept = zip(np.concatenate(([0], stops)), np.append(starts, len(block)), strict=True)
    clean = _join([block[start:stop] for start, stop in kept])
    return clean, [block[a:b] for a, b in zip(starts, stops, strict=True)]


def _all_regular(block: bytes) -> bool:
    """Returns whether all lines have regular quotes; true for most blocks."""
    start = 0
    while start < len(block):
        # Parts are short, so that the masks and positions stay in the cache.
        stop = block.find(b"\n", start + _PIECE_BYTES) + 1 or len(block)
        data = np.frombuffer(block, np.uint8, stop - start, start)
        if not (_all_quoted(data) or _is_regular(data)):
            return False
        start = stop
    return True


def _all_quoted(data: NDArray[np.uint8]) -> bool:
    """Returns whether quotes surround every field, with none inside and LF as line end.

    The masks are much faster than the positions of so many quotes. Each quote opens or closes; an
    opening one follows two bytes after each closing one, and a closing one precedes each line end.
    """
    is_quote, is_end = data == _QUOTE, data == _LF
    if not (is_quote[0] and is_quote[-2:].tolist() == [True, False]) or (data == _CR).any():
        return False
    is_edge = is_end | (data == _COMMA)
    opens, closes = is_quote[1:] & is_edge[:-1], is_quote[:-1] & is_edge[1:]
    return bool(
        not closes[0]
        and np.array_equal(opens[:-1] ^ closes[1:], is_quote[1:-1])
        and np.array_equal(opens[1:], closes[:-1])
        and not (is_end[1:] & ~closes).any()
    )


def _is_regular(data: NDArray[np.uint8]) -> bool:
    quotes = np.flatnonzero(data == _QUOTE)
    # If every line has an even number of quotes, every other quote opens.
    if (np.searchsorted(quotes, _line_ends(data)) % 2).any():
        return False
    # Before the first byte: the last one, a line end.
    before, behind = data.take(quotes[::2] - 1), data.take(quotes[1::2] + 1)
    return bool(_NEXT_TO_QUOTE.take(before).all() and _NEXT_TO_QUOTE.take(behind).all())


def _line_ends(data: NDArray[np.uint8]) -> NDArray[np.intp]:
    return np.flatnonzero((data == _LF) | (data == _CR))


def _join(parts: Sequence[bytes]) -> bytes:
    """Joins whole lines, so that a final CR and the LF of the next line stay two line ends."""
    joined: list[bytes] = []
    for part in parts:
        if joined and part.startswith(b"\n") and joined[-1].endswith(b"\r"):
            joined[-1] = joined[-1][:-1] + b"\n"
        if part:
            joined.append(part)
    return b"".join(joined)


def _parse_one_by_one(
    lines: Sequence[bytes], names: Sequence[str], columns: Sequence[str], faults: Counter[str]
) -> Iterator[pa.RecordBatch]:
    """Parses each line separately, to columns of bytes; invalid lines are left out."""
    records = []
    for line in lines:
        text = line.decode("utf-8", "surrogateescape").rstrip("\r\n")
        try:
            rows = list(csv.reader([text], strict=True))
        except csv.Error:
            faults[_fault(text, None, len(names))] += 1
            continue
        if rows and len(rows[0]) == len(names):
            written = _FIELDS.findall(text)
            pairs = zip(rows[0], written, strict=False)
            records.append(
                [field.encode("utf-8", "surrogateescape") if raw else None for field, raw in pairs]
            )
        elif text:
            faults[_fault(text, len(rows[0]), len(names))] += 1
    if records:
        places = [names.index(column) for column in columns]
        arrays = [pa.array([record[place] for record in records], pa.binary()) for place in places]
        yield pa.record_batch(arrays, names=list(columns))


def _fault(text: str, num_fields: int | None, num_names: int) -> str:
    """Returns why a line is no record; it has no number of fields if its quotes do not fit."""
    if '\\"' in text or "\\," in text:
        return "a backslash before a quote or comma (CSV doubles quotes in a field in quotes)"
    if num_fields is None:
        return "a quote that does not close before a comma or the end of the line"
    return f"{num_fields} {'field' if num_fields == 1 else 'fields'} in place of {num_names}"
