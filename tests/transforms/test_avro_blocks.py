from __future__ import annotations

import io
import itertools
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings, strategies as st

import beam_dp.transforms.reading.avro_blocks as avro_blocks
from beam_dp.domain.dates import DateAttribute
from beam_dp.encoding.records import encode_column
from beam_dp.releases.files.avro import encode
from beam_dp.releases.files.avro_guard import HEADER, MAGIC

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


@pytest.mark.slow
@settings(max_examples=60)
@given(
    num_records=st.sampled_from([0, 1, 300]),
    codec=st.sampled_from(["null", "deflate", "bzip2", "xz"]),
    sync_interval=st.sampled_from([10, 300, 16000]),
    chunk_bytes=st.sampled_from([5, 17, 100, 5000]),
    data=st.data(),
)
def test_ranges_cover_each_record_once(num_records, codec, sync_interval, chunk_bytes, data):
    file = write(num_records, codec, sync_interval)
    cuts = data.draw(st.lists(st.integers(0, len(file)), max_size=5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro_blocks, "_CHUNK_BYTES", chunk_bytes)
        patch.setattr(avro_blocks, "_BATCH_RECORDS", 50)
        found = read(file, cuts, ["id"])
    assert [row["id"] for row in found] == list(range(num_records))


def test_date_out_of_python_range_is_an_integer():
    assert read(write(1), [], ["born"]) == [{"born": 2**31 - 1}]


def test_union_of_types_keeps_each_value():
    assert [row["name"] for row in read(write(3), [], ["name"])] == [None, b"x", 7]


def test_text_that_is_not_utf8_affects_only_its_record():
    file = write(3).replace(b"\x02\x02x", b"\x02\x02\xff")
    none, odd, seven = (row["name"] for row in read(file, [], ["name"]))
    assert (none, seven) == (None, 7)
    with pytest.raises(UnicodeDecodeError):  # still a value that no domain declares
        odd.decode()


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_damaged_block_raises(codec):
    file = write(300, codec)
    for damaged in (file[:-3], file[:-20], file[:-16] + bytes(16)):
        with pytest.raises(Exception):  # noqa: B017 - of whatever type the parser likes
            read(damaged, [], ["id"])


def test_refuses_file_of_other_values_than_records():
    target = io.BytesIO()
    fastavro.writer(target, {"type": "long"} | {"name": "x"}, [1, 2])
    with pytest.raises(ValueError, match="record"):
        avro_blocks.read_header(io.BytesIO(target.getvalue()))


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


def test_integer_too_long_for_a_date_is_null_and_keeps_its_neighbours():
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
    days = DateAttribute("born", ("1970-01-02", "1970-01-03", "1970-01-04"))
    assert encode_column(days, batch.column("born")).tolist() == [0, -1, 1]
