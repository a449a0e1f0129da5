"""Released records as columns of codes, with the row order, file names and marginals.

A release stores its distinct records by code, with a count of equal rows. Rows in the order of
codes would mislead anyone who only takes the first rows, so rows are shuffled. The random bits are
expanded from the draw's id, which is 128 bits of the operating system's entropy, independent of all
records, and public on the card. So the order reveals nothing beyond the codes and counts, and
writing or reading a draw again gives the same order.

A fair coin sends each row to one of two halves, repeatedly, until a part is small; each part is
then shuffled alone (Rao, 1961; Sandelius, 1962). All orders are equally likely, and only one part
is in memory at a time. The coins of equal rows are tossed together: a count of n rows is split by a
binomial number, the number of ones among n random bits.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_choice
from beam_dp.domain.attributes import Attribute, ListedAttribute
from beam_dp.domain.ordered import BinnedAttribute, IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.models.potentials import MAX_CELLS, marginal_weights
from beam_dp.queries.vector_query import VectorQuery, sums_over_records
from beam_dp.storage.store import DamagedFileError

Codes = tuple[NDArray[Any], ...]
Names = tuple[str, ...]
Table = NDArray[np.float64]

# The released value of a bin: a uniform draw from the bin, or the middle of the bin.
WITHIN_BINS = ("uniform", "midpoint")
# With more values than this, the middle of each bin is released, because a drawn value takes 8
# bytes in memory and in the file, while equal records take almost no space.
MAX_BIN_VALUES = 2**25
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
    """Returns the distinct records in the order of a release, and the number of equal records.

    ``codes``: one array of shape (n,) per attribute, integers in ``0..size-1``, in any order.
    ``counts``: the number of records per row, shape (n,); by default one.

    Returns:
        One array of shape (m,) per attribute, in the smallest unsigned type for the codes, with
        rows in ascending lexicographic order; and the counts of equal records, shape (m,), int64.

    Example:
        >>> from beam_dp.domain.files import read_domain
        >>> domain = read_domain('{"age": 85, "sex": 2}')
        >>> columns = [np.array([30, 7, 30]), np.array([1, 0, 1])]
        >>> (age, sex), counts = distinct_records(domain, columns)
        >>> age.tolist(), sex.tolist(), counts.tolist()
        ([7, 30], [0, 1], [1, 2])
    """
    words = list(domain.words(codes))
    order = lexicographic_order(words)
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


def lexicographic_order(words: Sequence[NDArray[np.int64]]) -> NDArray[np.intp]:
    """Returns the places of records in ascending order; equal records stay in the given order."""
    return np.lexsort(words[::-1]) if len(words) > 1 else np.argsort(words[0], kind="stable")


class ReadRecords:
    """Collects records, in parts and in any order, into the fields of a release.

    Rows without drawn values are counted part by part; rows with drawn values are all kept.
    """

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._codes = [[np.zeros(0, code_type(size))] for size in domain.shape]
        self._counts = [np.zeros(0, np.int64)]
        self._values: dict[str, list[NDArray[Any]]] = {}
        self._num_waiting = 0
        self._num_distinct = 0

    def add(self, codes: Sequence[NDArray[Any]], counts: NDArray[np.int64] | None = None) -> None:
        """Adds records without drawn values, ``counts`` times each or, by default, once."""
        self._append(*distinct_records(self._domain, codes, counts))
        self._num_waiting += len(self._counts[-1])
        if self._num_waiting > _MOST_WAITING + self._num_distinct:
            distinct, numbers = self._counted()
            self._codes, self._counts = [[each] for each in distinct], [numbers]
            self._num_waiting, self._num_distinct = 0, len(numbers)

    def add_rows(self, codes: Sequence[NDArray[Any]], values: Mapping[str, NDArray[Any]]) -> None:
        """Adds rows with values that were drawn within the rows' bins."""
        self._append(codes, np.ones(len(codes[0]), np.int64))
        for name, drawn in values.items():
            self._values.setdefault(name, []).append(drawn)

    def fields(self) -> tuple[Codes, NDArray[np.int64], dict[str, NDArray[Any]]]:
        """Returns ``codes``, ``counts`` and ``bin_values`` of a ``SyntheticDatabase``."""
        values = {}
        if self._values:
            columns = [np.concatenate(each) for each in self._codes]
            order = lexicographic_order(list(self._domain.words(columns)))
            values = {name: np.concatenate(each)[order] for name, each in self._values.items()}
        return *self._counted(), values

    def _append(self, codes: Sequence[NDArray[Any]], counts: NDArray[np.int64]) -> None:
        for collected, column in zip(self._codes, codes, strict=True):
            collected.append(column.astype(collected[0].dtype))
        self._counts.append(counts)

    def _counted(self) -> tuple[Codes, NDArray[np.int64]]:
        columns = [np.concatenate(each) for each in self._codes]
        return distinct_records(self._domain, columns, np.concatenate(self._counts))


