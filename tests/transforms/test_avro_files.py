"""Avro files: their blocks in ranges, and schemas that are read like Apache's reader or refused."""

import io
import itertools
import json
import pathlib
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings, strategies as st

import beam_dp as dp
import beam_dp.transforms.reading.avro_blocks as avro_blocks
from beam_dp.secret.encoding.records import encode_column
from beam_dp.storage.avro import (
    HEADER,
    MAGIC,
    encode,
    read_blocks,
    read_metadata,
    write_blocks,
)
from beam_dp.storage.store import DamagedFileError
from beam_dp.transforms.job_page import FileError
from beam_dp.transforms.reading.avro_blocks import MAX_DEPTH, range_batches, read_header

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Person",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string", "int"]},
        {"name": "born", "type": {"type": "int", "logicalType": "date"}},
    ],
}


def write(num_records: int, codec: str = "null", sync_interval: int = 50) -> bytes:
    records = [
        {"id": i, "name": [None, "x", 7][i % 3], "born": 2**31 - 1} for i in range(num_records)
    ]
    target = io.BytesIO()
    fastavro.writer(target, SCHEMA, records, codec=codec, sync_interval=sync_interval)
    return target.getvalue()


def read(data: bytes, cuts: list[int], columns: list[str]) -> list[dict[str, Any]]:
    header = avro_blocks.read_header(io.BytesIO(data))
    edges = sorted({0, len(data), *cuts})
    return [
        row
        for start, stop in itertools.pairwise(edges)
        for batch in avro_blocks.range_batches(io.BytesIO(data), header, start, stop, columns)
        for row in batch.to_pylist()
    ]


