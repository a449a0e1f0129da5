"""The Avro payload of a synthetic database: records and hypothesis.

Records stand in the users' own columns and values, in the random order of the draw. A reader counts
equal ones wherever they stand, so any other order is read as well.
"""

from __future__ import annotations

import datetime
import json
import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.attributes import Attribute, Value
from beam_dp.domain.dates import TimeAttribute
from beam_dp.domain.ordered import BinnedAttribute, IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.releases.files.container import (
    BLOCK_BYTES,
    check_end,
    in_blocks,
    read_container,
    sync_marker,
    write_container,
)
from beam_dp.releases.files.values import decode, encode, encode_long
from beam_dp.releases.synthetic_database.records import Codes, ReadRecords
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.storage.store import DamagedFileError

# Of an attribute, as in _Field: the codes of values that are one byte, how long the form is that
# begins with a byte, the codes of whole forms, and what reads any other value.
_Reader = tuple[list[int], list[int], dict[bytes, int], Callable[[bytes, int], tuple[int, int]]]
_CHUNK_RECORDS = 2**16
_LISTED_CODES = 2**12
_MOST_FORMS = 2**20  # distinct records that are kept as bytes, about 100 each
_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def records_file(draw_id: str, records_format: str = "avro") -> str:
    """Returns the name of the file of records."""
    return f"records-{draw_id}-00000-of-00001.{records_format}"


