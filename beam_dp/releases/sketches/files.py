"""The files of a sparse-query release: card, hash key, and sums and counts of elements."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import fastavro
import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_choice, checked_integer, checked_number
from beam_dp.errors import InputError
from beam_dp.hashing.keys import HashKey, universe_elements
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases.files.card import Card, Payload
from beam_dp.releases.sketches.release import (
    HASH_FAMILY,
    NoisyCounts,
    NoisySketch,
    SparseRelease,
    key_type_of,
)
from beam_dp.storage import avro
from beam_dp.storage.avro import read_blocks
from beam_dp.storage.store import DamagedFileError

_MAX_WIDTH = 2**26
_MAX_SCALE = 2.0**50
_MAX_INTEGER = 2**62
_MAX_GRID = 2**32
TYPES = {
    "mechanism": str,
    "guarantee": dict,
    "max_sparsity": int,
    "max_weight": int,
    "parameters": dict,
    "hash_family": str,
}
OPTIONAL = {"sketch": dict, "histogram": dict}  # null if the release has none
_SKETCH_CHOICES = {
    "family": ("dense", "blocks"),
    "distribution": ("discrete_laplace", "discrete_gaussian"),
    "estimator": ("mean", "median", "clipped_mean"),
}
# The number of cells per Avro record, and the number of counts per block.
_SHARD_CELLS = 2**16

# The schema of each file, by the purpose of the file.
_SCHEMAS: dict[str, dict[str, Any]] = {
    "hash key": {
        "type": "record",
        "name": "HashKey",
        "doc": "The public key of the hash functions.",
        "fields": [{"name": "family", "type": "string"}, {"name": "key", "type": "bytes"}],
    },
    "projection": {
        "type": "record",
        "name": "ProjectionShard",
        "doc": "Noisy sums of the cells from first_cell on, in units of the grid of the card.",
        "fields": [
            {"name": "first_cell", "type": "long"},
            {"name": "cells", "type": {"type": "array", "items": "long"}},
        ],
    },
    "histogram": {
        "type": "record",
        "name": "ElementCount",
        "fields": [
            {
                "name": "element",
                "type": "long",
                "doc": "64 bits: an integer key itself (from 2^63 on less 2^64), or the"
                " fingerprint of a text under the hash key. Ascending as unsigned numbers.",
            },
            {"name": "count", "type": "long", "doc": "Noisy, in weight."},
        ],
    },
}
# The schema of a histogram that lists its keys, by the type of the keys.
_LISTED = {
    key_type: {
        **_SCHEMAS["histogram"],
        "fields": [
            *_SCHEMAS["histogram"]["fields"],
            {
                "name": "key",
                "type": ["null", avro_type],
                "doc": "Null if it is longer than 256 bytes, or a text that is not UTF-8.",
            },
        ],
    }
    for key_type, avro_type in (("text", "string"), ("bytes", "bytes"))
}


def payload(release: SparseRelease) -> dict[str, bytes]:
    """Returns the files, by name."""
    draw_id, sketch, histogram = release.draw_id, release.sketch, release.histogram
    key = {"family": HASH_FAMILY, "key": release.hash_key.to_bytes()}
    written = {"hash key": avro.write_records(_SCHEMAS["hash key"], draw_id, "hash key", [key])}
    if sketch is not None:
        shards = (
            {"first_cell": start, "cells": sketch.cells[start : start + _SHARD_CELLS]}
            for start in range(0, len(sketch.cells), _SHARD_CELLS)
        )
        schema = _SCHEMAS["projection"]
        written["projection"] = avro.write_records(schema, draw_id, "projection", shards)
    if histogram is not None:
        rows = np.stack([histogram.elements.view(np.int64), histogram.counts], axis=1)
        starts = range(0, len(rows), _SHARD_CELLS)
        parts = (rows[start : start + _SHARD_CELLS] for start in starts)
        blocks: Iterator[tuple[int, bytes]]
        blocks = ((len(part), avro.encode_longs(part.ravel())) for part in parts)
        schema = _SCHEMAS["histogram"]
        if histogram.keys is not None:
            schema = _LISTED[str(key_type_of(release.plan))]
            blocks = avro.in_blocks([avro.side_by_side(_columns(histogram))])
        written["histogram"] = avro.write_blocks(schema, draw_id, "histogram", blocks)
    return {avro.file_name(draw_id, purpose): data for purpose, data in written.items()}


def _columns(histogram: NoisyCounts) -> list[avro.Packed]:
    """Returns the columns of a histogram that lists its keys."""
    assert histogram.keys is not None
    longs = histogram.elements.view(np.int64), histogram.counts
    keys = (key.encode() if isinstance(key, str) else key for key in histogram.keys)
    written = [b"\0" if key is None else b"\2" + avro.encode("bytes", key) for key in keys]
    return [
        *(avro.Packed.together(avro.encode_longs(long), avro.long_lengths(long)) for long in longs),
        avro.Packed.of(written),
    ]


def read(card: Card, payload: Payload) -> SparseRelease:
    """Reads a release from its card and payload."""
    card.check_types(TYPES)
    parsed, draw_id = card.fields, card.draw_id
    if parsed["hash_family"] != HASH_FAMILY:
        raise InputError("hash_family", parsed["hash_family"], f"must be {HASH_FAMILY!r}")
    guarantee = Guarantee.from_json(parsed["guarantee"])
    max_sparsity = checked_integer("max_sparsity", parsed["max_sparsity"], 1, 2**31)
    max_weight = checked_integer("max_weight", parsed["max_weight"], 1, 2**32)
    of_sketch, of_histogram = _sketch(parsed.get("sketch")), _histogram(parsed.get("histogram"))
    if of_sketch is None and of_histogram is None:
        raise InputError("card", None, "must have a sketch or a histogram")
    key_type_of(parsed["parameters"])
    given = {"hash key": True, "projection": of_sketch, "histogram": of_histogram}
    names = {
        name: avro.file_name(draw_id, name) for name, part in given.items() if part is not None
    }
    card.check_files(list(names.values()))
    hash_key = payload.read(names["hash key"], _read_hash_key)
    sketch = histogram = None
    if of_sketch is not None:
        width = of_sketch["projection_width"]
        cells = payload.read(names["projection"], lambda data: _read_cells(data, width))
        sketch = NoisySketch(**of_sketch, cells=cells)
        sketch.signs(hash_key)  # refuses a width that the rows do not divide
    if of_histogram is not None:
        number = of_histogram.pop("num_elements")
        columns = parsed["parameters"].get("key") or {}
        schema = _LISTED.get(str(columns.get("key_type"))) if columns.get("list_keys") else None
        elements, counts, keys = payload.read(
            names["histogram"],
            lambda data: (
                _read_rows(data, number) if schema is None else _read_listed(data, schema, number)
            ),
        )
        if not (elements[1:] > elements[:-1]).all():
            raise InputError("elements", len(elements), "must be ascending and distinct")
        if len(counts) and int(counts.min()) < of_histogram["threshold"]:
            raise InputError("counts", len(counts), "must each reach the threshold of the card")
        if keys is not None:
            has_key = np.array([key is not None for key in keys], np.bool_)
            if (universe_elements(keys[has_key].tolist(), hash_key) != elements[has_key]).any():
                raise InputError("keys", int(has_key.sum()), "must each belong to its element")
        histogram = NoisyCounts(**of_histogram, elements=elements, counts=counts, keys=keys)
    return SparseRelease(
        draw_id=draw_id,
        mechanism=parsed["mechanism"],
        guarantee=guarantee,
        hash_key=hash_key,
        max_sparsity=max_sparsity,
        max_weight=max_weight,
        plan=parsed["parameters"],
        sketch=sketch,
        histogram=histogram,
    )


def _sketch(parsed: Any) -> dict[str, Any] | None:
    if parsed is None:
        return None
    fields = (*_SKETCH_CHOICES, "num_blocks", "scale", "grid", "projection_width")
    _check_fields(parsed, "sketch", fields)
    for name, choices in _SKETCH_CHOICES.items():
        check_choice(name, parsed[name], choices)
    width = checked_integer("projection_width", parsed["projection_width"], 1, _MAX_WIDTH)
    rows = checked_integer("num_blocks", parsed["num_blocks"], 1, width)
    checked_integer("grid", parsed["grid"], 1, _MAX_GRID)
    if parsed["family"] == "dense" and (rows != width or parsed["estimator"] != "mean"):
        raise InputError(
            "sketch", "dense", "must have as many rows as cells, and the estimator mean"
        )
    checked_number("scale", parsed["scale"], above=0, most=_MAX_SCALE)
    return dict(parsed)


def _histogram(parsed: Any) -> dict[str, Any] | None:
    if parsed is None:
        return None
    _check_fields(parsed, "histogram", ("scale", "threshold", "num_elements"))
    checked_integer("threshold", parsed["threshold"], 1, _MAX_INTEGER)
    checked_integer("num_elements", parsed["num_elements"], 0, _MAX_INTEGER)
    checked_number("scale", parsed["scale"], above=0, most=_MAX_SCALE)
    return dict(parsed)


def _check_fields(parsed: Any, name: str, fields: tuple[str, ...]) -> None:
    if not isinstance(parsed, dict) or set(parsed) != set(fields):
        raise InputError(name, type(parsed).__name__, f"must have the fields {', '.join(fields)}")


def _read_hash_key(data: bytes) -> HashKey:
    records = avro.read_records(data, _SCHEMAS["hash key"])
    first, second = next(records, None), next(records, None)
    if first is None or second is not None:
        raise DamagedFileError("must contain one hash key")
    if first["family"] != HASH_FAMILY:
        raise DamagedFileError("has another hash family than its card")
    return HashKey.from_bytes(first["key"])


def _read_cells(data: bytes, width: int) -> NDArray[np.int64]:
    cells = bytearray()
    for shard in avro.read_records(data, _SCHEMAS["projection"]):
        read, length = len(cells) // 8, len(shard["cells"])
        if shard["first_cell"] != read or not 0 < length == min(_SHARD_CELLS, width - read):
            raise DamagedFileError("has cells in the wrong place")
        cells += shard["cells"].tobytes()
    if len(cells) != 8 * width:
        raise DamagedFileError("has fewer cells than its card says")
    return np.frombuffer(cells, np.int64)


_Rows = tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.object_] | None]


def _read_rows(data: bytes, num_elements: int) -> _Rows:
    rows, read = [np.zeros((0, 2), np.int64)], 0
    for number, block in read_blocks(data, _SCHEMAS["histogram"]):
        file = io.BytesIO(block)
        if number > num_elements - read:
            raise DamagedFileError("has more elements than its card says")
        rows.append(avro.decode_longs(file, 2 * number).reshape(-1, 2))
        if file.read(1):
            raise DamagedFileError("has bytes after the records of a block")
        read += number
    if read != num_elements:
        raise DamagedFileError("has fewer elements than its card says")
    both = np.concatenate(rows)
    return both[:, 0].copy().view(np.uint64), both[:, 1].copy(), None


def _read_listed(data: bytes, schema: dict[str, Any], num_elements: int) -> _Rows:
    parsed: Any = fastavro.parse_schema(schema)
    rows: list[dict[str, Any]] = []
    for number, block in read_blocks(data, schema):
        if number > num_elements - len(rows):
            raise DamagedFileError("has more elements than its card says")
        file = io.BytesIO(block)
        rows += [avro.decode(parsed, file) for _ in range(number)]
        if file.read(1):
            raise DamagedFileError("has bytes after the records of a block")
    if len(rows) != num_elements:
        raise DamagedFileError("has fewer elements than its card says")
    keys = np.empty(num_elements, object)
    keys[:] = [row["key"] for row in rows]
    longs = np.array([(row["element"], row["count"]) for row in rows], np.int64).reshape(-1, 2)
    return longs[:, 0].copy().view(np.uint64), longs[:, 1].copy(), keys
