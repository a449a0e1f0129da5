"""Files of synthetic databases: the card, the tables and records in Avro.

Blocks of tables are not compressed, so the length of a file depends only on the table shapes.

Records have the users' own columns and values, in the random order of the draw. Reading accepts
records in any order. fastavro takes 3 microseconds for a record of 8 columns; encoding each
distinct value once and joining or splitting the bytes of records is 10 times as fast.
"""

from __future__ import annotations

import datetime
import io
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_choice, is_number
from beam_dp.domain.attributes import Attribute, Value
from beam_dp.domain.dates import TimeAttribute
from beam_dp.domain.files import domain_from_json
from beam_dp.domain.ordered import BinnedAttribute, IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.reader import LinearQueries
from beam_dp.queries.workload import workload_from_json
from beam_dp.releases.files import avro
from beam_dp.releases.files.avro import read_blocks
from beam_dp.releases.files.card import Card, Payload, is_count
from beam_dp.releases.synthetic_database.measured_tables import (
    PROVED,
    IndependentTables,
    MeasuredTable,
    Names,
    NoisyMeasurements,
    PairDistances,
)
from beam_dp.releases.synthetic_database.records import (
    MAX_BIN_VALUES,
    OUTSIDE,
    RECORDS_FORMATS,
    WITHIN_BINS,
    ReadRecords,
    Records,
    avro_names,
    num_bin_values,
    number_levels,
    records_file,
)
from beam_dp.releases.synthetic_database.records_columns import columns_bytes, read_columns
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
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
    for each in avro.read_records(data, SCHEMAS[purpose]):
        names, values = tuple(each["attributes"]), each["values"]
        axes = domain.axes(names) if all(name in domain for name in names) else None
        if axes is None or list(axes) != sorted(set(axes)):
            raise DamagedFileError("has a table with attributes that are not in its domain")
        shape = [domain.shape[axis] for axis in axes]
        if each["shape"].tolist() != shape or values.size != math.prod(shape):
            raise DamagedFileError("has a table with another shape than its domain")
        tables.append((names, values.reshape(shape)))
    return tables


_CHUNK_RECORDS = 2**14
_MOST_FORMS = 2**20  # the number of distinct records to keep as bytes, about 100 bytes per record
_MAX_NUMBER_BYTES = 11  # including the index of a union's branch
_INDEPENDENT = "independent"  # a field of the card, and the purpose of a file
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
    files = {records_file(draw_id, release.records_format): records(release)}

    def add(purpose: str, tables: Tables) -> None:
        files[avro.file_name(draw_id, purpose)] = table_bytes(purpose, draw_id, tables)

    add("hypothesis", release.potentials)
    measured = release.measurements
    if measured is not None:
        names = [each.names for each in measured.described]
        add("measurements", zip(names, measured.tables, strict=True))
        distances = measured.distances
        if distances is not None and distances.independent is not None:
            add(_INDEPENDENT, distances.independent.potentials)
    return files


def read(card: Card, payload: Payload) -> SyntheticDatabase:
    """Reads a release from its card and payload."""
    draw_id, parsed = card.draw_id, card.fields
    # Older cards state neither the format nor ``within_bins``.
    records_format = parsed.get("records_format", "avro")
    check_choice("records_format", records_format, RECORDS_FORMATS)
    purposes = ["hypothesis", *(["measurements"] if "measurements" in parsed else [])]
    if _holds_independent(parsed):
        purposes.append(_INDEPENDENT)
    files = [avro.file_name(draw_id, purpose) for purpose in purposes]
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
    within_bins = parsed.get("within_bins", "midpoint")
    check_choice("within_bins", within_bins, WITHIN_BINS)
    is_drawn = within_bins == "uniform"
    if is_drawn and num_bin_values(domain, num_records) > MAX_BIN_VALUES:
        raise InputError(
            "within_bins", within_bins, "must be midpoint for so large a number of records"
        )

    def read_file(data: bytes) -> Records:
        if records_format == "avro":
            return read_records(data, domain, num_records, is_drawn=is_drawn)
        return read_columns(data, domain, num_records, records_format, is_drawn=is_drawn)

    records = payload.read(records_file(draw_id, records_format), read_file)
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
    stated = parsed["measurements"]
    if not isinstance(stated, dict) or not isinstance(stated.get("fixed"), bool):
        raise InputError(
            "measurements", type(stated).__name__, "must state whether the measurements are fixed"
        )
    bounds = {} if stated["fixed"] else {"bounds": PROVED}
    if {name: stated[name] for name in stated if name not in ("fixed", "distances")} != bounds:
        condition = f"must be {PROVED} if noise chose the measurements, else absent"
        raise InputError("bounds", stated.get("bounds"), condition)
    described = tuple(MeasuredTable.from_json(each, domain) for each in parsed["noise"])
    if [each.names for each in described] != [names for names, _ in tables["measurements"]]:
        raise InputError("measurements", len(described), "must match the noise on the card")
    drawn = tuple(table for _, table in tables["measurements"])
    scored = stated.get("distances")
    independent = None
    if scored is not None and _INDEPENDENT in tables:
        independent = IndependentTables.from_json(
            scored[_INDEPENDENT], tables[_INDEPENDENT], domain
        )
    distances = None if scored is None else PairDistances.from_json(scored, domain, independent)
    return NoisyMeasurements(described, drawn, stated["fixed"], distances)


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


