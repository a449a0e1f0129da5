"""Small releases of every kind as they are written, for what readers refuse and for contracts."""

import dataclasses
import functools
import hashlib
import json
import pathlib
import struct
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
from kinds_of_releases import released, written
from noise_sources import Seeded
from open_domains import CITY, SEX, domain_release  # noqa: F401
from release_examples import release_of
from window_examples import GAUSSIAN, window_of
from written_draws import draw_of

import beam_dp as dp
from beam_dp.domain.files import domain_from_json
from beam_dp.hashing.keys import HashKey, universe_elements
from beam_dp.mechanisms.intervals import Choice, planned, release_intervals
from beam_dp.releases.domain.files import SCHEMA as FOUND_SCHEMA
from beam_dp.releases.files.commit import Draw
from beam_dp.releases.intervals.files import TABLE_SCHEMA
from beam_dp.releases.release import LeftOut, Release
from beam_dp.releases.sketches.release import NoisyCounts, NoisySketch, SparseRelease
from beam_dp.releases.synthetic_database.bin_sums import BinSums
from beam_dp.releases.synthetic_database.files import SCHEMAS
from beam_dp.releases.synthetic_database.measured_tables import MeasuredTable
from beam_dp.releases.synthetic_database.records_avro import records_schema
from beam_dp.releases.windows.files import TABLE_SCHEMA as WINDOW_SCHEMA
from beam_dp.storage.avro import (
    encode,
    encode_longs,
    read_blocks,
    write_blocks,
    write_records,
)

ADD = "add_or_remove_one"
with mock.patch("beam_dp.privacy.noise.source.NoiseSource", lambda: Seeded(2)):
    KEY = HashKey.draw(8)
DRAW = "0123456789abcdef0123456789abcdef"
IMPOSSIBLE = domain_from_json({"a": 9, "b": 2}).with_impossible([{"a": [[3, 5]], "b": [1]}])


def intervals_of(
    choice: Choice, num_leaves: int = 23, neighboring: str = ADD
) -> dp.IntervalRelease:
    guarantee = dp.Guarantee(1.0, 1e-9, neighboring, "person", 3)  # type: ignore[arg-type]
    plan = planned(num_leaves, guarantee, choice)
    attribute = dp.IntegerAttribute("age", -3, num_leaves - 4, other=True)
    counts = np.arange(num_leaves)
    return release_intervals(plan, counts, Seeded(5), attribute, {"ledger_release": "r1"})


def sketch_of(width: int = 3 * 2**16, *, sketch: bool = True, histogram: bool = True) -> Any:
    rng = np.random.default_rng(5)
    cells = rng.integers(-9, 9, width)
    cells[:4] = [2**62, -(2**62), 2**63 - 1, -(2**63)]
    elements = np.unique(rng.integers(0, 2**64, 900, np.uint64))
    held = NoisySketch("blocks", width, 3, "discrete_laplace", 3.5, "clipped_mean", 4, cells=cells)
    return SparseRelease(
        draw_id=DRAW,
        mechanism="hybrid_sketch",
        guarantee=dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "person", 2),
        hash_key=KEY,
        max_sparsity=10,
        max_weight=7,
        plan={"key": {"key": "email", "key_type": "text", "weight": None, "rule": 2}},
        sketch=held if sketch else None,
        histogram=NoisyCounts(elements, rng.integers(50, 900, len(elements)), 2.5, 50)
        if histogram
        else None,
    )


def listed_keys(key_type: str = "text") -> Any:
    """A release that lists its keys, without one of them."""
    keys: list[Any] = [f"{i} ü{'!' * i}" for i in range(40)]
    keys = [key.encode() for key in keys] if key_type == "bytes" else keys
    elements = universe_elements(keys, KEY)
    order = np.argsort(elements)
    held = np.empty(len(keys), object)
    held[:] = [None if place == 7 else keys[place] for place in order]
    histogram = NoisyCounts(elements[order], 50 + np.arange(40), 2.5, 50, held)
    plan = {"key": {"key": "email", "key_type": key_type, "rule": 2, "list_keys": True}}
    return dataclasses.replace(sketch_of(4, sketch=False), plan=plan, histogram=histogram)