@settings(max_examples=60)
@given(
    num_records=st.sampled_from([0, 1, 300]),
    codec=st.sampled_from(["null", "deflate", "bzip2", "xz"]),
    sync_interval=st.sampled_from([10, 300, 16000]),
    chunk_bytes=st.sampled_from([5, 17, 100, 5000]),
    data=st.data(),
)
def test_ranges_yield_each_record_once(num_records, codec, sync_interval, chunk_bytes, data):
    file = write(num_records, codec, sync_interval)
    cuts = data.draw(st.lists(st.integers(0, len(file)), max_size=5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro_blocks, "_CHUNK_BYTES", chunk_bytes)
        patch.setattr(avro_blocks, "_BATCH_RECORDS", 50)
        found = read(file, cuts, ["id"])
    assert [row["id"] for row in found] == list(range(num_records))


def test_odd_values_affect_only_their_own_record():
    assert read(write(1), [], ["born"]) == [{"born": 2**31 - 1}]
    assert [row["name"] for row in read(write(3), [], ["name"])] == [None, b"x", 7]
    file = write(3).replace(b"\x02\x02x", b"\x02\x02\xff")
    none, odd, seven = (row["name"] for row in read(file, [], ["name"]))
    assert (none, seven) == (None, 7)
    with pytest.raises(UnicodeDecodeError):  # still a value that no domain declares
        odd.decode()
    plain = {**SCHEMA, "fields": [{"name": "born", "type": "long"}]}
    target, marker = io.BytesIO(), b"m" * 16
    fastavro.writer(target, plain, [{"born": each} for each in (1, 2**40, 2)], sync_marker=marker)
    _, blocks = target.getvalue().split(marker, 1)
    schema = json.dumps({**plain, "fields": SCHEMA["fields"][2:]}).encode()
    head = encode(HEADER, {"magic": MAGIC, "meta": {"avro.schema": schema}, "sync": marker})
    data = head + blocks
    header = avro_blocks.read_header(io.BytesIO(data))
    span = 0, len(data)
    (batch,) = avro_blocks.range_batches(io.BytesIO(data), header, *span, ["born"], ["born"])
    days = dp.DateAttribute("born", ("1970-01-02", "1970-01-03", "1970-01-04"))
    assert encode_column(days, batch.column("born")).tolist() == [0, -1, 1]


def test_refuses_schemas_that_no_reader_takes():
    target = io.BytesIO()
    fastavro.writer(target, {"type": "long"} | {"name": "x"}, [1, 2])
    with pytest.raises(ValueError, match="record"):
        avro_blocks.read_header(io.BytesIO(target.getvalue()))
    for schema in (record("R", "long", ["null", "R"]), record("R", "long", nested(300))):
        data = write_blocks(schema, "a" * 32, "records", [(1, b"\2\2" * 5000)])
        with pytest.raises(DamagedFileError, match="does not fit its card"):
            list(read_blocks(data, record("R", "long")))


def test_refuses_deep_json_before_fastavro_descends_it(monkeypatch):
    """Python 3.13 reads 3,000 levels of JSON in a thread of 512 KiB; fastavro then ends it."""
    monkeypatch.setattr(avro_blocks.fastavro, "parse_schema", None)
    with pytest.raises(FileError, match="nested at most 64 deep"):
        avro_blocks.parse_schema(json.dumps(record("R", nested(400))).encode())


COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
MANY: dict[str, Any] = {
    "type": "record",
    "name": "Many",
    "fields": [
        {"name": "colour", "type": COLOUR},
        {"name": "id", "type": "long"},
        {"name": "again", "type": ["null", "Colour"]},
        {"name": "place", "type": ["null", POINT, "string"]},
        {"name": "bytes", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "list", "type": {"type": "array", "items": ["null", "Point"]}},
        {"name": "map", "type": {"type": "map", "values": "double"}},
        {"name": "flag", "type": ["boolean", "null"]},
        {"name": "born", "type": {"type": "int", "logicalType": "date"}},
    ],
}


@pytest.mark.parametrize("number", [1, 2, 9])
def test_column_does_not_depend_on_other_columns_read(number):
    """Also where the type of one is defined in another, which is then read as well."""
    records = [
        {
            "colour": ["RED", "BLUE"][i % 2],
            "id": i,
            "again": [None, "BLUE", "RED"][i % 3],
            "place": [None, {"x": i}, "here"][i % 3],
            "bytes": bytes([i] * 4),
            "list": [None, {"x": 1}][: i % 3],
            "map": {"a": i / 2},
            "flag": [True, None][i % 2],
            "born": i,
        }
        for i in range(40)
    ]
    target = io.BytesIO()
    fastavro.writer(target, MANY, records, sync_interval=100)
    names = [field["name"] for field in MANY["fields"]]
    whole = read(target.getvalue(), [], names)
    assert [row["id"] for row in whole] == list(range(40))
    for columns in itertools.combinations(names, number):
        expected = [{name: row[name] for name in columns} for row in whole]
        assert read(target.getvalue(), [333], list(columns)) == expected
    schema = avro_blocks.read_header(io.BytesIO(target.getvalue())).schema
    assert avro_blocks._of_columns(schema, ["again"]) is None
    found = avro_blocks._of_columns(schema, ["again", "colour"])
    assert found is not None and len(found["fields"]) == 2


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


def test_reads_headers_and_schemas_at_their_limits():
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


E = {"type": "record", "name": "E", "fields": [{"name": "a", "type": "int"}]}
FIXED = {"type": "fixed", "name": "F", "size": 2}


def schema_of(x: Any, **more: Any) -> dict[str, Any]:
    fields = [{"name": "x", "type": x, **more}, {"name": "y", "type": "string"}]
    return {"type": "record", "name": "R", "fields": fields}


def written(path: pathlib.Path, stored: Any, value: Any, schema: Any, codec: str = "null") -> str:
    """A file of one record, stored by one schema, whose header has another one."""
    sink = io.BytesIO()
    fastavro.writer(sink, schema_of(stored), [{"x": value, "y": "plain"}])
    header, length = read_metadata(io.BytesIO(sink.getvalue()))
    meta = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec.encode()}
    path.write_bytes(encode(HEADER, {**header, "meta": meta}) + sink.getvalue()[length:])
    return str(path)


def logical(kind: Any, name: Any, **more: Any) -> dict[str, Any]:
    return {**(kind if isinstance(kind, dict) else {"type": kind}), "logicalType": name, **more}


