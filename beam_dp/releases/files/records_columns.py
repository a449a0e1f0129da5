"""Records of a synthetic database as Parquet or CSV, written and read batch by batch.

The rows are those of the Avro file, in the same order, in the types of ``releases.arrow``. What is
read is mapped back to levels, and must be exactly what would be written of these.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import json
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain import Attribute, Domain, IntegerAttribute
from beam_dp.domain.attributes import OTHER_LABEL
from beam_dp.domain.dates import TimeAttribute
from beam_dp.domain.ordered import BinnedAttribute
from beam_dp.installed import check_arrow
from beam_dp.releases.arrow import arrow_column, arrow_schema, arrow_table
from beam_dp.releases.files.card import READ_ERRORS
from beam_dp.releases.files.records import Records
from beam_dp.releases.records import code_type
from beam_dp.releases.synthetic_database import SyntheticDatabase
from beam_dp.storage.store import DamagedFileError

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 2**14
_MAX_BLOCK_BYTES = 2**30
_OUTSIDE = "has a value outside its domain"


def columns_bytes(release: SyntheticDatabase) -> bytes:
    """Returns the file of the released records, in the release's format.

    The same bytes of the same release, as long as pyarrow is the same.

    Cost: about 50 ns a value.
    """
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    about = {
        "beam_dp.draw_id": release.draw_id,
        "beam_dp.mechanism": release.mechanism,
        "beam_dp.guarantee": json.dumps(release.guarantee.to_json(), ensure_ascii=False),
    }
    file = io.BytesIO()
    schema = arrow_schema(release.domain)
    if release.records_format == "csv":
        writer = pa.csv.CSVWriter(file, schema)
    else:
        # Equal values of a column are stored once as it is.
        writer = pa.parquet.ParquetWriter(
            file, schema, compression="none", write_statistics=False, store_schema=False
        )
        writer.add_key_value_metadata(about)
    with writer:
        for batch in _tables(release):
            writer.write_table(batch)
    return file.getvalue()


def read_columns(
    data: bytes, domain: Domain, num_records: int, records_format: str, *, is_drawn: bool = False
) -> Records:
    """Returns the records in a file.

    Args:
        data: the whole file.
        domain: of the records.
        num_records: that there must be.
        records_format: ``"parquet"`` or ``"csv"``.
        is_drawn: whether values of attributes with bins may be any in their bin.

    Raises:
        DamagedFileError: if the file does not hold the card's number of records of its domain.
        ModuleNotFoundError: without pyarrow.

    Cost: about 50 ns a value; memory of a batch, the distinct records and the drawn values.
    """
    check_arrow()
    runs = _Runs(domain, is_drawn)
    batches = _parquet if records_format == "parquet" else _csv
    for batch in batches(data, domain):
        runs.add(batch)
        if runs.num_records > num_records:
            raise DamagedFileError("has more records than its card says")
    if runs.num_records != num_records:
        raise DamagedFileError("has fewer records than its card says")
    return runs.records()


def _tables(release: SyntheticDatabase) -> Iterator[pa.Table]:
    """Yields the records in batches."""
    ends = np.cumsum(release.counts)
    for start in range(0, release.num_records, _ROWS):
        part = slice(start, start + _ROWS)
        places = np.arange(start, min(start + _ROWS, release.num_records))
        which = np.searchsorted(ends, places, side="right")
        codes = [column[which] for column in release.codes]
        values = {name: drawn[part] for name, drawn in release.bin_values.items()}
        yield arrow_table(release.domain, codes, values)


def _parquet(data: bytes, domain: Domain) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet

    schema = arrow_schema(domain)
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    with _told_as("is not a Parquet file that can be read"):
        # Texts stay in their dictionaries: a long one that stands in each row is not copied.
        file = pa.parquet.ParquetFile(pa.BufferReader(data), read_dictionary=texts)
        # What its metadata says of columns is left alone: where that is damaged, asking for it ends
        # the process.
        _check_schema(file.schema_arrow, schema)
        for batch in file.iter_batches(batch_size=_ROWS):
            batch.validate(full=True)  # a reader does not look at indices, nor for UTF-8
            yield batch


def _csv(data: bytes, domain: Domain) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.csv

    schema = arrow_schema(domain)
    with _told_as("is not a CSV file of its domain"):
        table = pa.csv.read_csv(
            pa.BufferReader(data),
            # A record must fit a block, whatever texts the domain declares.
            read_options=pa.csv.ReadOptions(
                use_threads=False, block_size=min(max(len(data), 1), _MAX_BLOCK_BYTES)
            ),
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
        _check_schema(table.schema, schema)
    yield from table.to_batches(max_chunksize=_ROWS)


@contextlib.contextmanager
def _told_as(condition: str) -> Iterator[None]:
    """Turns whatever a library says of a damaged file into one refusal."""
    import pyarrow as pa

    try:
        yield
    except DamagedFileError:
        raise
    except (pa.ArrowException, *READ_ERRORS, NotImplementedError):
        raise DamagedFileError(condition) from None


def _check_schema(found: pa.Schema, expected: pa.Schema) -> None:
    kinds = [getattr(kind, "value_type", kind) for kind in found.types]
    if found.names != expected.names or kinds != expected.types:
        raise DamagedFileError("has a schema that does not fit its card")


class _Runs:
    """Distinct records and how many of each, of batches in which equal ones stand together."""

    def __init__(self, domain: Domain, is_drawn: bool) -> None:
        self._domain = domain
        self._is_drawn = is_drawn
        self._codes: list[list[NDArray[Any]]] = [[] for _ in domain]
        self._counts = array("q")
        self._last: list[int] | None = None
        self._values: dict[str, list[NDArray[Any]]] = {}
        self.num_records = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Reads a batch.

        Raises:
            DamagedFileError: if it holds a value outside the domain.
        """
        if not batch.num_rows:
            return
        self.num_records += batch.num_rows
        columns = []
        for attribute, column in zip(self._domain, batch.columns, strict=True):
            is_drawn = self._is_drawn and isinstance(attribute, BinnedAttribute)
            codes, numbers = _levels(attribute, column, is_drawn)
            columns.append(codes)
            if is_drawn:
                self._values.setdefault(attribute.name, []).append(numbers)
        is_first = np.zeros(batch.num_rows, np.bool_)
        is_first[0] = self._last != [int(column[0]) for column in columns]
        for column in columns:
            is_first[1:] |= column[1:] != column[:-1]
        starts = np.flatnonzero(is_first)
        lengths = np.diff(starts, append=batch.num_rows)
        if not is_first[0]:
            self._counts[-1] += int(starts[0]) if len(starts) else batch.num_rows
        self._counts.extend(lengths.tolist())
        for collected, column in zip(self._codes, columns, strict=True):
            collected.append(column[starts])
        self._last = [int(column[-1]) for column in columns]

    def records(self) -> Records:
        """Returns what was read; whoever makes a release of it checks the order."""
        codes = tuple(
            np.concatenate([np.zeros(0, np.int64), *column]).astype(code_type(size))
            for column, size in zip(self._codes, self._domain.shape, strict=True)
        )
        values = {name: np.concatenate(parts) for name, parts in self._values.items()}
        return Records(codes, np.array(self._counts, np.int64), values)


