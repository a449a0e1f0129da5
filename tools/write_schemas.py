"""Writes the JSON schemas of cards, domain files and ledgers, from the code that reads them.

`make generated` writes beam_dp/views/*.schema.json, which `beam-dp describe --schema` prints.
Tests fail while what is committed is not what this makes.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))  # for what is in this checkout

from pydantic import TypeAdapter

from beam_dp.domain import discover, files as domain_files, readings
from beam_dp.privacy import loss
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger import filters
from beam_dp.privacy.ledger.entries import Dataset, Entry
from beam_dp.releases.files.card import CARD, HORIZON
from beam_dp.releases.parts import KINDS, part
from beam_dp.storage.avro import SCHEMA_VERSION

FOLDER = pathlib.Path(__file__).parents[1] / "beam_dp" / "views"
Schema = dict[str, Any]

_NAMES = {str: "string", dict: "object", list: "array", int: "integer", bool: "boolean"}
_ID: Schema = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
_TEXTS: Schema = {"type": "array", "items": {"type": "string"}}
_NUMBERS: Schema = {"type": "array", "items": {"type": "number"}}
_NUMBER, _SWITCH = {"type": "number"}, {"type": "boolean"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_PLACE: Schema = {"type": ["number", "string"]}


def _object(fields: Mapping[str, Schema], optional: Iterable[str] = ()) -> Schema:
    """Returns the schema of an object with these fields and no others."""
    needed = [name for name in fields if name not in optional]
    described = {
        name: {"description": _WORDS[name], **schema} if name in _WORDS else schema
        for name, schema in fields.items()
    }
    return {
        "type": "object",
        "properties": described,
        "required": needed,
        "additionalProperties": False,
    }


_FIELDS: dict[str, Schema] = {
    "domain": {"$ref": "#/$defs/domain"},
    "attribute": {"$ref": "#/$defs/attribute"},
    "guarantee": {"$ref": "#/$defs/Guarantee"},
    "draw_id": _ID,
    "horizon_id": _ID,
    "kind": {"enum": [*KINDS, "horizon"]},
    "level": {"enum": ["window", "block"]},
    "records_format": {"enum": ["parquet", "csv"]},
    "num_answers": _COUNT,
    "num_refused": _COUNT,
    "record_tables": {"type": "array", "items": _TEXTS},
    "versions": {"type": "object", "additionalProperties": {"type": "string"}},
}
_WORDS = {
    "schema_version": "The version of all files of the release.",
    "kind": "The kind of release, which decides about the other fields.",
    "draw_id": "The random id of the draw of noise, in the name of each file.",
    "horizon_id": "The random id of a stream, in the cards of all its windows.",
    "mechanism": "The differentially private algorithm.",
    "guarantee": "The guarantee of this release and of earlier stages that it states.",
    "epsilon": "The privacy loss.",
    "delta": "The probability of a larger loss; 0 in pure differential privacy.",
    "neighboring": "How the two data sets differ that the guarantee makes hard to distinguish.",
    "privacy_unit": "The column whose values are protected with all their records, or record.",
    "max_records_per_unit": "The largest number of records that are used of a unit.",
    "domain": "The public declaration of the columns.",
    "attribute": "The public declaration of the column that is counted.",
    "workload": "The marginals for which the noise was planned, with their weights.",
    "num_records": "The number of released records; noisy if the true number is private.",
    "num_represented": "The number of records of the data, if more or fewer are released.",
    "parameters": "The public parameters of the plan.",
    "plan": "The public parameters of the plan.",
    "noise": "The distribution and the scale of the noise of each measurement.",
    "errors": "Standard errors and bounds of answers, in records.",
    "fit": "How the distribution was fitted to the noisy tables.",
    "measurements": "Whether the measurements were fixed, and distances between pairs of columns.",
    "left_out": "Noisy counts of records outside the domain.",
    "not_described": "Columns that the released records describe badly, with the reasons.",
    "discovered": "The earlier release of values and bins, which was paid for together.",
    "records_per_unit": "The earlier release of the number of records per unit.",
    "within_bins": "How values within bins were drawn.",
    "versions": "The versions of Python and of libraries that made the release.",
    "files": "The checksum and the size in bytes of each file of the release.",
    "promise": "The guarantee of the stream in words.",
    "worst_case": "The loss of all windows together.",
    "start": "The start, in seconds since 1970.",
    "end": "The end, in seconds since 1970.",
    "spent_epsilon": "What was spent, at the delta of the budget.",
    "filters": "The measures of loss by which the next release may be counted.",
    "remaining_epsilon": "The largest epsilon of one more release, by the kind of its noise.",
    "remaining_slack": "The delta for a release that may fail with some probability.",
    "composition": "How the releases of the dataset add up.",
    "state": "released: complete; submitted: noise may have been drawn; spent: paid.",
    "origin": "Who paid, why, and where the release went, as they stated it.",
    "spent_at": "The time of the payment, in UTC.",
    "other": "Whether values outside the declared ones have a level.",
    "nullable": "Whether null has a level.",
    "discover": "What a release finds with a part of its budget.",
    "impossible": "Combinations of levels that no record has.",
    "determines": "Columns that follow from other columns, with the mapping of their levels.",
}


def _field(name: str, kind: type, *, may_be_null: bool = False) -> Schema:
    if name in _FIELDS:
        return _FIELDS[name]
    return {"type": [_NAMES[kind], "null"] if may_be_null else _NAMES[kind]}


def _of_kind(kind: str) -> Schema:
    """Returns the schema of the cards of a kind, from what its reader checks."""
    module = part(kind, "horizon_files" if kind == "horizon" else "files")
    types: Mapping[str, type] = module.TYPES
    optional: Mapping[str, type] = getattr(module, "OPTIONAL", {})
    file = _object({"sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"}, "bytes": _COUNT})
    fields: dict[str, Schema] = {"schema_version": {"const": SCHEMA_VERSION}}
    fields |= {name: _field(name, kind) for name, kind in types.items()}
    fields |= {"kind": {"const": kind}, "versions": _FIELDS["versions"]}
    fields |= {name: _field(name, kind, may_be_null=True) for name, kind in optional.items()}
    if kind != "horizon":
        fields |= {"draw_id": _ID, "files": {"type": "object", "additionalProperties": file}}
    if "workload" in fields:
        fields["workload"] = {"$ref": "#/$defs/workload"}
    if "num_records" in fields:
        fields["num_records"] = {"oneOf": [_object({name: _COUNT}) for name in ("public", "noisy")]}
    if types.get("noise") is list:
        fields["noise"] = {"type": "array", "items": {"type": "object"}}
    # What else a card of answers has depends on the mechanism.
    return _object(fields, optional) | ({"additionalProperties": True} if kind == "answers" else {})


def _attribute(kind: str) -> Schema:
    """Returns the schema of the entries of one type of attribute in a domain file."""
    end = {"type": "integer"} if kind == "integer" else _PLACE
    origin = _object({"draw_id": _ID, "ledger_release": {"type": "string"}}, ["ledger_release"])
    forms: dict[str, Schema] = {
        **dict.fromkeys(("other", "nullable", "trim", "whole", "clip", "any_type"), _SWITCH),
        **{key: {"type": "array"} for key in ("true_values", "false_values", "null_values")},
        **dict.fromkeys(("values_from", "edges_from"), origin),
        **{key: {"type": "integer", "minimum": 1} for key in ("bins", "max_values")},
        **dict.fromkeys(("min", "max"), end),
        "name": {"type": "string", "minLength": 1},
        "type": {"const": kind},
        "values": {"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 1},
        "edges": {"type": "array", "items": _PLACE, "minItems": 2},
        "include": _TEXTS,
        "case": {"enum": ["exact", "ignore"]},
    }
    open_keys = ("name", "type", *discover._SHARED)
    if kind == readings.UNTYPED:
        return _object({key: forms[key] for key in open_keys}, discover._SHARED)
    _, required, optional = domain_files._KINDS[kind]
    keys = ("name", "type", *required, *optional, *domain_files._SHARED)
    declared = _object({key: forms[key] for key in keys}, set(keys) - {"name", "type", *required})
    if kind == "numeric":
        declared["required"].remove("edges")
        width = {"required": list(domain_files._EQUAL_WIDTH)}
        declared["oneOf"] = [{"required": ["edges"]}, width]
    if kind not in discover.OPEN_KINDS:
        return declared
    chosen = discover.DiscoverValues if kind == "categorical" else discover.DiscoverBins
    first, *rest = discover._KEYS[chosen]
    more = {"categorical": (), "numeric": ("whole", "other")}.get(kind, ("other",))
    optional = (*more, *discover._SHARED, "any_type")
    found = {key: forms[key] for key in (*open_keys[:2], *optional)}
    found["discover"] = _object({key: forms[key] for key in (first, *rest)}, rest)
    return {
        "if": {"required": ["discover"]},
        "then": _object(found, optional),
        "else": declared,
    }


def _by(name: str, kinds: Iterable[str]) -> Schema:
    """Returns the schema of objects whose field ``name`` names their schema."""
    names = list(kinds)
    cases = [
        {
            "if": {"properties": {name: {"const": each}}, "required": [name]},
            "then": {"$ref": f"#/$defs/{name} {each}".replace(" ", "_")},
        }
        for each in names
    ]
    return {
        "type": "object",
        "required": [name],
        "properties": {name: {"enum": names}},
        "allOf": cases,
    }


def _closed(schema: Any) -> Any:
    """Returns a schema of pydantic whose objects have all fields and no others."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "properties" in schema:
        return _object({name: _closed(each) for name, each in schema["properties"].items()})
    dropped = ("title", "description", "default", "$defs")
    return {name: _closed(each) for name, each in schema.items() if name not in dropped}


