"""Pandas frames as elements that hold many records.

A function that reads files often yields frames without declaring it, and what an element is shows
in a worker only. A frame cannot be refused there: an error would reveal that the collection is not
empty. So it is read, and every value by itself: no value of one record, whatever it is, changes
what the other records are read as.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from beam_dp.encoding.units import arrow_column


def is_frame_class(kind: type) -> bool:
    """Returns whether objects of a class are pandas frames; pandas is not loaded for it."""
    return "pandas" in sys.modules and issubclass(kind, _pandas().DataFrame)


def _pandas() -> Any:
    """The module, which is there where a frame is; it has no types."""
    return sys.modules["pandas"]


def frame_batch(frame: Any, columns: Sequence[str]) -> pa.RecordBatch:
    """Returns columns of a frame.

    A missing value (NaN, NaT, NA) is null, as in a file that pandas writes; and so are all values
    of a column that the frame lacks. A named level of its index is a column. If several columns
    have one name, the first is read. Values of mixed types are read one by one, like those of
    single records. A class derived from pandas' own is read as pandas' own is.

    Cost: of columns of objects, and of types that Arrow lacks, tens of nanoseconds a value.
    """
    frame = _pandas().DataFrame(frame)
    return pa.record_batch([_column(frame, name) for name in columns], names=list(columns))


def _column(frame: Any, name: str) -> pa.Array:
    for place, found in enumerate(frame.columns):
        if isinstance(found, str) and found == name:
            return _array(frame.iloc[:, place])
    for level, found in enumerate(frame.index.names):
        if isinstance(found, str) and found == name:
            return _array(_series(frame.index.get_level_values(level)))
    return pa.nulls(len(frame))


def _series(index: Any) -> Any:
    """An index as a series of the same type, which pandas would guess from its values."""
    # Before pandas 3.1 the objects of its own array would be compared with themselves.
    values = index.values if isinstance(index.dtype, np.dtype) else index.array
    return _pandas().Series(values, dtype=index.dtype)


def _array(values: Any) -> pa.Array:
    """A series as an Arrow array whose type follows from the series' own, never from a value."""
    pandas, kind = _pandas(), values.dtype
    if isinstance(kind, pandas.CategoricalDtype):
        return _categories(values.cat)
    is_typed = isinstance(kind, pandas.DatetimeTZDtype) or hasattr(values.array, "__arrow_array__")
    if is_typed or (isinstance(kind, np.dtype) and kind.kind != "O"):
        try:
            array = pa.array(values, from_pandas=True)
            return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        except (pa.ArrowException, ValueError, TypeError):
            pass  # a type that Arrow lacks, or a text that is not UTF-8
    held = values.astype(object).tolist()
    try:
        missing = values.isna().tolist()
    except Exception:  # pandas compares values with themselves, and one of them cannot be
        missing = [_is_missing(value) for value in held]
    pairs = zip(held, missing, strict=True)
    return arrow_column([None if is_missing else value for value, is_missing in pairs])


def _categories(values: Any) -> pa.Array:
    codes = values.codes.to_numpy()
    categories = _array(_series(values.categories))
    if not pa.types.is_union(categories.type):
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), categories)
    held = values.categories.tolist()
    return arrow_column([None if code < 0 else held[code] for code in codes.tolist()])


def _is_missing(value: object) -> bool:
    try:
        return _pandas().isna(value) is True
    except Exception:
        return False
