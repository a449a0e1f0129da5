"""Records of a synthetic database as Parquet or CSV, written and read batch by batch.

The rows are the rows of the Avro file, in the same order, in the types of the module ``arrow``.
Reading maps values back to codes, and requires that writing these codes gives the same values.
"""

from __future__ import annotations

import contextlib
import datetime
import io
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.attributes import OTHER_LABEL, Attribute, ListedAttribute
from beam_dp.domain.dates import TimeAttribute
from beam_dp.domain.ordered import BinnedAttribute, IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.installed import check_installed
from beam_dp.releases.files.card import READ_ERRORS
from beam_dp.releases.synthetic_database.records import (
    OUTSIDE,
    ReadRecords,
    Records,
    arrow_column,
    arrow_schema,
    arrow_table,
    number_levels,
)
from beam_dp.releases.synthetic_database.shards import RecordShard
from beam_dp.storage.store import DamagedFileError

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 2**14
_CSV_BYTES = 2**22
_NUMBER_BYTES = 64  # an upper bound for a number, a date or a time


def columns_bytes(shard: RecordShard) -> bytes:
    """Returns a file of records; a shard has the same bytes with the same pyarrow version."""
    tables = (
        arrow_table(shard.domain, [column[block.records] for column in shard.codes], block.values)
        for block in shard.rows()
    )
    about = {"beam_dp.draw_id": shard.draw_id, **shard.statements}
    return tables_bytes(tables, arrow_schema(shard.domain), shard.records_format, about)


def tables_bytes(
    tables: Iterable[pa.Table], schema: pa.Schema, records_format: str, about: Mapping[str, str]
) -> bytes:
    """Returns a CSV or Parquet file of tables; ``about`` is the metadata of a Parquet file."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    file = io.BytesIO()
    if records_format == "csv":
        writer = pa.csv.CSVWriter(file, schema)
    else:
        # Parquet's dictionary encoding already stores equal values of a column only once.
        writer = pa.parquet.ParquetWriter(
            file, schema, compression="zstd", write_statistics=False, store_schema=False
        )
        writer.add_key_value_metadata(dict(about))
    with writer:
        for table in tables:
            writer.write_table(table)
    return file.getvalue()


def read_columns(
    data: bytes,
    domain: Domain,
    num_records: int,
    records_format: str,
    *,
    is_drawn: bool = False,
    is_part: bool = False,
) -> Records:
    """Returns the records in a file; for the arguments see ``read_records``."""
    check_installed("pyarrow")
    records, total = ReadRecords(domain), 0
    for columns in rows_in_order(data, domain, records_format, is_drawn=is_drawn):
        total += len(columns[0][0])
        if total > num_records:
            raise DamagedFileError("has more records than its card says")
        records.add([codes for codes, _ in columns])
    if total != num_records and not is_part:
        raise DamagedFileError("has fewer records than its card says")
    return Records(*records.fields())


def rows_in_order(
    data: bytes, domain: Domain, records_format: str, *, is_drawn: bool = False
) -> Iterator[list[tuple[NDArray[np.int64], NDArray[Any]]]]:
    """Yields codes and drawn values, or 0, of each attribute, in the order of the rows."""
    batches = _parquet if records_format == "parquet" else _csv
    for batch in batches(data, domain):
        pairs = zip(domain, batch.columns, strict=True)
        yield [_levels(attribute, column, is_drawn) for attribute, column in pairs]


def _parquet(data: bytes, domain: Domain) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet

    schema = arrow_schema(domain)
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    with _told_as("is not a Parquet file that can be read"):
        # Strings stay dictionary-encoded, so that a long string in every row is not copied.
        file = pa.parquet.ParquetFile(pa.BufferReader(data), read_dictionary=texts)
        # The columns' metadata is not accessed, because accessing damaged metadata crashes Python.
        _check_schema(file.schema_arrow, schema)
        for batch in file.iter_batches(batch_size=_ROWS):
            batch.validate(full=True)  # pyarrow's reader checks neither indices nor UTF-8
            yield batch


def _csv(data: bytes, domain: Domain) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.csv

    schema = arrow_schema(domain)
    texts = [*domain.names]
    for attribute in domain:
        if isinstance(attribute, ListedAttribute):
            listed = (str(value) for value, _ in attribute.listed())
            texts.append(max(listed, key=len, default=""))
    # A record must fit in a block, with doubled quotation marks and four bytes per character.
    longest = sum(8 * len(text) + _NUMBER_BYTES for text in texts)
    with _told_as("is not a CSV file of its domain"):
        reader = pa.csv.open_csv(
            pa.BufferReader(data),
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=max(_CSV_BYTES, longest)),
            parse_options=pa.csv.ParseOptions(ignore_empty_lines=False),
            convert_options=pa.csv.ConvertOptions(
                column_types=schema,
                null_values=[""],
                true_values=["true"],
                false_values=["false"],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        _check_schema(reader.schema, schema)
        yield from reader


@contextlib.contextmanager
def _told_as(condition: str) -> Iterator[None]:
    """Converts any error of a library about a damaged file into a DamagedFileError."""
    import pyarrow as pa

    try:
        yield
    except DamagedFileError:
        raise
    except (pa.ArrowException, *READ_ERRORS, NotImplementedError):
        raise DamagedFileError(condition) from None


def _check_schema(schema: pa.Schema, expected: pa.Schema) -> None:
    kinds = [getattr(kind, "value_type", kind) for kind in schema.types]
    if schema.names != expected.names or kinds != expected.types:
        raise DamagedFileError("has a schema that does not fit its card")


def _levels(
    attribute: Attribute, column: pa.Array, is_drawn: bool
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Returns the code of each value of a column, and the drawn values or 0."""
    import pyarrow as pa

    is_drawn, indices = is_drawn and isinstance(attribute, BinnedAttribute), None
    if pa.types.is_dictionary(column.type):
        if column.indices.null_count and not attribute.nullable:
            raise DamagedFileError(OUTSIDE)
        # The array contains each distinct string once, followed by null.
        indices = column.indices.fill_null(len(column.dictionary)).to_numpy(zero_copy_only=False)
        column = pa.concat_arrays([column.dictionary, pa.nulls(1, column.dictionary.type)])
        column = column.slice(0, len(column) if attribute.nullable else len(column) - 1)
    with _told_as(OUTSIDE):
        codes, numbers = _codes(attribute, column, is_drawn)
    if not arrow_column(attribute, codes, numbers if is_drawn else None).equals(column):
        raise DamagedFileError(OUTSIDE)
    return (codes, numbers) if indices is None else (codes[indices], numbers[indices])