RECORDS_FORMATS = ("avro", "parquet", "csv")


def check_records_format(domain: Domain, records_format: str) -> None:
    """Raises InputError if a format is unknown or can't represent the records of a domain."""
    check_choice("records_format", records_format, RECORDS_FORMATS)
    texts = [*domain.names]
    for attribute in domain:
        if isinstance(attribute, ListedAttribute):
            texts += [str(value) for value, _ in attribute.listed()]
    # Other programs read CSV line by line.
    if records_format == "csv" and any("\n" in text or "\r" in text for text in texts):
        condition = "must be avro or parquet: a name or a value of the domain has a line break"
        raise InputError("records_format", records_format, condition)


def num_bin_values(domain: Domain, num_records: int) -> int:
    """Returns the number of values to draw within bins: one per record and binned attribute."""
    return num_records * sum(isinstance(attribute, BinnedAttribute) for attribute in domain)


def checked_values(
    domain: Domain, codes: Codes, counts: NDArray[np.int64], values: Mapping[str, Any]
) -> dict[str, NDArray[Any]]:
    """Returns values within bins in the types of ``BinnedAttribute.values_within``."""
    binned = [each for each in domain if isinstance(each, BinnedAttribute)]
    if set(values) != ({each.name for each in binned} if values else set()):
        raise InputError("bin_values", sorted(values), "must be of all attributes with bins")
    checked = {}
    for attribute in binned if values else ():
        kind = np.float64 if attribute.whole_ends is None else np.int64
        given = np.asarray(values[attribute.name])
        of_records = np.repeat(codes[domain.axes((attribute.name,))[0]], counts)
        if given.shape != of_records.shape or given.dtype != kind:
            condition = f"must be a vector of {len(of_records)} values, {kind.__name__}"
            raise InputError("bin_values", attribute.name, condition)
        is_in_bin = of_records < attribute.num_levels
        is_right = np.where(is_in_bin, attribute.bins_of(given) == of_records, given == 0)
        if not is_right.all():
            raise InputError("bin_values", attribute.name, "must each lie in the bin of its record")
        checked[attribute.name] = given
    return checked


def checked_codes(domain: Domain, codes: Sequence[Any], num_distinct: int) -> Codes:
    """Returns columns of codes in the smallest unsigned types; raises InputError if invalid."""
    if len(codes) != domain.num_attributes:
        condition = f"must be one column an attribute, {domain.num_attributes}"
        raise InputError("codes", len(codes), condition)
    columns = []
    for attribute, given in zip(domain, codes, strict=True):
        column = np.asarray(given)
        if column.ndim != 1 or column.dtype.kind not in "iu":
            raise InputError("codes", column.shape, "must be vectors of integers")
        if len(column) != num_distinct:
            raise InputError("codes", len(column), f"must be as many as {num_distinct} counts")
        for extreme in (column.min(), column.max()) if len(column) else ():
            if not 0 <= int(extreme) < attribute.size:
                raise InputError("codes", int(extreme), f"must be in 0..{attribute.size - 1}")
        columns.append(column.astype(code_type(attribute.size)))
    if not _is_ascending(columns, num_distinct):
        raise InputError("codes", num_distinct, "must be of distinct records, ascending")
    return tuple(columns)


