"""Encodes Arrow batches as records with privacy units. Functions here never raise on data.

Values are read as follows:

- Null has the null level if the attribute is nullable; otherwise null has no level.
- Integers of any width, whole floats, booleans (as 0 and 1) and strings that spell integers
  (``12``, `` +07``, ``5.0``) are integers. A numeric attribute reads every number, also from a
  string. NaN has no level. A decimal is read as the string of its digits.
- A boolean attribute also reads ``true`` and ``false``, ignoring case, or only the values that the
  attribute declares.
- A categorical attribute compares strings, a number by its usual text (``ListedLevels``).
- A date or time attribute reads dates and times, also from ISO 8601 strings, with a zone if its
  edges have a zone and without a zone otherwise. Only date and time attributes read dates or times.
- Bytes are read as UTF-8 text; a dictionary, extension or run-end column is read as its values.
- All other values (lists, durations, text that is not UTF-8) have no level.

A value without a level is coded as ``other``, if ``other`` is declared; otherwise its record is
outside the domain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beam_dp.domain.attributes import Attribute
from beam_dp.domain.impossible import any_impossible
from beam_dp.domain.texts import DAY
from beam_dp.domain.universe import Domain
from beam_dp.errors import ONE_COLUMN, InputError, UnreadableError
from beam_dp.privacy.guarantee import RECORD
from beam_dp.secret.encoding.canonical import NANOSECONDS
from beam_dp.secret.encoding.layouts import Mask, as_bytes, union_parts
from beam_dp.secret.encoding.levels import Coded, Levels, PlaceLevels, inside, levels_of
from beam_dp.secret.encoding.units import arrow_column, unit_fingerprints

_WINDOW = 2**16  # records per step, so that eight narrow columns fit in the cache


@dataclass(frozen=True, eq=False, repr=False)
class EncodedBatch:
    """Records inside the domain, as one cell index per record or one code column per attribute.

    ``cells``: shape (n,), any integer type. ``codes``: arrays of shape (n,), any integer types.
    ``units``: the 128-bit fingerprint of each record's privacy unit, shape (2, n), uint64; None
    after contributions are limited, or if the unit is the record.
    ``places``: an array of shape (n,) for each attribute that the domain places (``PlaceLevels``).
    """

    cells: NDArray[Any] | None = None
    codes: Sequence[NDArray[Any]] | None = None
    units: NDArray[np.uint64] | None = None
    places: Sequence[NDArray[Any]] = ()

    def __post_init__(self) -> None:
        if (self.cells is None) == (self.codes is None):
            raise ValueError("a batch contains either cells or codes")

    def __repr__(self) -> str:
        return "EncodedBatch(secret)"

    def cell_index(self, domain: Domain) -> NDArray[Any]:
        """Returns the cell of each record, shape (n,)."""
        if self.cells is not None:
            return self.cells
        assert self.codes is not None
        return domain.cell_index(self.codes)

    def code_columns(self, domain: Domain) -> Sequence[NDArray[Any]]:
        """Returns the codes of records, one array of shape (n,) per attribute."""
        if self.codes is not None:
            return self.codes
        assert self.cells is not None
        return domain.codes(self.cells)


def left_out_records(
    codes: Sequence[NDArray[Any]], outside: Mask, units: NDArray[np.uint64] | None
) -> EncodedBatch:
    """Returns the records outside the domain, with the first attribute without a level as the cell.

    If all attributes have levels but the record matches an impossible combination, the cell is the
    number of attributes.
    """
    places = np.flatnonzero(outside)
    failed = np.full(len(places), len(codes))
    for axis in reversed(range(len(codes))):
        failed[codes[axis].take(places) < 0] = axis
    return EncodedBatch(cells=failed, units=None if units is None else units.take(places, axis=1))


def encode_column(attribute: Attribute, column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """Returns the code of each value in a column, -1 for values outside the domain.

    The dtype is the smallest sufficient signed integer type for the attribute's codes.
    """
    levels = levels_of(attribute)
    chunks = getattr(column, "chunks", [column])
    parts = [_signed(coded, attribute) for chunk in chunks for coded in _windows(levels, chunk)]
    return np.concatenate(parts) if parts else np.zeros(0, _signed_dtype(attribute))


def encode_places(domain: Domain, batch: pa.RecordBatch) -> list[NDArray[np.uint32]]:
    """Returns the places of the values of ``domain.placed``; the middle for a missing value."""
    places = []
    for attribute in domain.placed:
        levels = PlaceLevels(attribute)
        middle, parts = levels.dtype.type(levels.PLACES // 2), [np.zeros(0, levels.dtype)]
        for coded in _windows(levels, column_of(batch, attribute.name)):
            parts.append(np.where(inside(coded), coded.codes, middle))
        places.append(np.concatenate(parts))
    return places


def encode_batch(
    domain: Domain, batch: pa.RecordBatch | pa.Table
) -> tuple[list[NDArray[Any]], Mask | None]:
    """Returns the codes of a batch, and the mask of records in the domain; None for all records."""
    # Codes are as by ``encode_column``. A missing column is read as null.
    codes = [encode_column(attribute, column_of(batch, attribute.name)) for attribute in domain]
    keep: Mask | None = None
    for column in codes:
        if column.size and column.min() < 0:
            keep = both(keep, column >= 0)
    if domain.impossible and (mask := any_impossible(domain.impossible, codes)) is not None:
        keep = both(keep, ~mask)
    return codes, keep


def encode_cells(domain: Domain, batch: pa.RecordBatch | pa.Table) -> NDArray[Any]:
    """Returns the cells of the records inside the domain, in order; drops records outside."""
    # Cells are int32 if ``num_cells <= 2^31``, else int64. A missing column is read as null.
    if not domain.has_index:
        raise InputError("domain", domain.num_cells, "must have at most 2^62 cells to be indexed")
    if not domain.attributes:
        return np.zeros(batch.num_rows, np.int32)
    batches = [batch] if not hasattr(batch, "to_batches") else batch.to_batches()
    levels = [levels_of(attribute) for attribute in domain]
    cells = np.empty(batch.num_rows, np.int32 if domain.num_cells <= 2**31 else np.int64)
    filled = 0
    for part in batches:
        columns = [_windows(level, column_of(part, level.attribute.name)) for level in levels]
        for _ in range(0, part.num_rows, _WINDOW):
            window = [next(column) for column in columns]
            filled += _fill_cells(cells[filled:], domain, window)
    return cells[:filled]


def column_of(batch: pa.RecordBatch | pa.Table, name: str) -> Any:
    """Returns the column with this name, or nulls if it is missing; refuses several of the name."""
    places = batch.schema.get_all_field_indices(name)
    if len(places) > 1:
        raise UnreadableError("column", name, ONE_COLUMN)
    return batch.column(places[0]) if places else pa.nulls(batch.num_rows)


def _fill_cells(cells: NDArray[Any], domain: Domain, window: list[Coded]) -> int:
    """Writes the cells of the records in one window; returns the number of cells written."""
    index = joint_index([coded.codes for coded in window], domain.shape)
    masks = [coded.outside for coded in window if coded.outside is not None]
    if domain.impossible:
        mask = any_impossible(domain.impossible, [coded.codes for coded in window])
        masks += [] if mask is None else [mask]
    if masks:
        index = index[~np.logical_or.reduce(masks)]
    cells[: len(index)] = index
    return len(index)


def joint_index(codes: Sequence[NDArray[Any]], shape: Sequence[int]) -> NDArray[Any]:
    """Returns the cell of each record in a table, from codes of the narrowest unsigned types."""
    # Horner's rule in the narrowest types: neighbouring attributes are joined into groups of at
    # most 2^8 cells, these groups are joined into groups of at most 2^16 cells, and so on.
    groups = list(zip(codes, shape, strict=True))
    for bits in (8, 16, 32, 64):
        groups = _join(groups, bits)
    return groups[0][0]


def _join(groups: list[tuple[NDArray[Any], int]], bits: int) -> list[tuple[NDArray[Any], int]]:
    """Joins neighbouring groups while the cells of the joined group fit in ``bits`` bits."""
    dtype = np.dtype(f"u{bits // 8}")
    joined = [groups[0]]
    fresh = False  # whether the array of the last joined group may be overwritten
    for codes, size in groups[1:]:
        before, cells_before = joined[-1]
        if cells_before * size > 2**bits:
            joined.append((codes, size))
            fresh = False
            continue
        if cells_before == 1:
            joined[-1] = (codes, size)
            fresh = False
            continue
        if size > 1:
            if fresh:
                np.multiply(before, dtype.type(size), out=before)
            else:
                before = np.multiply(before, dtype.type(size), dtype=dtype)
                fresh = True
            np.add(before, codes, out=before)
        joined[-1] = (before, cells_before * size)
    return joined


def _windows(levels: Levels, column: pa.Array) -> Iterator[Coded]:
    """Yields the codes of an array, window by window, with the codes of ``other`` and null."""
    while isinstance(column, pa.ExtensionArray):
        column = column.storage
    dictionary = _code_dictionary(levels, column) if pa.types.is_dictionary(column.type) else None
    for start in range(0, len(column), _WINDOW):
        window = column.slice(start, _WINDOW)
        if dictionary is None:
            yield _code(levels, window)
        else:
            yield _look_up(dictionary, window.indices)


def _code_dictionary(levels: Levels, column: pa.Array) -> Coded:
    """Returns the codes of a dictionary's entries, followed by the code of null."""
    entries = [*_windows(levels, column.dictionary), _code(levels, pa.nulls(1))]
    outside = ~np.concatenate([inside(coded) for coded in entries])
    return Coded(np.concatenate([coded.codes for coded in entries]), outside)