def avro_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns a distinct name that Avro allows for each; allowed ones stay as they are.

    Example:
        >>> avro_names(("age", "in/out of bed", "in out of bed", "2nd"))
        ('age', 'in_out_of_bed', 'in_out_of_bed_2', '_2nd')
    """
    taken = {name for name in names if _AVRO_NAME.fullmatch(name)}
    numbers: dict[str, int] = {}  # so that many like names take no quadratic time
    mapped = []
    for name in names:
        if not _AVRO_NAME.fullmatch(name):
            base = re.sub(r"[^A-Za-z0-9_]", "_", name)
            base = f"_{base}" if base[0].isdigit() else base
            name, number = base, numbers.get(base, 2)
            while name in taken:
                name, number = f"{base}_{number}", number + 1
            numbers[base] = number
            taken.add(name)
        mapped.append(name)
    return tuple(mapped)


def records_schema(domain: Domain) -> dict[str, Any]:
    """Returns the Avro schema of released records.

    A column whose name Avro does not allow keeps it as ``doc`` and as ``original_name``; a binned
    one has its ``edges`` beside its type.
    """
    fields = []
    for attribute, name in zip(domain, avro_names(domain.names), strict=True):
        entry = {"name": name, "type": attribute.avro_type()}
        if name != attribute.name:
            entry |= {"doc": attribute.name, "original_name": attribute.name}
        fields.append(entry)
    return {"type": "record", "name": "SyntheticRecord", "fields": fields}


def records_bytes(release: SyntheticDatabase) -> bytes:
    """Returns the file of the released records."""
    return write_container(
        records_schema(release.domain),
        release.draw_id,
        "records",
        in_blocks(_record_forms(release)),
        deflate=True,
        metadata={
            "beam_dp.mechanism": release.mechanism,
            "beam_dp.guarantee": json.dumps(release.guarantee.to_json(), ensure_ascii=False),
        },
    )


class Records(NamedTuple):
    """Records of a file: see the fields of ``SyntheticDatabase`` of these names."""

    codes: Codes
    counts: NDArray[np.int64]
    bin_values: dict[str, NDArray[Any]]


def read_records(
    data: bytes, domain: Domain, draw_id: str, num_records: int, *, is_drawn: bool = False
) -> Records:
    """Returns the records in a file."""
    fields = [_field(attribute, is_drawn) for attribute in domain]
    readers: list[_Reader] = [
        (field.code_of_byte, field.length_of_byte, field.code_of_form, field.decode)
        for field in fields
    ]
    longest = sum(field.max_bytes for field in fields)
    blocks = read_container(
        data,
        records_schema(domain),
        sync_marker(draw_id, "records"),
        max_block_bytes=BLOCK_BYTES + longest,
    )
    drawn = {
        attribute.name: (place, field)
        for place, (attribute, field) in enumerate(zip(domain, fields, strict=True))
        if isinstance(field, _DrawnField)
    }
    form = re.compile(b"".join(field.pattern for field in fields), re.DOTALL)
    records, forms, total = ReadRecords(domain), Counter[bytes](), 0
    # The empty block gives a file of no records its columns of values.
    for number, block in chain([(0, b"")], blocks):
        total += number
        if total > num_records:
            raise DamagedFileError("has more records than its card says")
        if not drawn:
            found = form.findall(block)
            # Else there are other forms than we write: they are read one by one, or refused.
            if len(found) == number and sum(map(len, found)) == len(block):
                forms.update(found)
                if len(forms) > _MOST_FORMS:
                    records.add(*_counted(forms, readers))
                    forms.clear()
                continue
        codes = _read_rows(block, number, readers)
        if drawn:
            values = {name: field.values(codes[place]) for name, (place, field) in drawn.items()}
            records.add_rows(codes, values)
        else:
            records.add(codes)
    if total != num_records:
        raise DamagedFileError("has fewer records than its card says")
    records.add(*_counted(forms, readers))
    return Records(*records.fields())


def _counted(
    forms: Counter[bytes], readers: list[_Reader]
) -> tuple[list[NDArray[np.int64]], NDArray[np.int64]]:
    """Returns the codes of records by attribute, and how often each was read."""
    codes = _read_rows(b"".join(forms), len(forms), readers)
    return codes, np.array(list(forms.values()), np.int64)


def _read_rows(block: bytes, number: int, readers: list[_Reader]) -> list[NDArray[np.int64]]:
    """Returns the codes of a block of so many records by attribute."""
    rows, position = array("q"), 0
    for _ in range(number):
        row, position = _read_row(block, position, readers)
        rows.extend(row)
    check_end(block, position)
    return list(np.array(rows, np.int64).reshape(number, len(readers)).T)


def _read_row(block: bytes, position: int, readers: list[_Reader]) -> tuple[list[int], int]:
    """Returns the codes of the record that begins at a position, and where it ends."""
    row, length = [], len(block)
    for code_of_byte, length_of_byte, code_of_form, read in readers:
        byte = block[position] if position < length else 0
        code = code_of_byte[byte] if position < length else -1
        if code >= 0:
            position += 1
        else:
            # At the end of a block a shorter form may be all that is left.
            form = block[position : position + length_of_byte[byte]]
            code = code_of_form.get(form, -1)
            if code >= 0:
                position += len(form)
            else:
                code, position = read(block, position)
        row.append(code)
    return row, position


def _pattern(schema: Any, lengths: Collection[int]) -> bytes:
    """Returns what matches the values of a schema, with texts of these lengths."""
    if isinstance(schema, list):
        members = [
            re.escape(encode_long(place)) + _pattern(member, lengths)
            for place, member in enumerate(schema)
        ]
        return b"(?:%b)" % b"|".join(members)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "string":
        texts = [re.escape(encode_long(each)) + b".{%d}" % each for each in sorted(lengths)]
        return b"(?:%b)" % b"|".join(texts)
    number = b"[\\x80-\\xff]{0,9}[\\x00-\\x7f]"
    return {"null": b"", "boolean": b".", "double": b".{8}"}.get(kind, number)


class _Field:
    """The Avro form of one attribute's released values."""

    def __init__(self, attribute: Attribute) -> None:
        self._attribute = attribute
        self._type = attribute.avro_type()
        self._codes: dict[tuple[type, Any], int] = {}
        codes = range(attribute.size)
        if isinstance(attribute, IntegerAttribute):
            # A range of integers may be too long to list; its ends are the longest.
            codes = range(attribute.num_levels, attribute.size)
            ends = [0, attribute.num_levels - 1, *codes]
        else:
            ends = list(codes)
        for code, value in zip(codes, attribute.decode(codes), strict=True):
            plain = self._plain(value)
            self._codes[type(plain), plain] = code
        self.max_bytes = max(len(self.encode(code)) for code in ends)
        # No form begins another one. So a byte that is a form by itself needs no second look, nor
        # do bytes of the one length that forms with their first byte have.
        self.code_of_byte = [-1] * 256
        self.length_of_byte = [0] * 256
        self.code_of_form: dict[bytes, int] = {}  # in the order of codes
        listed = self._listed()
        for code, value in zip(listed, attribute.decode(listed), strict=True):
            form = encode(self._type, self._plain(value))
            self.length_of_byte[form[0]] = len(form)
            self.code_of_form[form] = code
            if len(form) == 1:
                self.code_of_byte[form[0]] = code

    @property
    def pattern(self) -> bytes:
        """The values that Avro has for this schema, as a regular expression."""
        texts = (value for kind, value in self._codes if kind is str)
        return _pattern(self._type, {len(text.encode()) for text in texts})

    def _listed(self) -> range:
        """The codes whose forms are kept."""
        return range(min(self._attribute.size, _LISTED_CODES))

    def encode(self, code: int) -> bytes:
        (value,) = self._attribute.decode([code])
        return encode(self._type, self._plain(value))

    def _plain(self, value: Value) -> Value:
        """A date as the days after 1970, a time as the microseconds."""
        if isinstance(self._attribute, TimeAttribute) and isinstance(value, datetime.date):
            return self._attribute.units(value) // self._attribute.released_units
        return value

    def encode_all(self, codes: NDArray[Any], values: NDArray[Any] | None) -> list[bytes]:
        """Returns the form of each of many codes, of the values that were drawn if any were."""
        if self._attribute.size <= _LISTED_CODES:
            forms = list(self.code_of_form)
            return [forms[code] for code in codes.tolist()]
        distinct, which = np.unique(codes, return_inverse=True)
        forms = [self.encode(code) for code in distinct.tolist()]
        return [forms[place] for place in which.tolist()]

    def decode(self, data: bytes, position: int) -> tuple[int, int]:
        """Returns the code at a position, and the position after it."""
        value, position = decode(self._type, data, position)
        if isinstance(self._attribute, IntegerAttribute) and isinstance(value, int):
            code = value - self._attribute.minimum
            is_level = 0 <= code < self._attribute.num_levels
        else:
            code = self._codes.get((type(value), value), -1)
            is_level = code >= 0
        if not is_level:
            raise DamagedFileError("has a value outside its domain")
        return code, position


