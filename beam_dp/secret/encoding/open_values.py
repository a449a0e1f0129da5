"""Encodes the columns whose values are not declared, and limits what one privacy unit adds.

Texts are counted as written, in the normal form of their attribute; numbers, dates and times are
counted in many small public bins, the leaves. Both travel as texts that begin with the number of
their column, so that all columns are counted together. Functions here never raise on data.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beam_dp.domain.attributes import OTHER_LABEL, Attribute
from beam_dp.domain.discover import GRID
from beam_dp.domain.universe import Domain
from beam_dp.privacy.guarantee import RECORD
from beam_dp.secret.encoding.batch import Columns, KeyBatch
from beam_dp.secret.encoding.contributions import (
    distinct_records,
    distinct_units,
    select_records,
    split_by,
)
from beam_dp.secret.encoding.keys import MAX_LISTED_BYTES, key_texts
from beam_dp.secret.encoding.layouts import Mask, as_bytes, by_values, float_texts, normal_bytes
from beam_dp.secret.encoding.records import column_of, encode_batch, encode_column
from beam_dp.secret.encoding.units import SHORT_BYTES, unit_fingerprints

_MAX_COLUMNS = 2**16
_ROWS = 2**16  # rows per step, so that texts stay in the cache and have less than 2 GiB


@dataclass(frozen=True)
class OpenColumns:
    """The columns to count, and the declared columns that decide which records count. Public.

    Args:
        declared: the declared attributes; records outside them are left out. None without any.
            Open columns leave no record out.
        texts: an attribute per open column of texts, with ``other``: a text is counted if its code
            is that of ``other``. So null and declared values are not counted.
        leaves: an attribute per open column of numbers, dates or times; its levels are the leaves.
    """

    declared: Domain | None
    texts: Sequence[Attribute]
    leaves: Sequence[Attribute]

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of the open columns, in the order of their numbers."""
        return (*self.texts, *self.leaves)


def prefix_of(number: int) -> bytes:
    """Returns the bytes before the texts of a column: no text of another column begins so."""
    return b"%d:" % number


def encode_values(
    columns: OpenColumns, privacy_unit: str, batch: pa.RecordBatch
) -> Iterator[tuple[KeyBatch, KeyBatch | None]]:
    """Yields the values of the records of a batch, and their texts, column by column.

    The keys are the numbers of the columns. If the unit is the record, each value has its texts,
    and weighs GRID per record. Otherwise each record has a row with its unit and the fingerprint of
    its value, and the second batch has the texts that fingerprints do not contain, which weigh 0.
    """
    for start in range(0, batch.num_rows, _ROWS):
        yield from _encoded(columns, privacy_unit, batch.slice(start, _ROWS))


def _encoded(
    columns: OpenColumns, privacy_unit: str, batch: pa.RecordBatch
) -> Iterator[tuple[KeyBatch, KeyBatch | None]]:
    keep: Mask | None = None
    if columns.declared is not None:
        _, keep = encode_batch(columns.declared, batch)
    units = None
    if privacy_unit != RECORD:
        units, has_unit = unit_fingerprints(column_of(batch, privacy_unit))
        keep = has_unit if keep is None else keep & has_unit
    rows = None if keep is None or keep.all() else np.flatnonzero(keep)
    if units is not None and rows is not None:
        units = units.take(rows, axis=1)
    for number, attribute in enumerate(columns.attributes):
        is_text = number < len(columns.texts)
        column = column_of(batch, attribute.name)
        if is_text:
            places, texts = _text_places(attribute, number, column)
        else:
            places, texts = _leaf_places(attribute, number, encode_column(attribute, column))
        places = places if rows is None else places.take(rows)
        if units is None:
            yield _counted(number, places, texts)
        else:
            names = _names(texts) if is_text else _leaf_names(number, attribute.num_levels)
            yield _with_units(number, places, texts, names, units)


def _names(texts: pa.Array) -> NDArray[np.uint64]:
    # The prefix keeps texts from being read as numbers or as addresses.
    return unit_fingerprints(texts.cast("binary"))[0]


def _counted(number: int, places: NDArray[Any], texts: pa.Array) -> tuple[KeyBatch, None]:
    """Returns the number of records of each text. Place 0 is for values that are not counted."""
    counts = np.bincount(places, minlength=len(texts) + 1)[1:]
    present = np.flatnonzero(counts)
    weights = counts.take(present).astype(np.int64) * GRID
    texts = texts.take(pa.array(present))
    return KeyBatch(_numbers(number, len(present)), weights, texts=texts), None