def _look_up(dictionary: Coded, indices: pa.Array) -> Coded:
    places, nulls = _numbers(indices), _nulls(indices)
    if nulls is not None:
        places = np.where(nulls, len(dictionary.codes) - 1, places.astype(np.int64))
    codes = dictionary.codes.take(places)
    assert dictionary.outside is not None
    if not dictionary.outside[:-1].any() and nulls is None:
        return Coded(codes, None)
    outside = dictionary.outside.take(places)
    return Coded(codes, outside if outside.any() else None)


def _code(levels: Levels, window: pa.Array) -> Coded:
    """Encodes a short array that is neither a dictionary nor an extension."""
    try:
        coded = _code_by_type(levels, window)
    except pa.ArrowException:
        # Arrow refuses to convert the whole column, but only the faulty values may be dropped.
        window = _as_python(window)
        coded = _code_by_type(levels, window)
    return _settle(levels, coded, _nulls(window))


def _code_by_type(levels: Levels, window: pa.Array) -> Coded:
    """Encodes an array by its Arrow type; the codes of nulls are arbitrary."""
    import pyarrow.compute as pc

    kind = window.type
    if pa.types.is_boolean(kind):
        return levels.booleans(pc.fill_null(window, False).to_numpy(zero_copy_only=False))
    if pa.types.is_integer(kind):
        return levels.integers(_numbers(window))
    if pa.types.is_floating(kind):
        return levels.floats(_numbers(window))
    if (texts := as_bytes(window)) is not None:
        return levels.texts(texts)
    if pa.types.is_date32(kind):
        return levels.times(_numbers(window.view(pa.int32())).astype(np.int64), DAY, False)
    if pa.types.is_date64(kind):
        return levels.times(_numbers(window.view(pa.int64())), NANOSECONDS["ms"], False)
    if pa.types.is_timestamp(kind):
        unit = NANOSECONDS[kind.unit]
        return levels.times(_numbers(window.view(pa.int64())), unit, kind.tz is not None)
    if pa.types.is_union(kind):
        return _code_union(levels, window)
    if pa.types.is_decimal(kind) or pa.types.is_dictionary(kind):
        return _code(levels, _as_python(window))
    if pa.types.is_run_end_encoded(kind):
        return _code(levels, pc.run_end_decode(window))
    return levels.nothing(len(window))


