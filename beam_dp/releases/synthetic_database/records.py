"""Released records as columns of codes, in order, with their file names and marginals."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_choice
from beam_dp.domain.attributes import OTHER_LABEL, Attribute, ListedAttribute, Value
from beam_dp.domain.ordered import BinnedAttribute, IntegerAttribute
from beam_dp.domain.universe import Domain, Names
from beam_dp.errors import InputError
from beam_dp.installed import check_installed
from beam_dp.models.potentials import MAX_CELLS, marginal_weights
from beam_dp.queries.dense_tables import VectorQuery, sums_over_records
from beam_dp.storage.store import DamagedFileError

if TYPE_CHECKING:
    import pyarrow as pa


Codes = tuple[NDArray[Any], ...]
Table = NDArray[np.float64]

# Parts of a file are joined once they have this many distinct records together.
_MOST_WAITING = 2**20
_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OUTSIDE = "has a value outside its domain"


def code_type(size: int) -> np.dtype[Any]:
    """Returns the smallest unsigned integer type that holds the codes 0 to ``size - 1``.

    Example:
        >>> code_type(256), code_type(257)
        (dtype('uint8'), dtype('uint16'))
    """
    return np.min_scalar_type(size - 1)


def distinct_records(
    domain: Domain, codes: Sequence[NDArray[Any]], counts: NDArray[np.int64] | None = None
) -> tuple[Codes, NDArray[Any]]:
    """Returns the distinct records in ascending lexicographic order, and their int64 counts.

    ``codes``: one array of shape (n,) per attribute, integers in ``0..size-1``, in any order; the
    result has the smallest unsigned type. ``counts``: the number of records per row, by default 1.
    """
    words = list(domain.words(codes))
    # Equal records stay in the given order.
    order = np.lexsort(words[::-1]) if len(words) > 1 else np.argsort(words[0], kind="stable")
    first = np.zeros(order.size, bool)
    first[:1] = True
    for word in words:
        ordered = word[order]
        first[1:] |= ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(first)
    if counts is None:
        counts = np.diff(starts, append=order.size)
    elif len(starts):
        counts = np.add.reduceat(counts[order], starts)
    chosen = order[starts]
    distinct = tuple(
        np.asarray(column)[chosen].astype(code_type(size))
        for column, size in zip(codes, domain.shape, strict=True)
    )
    return distinct, counts.astype(np.int64)


class ReadRecords:
    """Counts records, in parts and in any order, into the fields of a release."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._codes = [[np.zeros(0, code_type(size))] for size in domain.shape]
        self._counts = [np.zeros(0, np.int64)]
        self._num_waiting = 0
        self._num_distinct = 0

    def add(self, codes: Sequence[NDArray[Any]], counts: NDArray[np.int64] | None = None) -> None:
        """Adds records, ``counts`` times each or, by default, once."""
        self._append(*distinct_records(self._domain, codes, counts))
        self._num_waiting += len(self._counts[-1])
        if self._num_waiting > _MOST_WAITING + self._num_distinct:
            distinct, numbers = self.fields()
            self._codes, self._counts = [[column] for column in distinct], [numbers]
            self._num_waiting, self._num_distinct = 0, len(numbers)

    def fields(self) -> tuple[Codes, NDArray[np.int64]]:
        """Returns ``codes`` and ``counts`` of a ``SyntheticDatabase``."""
        columns = [np.concatenate(parts) for parts in self._codes]
        return distinct_records(self._domain, columns, np.concatenate(self._counts))

    def _append(self, codes: Sequence[NDArray[Any]], counts: NDArray[np.int64]) -> None:
        for collected, column in zip(self._codes, codes, strict=True):
            collected.append(column.astype(collected[0].dtype))
        self._counts.append(counts)


RECORDS_FORMATS = ("avro", "parquet", "csv")
NOT_IN_CSV = frozenset("\n\r\0")


def check_records_format(domain: Domain, records_format: str) -> None:
    """Raises InputError if a format is unknown or can't represent the records of a domain."""
    check_choice("records_format", records_format, RECORDS_FORMATS)
    texts = [*domain.names]
    for attribute in domain:
        if isinstance(attribute, ListedAttribute):
            texts += [str(value) for value, _ in attribute.listed()]
    # Other programs read CSV line by line, and some end a text at a NUL.
    if records_format == "csv" and not NOT_IN_CSV.isdisjoint("".join(texts)):
        condition = "must be avro or parquet: a name or value of the domain has a line break or NUL"
        raise InputError("records_format", records_format, condition)


class Records(NamedTuple):
    """Records from a file; ``SyntheticDatabase`` describes the fields."""

    codes: Codes
    counts: NDArray[np.int64]


