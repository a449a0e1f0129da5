"""An Avro file is refused by its schema alone, before a record is read.

One whose records may be nested very deeply would end the worker that reads them.
"""

from __future__ import annotations

import io
import json
import pathlib
from typing import Any

import fastavro
import pytest

from beam_dp.errors import InputError
from beam_dp.releases.files.avro import encode, write_blocks
from beam_dp.releases.files.avro_guard import read_blocks
from beam_dp.storage.store import DamagedFileError
from beam_dp.transforms import ReadRecords
from beam_dp.transforms.errors import ReadError
from beam_dp.transforms.reading.avro_blocks import MAX_DEPTH, range_batches, read_header
from beam_dp.transforms.reading.read import _SplitFile

MARKER = b"S" * 16
ID = {"name": "id", "type": "long"}
Schema = dict[str, Any]


def record(name: str, *types: Any, **more: Any) -> Schema:
    fields = [{"name": f"f{i}", "type": kind} for i, kind in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields, **more}


def nested(depth: int, kind: Any = "long") -> Any:
    for _ in range(depth):
        kind = {"type": "array", "items": kind}
    return kind


def chain(length: int) -> Schema:
    """Each record holds the one before it, by its name: no bracket tells how deep that is."""
    links = [record(f"A{i}", f"A{i - 1}") for i in range(1, length)]
    return record("R", "long", record("A0", "long"), *links)


RECURSIVE: dict[str, tuple[Schema, str]] = {
    "a list": (record("R", "long", ["null", "R"]), "'R'"),
    "a list in a namespace": (record("R", ["null", "R"], namespace="a.b"), "'a.b.R'"),
    "by its full name": (record("R", ["null", "a.R"], namespace="a"), "'a.R'"),
    "a tree": (record("R", {"type": "array", "items": "R"}), "'R'"),
    "a map": (record("R", {"type": "map", "values": ["long", "R"]}), "'R'"),
    "two records in turn": (record("R", record("S", ["null", "R"]), "S"), "'R'"),
    "deeper inside": (record("R", record("S", ["null", record("T", ["null", "S"])])), "'S'"),
    "without end": (record("R", "R"), "'R'"),
    "what says it was checked": (
        record("R", ["null", "R"], __fastavro_parsed=True, __named_schemas={}),
        "'R'",
    ),
}
TOO_DEEP: dict[str, Schema] = {
    "arrays": record("R", "long", nested(MAX_DEPTH)),
    "many arrays": record("R", "long", nested(300)),
    "records by name": chain(MAX_DEPTH),
    "many records by name": chain(5000),
}


def write(path: pathlib.Path, schema: Any, body: bytes = b"\0", codec: str = "null") -> str:
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    entries = {b"avro.schema": text, b"avro.codec": codec.encode()}
    header = b"".join(encode("bytes", each) for pair in entries.items() for each in pair)
    block = encode("long", 1) + encode("bytes", body)
    path.write_bytes(b"Obj\x01" + encode("long", 2) + header + b"\0" + MARKER + block + MARKER)
    return str(path)


def refusals(path: str) -> list[str]:
    """What is said of a file at construction, and of one that is first looked at by the job."""
    with pytest.raises(InputError) as at_construction:
        ReadRecords(path)
    with pytest.raises(ReadError) as at_run:
        list(_SplitFile("avro").process((path, 1)))
    said = [str(at_construction.value), str(at_run.value)]
    assert all("\n" not in each and path in each for each in said)
    return said


@pytest.mark.parametrize("case", RECURSIVE)
def test_refuses_recursive_schema_before_reading_a_record(tmp_path, case):
    """Five thousand records in each other ended the worker's process by a signal."""
    schema, name = RECURSIVE[case]
    said = refusals(write(tmp_path / "a.avro", schema, b"\2\2" * 5000 + b"\2\0"))
    for each in said:
        assert f"must have a schema that is not recursive: {name} may hold itself" in each


@pytest.mark.parametrize("case", TOO_DEEP)
def test_refuses_schema_that_nests_too_deeply(tmp_path, case):
    for each in refusals(write(tmp_path / "a.avro", TOO_DEEP[case])):
        assert f"must have a schema whose records are nested at most {MAX_DEPTH} deep" in each


@pytest.mark.parametrize("brackets", [b"[", b'{"type":'])
def test_refuses_header_with_very_many_brackets(tmp_path, brackets):
    closing = b"]" if brackets == b"[" else b"}"
    kind = brackets * 100_000 + b'"long"' + closing * 100_000
    schema = b'{"type":"record","name":"R","fields":[{"name":"a","type":' + kind + b"}]}"
    for each in refusals(write(tmp_path / "a.avro", schema)):
        assert f"nested at most {MAX_DEPTH} deep" in each


def test_reads_reused_names_and_deep_schemas_within_the_bound():
    enum = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    inner = record("S", "E", ["null", "E"])
    schema = record("R", enum, "E", inner, {"type": "map", "values": "S"}, nested(MAX_DEPTH - 1))
    row = {"f0": "A", "f1": "B", "f2": {"f0": "A", "f1": None}, "f3": {}, "f4": []}
    target = io.BytesIO()
    fastavro.writer(target, schema, [row] * 3)
    data = target.getvalue()
    header = read_header(io.BytesIO(data))
    (batch,) = range_batches(io.BytesIO(data), header, 0, len(data), ["f0", "f1"])
    assert batch.to_pydict() == {"f0": ["A"] * 3, "f1": ["B"] * 3}
    (read,) = range_batches(io.BytesIO(data), header, 0, len(data), ["f4"])
    assert read.num_rows == 3


def test_reads_header_of_any_length_and_rejects_truncated_ones():
    schema = json.dumps({**record("R"), "fields": [ID], "doc": "x" * 200_000}).encode()
    first = encode("bytes", b"avro.codec") + encode("bytes", b"null")
    second = encode("bytes", b"avro.schema") + encode("bytes", schema)
    blocks = encode("long", -1) + encode("long", len(first)) + first + encode("long", 1) + second
    data = b"Obj\x01" + blocks + b"\0" + MARKER
    header = read_header(io.BytesIO(data + b"\2\2\x0e" + MARKER))
    assert (tuple(header.types), header.length, header.marker) == (("id",), len(data), MARKER)
    for length in (*range(100), *range(len(data) - 40, len(data))):
        with pytest.raises(ValueError, match=r"Avro container|cut short"):
            read_header(io.BytesIO(data[:length]))


def test_reader_refuses_release_with_an_invalid_schema():
    for schema in (RECURSIVE["a list"][0], TOO_DEEP["many arrays"]):
        data = write_blocks(schema, "a" * 32, "records", [(1, b"\2\2" * 5000)])
        with pytest.raises(DamagedFileError, match="does not fit its card"):
            list(read_blocks(data, record("R", "long")))