def _classes(*classes: type) -> dict[str, Schema]:
    """Returns the definitions of dataclasses as their ``to_json`` writes them."""
    defs: dict[str, Schema] = {}
    for each in classes:
        schema = TypeAdapter(each).json_schema(mode="serialization")
        defs |= {name: _closed(inner) for name, inner in schema.get("$defs", {}).items()}
        defs[each.__name__] = _closed(schema)
    if "Loss" in defs:
        defs["Loss"] = _object(dict.fromkeys(loss.FIELDS, _NUMBER), set(loss.FIELDS) - {"rho"})
    return defs


def _domain_definitions() -> dict[str, Schema]:
    types = [*domain_files._KINDS, readings.UNTYPED]
    long = _object(
        {
            "attributes": {
                "type": "array",
                "items": {"$ref": "#/$defs/attribute"},
                "minItems": 1,
            },
            "impossible": {"type": "array", "items": {"type": "object"}},
            "determines": {"type": "object"},
            "types_from": {"const": "data"},
        },
        ["impossible", "determines", "types_from"],
    )
    sizes = {"type": "integer", "minimum": 1}
    return {
        "domain": {
            "if": {"properties": {"attributes": {"type": "array"}}, "required": ["attributes"]},
            "then": long,
            "else": {"type": "object", "additionalProperties": sizes, "minProperties": 1},
        },
        "attribute": _by("type", types),
        **{f"type_{kind}": _attribute(kind) for kind in types},
    }