def _codes(
    attribute: Attribute, column: pa.Array, is_drawn: bool
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Returns the code of each value, and the drawn values or 0.

    An unknown string of a list attribute gets an arbitrary code; other unknown values raise.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not is_drawn and not isinstance(attribute, IntegerAttribute):
        levels = arrow_column(attribute, np.arange(attribute.size), None)
        places = pc.index_in(column, value_set=levels).fill_null(0)
        return places.to_numpy(zero_copy_only=False).astype(np.int64), np.zeros(len(column))
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    is_other = np.zeros(len(column), np.bool_)
    if attribute.other:
        is_other = pc.equal(column, OTHER_LABEL).fill_null(False).to_numpy(zero_copy_only=False)
    is_level = ~(is_null | is_other)
    regular = _numbers(attribute, column.filter(pa.array(is_level)))
    codes = np.zeros(len(column), np.int64)
    numbers = np.zeros(len(column), regular.dtype)
    codes[is_level], numbers[is_level] = number_levels(attribute, regular), regular
    for is_special, code in ((is_other, attribute.other_code), (is_null, attribute.null_code)):
        if is_special.any():
            if code is None:
                raise DamagedFileError(OUTSIDE)
            codes[is_special] = code
    return codes, numbers


def _numbers(attribute: Attribute, values: pa.Array) -> NDArray[Any]:
    """Returns values as numbers in the form of ``BinnedAttribute.values_within``."""
    import pyarrow as pa

    is_whole = not isinstance(attribute, BinnedAttribute) or attribute.whole_ends is not None
    if isinstance(attribute, TimeAttribute) and pa.types.is_string(values.type):
        read = type(attribute.edges[0]).fromisoformat
        times: list[datetime.date] = [read(text) for text in values.to_pylist()]
        units = [attribute.units(time) // attribute.released_units for time in times]
        return np.array(units, np.int64)
    if pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    kind = pa.int64() if is_whole else pa.float64()
    numbers: NDArray[Any] = values.cast(kind).to_numpy(zero_copy_only=False)
    return numbers