def records_schema(domain: Domain) -> dict[str, Any]:
    """Returns the Avro schema of released records.

    A column whose name is not valid in Avro keeps the name as ``doc`` and as ``original_name``. A
    binned column has ``edges`` next to its type.
    """
    fields = []
    for attribute, name in zip(domain, avro_names(domain.names), strict=True):
        entry = {"name": name, "type": attribute.avro_type()}
        if name != attribute.name:
            entry |= {"doc": attribute.name, "original_name": attribute.name}
        fields.append(entry)
    return {"type": "record", "name": "SyntheticRecord", "fields": fields}


def records_bytes(release: SyntheticDatabase) -> bytes:
    """Returns the Avro file of records; takes 0.3 us per record and 1 us per value within bins."""
    return avro.write_blocks(
        records_schema(release.domain),
        release.draw_id,
        "records",
        avro.in_blocks(_record_forms(release)),
        deflate=True,
        metadata={
            "beam_dp.mechanism": release.mechanism,
            "beam_dp.guarantee": json.dumps(release.guarantee.to_json(), ensure_ascii=False),
        },
    )


def read_records(
    data: bytes, domain: Domain, num_records: int, *, is_drawn: bool = False
) -> Records:
    """Returns the records in an Avro file; takes 0.3 us per record and 2 us per distinct record."""
    columns = [_Column(attribute, is_drawn) for attribute in domain]
    whole = re.compile(b"".join(column.pattern for column in columns), re.DOTALL)
    max_bytes = avro.BLOCK_BYTES + sum(column.max_bytes for column in columns)
    has_values = any(column.is_drawn for column in columns)
    records, forms, total = ReadRecords(domain), Counter[bytes](), 0
    # The empty block creates the columns of values even if a file has no records.
    for number, block in chain([(0, b"")], read_blocks(data, records_schema(domain), max_bytes)):
        total += number
        if total > num_records:
            raise DamagedFileError("has more records than its card says")
        found = whole.findall(block)
        if len(found) != number or sum(map(len, found)) != len(block):
            raise DamagedFileError("has records that do not match its schema or domain")
        if has_values:
            records.add_rows(*_decoded(columns, found))
            continue
        forms.update(found)
        if len(forms) > _MOST_FORMS:
            _add_counted(records, columns, forms)
    if total != num_records:
        raise DamagedFileError("has fewer records than its card says")
    _add_counted(records, columns, forms)
    return Records(*records.fields())


class _Column:
    """The Avro bytes for the values of one attribute.

    The bytes of all values are listed, except for integers and for values that were drawn within
    bins, because there may be very many of these.
    """

    def __init__(self, attribute: Attribute, is_drawn: bool) -> None:
        self.name = attribute.name
        self.is_drawn = is_drawn and isinstance(attribute, BinnedAttribute)
        self._attribute = attribute
        kind = _stored(attribute.avro_type())
        self._num_numbers, self._number, self._prefix = 0, "long", b""
        if self.is_drawn or isinstance(attribute, IntegerAttribute):
            self._num_numbers = attribute.num_levels
            self._minimum = getattr(attribute, "minimum", 0)
            if isinstance(attribute, BinnedAttribute) and attribute.whole_ends is None:
                self._number = "double"
            # The bytes that precede a value of a union.
            zero = avro.encode(self._number, 0)
            self._prefix = avro.encode(kind, 0).removesuffix(zero)
        listed = range(self._num_numbers, attribute.size)
        values = [self._plain(value) for value in attribute.decode(listed)]
        self._forms = [avro.encode(kind, value) for value in values]
        self._code_of_form = dict(zip(self._forms, listed, strict=True))
        self.max_bytes = max([_MAX_NUMBER_BYTES, *map(len, self._forms)])
        texts = {len(value.encode()) for value in values if isinstance(value, str)}
        self.pattern = _pattern(kind, texts)

    def _plain(self, value: Value) -> Value:
        """Returns a date as days since 1970, a time as microseconds, and other values unchanged."""
        if isinstance(self._attribute, TimeAttribute) and isinstance(value, datetime.date):
            return self._attribute.units(value) // self._attribute.released_units
        return value

    def encode(self, codes: NDArray[Any], drawn: NDArray[Any] | None) -> list[bytes]:
        """Returns the bytes for each code, or for the value that was drawn within the bin."""
        if not self._num_numbers:
            return [self._forms[code] for code in codes.tolist()]
        if self._number == "double":
            assert drawn is not None
            data = drawn.astype("<f8").tobytes()
            numbers = [self._prefix + data[at : at + 8] for at in range(0, len(data), 8)]
        else:
            integers = codes.astype(np.int64) + self._minimum if drawn is None else drawn
            listed = integers.tolist()
            form_of = {number: self._prefix + avro.encode("long", number) for number in set(listed)}
            numbers = [form_of[number] for number in listed]
        return [
            number if code < self._num_numbers else self._forms[code - self._num_numbers]
            for code, number in zip(codes.tolist(), numbers, strict=True)
        ]

    def decode(self, forms: Sequence[bytes]) -> tuple[NDArray[np.int64], NDArray[Any] | None]:
        """Returns the codes of encoded values and, for drawn values, the numbers (else None)."""
        code_of_form, number_of_form = self._code_of_form, dict.fromkeys(self._code_of_form, 0)
        is_real = self._number == "double"
        if unlisted := list(set(forms) - code_of_form.keys()):
            if not self._num_numbers or not all(each.startswith(self._prefix) for each in unlisted):
                raise DamagedFileError(OUTSIDE)
            bare = b"".join([each[len(self._prefix) :] for each in unlisted])
            longs = io.BytesIO(bare)
            read = np.frombuffer(bare) if is_real else avro.decode_longs(longs, len(unlisted))
            codes = number_levels(self._attribute, read).tolist()
            code_of_form = code_of_form | dict(zip(unlisted, codes, strict=True))
            number_of_form |= dict(zip(unlisted, read.tolist(), strict=True))
        codes = np.fromiter(map(code_of_form.__getitem__, forms), np.int64, len(forms))
        if not self.is_drawn:
            return codes, None
        kind = np.float64 if is_real else np.int64
        return codes, np.fromiter(map(number_of_form.__getitem__, forms), kind, len(forms))


