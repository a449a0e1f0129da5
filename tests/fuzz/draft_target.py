"""Damaged schemas of every kind that is text: a draft is made of them, or one line refuses."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
from fuzz.mutations import Choices, fuzz_folder, mutate_bytes, mutate_json, raised_by

from beam_dp.errors import InputError
from beam_dp.schemas.read import domain_draft

_AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Visit",
    "fields": [
        {"name": "age", "type": ["null", "int", "double"]},
        {"name": "sex", "type": {"type": "enum", "name": "Sex", "symbols": ["F", "M"]}},
        {"name": "other", "type": ["null", "Sex"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
_BIGQUERY = [
    {"name": "age", "type": "INTEGER", "mode": "REQUIRED"},
    {"name": "home", "type": "RECORD", "fields": [{"name": "town", "type": "STRING"}]},
]
_JSON_SCHEMA = {
    "$defs": {"Sex": {"enum": ["F", "M"], "type": "string"}, "A": {"$ref": "#/$defs/Sex"}},
    "properties": {
        "age": {"type": "integer", "minimum": 0, "exclusiveMaximum": 120},
        "sex": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]},
        "at": {"type": ["string", "null"], "format": "date-time"},
    },
}
_SIZES = {"age": 85, "sex": {"type": "discrete", "domain": 2}, "x": {"min": 0, "max": 9.5}}
_DOMAIN = {
    "attributes": [
        {"name": "age", "type": "numeric", "edges": {"open": "list edges"}},
        {"name": "sex", "type": "categorical", "values": {"confirm": ["F", "M"]}},
    ],
    "impossible": [],
}
_JSON = (_AVRO, _BIGQUERY, _JSON_SCHEMA, _SIZES, _DOMAIN)
_SQL = b"""CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE visits (age INT NOT NULL CHECK (age >= 0 AND age < 120), m mood, "se""x" CHAR(1),
CONSTRAINT c CHECK ("se""x" IN ('F', 'M') AND (age BETWEEN -1 AND 2.5)), x DOUBLE PRECISION);"""


def draft_target(data: bytes) -> None:
    """A damaged schema: JSON of one of the kinds, SQL, or the header of an Avro file."""
    choices = Choices(data)
    how = choices.number(len(_JSON) + 3)
    name = "schema.json"
    if how < len(_JSON):
        text = mutate_json(_JSON[how], choices)
        content = text.encode("utf-8", "surrogatepass")
    elif how == len(_JSON):
        name, content = "schema.sql", mutate_bytes(_SQL, choices)
    elif how == len(_JSON) + 1:
        file = io.BytesIO()
        fastavro.writer(file, _AVRO, [], sync_marker=b"0" * 16)
        name, content = "schema.avro", mutate_bytes(file.getvalue(), choices)
    else:
        content = choices.rest()
    path = fuzz_folder() / name
    path.write_bytes(content)
    raised_by(lambda: _check(str(path)), InputError)


def _check(path: str) -> None:
    """What was drafted is a file of JSON, and is a domain once nothing is open."""
    draft = domain_draft(path)
    assert json.loads(draft.text()) == json.loads(json.dumps(draft.to_json()))
    draft.text().encode()
    if draft.open_points:
        raised_by(draft.domain, InputError)
    else:
        draft.domain()
