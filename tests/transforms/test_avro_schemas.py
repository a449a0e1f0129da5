"""Avro schemas that Apache's reader takes are read like there, or refused before payment."""

from __future__ import annotations

import io
import json
import pathlib
from typing import Any

import fastavro
import pytest

from beam_dp.domain.ordered import NumericAttribute
from beam_dp.errors import InputError
from beam_dp.releases.files.avro import HEADER, encode, read_metadata
from beam_dp.schemas.read import domain_draft
from beam_dp.transforms import ReadRecords

E = {"type": "record", "name": "E", "fields": [{"name": "a", "type": "int"}]}
FIXED = {"type": "fixed", "name": "F", "size": 2}


def record(x: Any, **more: Any) -> dict[str, Any]:
    fields = [{"name": "x", "type": x, **more}, {"name": "y", "type": "string"}]
    return {"type": "record", "name": "R", "fields": fields}


def written(path: pathlib.Path, stored: Any, value: Any, schema: Any, codec: str = "null") -> str:
    """A file of one record, stored by one schema, whose header has another one."""
    sink = io.BytesIO()
    fastavro.writer(sink, record(stored), [{"x": value, "y": "plain"}])
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
    "wrong default": ("int", 7, record("int", default="seven"), "integer"),
    "wrong default of an array": (
        ("int", 7, record("int", default={"type": "error"}), "integer")
    ),
    "wrong default of an enum": (
        {"type": "enum", "name": "C", "symbols": ["a", "b"]}, "b",
        record({"type": "enum", "name": "C", "symbols": ["a", "b"], "default": "z"}),
        "categorical",
    ),
    "aliases": ("int", 7, record("int", aliases="none"), "integer"),
    "type of a type": ("int", 7, record({"type": {"type": "int"}}), "integer"),
}  # fmt: skip
CASES = {
    **{name: (kind, value, record(x), typ) for name, (kind, value, x, typ) in IGNORED.items()},
    **OTHERWISE,
}


@pytest.mark.parametrize("case", CASES)
def test_invalid_extras_of_a_schema_are_ignored(tmp_path, case):
    stored, value, schema, kind = CASES[case]
    path = written(tmp_path / "a.avro", stored, value, schema)
    (batch,) = ReadRecords(path).batches(["x", "y"], [])
    expected = value.encode() if isinstance(value, str) else value
    assert [column.to_pylist() for column in batch.columns] in (
        [[expected], ["plain"]],
        [[value], ["plain"]],
    )
    drafted = domain_draft(path)
    assert drafted.attributes[0]["type"] == {"integer": "numeric"}.get(kind, kind)
    assert drafted == domain_draft(
        written(tmp_path / "a.avro", stored, value, record(stored))
    )  # as if nothing invalid were there


def test_error_is_a_record(tmp_path):
    schema = {**record({**E, "type": "error"}), "type": "error"}
    path = written(tmp_path / "a.avro", E, {"a": 1}, schema)
    (batch,) = ReadRecords(path).batches(["y"], [])
    assert batch.to_pylist() == [{"y": "plain"}]
    with pytest.raises(InputError, match="it is record"):
        ReadRecords(path).check_column("domain", "x")


@pytest.mark.parametrize(
    ("schema", "codec", "reason"),
    [
        (record("string"), "lzma", "Unrecognized codec: lzma"),
        (record("string"), "LZ77 é", "Unrecognized codec"),
        (record("nothing"), "null", "must have a valid schema: nothing"),
        (record({"type": "enum", "name": "C", "symbols": ["a-b"]}), "null", "Every symbol must"),
    ],
)
def test_what_no_reader_here_takes_is_refused_with_its_reason(tmp_path, schema, codec, reason):
    path = written(tmp_path / "a.avro", "string", "a", schema, codec)
    with pytest.raises(InputError, match=reason) as error:
        ReadRecords(path)
    assert "\n" not in str(error.value)


def test_numbers_as_apache_stores_big_decimals_are_refused(tmp_path):
    path = written(tmp_path / "a.avro", "bytes", b"12", record(logical("bytes", "big-decimal")))
    with pytest.raises(InputError, match="it is big-decimal"):
        ReadRecords(path).check_column("domain", "x", NumericAttribute("x", (0.0, 1.0)))