# Schemas as which the same bytes are read, and the type that ``init`` drafts.
IGNORED = {
    "unknown": ("string", "a", logical("string", "colour"), "categorical"),
    "no name": ("string", "a", logical("string", ["a"]), "categorical"),
    "decimal without precision": ("bytes", b"1", logical("bytes", "decimal"), "categorical"),
    "decimal of a text": ("string", "1", logical("string", "decimal", precision=2), "categorical"),
    "scale above precision": (
        ("bytes", b"1", logical("bytes", "decimal", precision=2, scale=3), "categorical")
    ),
    "precision beyond the size": (
        (FIXED, b"12", logical(FIXED, "decimal", precision=30), "categorical")
    ),
    "date as long": ("long", 7, logical("long", "date"), "integer"),
    "milliseconds as int": ("int", 7, logical("int", "timestamp-millis"), "integer"),
    "time of day as long": ("long", 7, logical("long", "time-millis"), "integer"),
    "uuid of two bytes": (FIXED, b"12", logical(FIXED, "uuid"), "categorical"),
    "uuid as bytes": ("bytes", b"12", logical("bytes", "uuid"), "categorical"),
    "duration of two bytes": (FIXED, b"12", logical(FIXED, "duration"), "categorical"),
}
OTHERWISE = {
    "wrong default": ("int", 7, schema_of("int", default="seven"), "integer"),
    "wrong default of an array": (
        ("int", 7, schema_of("int", default={"type": "error"}), "integer")
    ),
    "wrong default of an enum": (
        {"type": "enum", "name": "C", "symbols": ["a", "b"]}, "b",
        schema_of({"type": "enum", "name": "C", "symbols": ["a", "b"], "default": "z"}),
        "categorical",
    ),
    "aliases": ("int", 7, schema_of("int", aliases="none"), "integer"),
    "type of a type": ("int", 7, schema_of({"type": {"type": "int"}}), "integer"),
}  # fmt: skip
CASES = {
    **{name: (kind, value, schema_of(x), typ) for name, (kind, value, x, typ) in IGNORED.items()},
    **OTHERWISE,
}


@pytest.mark.parametrize("case", CASES)
def test_invalid_extras_of_a_schema_are_ignored(tmp_path, case):
    stored, value, schema, kind = CASES[case]
    path = written(tmp_path / "a.avro", stored, value, schema)
    (batch,) = dp.ReadRecords(path).batches(["x", "y"], [])
    expected = value.encode() if isinstance(value, str) else value
    assert [column.to_pylist() for column in batch.columns] in (
        [[expected], ["plain"]],
        [[value], ["plain"]],
    )
    drafted = dp.domain_draft(path)
    assert drafted.attributes[0]["type"] == {"integer": "numeric"}.get(kind, kind)
    assert drafted == dp.domain_draft(
        written(tmp_path / "a.avro", stored, value, schema_of(stored))
    )  # as if nothing invalid were there


def test_records_and_big_decimals_have_no_levels(tmp_path):
    schema = {**schema_of({**E, "type": "error"}), "type": "error"}
    path = written(tmp_path / "a.avro", E, {"a": 1}, schema)
    (batch,) = dp.ReadRecords(path).batches(["y"], [])
    assert batch.to_pylist() == [{"y": "plain"}]
    with pytest.raises(dp.InputError, match="it is record"):
        dp.ReadRecords(path).check_column("domain", "x")
    path = written(tmp_path / "a.avro", "bytes", b"12", schema_of(logical("bytes", "big-decimal")))
    with pytest.raises(dp.InputError, match="it is big-decimal"):
        dp.ReadRecords(path).check_column("domain", "x", dp.NumericAttribute("x", (0.0, 1.0)))


@pytest.mark.parametrize(
    ("schema", "codec", "reason"),
    [
        (schema_of("string"), "lzma", "Unrecognized codec: lzma"),
        (schema_of("string"), "lz4", "lz4"),
        (schema_of("string"), "LZ77 é", "Unrecognized codec"),
        (schema_of("nothing"), "null", "must have a valid schema: nothing"),
        (schema_of({"type": "enum", "name": "C", "symbols": ["a-b"]}), "null", "Every symbol must"),
    ],
)
def test_what_no_reader_here_takes_is_refused_with_its_reason(tmp_path, schema, codec, reason):
    path = written(tmp_path / "a.avro", "string", "a", schema, codec)
    with pytest.raises(dp.InputError, match=reason) as error:
        dp.ReadRecords(path)
    assert "\n" not in str(error.value)
