"""Files of synthetic databases: the card, and the tables in Avro.

Blocks of tables are not compressed, so the length of a file depends only on the table shapes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_choice, is_number
from beam_dp.domain.files import domain_from_json
from beam_dp.domain.universe import Domain, Names
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.reader import LinearQueries
from beam_dp.queries.workload import workload_from_json
from beam_dp.releases.earlier_stage import earlier_releases
from beam_dp.releases.files.card import Card, Payload, is_count
from beam_dp.releases.synthetic_database import records_avro, records_columns
from beam_dp.releases.synthetic_database.bin_sums import BinSums
from beam_dp.releases.synthetic_database.measured_tables import (
    PROVED,
    IndependentTables,
    MeasuredTable,
    NoisyMeasurements,
    PairDistances,
)
from beam_dp.releases.synthetic_database.records import (
    RECORDS_FORMATS,
    ReadRecords,
    Records,
    is_ascending,
    records_file,
)
from beam_dp.releases.synthetic_database.records_avro import read_records, records_bytes
from beam_dp.releases.synthetic_database.records_columns import columns_bytes, read_columns
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.synthetic_database.shards import (
    ROUNDING,
    WITHIN_BINS,
    RecordShard,
    drawn_columns,
    parts_of,
    row_blocks,
)
from beam_dp.storage import avro
from beam_dp.storage.store import DamagedFileError

Table = tuple[Names, NDArray[np.float64]]
Tables = Iterable[Table]

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
    """Returns the bytes of a file of tables, for a purpose in ``SCHEMAS``."""
    records = (
        {"attributes": names, "shape": table.shape, "values": table} for names, table in tables
    )
    return avro.write_records(SCHEMAS[purpose], draw_id, purpose, records)


def read_tables(purpose: str, data: bytes, domain: Domain) -> list[Table]:
    """Returns the tables in a file."""
    tables = []
    for entry in avro.read_records(data, SCHEMAS[purpose]):
        names, values = tuple(entry["attributes"]), entry["values"]
        axes = domain.axes(names) if all(name in domain for name in names) else None
        if axes is None or list(axes) != sorted(set(axes)):
            raise DamagedFileError("has a table with attributes that are not in its domain")
        shape = [domain.shape[axis] for axis in axes]
        if entry["shape"].tolist() != shape or values.size != math.prod(shape):
            raise DamagedFileError("has a table with another shape than its domain")
        tables.append((names, values.reshape(shape)))
    return tables


_DISTINCT = "distinct"
_DISTINCT_SCHEMA = {
    "type": "record",
    "name": "DistinctRecords",
    "doc": "A column of the distinct records, as codes; the first one counts equal rows.",
    "fields": [
        {"name": "column", "type": "string"},
        {"name": "values", "type": {"type": "array", "items": "long"}},
    ],
}
_INDEPENDENT = "independent"  # a field of the card, and the purpose of a file
TYPES = {
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
OPTIONAL = {
    **dict.fromkeys(("measurements", "query_error", "not_described", "bin_sums"), dict),
    **dict.fromkeys(("left_out", "discovered", "records_per_unit"), dict),
    **dict.fromkeys(("within_bins", "records_format"), str),
    "num_represented": int,
    "queries": list,
}


# The first rows, which are drawn again when a file is read.
_MOST_ROWS = 2**16
# Strategies that only unreleased versions had.
_REMOVED = ("combined", "given_tables")


def payload(release: SyntheticDatabase) -> dict[str, bytes]:
    """Returns the files except those of rows, by name."""
    draw_id, files = release.draw_id, {}

    def add(purpose: str, tables: Tables) -> None:
        files[avro.file_name(draw_id, purpose)] = table_bytes(purpose, draw_id, tables)

    add("hypothesis", release.potentials)
    measured = release.measurements
    if measured is not None:
        names = [table.names for table in measured.described]
        add("measurements", zip(names, measured.tables, strict=True))
        distances = measured.distances
        if distances is not None and distances.independent is not None:
            add(_INDEPENDENT, distances.independent.potentials)
    if release.num_shards > 1:
        files |= distinct_records(release)
    return files


def read(card: Card, payload: Payload) -> SyntheticDatabase:
    """Reads a release from its card and payload."""
    draw_id, parsed = card.draw_id, card.fields
    # Older cards state neither the format nor ``within_bins`` nor ``not_described``.
    records_format = parsed.get("records_format", "avro")
    check_choice("records_format", records_format, RECORDS_FORMATS)
    purposes = ["hypothesis", *(["measurements"] if "measurements" in parsed else [])]
    if _holds_independent(parsed):
        purposes.append(_INDEPENDENT)
    files = [avro.file_name(draw_id, purpose) for purpose in purposes]
    num_shards = sum(name.startswith("records-") for name in card.files)
    num_shards += not num_shards and payload.rows != "absent"
    rows = [records_file(draw_id, records_format, n, num_shards) for n in range(num_shards)]
    distinct = [name for name in (avro.file_name(draw_id, _DISTINCT),) if name in card.files]
    card.check_files([*distinct, *rows, *files])
    card.check_types(TYPES)
    if (strategy := parsed["parameters"].get("strategy")) in _REMOVED:
        condition = "is a kind of release that this version does not know"
        raise InputError("strategy", strategy, condition)
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
    guarantee = Guarantee.from_json(parsed["guarantee"])
    shared = {
        "record_tables": [tuple(names) for names in record_tables],
        "num_represented": represented,
        "queries": [make.from_json(query) for query in queries] if make else [],
        "query_error": _error_values(parsed.get("query_error", {})),
        "guarantee": guarantee,
        **earlier_releases(parsed, guarantee),
        "workload": workload_from_json(parsed["workload"], domain),
        "errors": dict(_error_of(entry, domain) for entry in parsed["errors"]),
        "left_out": card.left_out(domain),
        "bin_sums": BinSums.from_json(parsed["bin_sums"], domain) if "bin_sums" in parsed else None,
        "plan": parsed["parameters"],
        **{name: parsed[name] for name in ("mechanism", "noise", "fit", "versions")},
    }
    tables = {}
    for purpose, name in zip(purposes, files, strict=True):
        parse = partial(read_tables, purpose, domain=domain)
        tables[purpose] = payload.read(name, parse)
    within_bins = parsed.get("within_bins", "midpoint")
    check_choice("within_bins", within_bins, WITHIN_BINS)
    read_rows = partial(
        _read_rows, payload, rows, domain, num_records, records_format, within_bins != "midpoint"
    )
    if not distinct:
        records = read_rows()
    else:
        records = payload.read(distinct[0], partial(_read_distinct, domain=domain))
        if payload.rows == "checked":
            _check_same(records, read_rows())
        else:
            for name in rows:
                payload.read(name, lambda _: None)  # compares the checksum
    release = SyntheticDatabase(
        draw_id=draw_id,
        domain=domain,
        num_records=num_records,
        num_records_is_public=number == "public",
        codes=records.codes,
        counts=records.counts,
        within_bins=within_bins,
        records_format=records_format,
        potentials=tables["hypothesis"],
        measurements=_measurements(parsed, domain, tables),
        **shared,
    )
    if not distinct or payload.rows == "checked":
        payload.read(rows[0], partial(_check_first_rows, release, num_shards))
    if payload.rows != "absent" and "not_described" in parsed:
        reasons = parsed["not_described"]
        if reasons != release.not_described:
            raise InputError("not_described", reasons, f"must be {release.not_described}")
    return release


def _read_rows(
    payload: Payload,
    names: Sequence[str],
    domain: Domain,
    num_records: int,
    records_format: str,
    is_drawn: bool,
) -> Records:
    """Returns the records of all files together."""
    collected, left = ReadRecords(domain), num_records
    for name in names:

        def parse(data: bytes, limit: int = left, is_part: bool = name != names[-1]) -> Records:
            read = read_records if records_format == "avro" else read_columns
            return read(data, domain, limit, records_format, is_drawn=is_drawn, is_part=is_part)

        records = payload.read(name, parse)
        collected.add(*records)
        left -= int(records.counts.sum())
    return Records(*collected.fields())


def _check_first_rows(release: SyntheticDatabase, num_files: int, data: bytes) -> None:
    """Refuses the first file of records unless the draw makes its rows with this card.

    Order and values within bins follow from the draw id, the domain and ``within_bins``. Another
    machine may round the end of a piece of a bin otherwise, and moves a value by a millionth of it.
    """
    domain, codes = release.domain, tuple(release.codes)
    part = parts_of(release.counts, release.draw_id, num_files)[0]
    low, high = (
        next(row_blocks(part, release.draw_id, drawn_columns(domain, codes, positions)))
        for positions in (
            {name: np.clip(ends + shift, 0, 1) for name, ends in release.positions.items()}
            for shift in (-1 / ROUNDING, 1 / ROUNDING)
        )
    )
    files = records_avro if release.records_format == "avro" else records_columns
    is_drawn, start, is_same, is_sorted = bool(release.drawn), 0, True, True
    for columns in files.rows_in_order(data, domain, release.records_format, is_drawn=is_drawn):
        records = low.records[start : start + len(columns[0][0])]
        rows = slice(start, start + len(records))
        for attribute, record_codes, (stored, values) in zip(domain, codes, columns, strict=True):
            is_same = is_same and np.array_equal(stored[: len(records)], record_codes[records])
            if attribute.name in release.drawn:
                least, largest = (block.values[attribute.name][rows] for block in (low, high))
                values = values[: len(records)]
                is_same = is_same and bool(((least <= values) & (values <= largest)).all())
        is_sorted = is_sorted and is_ascending([column for column, _ in columns], may_repeat=True)
        start += len(columns[0][0])
        if start >= _MOST_ROWS:
            break
    # Version 0.1.0 wrote records in the order of codes, with values that were drawn otherwise.
    if not (is_same or (is_sorted and release.within_bins != "density")):
        raise DamagedFileError(
            "has rows in another order, or with other values within bins, than the draw_id, domain"
            " and within_bins of its card give"
        )


def _holds_independent(parsed: Mapping[str, Any]) -> bool:
    """Returns whether a card states the tables of independent attributes that scores refer to."""
    measured = parsed.get("measurements")
    distances = measured.get("distances") if isinstance(measured, dict) else None
    return isinstance(distances, dict) and _INDEPENDENT in distances


def _measurements(
    parsed: Mapping[str, Any], domain: Domain, tables: Mapping[str, list[Table]]
) -> NoisyMeasurements | None:
    """Returns the noisy tables that the noise on the card describes."""
    if "measurements" not in tables:
        return None
    entry = parsed["measurements"]
    if not isinstance(entry, dict) or not isinstance(entry.get("fixed"), bool):
        raise InputError(
            "measurements", type(entry).__name__, "must state whether the measurements are fixed"
        )
    bounds = {} if entry["fixed"] else {"bounds": PROVED}
    others = ("fixed", "distances")
    if {name: entry[name] for name in entry if name not in others} != bounds:
        condition = f"must be {PROVED} if noise chose the measurements, else absent"
        raise InputError("bounds", entry.get("bounds"), condition)
    described = tuple(MeasuredTable.from_json(step, domain) for step in parsed["noise"])
    if [table.names for table in described] != [names for names, _ in tables["measurements"]]:
        raise InputError("measurements", len(described), "must match the noise on the card")
    drawn = tuple(table for _, table in tables["measurements"])
    scored = entry.get("distances")
    independent = None
    if scored is not None and _INDEPENDENT in tables:
        independent = IndependentTables.from_json(
            scored[_INDEPENDENT], tables[_INDEPENDENT], domain
        )
    distances = None if scored is None else PairDistances.from_json(scored, domain, independent)
    return NoisyMeasurements(described, drawn, entry["fixed"], distances)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


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
        if name == "failure_probability" and value is not None and not 0 < value < 1:
            raise InputError("errors", value, "must have a failure_probability in (0, 1)")
    return values


def shard_bytes(shard: RecordShard) -> bytes:
    """Returns a file of records, in the format of the shard."""
    return records_bytes(shard) if shard.records_format == "avro" else columns_bytes(shard)


def distinct_records(release: SyntheticDatabase) -> dict[str, bytes]:
    """Returns a file with each distinct record once, and its count."""
    columns = [("", release.counts), *zip(release.domain.names, release.codes, strict=True)]
    records = ({"column": name, "values": column.astype(np.int64)} for name, column in columns)
    data = avro.write_records(_DISTINCT_SCHEMA, release.draw_id, _DISTINCT, records)
    return {avro.file_name(release.draw_id, _DISTINCT): data}


def _read_distinct(data: bytes, domain: Domain) -> Records:
    """Returns the records in a file of distinct records."""
    names, columns = [], []
    for record in avro.read_records(data, _DISTINCT_SCHEMA):
        names.append(record["column"])
        columns.append(record["values"])
    if names != ["", *domain.names]:
        raise DamagedFileError("has other columns than its domain")
    return Records(tuple(columns[1:]), columns[0])


def _check_same(records: Records, rows: Records) -> None:
    """Refuses files of rows that have other distinct records than those stated."""
    pairs = zip((*records.codes, records.counts), (*rows.codes, rows.counts), strict=True)
    if not all(np.array_equal(column, read) for column, read in pairs):
        raise DamagedFileError("does not belong to files of records with other rows")