def _code_union(levels: Levels, window: pa.UnionArray) -> Coded:
    """Encodes each value of a union by the type of its child."""
    codes = np.zeros(len(window), levels.dtype)
    outside = np.zeros(len(window), np.bool_)
    for rows, child, places in union_parts(window):
        parts = list(_windows(levels, child))
        codes[rows] = np.concatenate([part.codes for part in parts])[places]
        outside[rows] = ~np.concatenate([inside(part) for part in parts])[places]
    return Coded(codes, outside if outside.any() else None)


def _as_python(window: pa.Array) -> pa.Array:
    """Converts values to Python objects, and each object back to Arrow by its own type."""
    return arrow_column([_object(scalar) for scalar in window])


def _object(scalar: pa.Scalar) -> object:
    """Converts an Arrow scalar to a Python value; if that fails, returns the scalar (no level)."""
    try:
        return scalar.as_py()
    except Exception:  # many types of errors, such as a time zone unknown on this machine
        return scalar


def _settle(levels: Levels, coded: Coded, nulls: Mask | None) -> Coded:
    """Sets the code of null for nulls, and ``outside_code`` for other values without a level."""
    if coded.outside is None and (nulls is None or not nulls.any()):
        return coded
    codes = coded.codes if coded.codes.flags.writeable else coded.codes.copy()
    outside = ~inside(coded)
    if nulls is not None:
        outside |= nulls
    if levels.attribute.outside_code is not None:
        codes[outside] = levels.attribute.outside_code
        outside[:] = False
    if nulls is not None and levels.attribute.null_code is not None:
        codes[nulls] = levels.attribute.null_code
        outside &= ~nulls
    return Coded(codes, outside if outside.any() else None)