def left_out_of(domain: dp.Domain, start: int = -3, **fields: Any) -> LeftOut:
    given = {
        "counts": {name: start + 1300 * number for number, name in enumerate(domain.names)},
        "impossible": 7 if domain.impossible else None,
        "scale": 20.0,
        "standard_error": 28.25,
        "bound": 74.0,
        "sum_standard_error": 40.0,
        "sum_bound": 182.5,
        "failure_probability": 0.05,
        "budget": {
            "release": {"epsilon": 0.95, "delta": 1e-9},
            "left_out": {"epsilon": 0.05, "delta": 0.0},
        },
    }
    return LeftOut(**{**given, **fields})


TWO_RECORDS = domain_from_json(
    {
        "attributes": [
            {"name": "a", "type": "integer", "min": 0, "max": 2, "other": True},
            {"name": "b", "type": "categorical", "values": ["x", "y"]},
            {"name": "c", "type": "numeric", "edges": [0, 1, 2]},
            {"name": "d", "type": "boolean"},
        ]
    }
)
SUMS = BinSums(
    measured := MeasuredTable(("c",), "bin_sums", "discrete_laplace", 2.0**21, 2**20),
    np.array([3.5, -1.25]),
    measured.variance**0.5,
)
ONE = b"\x00\x02\x02x" + struct.pack("<d", 0.5) + b"\x00"  # a record as Avro writes it
TWO = b"\x00\x04\x02x" + struct.pack("<d", 0.5) + b"\x00"


def records_of(*blocks: tuple[int, bytes], schema: Any = None, deflate: bool = True) -> bytes:
    """A file of records with these blocks."""
    schema = schema or records_schema(TWO_RECORDS)
    return write_blocks(schema, DRAW, "records", blocks, deflate=deflate)


def tables_of(*blocks: tuple[int, bytes], deflate: bool = False) -> bytes:
    """A file of a hypothesis with these blocks."""
    return write_blocks(SCHEMAS["hypothesis"], DRAW, "hypothesis", blocks, deflate=deflate)


def potential(
    names: list[bytes], shape: list[int], values: list[float], ends: Any = (b"\0", b"\0", b"\0")
) -> bytes:
    """A table of a hypothesis as Avro writes it."""
    attributes = encode("long", len(names)) + b"".join(encode("bytes", n) for n in names)
    sizes = encode("long", len(shape)) + encode_longs(np.array(shape, np.int64))
    numbers = encode("long", len(values)) + np.array(values, "<f8").tobytes()
    return attributes + ends[0] + sizes + ends[1] + numbers + ends[2]


EXAMPLES: dict[str, Callable[[], Release]] = {
    "database": release_of,
    "left out": lambda: release_of(IMPOSSIBLE, left_out=left_out_of(IMPOSSIBLE)),
    "two records": lambda: release_of(TWO_RECORDS, num_records=2),
    "drawn in bins": lambda: release_of(TWO_RECORDS, within_bins="uniform"),
    "sums in bins": lambda: release_of(TWO_RECORDS, within_bins="density", bin_sums=SUMS),
    "intervals": lambda: intervals_of(("windows", "discrete_laplace")),
    "sine": lambda: intervals_of(("sine", "discrete_gaussian")),
    "sketch": lambda: sketch_of(3 * 2**10),
    "listed keys": listed_keys,
    "window": lambda: window_of(**GAUSSIAN),
    "domain": domain_release,
    "answers": lambda: released(f"laplace answers, {ADD}"),
}


@functools.cache
def drawn(name: str) -> Draw:
    """An example, or a release of ``kinds_of_releases``, as it is written."""
    return draw_of(EXAMPLES[name]()) if name in EXAMPLES else written(f"{name}, {ADD}")


