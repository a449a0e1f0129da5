"""Files of synthetic databases: the card, the tables in Avro, and what reads and writes the whole.

Blocks of tables are not compressed: how long a file is depends only on the shapes of its tables.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_choice, is_number
from beam_dp.domain.files import domain_from_json
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.reader import LinearQueries
from beam_dp.queries.workload import workload_from_json
from beam_dp.releases.files import avro
from beam_dp.releases.files.avro import file_name
from beam_dp.releases.files.card import Card, Payload, is_count
from beam_dp.releases.synthetic_database.measured_tables import MeasuredTable, Names
from beam_dp.releases.synthetic_database.noisy_measurements import (
    PROVED,
    IndependentTables,
    NoisyMeasurements,
    PairDistances,
)
from beam_dp.releases.synthetic_database.records import (
    MAX_BIN_VALUES,
    RECORDS_FORMATS,
    WITHIN_BINS,
    num_bin_values,
)
from beam_dp.releases.synthetic_database.records_columns import columns_bytes, read_columns
from beam_dp.releases.synthetic_database.records_file import (
    Records,
    read_records,
    records_bytes,
    records_file,
)
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.storage.store import DamagedFileError

Tables = Iterable[tuple[Names, NDArray[np.float64]]]

_TABLE_FIELDS = [
    {"name": "attributes", "type": {"type": "array", "items": "string"}},
    {"name": "shape", "type": {"type": "array", "items": "long"}},
    {"name": "values", "type": {"type": "array", "items": "double"}},
]
SCHEMAS: dict[str, dict[str, Any]] = {
    "hypothesis": {
        "type": "record",
        "name": "LogPotential",
        "doc": "The weight of a cell is proportional to exp of the sum of these tables at its"
        " codes.",
        "fields": _TABLE_FIELDS,
    },
    "independent": {
        "type": "record",
        "name": "IndependentLogPotential",
        "doc": "The same of independent attributes, which scores of pairs are distances from.",
        "fields": _TABLE_FIELDS,
    },
    "measurements": {
        "type": "record",
        "name": "NoisyTable",
        "doc": "A noisy table as it was drawn, in records; the card says what each of them is.",
        "fields": _TABLE_FIELDS,
    },
}


def table_bytes(purpose: str, draw_id: str, tables: Tables) -> bytes:
    """Returns the file of tables over attributes in domain order, for a purpose in ``SCHEMAS``."""
    records = (
        {"attributes": names, "shape": table.shape, "values": table} for names, table in tables
    )
    return avro.write_records(SCHEMAS[purpose], draw_id, purpose, records)


def read_tables(
    purpose: str, data: bytes, domain: Domain
) -> list[tuple[Names, NDArray[np.float64]]]:
    """Returns the tables in a file."""
    tables = []
    for each in avro.read_records(data, SCHEMAS[purpose]):
        names, values = tuple(each["attributes"]), each["values"]
        axes = domain.axes(names) if all(name in domain for name in names) else None
        if axes is None or list(axes) != sorted(set(axes)):
            raise DamagedFileError("has a table of attributes that are not in its domain")
        shape = [domain.shape[axis] for axis in axes]
        if each["shape"].tolist() != shape or values.size != math.prod(shape):
            raise DamagedFileError("has a table whose shape is not its domain's")
        tables.append((names, values.reshape(shape)))
    return tables


_INDEPENDENT = "independent"  # of the card, and of the file
_TYPES = {
    "mechanism": str,
    "guarantee": dict,
    "num_records": dict,
    "domain": dict,
    "workload": dict,
    "parameters": dict,
    "noise": list,
    "errors": list,
    "fit": dict,
    "record_tables": list,
}


def payload(release: SyntheticDatabase) -> dict[str, bytes]:
    """Returns the files, by name."""
    draw_id = release.draw_id
    records = records_bytes if release.records_format == "avro" else columns_bytes
    files = {
        records_file(draw_id, release.records_format): records(release),
        file_name(draw_id, "hypothesis"): table_bytes("hypothesis", draw_id, release.potentials),
    }
    measured = release.measurements
    if measured is not None:
        names = [each.names for each in measured.described]
        tables = zip(names, measured.tables, strict=True)
        files[file_name(draw_id, "measurements")] = table_bytes("measurements", draw_id, tables)
        distances = measured.distances
        if distances is not None and distances.independent is not None:
            potentials = distances.independent.potentials
            files[file_name(draw_id, _INDEPENDENT)] = table_bytes(_INDEPENDENT, draw_id, potentials)
    return files


def read(card: Card, payload: Payload) -> SyntheticDatabase:
    """Returns the release of a card and its payload."""
    draw_id = card.draw_id
    records_format = card.fields.get("records_format", "avro")
    check_choice("records_format", records_format, RECORDS_FORMATS)
    parsed = card.fields
    purposes = ["hypothesis", *(["measurements"] if "measurements" in parsed else [])]
    if _holds_independent(parsed):
        purposes.append(_INDEPENDENT)
    files = [file_name(draw_id, purpose) for purpose in purposes]
    card.check_files([records_file(draw_id, records_format), *files])
    card.check_types(_TYPES)
    record_tables = parsed["record_tables"]
    if not all(map(_are_texts, record_tables)):
        raise InputError("record_tables", record_tables, "must be lists of attribute names")
    number = next(iter(parsed["num_records"]), None)
    num_records = parsed["num_records"].get(number)
    is_one = len(parsed["num_records"]) == 1 and number in ("public", "noisy")
    if not is_one or not is_count(num_records):
        condition = 'must be {"public": N} or {"noisy": N} with N >= 0'
        raise InputError("num_records", number, condition)
    if not all(isinstance(entry, dict) for entry in parsed["noise"]):
        raise InputError("noise", len(parsed["noise"]), "must be a list of JSON objects")
    domain = domain_from_json(parsed["domain"], "card")
    represented = parsed.get("num_represented")
    if represented is not None and not (is_count(represented) and represented):
        raise InputError("num_represented", represented, "must be an integer >= 1")
    queries = parsed.get("queries", [])
    if not isinstance(queries, list):
        raise InputError("queries", type(queries).__name__, "must be a list")
    make = LinearQueries(domain) if queries else None
    shared = {
        "record_tables": [tuple(names) for names in record_tables],
        "num_represented": represented,
        "queries": [make.from_json(query) for query in queries] if make else [],
        "query_error": _error_values(parsed.get("query_error", {})),
        "guarantee": Guarantee.from_json(parsed["guarantee"]),
        "workload": workload_from_json(parsed["workload"], domain),
        "errors": dict(_error_of(entry, domain) for entry in parsed["errors"]),
        "left_out": card.left_out(domain),
        "plan": parsed["parameters"],
        **{name: parsed[name] for name in ("mechanism", "noise", "fit", "versions")},
    }
    tables = {}
    for purpose, name in zip(purposes, files, strict=True):
        parse = partial(read_tables, purpose, domain=domain)
        tables[purpose] = payload.read(name, parse)
    records = _records(card, payload, domain, num_records)
    return SyntheticDatabase(
        draw_id=draw_id,
        domain=domain,
        num_records=num_records,
        num_records_is_public=number == "public",
        **records._asdict(),
        records_format=records_format,
        potentials=tables["hypothesis"],
        measurements=_measurements(parsed, domain, tables),
        **shared,
    )


def _holds_independent(parsed: Mapping[str, Any]) -> bool:
    """Whether a card states the distribution that scores are distances from."""
    measured = parsed.get("measurements")
    distances = measured.get("distances") if isinstance(measured, dict) else None
    return isinstance(distances, dict) and _INDEPENDENT in distances


def _measurements(
    parsed: Mapping[str, Any],
    domain: Domain,
    tables: Mapping[str, list[tuple[Names, NDArray[np.float64]]]],
) -> NoisyMeasurements | None:
    """The noisy tables, as the noise of the card describes them."""
    if "measurements" not in tables:
        return None
    stated = parsed["measurements"]
    if not isinstance(stated, dict) or not isinstance(stated.get("fixed"), bool):
        raise InputError("measurements", type(stated).__name__, "must say whether they are fixed")
    bounds = {} if stated["fixed"] else {"bounds": PROVED}
    if {name: stated[name] for name in stated if name not in ("fixed", "distances")} != bounds:
        condition = f"must be {PROVED} for measurements that noise chose, and absent for fixed ones"
        raise InputError("bounds", stated.get("bounds"), condition)
    described = tuple(MeasuredTable.from_json(each, domain) for each in parsed["noise"])
    if [each.names for each in described] != [names for names, _ in tables["measurements"]]:
        raise InputError("measurements", len(described), "must be those of the card's noise")
    drawn = tuple(table for _, table in tables["measurements"])
    scored = stated.get("distances")
    independent = None
    if scored is not None and _INDEPENDENT in tables:
        independent = IndependentTables.from_json(
            scored[_INDEPENDENT], tables[_INDEPENDENT], domain
        )
    distances = None if scored is None else PairDistances.from_json(scored, domain, independent)
    return NoisyMeasurements(described, drawn, stated["fixed"], distances)


def _records(card: Card, payload: Payload, domain: Domain, num_records: int) -> Records:
    """The records; cards without ``within_bins`` are of midpoints, without a format of Avro."""
    within_bins = card.fields.get("within_bins", "midpoint")
    check_choice("within_bins", within_bins, WITHIN_BINS)
    is_drawn = within_bins == "uniform"
    if is_drawn and num_bin_values(domain, num_records) > MAX_BIN_VALUES:
        raise InputError("within_bins", within_bins, "must be midpoint for this many records")
    records_format = card.fields.get("records_format", "avro")

    def read_file(data: bytes) -> Records:
        if records_format == "avro":
            return read_records(data, domain, num_records, is_drawn=is_drawn)
        return read_columns(data, domain, num_records, records_format, is_drawn=is_drawn)

    return payload.read(records_file(card.draw_id, records_format), read_file)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _error_of(entry: Any, domain: Domain) -> tuple[Names, dict[str, float | None]]:
    if not isinstance(entry, dict) or not _are_texts(entry.get("marginal")):
        raise InputError("errors", type(entry).__name__, "must each name a marginal")
    names = tuple(entry["marginal"])
    domain.axes(names)
    values = {name: value for name, value in entry.items() if name != "marginal"}
    return names, _error_values(values)


def _error_values(values: Any) -> dict[str, float | None]:
    if not isinstance(values, dict):
        raise InputError("query_error", type(values).__name__, "must be a JSON object")
    for name, value in values.items():
        if value is not None and not (is_number(value) and 0 <= value <= sys.float_info.max):
            raise InputError("errors", name, "must be finite numbers >= 0, or null")
    return values