def _numbers(window: pa.Array) -> NDArray[Any]:
    """Returns an array of integers or floats as a view; entries of nulls are arbitrary."""
    kind = window.type
    # Arrow's own conversion of types imports pandas, which is slow.
    letter = "f" if pa.types.is_floating(kind) else "i" if pa.types.is_signed_integer(kind) else "u"
    dtype = np.dtype(f"{letter}{kind.bit_width // 8}")
    data = window.buffers()[1]
    if data is None:
        return np.zeros(len(window), dtype)
    values = np.frombuffer(data, dtype)[window.offset : window.offset + len(window)]
    values.flags.writeable = False  # the column may share memory with an array of the caller
    return values


def _nulls(window: pa.Array) -> Mask | None:
    """Returns the mask of nulls, or None if there are no nulls."""
    if not window.null_count:
        return None
    mask: Mask = window.is_null().to_numpy(zero_copy_only=False)
    return mask


def _signed_dtype(attribute: Attribute) -> np.dtype[Any]:
    return np.min_scalar_type(-attribute.size)


def _signed(coded: Coded, attribute: Attribute) -> NDArray[Any]:
    codes = coded.codes.astype(_signed_dtype(attribute))
    if coded.outside is not None:
        codes[coded.outside] = -1
    return codes


def encode_records(
    domain: Domain, privacy_unit: str, as_cells: bool, batch: pa.RecordBatch
) -> EncodedBatch:
    """Returns the records of a batch that are inside the domain and have a privacy unit."""
    if privacy_unit == RECORD and as_cells and not domain.placed:
        return EncodedBatch(cells=encode_cells(domain, batch))
    codes, keep = encode_batch(domain, batch)
    units, valid = units_of(privacy_unit, batch)
    places = encode_places(domain, batch)
    return kept_records(domain, as_cells, codes, units, both(keep, valid), places)


def encode_all_records(
    domain: Domain, privacy_unit: str, as_cells: bool, batch: pa.RecordBatch
) -> tuple[EncodedBatch, EncodedBatch]:
    """Returns the records with a privacy unit: records inside the domain, and left-out records."""
    codes, keep = encode_batch(domain, batch)
    units, valid = units_of(privacy_unit, batch)
    places = encode_places(domain, batch)
    inside = kept_records(domain, as_cells, codes, units, both(keep, valid), places)
    outside = np.zeros(batch.num_rows, np.bool_) if keep is None else ~keep
    if valid is not None:
        outside &= valid
    return inside, left_out_records(codes, outside, units)


def units_of(
    privacy_unit: str, batch: pa.RecordBatch
) -> tuple[NDArray[np.uint64] | None, Mask | None]:
    """Returns the unit of each record, and the mask of records with a unit; None for all."""
    if privacy_unit == RECORD:
        return None, None
    units, valid = unit_fingerprints(column_of(batch, privacy_unit))
    return units, None if valid.all() else valid


def both(one: Mask | None, other: Mask | None) -> Mask | None:
    """Returns the mask of what two masks keep; None keeps everything."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def kept_records(
    domain: Domain,
    as_cells: bool,
    codes: Sequence[NDArray[Any]],
    units: NDArray[np.uint64] | None,
    keep: Mask | None,
    places: Sequence[NDArray[Any]] = (),
) -> EncodedBatch:
    """Returns the records that a mask keeps, None for all."""
    if keep is not None:
        # Finds the positions once; a mask would be searched again for each column.
        kept = np.flatnonzero(keep)
        codes = [column.take(kept) for column in codes]
        places = [column.take(kept) for column in places]
        units = None if units is None else units.take(kept, axis=1)
    if as_cells:
        return EncodedBatch(cells=domain.cell_index(codes), units=units, places=places)
    return EncodedBatch(codes=codes, units=units, places=places)