class _DrawnField(_Field):
    """The Avro form of values that were drawn within bins."""

    _attribute: BinnedAttribute

    def __init__(self, attribute: BinnedAttribute) -> None:
        super().__init__(attribute)
        bare: Any = ("double", 0.0) if attribute.whole_ends is None else ("long", 0)
        self._bare_type = bare[0]
        # What a union says before its member.
        self._prefix = encode(self._type, bare[1])[: -len(encode(*bare))]
        first, last = attribute.bin_ends
        self._first, self._last = first.tolist(), last.tolist()
        ends = [len(self._encode_number(end)) for end in (self._first[0], self._last[-1])]
        self.max_bytes = max(self.max_bytes, *ends)
        self._numbers = array("d" if attribute.whole_ends is None else "q")

    def _listed(self) -> range:
        return range(self._attribute.num_levels, self._attribute.size)

    def _encode_number(self, number: float) -> bytes:
        return self._prefix + encode(self._bare_type, number)

    def encode_all(self, codes: NDArray[Any], values: NDArray[Any] | None) -> list[bytes]:
        """Returns the form of each value, of other codes that of the code."""
        assert values is not None
        special = list(self.code_of_form)
        num_levels = self._attribute.num_levels
        return [
            self._encode_number(number) if code < num_levels else special[code - num_levels]
            for code, number in zip(codes.tolist(), values.tolist(), strict=True)
        ]

    def decode(self, data: bytes, position: int) -> tuple[int, int]:
        """Returns the bin of the value at a position, and the position after it."""
        value, position = decode(self._type, data, position)
        if isinstance(value, str) or value is None:
            raise DamagedFileError("has a value outside its domain")
        code = bisect_right(self._first, value) - 1
        if code < 0 or not value <= self._last[code]:
            raise DamagedFileError("has a value outside its domain")
        self._numbers.append(value)
        return code, position

    def values(self, codes: NDArray[Any]) -> NDArray[Any]:
        """Returns the values read since it was asked last, of records of these codes, and forgets.

        They are 0 where a record has none.
        """
        numbers = np.array(self._numbers)
        del self._numbers[:]
        values = np.zeros(len(codes), numbers.dtype)
        values[codes < self._attribute.num_levels] = numbers
        return values


def _field(attribute: Attribute, is_drawn: bool) -> _Field:
    if is_drawn and isinstance(attribute, BinnedAttribute):
        return _DrawnField(attribute)
    return _Field(attribute)


def _record_forms(release: SyntheticDatabase) -> Iterator[list[bytes]]:
    """Yields the bytes of the records in their order, part by part."""
    fields = [_field(attribute, bool(release.bin_values)) for attribute in release.domain]

    def forms(records: NDArray[np.int64], values: Mapping[str, NDArray[Any]]) -> list[bytes]:
        columns = [
            field.encode_all(codes[records], values.get(name))
            for name, field, codes in zip(release.domain.names, fields, release.codes, strict=True)
        ]
        return [b"".join(parts) for parts in zip(*columns, strict=True)]

    is_few = not release.bin_values and len(release.counts) <= _MOST_FORMS
    every = forms(np.arange(len(release.counts)), {}) if is_few else []
    for block in release.rows():
        if is_few:
            yield [every[record] for record in block.records.tolist()]
            continue
        if not block.values:
            distinct = forms(block.distinct, {})
            yield [distinct[place] for place in block.which.tolist()]
            continue
        for start in range(0, len(block.which), _CHUNK_RECORDS):
            part = slice(start, start + _CHUNK_RECORDS)
            values = {name: drawn[part] for name, drawn in block.values.items()}
            yield forms(block.records[part], values)