def unpack(draw: Draw, folder: pathlib.Path) -> None:
    """Writes a release to a folder, without all that protects it from crashes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "card.json").write_bytes(draw.text)
    for name, data in draw.payload.items():
        (folder / name).write_bytes(data)


def read(
    folder: pathlib.Path,
    name: str,
    change: Callable[[dict[str, Any]], object] = lambda card: None,
    data: Callable[[bytes], bytes] | None = None,
    file: str = "",
    text: Callable[[str], str] = lambda text: text,
) -> Release:
    """Reads an example after changes of its card, of a file, and of the text of its card.

    ``file``: how the name of the file begins that gets other data; the card states its checksum.
    """
    draw = drawn(name)
    card, payload = json.loads(draw.text), dict(draw.payload)
    if data is not None:
        (file,) = (each for each in payload if each.startswith(file))
        new = data(payload[file])
        assert new != payload[file]
        payload[file] = new
        card["files"][file] = {"sha256": hashlib.sha256(new).hexdigest(), "bytes": len(new)}
    change(card)
    unpack(Draw(text(json.dumps(card)).encode(), payload), folder)
    return dp.read_release(folder)


def interval_tables(
    change: Callable[[dict[str, bytes]], object], name: str = "intervals"
) -> Callable[[bytes], bytes]:
    """Changes blocks of a file of interval counts, which are named by their tables."""

    def changed(data: bytes) -> bytes:
        found = read_blocks(data, TABLE_SCHEMA)
        blocks = {block[1 : 1 + block[0] // 2].decode(): block for _, block in found}
        change(blocks)
        draw_id = drawn(name).card.draw_id
        held = [(1, block) for block in blocks.values()]
        return write_blocks(TABLE_SCHEMA, draw_id, "intervals", held, deflate=True)

    return changed


def last_number(name: str, value: float) -> Callable[[dict[str, bytes]], object]:
    def change(blocks: dict[str, bytes]) -> None:
        blocks[name] = blocks[name][:-9] + np.array(value, "<f8").tobytes() + b"\0"

    return change


def window_rows(change: Callable[[list[dict[str, Any]]], object]) -> Callable[[bytes], bytes]:
    """Changes rows of a file of tables of a window."""
    release: Any = EXAMPLES["window"]()

    def changed(_: bytes) -> bytes:
        rows: list[dict[str, Any]] = [
            {
                "attributes": list(names),
                "shape": list(table.shape),
                "values": table.copy(),
                "variance": release.variance(names),
            }
            for names, table in release.tables.items()
        ]
        change(rows)
        return write_records(WINDOW_SCHEMA, release.draw_id, "tables", rows)

    return changed


def found_rows(*rows: dict[str, Any]) -> Callable[[bytes], bytes]:
    """Other rows of a file of a released domain."""
    draw_id = drawn("domain").card.draw_id
    return lambda _: write_records(FOUND_SCHEMA, draw_id, "found", rows)


def found(attribute: str, text: str = "", edge: float = 0.0, count: float = 1.0) -> dict[str, Any]:
    """A row of a file of a released domain."""
    return {"attribute": attribute, "text": text, "number": edge, "count": count} | {
        "standard_error": 2.0
    }


def asked_for(*marginals: list[str]) -> dict[str, Any]:
    """A workload on a card."""
    return {"marginals": list(marginals), "weights": [1.0] * len(marginals)}


def many_attributes(card: dict[str, Any]) -> None:
    """A marginal with one cell, which contains 2^100 others."""
    names = [f"a{number}" for number in range(100)]
    one = {"type": "integer", "min": 0, "max": 0}
    card["domain"]["attributes"] += [{"name": name, **one} for name in names]
    card["workload"] = asked_for(["age", "member"], ["getting in/out of bed"], names)


def swapped_elements(data: bytes) -> bytes:
    """A file of listed counts whose first two elements are not in order."""
    elements = sketch_of(3 * 2**10).histogram.elements.view(np.int64)
    start, then = encode_longs(elements[:1]), encode_longs(elements[1:2])
    gap = b"?" * len(then)
    return data.replace(start, gap, 1).replace(then, start, 1).replace(gap, then, 1)
