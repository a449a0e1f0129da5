"""Pandas frames as elements that hold many records.

A function that reads files often yields frames without declaring it, and what an element is shows
in a worker only. It cannot be refused there: an error would tell that the collection is not empty,
and its message is withheld like every one of a step that sees records. What was left out instead
was all of it, without a word. A frame is no less a batch of records than an Arrow table is, so it
is read.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from beam_dp.encoding.units import arrow_column


def is_frame_class(kind: type) -> bool:
    """Returns whether objects of a class are pandas frames; pandas is not loaded for it."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and issubclass(kind, pandas.DataFrame)


def frame_batch(frame: Any, columns: Sequence[str]) -> pa.RecordBatch | None:
    """Returns columns of a frame; None for one of a class of the user's own that fails.

    A missing value (NaN, NaT, NA) is null, as in a file that pandas writes; and so is all of a
    column that the frame has not. A named level of its index is a column. Of columns of one name
    the first is taken. Values of mixed types are read one by one, like those of single records.

    Cost: of columns of objects, and of types that Arrow lacks, tens of nanoseconds a value.
    """
    try:
        arrays = [_column(frame, column) for column in columns]
        return pa.record_batch(arrays, names=list(columns))
    except Exception:  # of which the message might quote a record
        return None


def _column(frame: Any, name: str) -> pa.Array:
    places = [place for place, found in enumerate(frame.columns) if found == name]
    if places:
        values = frame.iloc[:, places[0]]
    elif name in frame.index.names:
        values = frame.index.get_level_values(name).to_series()
    else:
        return pa.nulls(len(frame))
    if values.dtype != object:
        try:
            array = pa.array(values, from_pandas=True)
            return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        except (pa.ArrowException, ValueError, TypeError):
            pass  # a type that Arrow has not
    found = zip(values.astype(object).tolist(), values.isna().tolist(), strict=True)
    return arrow_column([None if is_missing else value for value, is_missing in found])
