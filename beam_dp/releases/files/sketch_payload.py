"""The Avro payload of a release for sparse queries: hash key, sums and counts."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from beam_dp.errors import InputError
from beam_dp.hashing import HashKey
from beam_dp.releases.files.container import (
    DamagedFileError,
    decode_bytes,
    decode_long,
    encode_bytes,
    encode_long,
    read_container,
    write_container,
)
from beam_dp.releases.files.longs import (
    decode_longs,
    encode_longs,
)
from beam_dp.releases.files.records_card import SCHEMA_VERSION
from beam_dp.releases.files.sketches import (
    HASH_FAMILY,
    SparseCard,
)
from beam_dp.releases.sketches import SparseRelease

# Cells of one record, and counts of one block.
_SHARD_CELLS = 2**16

HASH_KEY_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HashKey",
    "doc": "The public key of the hash functions.",
    "fields": [{"name": "family", "type": "string"}, {"name": "key", "type": "bytes"}],
}
PROJECTION_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "ProjectionShard",
    "doc": "Noisy sums of the cells from first_cell on, in units of the grid of the card.",
    "fields": [
        {"name": "first_cell", "type": "long"},
        {"name": "cells", "type": {"type": "array", "items": "long"}},
    ],
}
HISTOGRAM_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "ElementCount",
    "fields": [
        {
            "name": "element",
            "type": "long",
            "doc": "64 bits: an integer key itself (from 2^63 on less 2^64), or the fingerprint of"
            " a text under the hash key. Ascending as unsigned numbers.",
        },
        {"name": "count", "type": "long", "doc": "Noisy, in weight."},
    ],
}


def hash_key_file(draw_id: str) -> str:
    """Returns the name of the file of the hash key."""
    return f"hash-key-{draw_id}.avro"


def projection_file(draw_id: str) -> str:
    """Returns the name of the file of sums."""
    return f"projection-{draw_id}.avro"


def histogram_file(draw_id: str) -> str:
    """Returns the name of the file of counts."""
    return f"histogram-{draw_id}.avro"


def payload_of(release: SparseRelease) -> dict[str, Callable[[BinaryIO], object]]:
    """Returns what writes each file of a release, by name."""
    draw_id = release.draw_id
    files: dict[str, Callable[[BinaryIO], object]] = {
        hash_key_file(draw_id): partial(_write_hash_key, release)
    }
    if release.sketch is not None:
        blocks = _cell_blocks(release.sketch.cells)
        files[projection_file(draw_id)] = partial(
            _write, draw_id, "projection", PROJECTION_SCHEMA, blocks
        )
    if release.histogram is not None:
        counts = release.histogram.elements.view(np.int64), release.histogram.counts
        blocks = _count_blocks(np.stack(counts, axis=1))
        files[histogram_file(draw_id)] = partial(
            _write, draw_id, "histogram", HISTOGRAM_SCHEMA, blocks
        )
    return files


def check_payload_names(card: SparseCard) -> None:
    """Refuses a card whose files are not those of its draw.

    Raises:
        InputError: if they are not.
    """
    expected = {hash_key_file(card.draw_id)}
    if card.sketch is not None:
        expected.add(projection_file(card.draw_id))
    if card.histogram is not None:
        expected.add(histogram_file(card.draw_id))
    if set(card.files) != expected:
        raise InputError("files", sorted(card.files), "must be the payload of the card's draw")


def read_payload(card: SparseCard, files: Mapping[str, bytes]) -> SparseRelease:
    """Returns the release of a card and its files.

    Raises:
        DamagedFileError: if a file is not what it should be.
        InputError: if a file is not of the card.
    """
    draw_id, cells, counts = card.draw_id, None, None
    with _naming(hash_key_file(draw_id)) as name:
        hash_key = _read_hash_key(files[name], draw_id)
    if card.sketch is not None:
        with _naming(projection_file(draw_id)) as name:
            cells = _read_cells(files[name], draw_id, card.sketch["projection_width"])
    if card.histogram is not None:
        with _naming(histogram_file(draw_id)) as name:
            counts = _read_counts(files[name], draw_id, card.histogram["num_elements"])
    return card.release(hash_key, cells, counts)


@contextlib.contextmanager
def _naming(name: str) -> Iterator[str]:
    """Names the file in what is said of its damage."""
    try:
        yield name
    except DamagedFileError as error:
        raise DamagedFileError(f"file {name} {error}") from None


def _write(
    draw_id: str,
    purpose: str,
    schema: Mapping[str, Any],
    blocks: Iterator[tuple[int, bytes]],
    file: BinaryIO,
) -> None:
    metadata = {"beam_dp.schema_version": str(SCHEMA_VERSION), "beam_dp.draw_id": draw_id}
    write_container(file, schema, metadata, _sync(draw_id, purpose), blocks, deflate=False)


def _write_hash_key(release: SparseRelease, file: BinaryIO) -> None:
    record = encode_bytes(HASH_FAMILY.encode()) + encode_bytes(release.hash_key.to_bytes())
    _write(release.draw_id, "hash key", HASH_KEY_SCHEMA, iter([(1, record)]), file)


def _read_hash_key(data: bytes, draw_id: str) -> HashKey:
    keys = []
    for num_records, block in _blocks(data, draw_id, "hash key", HASH_KEY_SCHEMA):
        position = 0
        for _ in range(num_records):
            family, position = decode_bytes(block, position)
            if family != HASH_FAMILY.encode():
                raise DamagedFileError("has a hash family that is not its card's")
            key, position = decode_bytes(block, position)
            keys.append(key)
        _check_end(block, position)
    if len(keys) != 1:
        raise DamagedFileError("must hold one hash key")
    return HashKey.from_bytes(keys[0])


def _cell_blocks(cells: NDArray[np.int64]) -> Iterator[tuple[int, bytes]]:
    for start in range(0, len(cells), _SHARD_CELLS):
        shard = cells[start : start + _SHARD_CELLS]
        header = encode_long(start) + encode_long(len(shard))
        yield 1, header + encode_longs(shard) + encode_long(0)


def _read_cells(data: bytes, draw_id: str, width: int) -> NDArray[np.int64]:
    shards, read = [np.zeros(0, np.int64)], 0
    for num_records, block in _blocks(data, draw_id, "projection", PROJECTION_SCHEMA):
        position = 0
        for _ in range(num_records):
            first, position = decode_long(block, position)
            length, position = decode_long(block, position)
            if first != read or not 0 < length <= min(_SHARD_CELLS, width - read):
                raise DamagedFileError("has cells that are not in their place")
            cells, position = decode_longs(block, position, length)
            end, position = decode_long(block, position)
            if end != 0:
                raise DamagedFileError("has an array that does not end where it should")
            shards.append(cells)
            read += length
        _check_end(block, position)
    if read != width:
        raise DamagedFileError("has fewer cells than its card says")
    return np.concatenate(shards)


def _count_blocks(rows: NDArray[np.int64]) -> Iterator[tuple[int, bytes]]:
    for start in range(0, len(rows), _SHARD_CELLS):
        part = rows[start : start + _SHARD_CELLS]
        yield len(part), encode_longs(part.ravel())


def _read_counts(
    data: bytes, draw_id: str, num_elements: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    rows, read = [np.zeros((0, 2), np.int64)], 0
    for num_records, block in _blocks(data, draw_id, "histogram", HISTOGRAM_SCHEMA):
        if num_records > min(_SHARD_CELLS, num_elements - read):
            raise DamagedFileError("has more elements than its card says")
        numbers, position = decode_longs(block, 0, 2 * num_records)
        _check_end(block, position)
        rows.append(numbers.reshape(-1, 2))
        read += num_records
    if read != num_elements:
        raise DamagedFileError("has fewer elements than its card says")
    both = np.concatenate(rows)
    return both[:, 0].copy().view(np.uint64), both[:, 1].copy()


def _blocks(
    data: bytes, draw_id: str, purpose: str, schema: Mapping[str, Any]
) -> Iterator[tuple[int, bytes]]:
    return read_container(data, schema, _sync(draw_id, purpose), max_block_bytes=None)


def _check_end(block: bytes, position: int) -> None:
    if position != len(block):
        raise DamagedFileError("has bytes after the records of a block")


def _sync(draw_id: str, purpose: str) -> bytes:
    """Sixteen bytes that part the blocks: the draw's own, so that a retry writes the same file."""
    return hashlib.sha256(f"{purpose} {draw_id}".encode()).digest()[:16]