def checked_records(domain: Domain, codes: Sequence[Any], counts: Any, num_records: int) -> Records:
    """Returns records in their own types; raises InputError if not as in ``SyntheticDatabase``."""
    numbers = np.asarray(counts)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise InputError("counts", numbers.shape, "must be a vector of integers")
    numbers = numbers.astype(np.int64)
    checked = _checked_codes(domain, codes, len(numbers))
    if not (numbers >= 1).all() or int(numbers.sum()) != num_records:
        condition = f"must be >= 1 each and sum to num_records, {num_records}"
        raise InputError("counts", int(numbers.sum()), condition)
    return Records(checked, numbers)


def _checked_codes(domain: Domain, codes: Sequence[Any], num_distinct: int) -> Codes:
    """Returns columns of codes in the smallest unsigned types; raises InputError if invalid."""
    if len(codes) != domain.num_attributes:
        condition = f"must be one column per attribute, {domain.num_attributes}"
        raise InputError("codes", len(codes), condition)
    columns = []
    for attribute, given in zip(domain, codes, strict=True):
        column = np.asarray(given)
        if column.ndim != 1 or column.dtype.kind not in "iu":
            raise InputError("codes", column.shape, "must be vectors of integers")
        if len(column) != num_distinct:
            raise InputError("codes", len(column), f"must be one per count, {num_distinct}")
        for extreme in (column.min(), column.max()) if len(column) else ():
            if not 0 <= int(extreme) < attribute.size:
                raise InputError("codes", int(extreme), f"must be in 0..{attribute.size - 1}")
        columns.append(column.astype(code_type(attribute.size)))
    if not is_ascending(columns):
        raise InputError("codes", num_distinct, "must be of distinct records, ascending")
    return tuple(columns)


def is_ascending(columns: Sequence[NDArray[Any]], *, may_repeat: bool = False) -> bool:
    """Returns whether records are in ascending lexicographic order."""
    tied = np.ones(max(0, len(columns[0]) - 1), bool)
    for column in columns:
        if (tied & (column[:-1] > column[1:])).any():
            return False
        tied &= column[:-1] == column[1:]
        if not tied.any():
            return True
    return may_repeat


def records_file(
    draw_id: str, records_format: str = "avro", number: int = 0, num_shards: int = 1
) -> str:
    """Returns the name of a file of records."""
    return f"records-{draw_id}-{number:05d}-of-{num_shards:05d}.{records_format}"


def avro_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns distinct valid Avro names for some names; valid names are unchanged.

    Example:
        >>> avro_names(("age", "in/out of bed", "in out of bed", "2nd"))
        ('age', 'in_out_of_bed', 'in_out_of_bed_2', '_2nd')
    """
    taken = {name for name in names if _AVRO_NAME.fullmatch(name)}
    numbers: dict[str, int] = {}  # avoids quadratic time for many similar names
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


def number_levels(attribute: Attribute, numbers: NDArray[Any]) -> NDArray[np.int64]:
    """Returns the code of each number: an integer, or a value that was drawn within a bin."""
    if isinstance(attribute, IntegerAttribute):
        is_level = (attribute.minimum <= numbers) & (numbers <= attribute.maximum)
        levels = np.where(is_level, numbers, attribute.minimum) - attribute.minimum
    else:
        assert isinstance(attribute, BinnedAttribute)
        levels = attribute.bins_of(numbers)
        is_level = levels >= 0
    if not is_level.all():
        raise DamagedFileError(OUTSIDE)
    return levels


@dataclass(frozen=True, eq=False)
class FittedTables:
    """Marginals from the hypothesis or the records, scaled to ``num_represented`` records."""

    domain: Domain
    potentials: Sequence[tuple[Names, Table]]
    record_tables: Sequence[Names]
    codes: Sequence[NDArray[Any]]
    counts: NDArray[np.int64]
    num_represented: int

    @property
    def scale(self) -> float:
        """The number of records that each released record represents."""
        return self.num_represented / max(int(self.counts.sum()), 1)

    def marginals(self, wanted: Iterable[Names]) -> dict[Names, Table]:
        """Returns marginals in records, from the hypothesis or the records."""
        wanted = list(wanted)
        tables = {
            names: np.multiply(self.record_marginal(names), self.scale, dtype=np.float64)
            for names in wanted
            if self.is_answered_by_records(names)
        }
        by_hypothesis = [names for names in wanted if names not in tables]
        weights = marginal_weights(
            self.domain.shape,
            [(self.domain.axes(names), table) for names, table in self.potentials],
            [self.domain.axes(names) for names in by_hypothesis],
            self.domain.impossible,
        )
        scaled = (table * self.num_represented for table in weights)
        return tables | dict(zip(by_hypothesis, scaled, strict=True))

    def is_answered_by_records(self, names: Sequence[str]) -> bool:
        """Returns whether the records, not the hypothesis, answer a marginal."""
        return any(set(table) <= set(names) for table in self.record_tables)

    def record_marginal(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Returns a marginal of the records, with one axis per name, in the given order."""
        domain = self.domain.restrict(names)
        if domain.num_cells > MAX_CELLS:
            raise InputError("marginal", list(names), f"must have at most 2^28 = {MAX_CELLS} cells")
        if not domain.attributes:
            return np.array(int(self.counts.sum()))
        index = domain.cell_index([self.codes[axis] for axis in self.domain.axes(names)])
        table = np.zeros(domain.num_cells, np.int64)
        np.add.at(table, index, self.counts)
        return table.reshape(domain.shape)

    def record_sums(self, queries: Sequence[VectorQuery]) -> NDArray[np.float64]:
        """Returns the answers of queries from the records, shape (num_queries,)."""
        return sums_over_records(self.codes, self.counts, queries) * self.scale