def _is_ascending(columns: Sequence[NDArray[Any]], num_distinct: int) -> bool:
    """Returns whether the records are in strictly ascending lexicographic order."""
    tied = np.ones(max(0, num_distinct - 1), bool)
    for column in columns:
        if (tied & (column[:-1] > column[1:])).any():
            return False
        tied &= column[:-1] == column[1:]
        if not tied.any():
            return True
    return not tied.any()


# A different number would change the row order of existing draws.
_BLOCK_ROWS = 2**18
_ONES = np.array([word.bit_count() for word in range(2**16)], np.uint8)


class RowBlock(NamedTuple):
    """Consecutive rows: the place of each row's record in ``distinct``, and the drawn values."""

    distinct: NDArray[np.int64]
    which: NDArray[np.int64]
    values: dict[str, NDArray[Any]]

    @property
    def records(self) -> NDArray[np.int64]:
        """The place of each row's record in the release's ``codes``."""
        return self.distinct[self.which]


def row_blocks(
    counts: NDArray[np.int64], draw_id: str, bin_values: Mapping[str, NDArray[Any]]
) -> Iterator[RowBlock]:
    """Yields the rows of a release in order, at most 2^18 rows at once."""
    following = np.cumsum(counts) - counts if bin_values else None
    for distinct, which in _shuffled(counts, draw_id):
        values = {}
        if following is not None:
            places = _places(distinct, which, following)
            values = {name: drawn[places] for name, drawn in bin_values.items()}
        yield RowBlock(distinct, which, values)


def _shuffled(
    counts: NDArray[np.int64], draw_id: str
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yields ``distinct`` and ``which`` of each block."""
    parts = [(1, np.arange(len(counts)), counts)]
    while parts:
        number, distinct, counts = parts.pop()
        bits = partial(_words, f"order of rows {draw_id} {number}")
        num_rows = int(counts.sum())
        if num_rows <= _BLOCK_ROWS:
            which = np.repeat(np.arange(len(counts)), counts)
            # A block has equal words with probability 2^-30, so no slower, stable sort is needed.
            yield distinct, which[np.argsort(bits(num_rows, "<u8"))]
            continue
        heads = _num_heads(counts, bits)
        for child, held in ((2 * number + 1, counts - heads), (2 * number, heads)):
            parts.append((child, distinct[held > 0], held[held > 0]))


def _places(
    distinct: NDArray[np.int64], which: NDArray[np.int64], following: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Returns the place of each row among the values, and advances ``following``."""
    order = np.argsort(which, kind="stable")
    held = np.bincount(which, minlength=len(distinct))
    starts = following[distinct] - np.cumsum(held) + held
    places = np.empty(len(order), np.int64)
    places[order] = np.repeat(starts, held) + np.arange(len(order))
    following[distinct] += held
    return places


def _num_heads(
    counts: NDArray[np.int64], bits: Callable[[int, str], NDArray[Any]]
) -> NDArray[np.int64]:
    """Returns the number of heads after tossing each given number of fair coins."""
    full, rest = np.divmod(counts, 16)
    words = bits(len(counts) + int(full.sum()), "<u2")
    last, words = words[: len(counts)], _ONES[words[len(counts) :]]
    heads: NDArray[np.int64] = _ONES[last & ((1 << rest) - 1)].astype(np.int64)
    held = full > 0
    if held.any():
        starts = (np.cumsum(full) - full)[held]
        heads[held] += np.add.reduceat(words, starts, dtype=np.int64)
    return heads


def _words(name: str, number: int, kind: str) -> NDArray[Any]:
    """Returns ``number`` words of pseudorandom bits, expanded from a name."""
    size = np.dtype(kind).itemsize
    return np.frombuffer(hashlib.shake_128(name.encode()).digest(number * size), kind)


def records_file(draw_id: str, records_format: str = "avro") -> str:
    """Returns the name of the file of records."""
    return f"records-{draw_id}-00000-of-00001.{records_format}"


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


class Records(NamedTuple):
    """Records from a file; ``SyntheticDatabase`` describes the fields."""

    codes: Codes
    counts: NDArray[np.int64]
    bin_values: dict[str, NDArray[Any]]


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
        return any(set(held) <= set(names) for held in self.record_tables)

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