def _with_units(
    number: int,
    places: NDArray[Any],
    texts: pa.Array,
    names: NDArray[np.uint64],
    units: NDArray[np.uint64],
) -> tuple[KeyBatch, KeyBatch]:
    import pyarrow.compute as pc

    rows = np.flatnonzero(places)
    values = KeyBatch(
        _numbers(number, len(rows)),
        np.ones(len(rows), np.int64),
        units.take(rows, axis=1),
        names.take(places.take(rows) - 1, axis=1),
    )
    # Shorter texts are in their fingerprints.
    long = np.flatnonzero(pc.binary_length(texts).to_numpy() > SHORT_BYTES)
    weightless = np.zeros(len(long), np.int64)
    shown = texts.take(pa.array(long))
    names = names.take(long, axis=1)
    return values, KeyBatch(_numbers(number, len(long)), weightless, names=names, texts=shown)


def _numbers(number: int, size: int) -> NDArray[np.uint64]:
    return np.full(size, number, np.uint64)


def _text_places(
    attribute: Attribute, number: int, column: pa.Array | pa.ChunkedArray
) -> tuple[NDArray[np.int64], pa.Array]:
    """Returns each value's place among the texts, from 1, and the texts, large binary.

    Texts may repeat. The place of a value that is not counted is 0.
    """
    listed: list[pa.Array] = [pa.array([], pa.large_binary())]
    parts = [np.zeros(0, np.int64)]

    def read(chunk: pa.Array) -> tuple[NDArray[np.int64]]:
        encoded = _texts(chunk).dictionary_encode()
        start = sum(map(len, listed))
        rows, texts = _candidates(attribute, number, encoded.dictionary)
        listed.append(texts)
        place = np.zeros(len(encoded.dictionary) + 1, np.int64)
        place[rows] = np.arange(start + 1, start + 1 + len(rows))
        indices = encoded.indices
        if indices.null_count:
            indices = indices.fill_null(len(encoded.dictionary))
        return (place.take(indices.to_numpy()),)

    for chunk in getattr(column, "chunks", [column]):
        parts += by_values(chunk, read)
    return np.concatenate(parts), pa.concat_arrays(listed)


def _texts(chunk: pa.Array) -> pa.Array:
    """Returns values as the texts that a categorical attribute compares; null for other values."""
    if pa.types.is_boolean(chunk.type):
        return chunk.cast(pa.string()).view(pa.binary())
    if pa.types.is_floating(chunk.type):
        floats = chunk.to_numpy(zero_copy_only=False)  # null as NaN
        distinct, places = np.unique(floats, return_inverse=True)
        return pa.array(float_texts(distinct), pa.binary()).take(pa.array(places))
    texts = as_bytes(chunk)
    return key_texts(chunk) if texts is None else texts


def _candidates(
    attribute: Attribute, number: int, distinct: pa.Array
) -> tuple[NDArray[np.intp], pa.Array]:
    """Returns the rows of the texts to count, and these texts with the column's prefix."""
    import pyarrow.compute as pc

    normal = _normal_forms(attribute, distinct)
    is_short = pc.less_equal(pc.binary_length(normal), MAX_LISTED_BYTES).fill_null(False)
    counts = is_short.to_numpy(zero_copy_only=False)
    counts = counts & (encode_column(attribute, normal) == attribute.other_code)
    # A value must not have the label of ``other``, and CSV files hold no line breaks or NULs.
    label = pc.equal(normal, attribute.normal(OTHER_LABEL))
    is_barred = pc.or_(label, pc.match_substring_regex(normal, "[\\r\\n\\x00]")).fill_null(False)
    rows = np.flatnonzero(counts & ~is_barred.to_numpy(zero_copy_only=False))
    kept = normal if len(rows) == len(normal) else normal.take(pa.array(rows))
    prefix, nothing = (pa.scalar(text, pa.large_binary()) for text in (prefix_of(number), b""))
    return rows, pc.binary_join_element_wise(prefix, kept.view(pa.large_binary()), nothing)


def _normal_forms(attribute: Attribute, texts: pa.Array) -> pa.Array:
    """Returns the normal form of each text; null for bytes that are not UTF-8."""
    if attribute.case == "exact" and not attribute.trim:
        try:
            return texts.cast(pa.large_string())
        except pa.ArrowInvalid:
            pass
    normal = [normal_bytes(attribute, text) for text in texts.to_pylist()]
    return pa.array(normal, pa.large_string())