# Released records as Arrow columns, in the types of the users' own values.


def arrow_table(
    domain: Domain, codes: Sequence[NDArray[Any]], bin_values: Mapping[str, NDArray[Any]]
) -> pa.Table:
    """Returns records as a table of ``arrow_schema``; ``bin_values`` were drawn within bins."""
    check_installed("pyarrow")
    import pyarrow as pa

    columns = [
        arrow_column(attribute, column, bin_values.get(attribute.name))
        for attribute, column in zip(domain, codes, strict=True)
    ]
    return pa.table(columns, schema=arrow_schema(domain))


def arrow_schema(domain: Domain) -> pa.Schema:
    """Returns the schema of released records, with one column per attribute."""
    import pyarrow as pa

    return pa.schema([(attribute.name, arrow_type(attribute)) for attribute in domain])


def arrow_type(attribute: Attribute) -> pa.DataType:
    """Returns the type of a column; string if values have several types or may be "other"."""
    import pyarrow as pa

    return {
        "date": pa.date32(),
        "timestamp-micros": pa.timestamp("us", "UTC"),
        "local-timestamp-micros": pa.timestamp("us"),
        "boolean": pa.bool_(),
        "long": pa.int64(),
        "double": pa.float64(),
        "string": pa.string(),
    }[_type_name(attribute)]


def _type_name(attribute: Attribute) -> str:
    """Returns the Avro name of a column's type."""
    written = attribute.avro_type()
    members = [
        form for form in (written if isinstance(written, list) else [written]) if form != "null"
    ]
    if len(members) > 1:
        return "string"
    kind = members[0] if isinstance(members[0], dict) else {"type": members[0]}
    return str(kind.get("logicalType") or kind["type"])


def column_values(attribute: Attribute, codes: Sequence[int]) -> list[Value]:
    """Returns the values for codes of an attribute without bins; does not need pyarrow."""
    is_text = _type_name(attribute) == "string"
    return [_plain(value, is_text) for value in attribute.decode(codes)]


def value_columns(
    domain: Domain, codes: Sequence[NDArray[Any]], bin_values: Mapping[str, NDArray[Any]]
) -> dict[str, list[Value]]:
    """Returns records as lists of values by name; ``bin_values`` were drawn within bins."""
    columns = {}
    for attribute, column in zip(domain, codes, strict=True):
        values = attribute.decode(column)
        if isinstance(attribute, BinnedAttribute) and attribute.name in bin_values:
            numbers = bin_values[attribute.name].tolist()
            for place in np.flatnonzero(column < attribute.num_levels).tolist():
                values[place] = attribute.released(numbers[place])
        columns[attribute.name] = values
    return columns


def arrow_column(
    attribute: Attribute, codes: NDArray[Any], numbers: NDArray[Any] | None
) -> pa.Array:
    """Returns the values for codes, shape (n,); for bins, the drawn ``numbers`` if given."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = arrow_type(attribute)
    if numbers is None and not isinstance(attribute, IntegerAttribute):
        levels = column_values(attribute, range(attribute.size))
        return pa.array(levels, kind).take(pa.array(codes))
    if numbers is None:
        # A range of integers may be too long to list.
        assert isinstance(attribute, IntegerAttribute)
        numbers = codes.astype(np.int64) + attribute.minimum
    special = pa.array(codes >= attribute.num_levels)
    if pa.types.is_string(kind):
        released = attribute.released if isinstance(attribute, BinnedAttribute) else int
        values = pa.array([_plain(released(n), is_text=True) for n in numbers.tolist()], kind)
    elif pa.types.is_date(kind):
        values = pa.array(numbers.astype(np.int32)).cast(kind)
    else:
        values = pa.array(numbers).cast(kind)
    others = pa.nulls(len(codes), kind)
    if attribute.other:
        is_other = pa.array(codes == attribute.other_code)
        others = pc.if_else(is_other, pa.scalar(OTHER_LABEL, kind), others)
    return pc.if_else(special, others, values)


def _plain(value: Value, is_text: bool) -> Value:
    """Returns a value in the type of its column; in a column of strings, as a string."""
    if value is None or isinstance(value, str) or not is_text:
        return value
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime.date) else repr(value)