def _levels(
    attribute: Attribute, column: pa.Array, is_drawn: bool
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Returns the code of each value of a column, and the value where it was drawn, else 0.

    Raises:
        DamagedFileError: unless the column is what would be written of these.
    """
    import pyarrow as pa

    indices = None
    if pa.types.is_dictionary(column.type):
        if column.indices.null_count and not attribute.nullable:
            raise DamagedFileError(_OUTSIDE)
        # Each text once, and null behind them.
        indices = column.indices.fill_null(len(column.dictionary)).to_numpy(zero_copy_only=False)
        column = pa.concat_arrays([column.dictionary, pa.nulls(1, column.dictionary.type)])
        column = column.slice(0, len(column) if attribute.nullable else len(column) - 1)
    with _told_as(_OUTSIDE):
        codes, numbers = _codes(attribute, column, is_drawn)
    if not arrow_column(attribute, codes, numbers if is_drawn else None).equals(column):
        raise DamagedFileError(_OUTSIDE)
    return (codes, numbers) if indices is None else (codes[indices], numbers[indices])


def _codes(
    attribute: Attribute, column: pa.Array, is_drawn: bool
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """The codes of values, and numbers as of ``_levels``.

    A text of a list that has no level has any code; of all else it is an error.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not is_drawn and not isinstance(attribute, IntegerAttribute):
        levels = arrow_column(attribute, np.arange(attribute.size), None)
        found = pc.index_in(column, value_set=levels).fill_null(0)
        return found.to_numpy(zero_copy_only=False).astype(np.int64), np.zeros(len(column))
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    is_other = np.zeros(len(column), np.bool_)
    if attribute.other:
        is_other = pc.equal(column, OTHER_LABEL).fill_null(False).to_numpy(zero_copy_only=False)
    is_level = ~(is_null | is_other)
    regular = _numbers(attribute, column.filter(pa.array(is_level)))
    if isinstance(attribute, IntegerAttribute):
        is_inside = (attribute.minimum <= regular) & (regular <= attribute.maximum)
        levels = regular - attribute.minimum
    else:
        assert isinstance(attribute, BinnedAttribute)
        levels = attribute.bins_of(regular)
        is_inside = levels >= 0
    if not is_inside.all():
        raise DamagedFileError(_OUTSIDE)
    codes = np.zeros(len(column), np.int64)
    numbers = np.zeros(len(column), regular.dtype)
    codes[is_level], numbers[is_level] = levels, regular
    for is_special, code in ((is_other, attribute.other_code), (is_null, attribute.null_code)):
        if is_special.any():
            if code is None:
                raise DamagedFileError(_OUTSIDE)
            codes[is_special] = code
    return codes, numbers


def _numbers(attribute: Attribute, values: pa.Array) -> NDArray[Any]:
    """Values of one level each as the numbers that ``BinnedAttribute.values_within`` returns."""
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