def _stored(schema: Any) -> Any:
    """Returns the primitive types of a schema, with dates and times as integers."""
    if isinstance(schema, list):
        return [*map(_stored, schema)]
    return schema["type"] if isinstance(schema, dict) else schema


def _pattern(schema: Any, lengths: Collection[int]) -> bytes:
    """Returns a regular expression for encoded values; strings have these lengths in bytes."""
    if isinstance(schema, list):
        members = enumerate(_pattern(member, lengths) for member in schema)
        return b"(?:%b)" % b"|".join(
            re.escape(avro.encode("long", n)) + each for n, each in members
        )
    if schema == "string":
        texts = [re.escape(avro.encode("long", each)) + b".{%d}" % each for each in sorted(lengths)]
        return b"(?:%b)" % b"|".join(texts)
    long = b"[\\x80-\\xff]{0,9}[\\x00-\\x7f]"
    return {"null": b"", "boolean": b".", "double": b".{8}"}.get(schema, long)


def _decoded(
    columns: Sequence[_Column], forms: Sequence[bytes]
) -> tuple[list[NDArray[np.int64]], dict[str, NDArray[Any]]]:
    """Returns the codes of records by column, and the drawn values by attribute."""
    parts = re.compile(b"".join(b"(%b)" % each.pattern for each in columns), re.DOTALL)
    codes: list[list[NDArray[np.int64]]] = [[] for _ in columns]
    values: dict[str, list[NDArray[Any]]] = {each.name: [] for each in columns if each.is_drawn}
    for start in range(0, max(len(forms), 1), _CHUNK_RECORDS):
        # ``split`` gives a flat list with an empty item per record, which is faster than tuples.
        found = parts.split(b"".join(forms[start : start + _CHUNK_RECORDS]))
        for place, column in enumerate(columns):
            levels, numbers = column.decode(found[1 + place :: 1 + len(columns)])
            codes[place].append(levels)
            if numbers is not None:
                values[column.name].append(numbers)
    joined = {name: np.concatenate(each) for name, each in values.items()}
    return [np.concatenate(each) for each in codes], joined


def _add_counted(records: ReadRecords, columns: Sequence[_Column], forms: Counter[bytes]) -> None:
    """Moves the counted records from ``forms`` to ``records``."""
    records.add(_decoded(columns, list(forms))[0], np.array(list(forms.values()), np.int64))
    forms.clear()


def _record_forms(release: SyntheticDatabase) -> Iterator[list[bytes]]:
    """Yields the encoded records in the order of the release, in parts."""
    columns = [_Column(attribute, bool(release.bin_values)) for attribute in release.domain]

    def forms(records: NDArray[np.int64], values: Mapping[str, NDArray[Any]]) -> list[bytes]:
        encoded = [
            column.encode(codes[records], values.get(column.name))
            for column, codes in zip(columns, release.codes, strict=True)
        ]
        return [b"".join(parts) for parts in zip(*encoded, strict=True)]

    is_few = not release.bin_values and len(release.counts) <= _MOST_FORMS
    every = forms(np.arange(len(release.counts)), {}) if is_few else []
    for block in release.rows():
        if is_few:
            yield [every[record] for record in block.records.tolist()]
        elif not block.values:
            distinct = forms(block.distinct, {})
            yield [distinct[place] for place in block.which.tolist()]
        else:
            for start in range(0, len(block.which), _CHUNK_RECORDS):
                part = slice(start, start + _CHUNK_RECORDS)
                values = {name: drawn[part] for name, drawn in block.values.items()}
                yield forms(block.records[part], values)