def schemas() -> dict[str, Schema]:
    """Returns the schemas of cards, domain files and exported ledgers, by name."""
    kinds = [*KINDS, "horizon"]
    workload = _object({"marginals": {"type": "array", "items": _TEXTS}, "weights": _NUMBERS})
    card = _by("kind", kinds) | {
        "$defs": {
            **{f"kind_{kind}": _of_kind(kind) for kind in kinds},
            **_classes(Guarantee),
            **_domain_definitions(),
            "workload": workload,
        }
    }
    classes = _classes(Dataset, Entry)
    remaining = _object(dict.fromkeys(loss.KINDS, _NUMBER))
    dataset, entry = classes.pop("Dataset")["properties"], classes.pop("Entry")["properties"]
    states = {"enum": ["spent", "submitted", "released"]}
    entry |= {"release_id": {"type": "string"}, "state": states}
    dataset |= {
        "spent_epsilon": _NUMBER,
        "filters": {"type": "array", "items": {"enum": list(filters.UNITS)}},
        "remaining_epsilon": remaining,
        "remaining_slack": _NUMBER,
        "entries": {"type": "array", "items": _object(entry)},
    }
    datasets = {"type": "array", "items": _object(dataset)}
    return {
        "card": {"title": f"{CARD} or {HORIZON} of a release of beam_dp", **card},
        "domain": {
            "title": "A domain file of beam_dp",
            "$ref": "#/$defs/domain",
            "$defs": _domain_definitions(),
        },
        "ledger": {
            "title": "What `beam-dp ledger URL --json` prints",
            **_object({"ledger": {"type": "string"}, "datasets": datasets}),
            "$defs": classes,
        },
    }


def text_of(schema: Schema) -> str:
    """Returns the text of a schema's file."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps({**head, **schema}, indent=1) + "\n"


if __name__ == "__main__":
    for name, schema in schemas().items():
        path = FOLDER / f"{name}.schema.json"
        path.write_text(text_of(schema), encoding="utf-8")
        print(path.relative_to(FOLDER.parents[1]))