def _leaf_places(
    attribute: Attribute, number: int, codes: NDArray[Any]
) -> tuple[NDArray[np.int64], pa.Array]:
    """Returns each code's place among the leaves, from 1, 0 for no leaf; and the leaves' texts."""
    is_leaf = (codes >= 0) & (codes < attribute.num_levels)
    places = np.where(is_leaf, codes.astype(np.int64) + 1, 0)
    return places, _leaf_texts(number, attribute.num_levels)


@functools.lru_cache(maxsize=64)
def _leaf_texts(number: int, num_leaves: int) -> pa.Array:
    import pyarrow.compute as pc

    leaves = pa.array(np.arange(num_leaves)).cast(pa.large_string()).view(pa.large_binary())
    prefix, nothing = (pa.scalar(text, pa.large_binary()) for text in (prefix_of(number), b""))
    return pc.binary_join_element_wise(prefix, leaves, nothing)


@functools.lru_cache(maxsize=64)
def _leaf_names(number: int, num_leaves: int) -> NDArray[np.uint64]:
    return _names(_leaf_texts(number, num_leaves))


class ValueWords:
    """The numbers of columns and the fingerprints of values, as integer columns."""

    dtypes: Sequence[np.dtype[Any]] = (np.dtype("<u2"), np.dtype("<u8"), np.dtype("<u8"))

    def from_batch(self, batch: KeyBatch) -> Columns:
        """Returns the numbers and the fingerprints of a batch."""
        assert batch.names is not None
        return [batch.keys.astype(np.uint16), *batch.names]

    def to_batch(self, columns: Columns, units: NDArray[np.uint64]) -> KeyBatch:
        """Returns rows of weight 1 with their units."""
        numbers, *names = columns
        ones = np.ones(len(numbers), np.int64)
        return KeyBatch(numbers.astype(np.uint64), ones, units, np.stack(names).astype(np.uint64))


def kept_values(
    num_texts: int,
    max_records_per_unit: int,
    units: NDArray[np.uint64],
    words: Columns,
    counts: NDArray[np.int64],
) -> KeyBatch:
    """Returns what each unit adds to the sums: weights of its kept values, column by column.

    For a column of texts, a unit keeps at most k of its distinct texts. Each of m kept texts weighs
    floor(GRID / sqrt(m)), so adding a unit moves the sums of the column by at most GRID in L2 norm.
    For a column of leaves, a unit keeps at most k records that have a leaf. Each of n kept records
    weighs floor(GRID / n), so adding a unit moves the sums by at most GRID in L1 and in L2 norm.

    Which values are kept depends only on the unit's own records (``select_records``), so a
    replacement of one unit by another one moves the sums of texts by at most sqrt(2) GRID in L2
    norm: a coordinate that both units move is moved in opposite directions.

    ``num_texts``: the number of columns of texts, which come before those of leaves.
    ``units``, ``words``, ``counts``: all records of each unit, as in ``select_records``, with the
    columns of ``ValueWords``.
    """
    parts = [KeyBatch(np.zeros(0, np.uint64), np.zeros(0, np.int64), names=np.zeros((2, 0), "u8"))]
    for number, (units_here, names, counts_here) in split_by(
        words[0], _MAX_COLUMNS, [units, np.stack(words[1:]).astype(np.uint64), counts]
    ):
        if number < num_texts:
            once = distinct_records(units_here, list(names))
            units_here, names = units_here.take(once, axis=1), names.take(once, axis=1)
            counts_here = np.ones(len(once), np.int64)
        kept = select_records(units_here, list(names), counts_here, max_records_per_unit, None)
        names = names.take(kept, axis=1)
        _, unit = distinct_units(units_here.take(kept, axis=1))
        weights = _weights(unit, is_text=number < num_texts)
        parts.append(KeyBatch(_numbers(number, len(kept)), weights, names=names))
    keys, weights, all_names = (
        np.concatenate([getattr(part, name) for part in parts], axis=-1)
        for name in ("keys", "weights", "names")
    )
    return KeyBatch(keys, weights, names=all_names)


def _weights(unit: NDArray[np.intp], *, is_text: bool) -> NDArray[np.int64]:
    """Returns the weight of each kept value, rounded down to the grid, from the rows' units."""
    numbers, which = np.unique(np.bincount(unit), return_inverse=True)
    of_number = [math.isqrt(GRID**2 // n) if is_text else GRID // n for n in numbers.tolist()]
    return np.array(of_number, np.int64)[which[unit]]
