"""Encoders of dates and times in declared bins: integer arithmetic, to the nanosecond."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.dates import TimeAttribute
from beam_dp.domain.texts import time_of
from beam_dp.encoding.coded import Coded, Levels, inside
from beam_dp.encoding.texts import by_distinct

if TYPE_CHECKING:
    import pyarrow as pa

_INT64 = np.iinfo(np.int64)


class TimeLevels(Levels):
    """Codes dates and times by declared bins; numbers are neither."""

    def __init__(self, attribute: TimeAttribute) -> None:
        super().__init__(attribute)
        self._resolution, self._has_zone = attribute.resolution, attribute.has_zone
        self._edges = [attribute.units(edge) * self._resolution for edge in attribute.edges]
        self._nulls = [null * self._resolution for null in attribute.null_natives]
        self._clips = attribute.clip

    def times(self, values: NDArray[Any], unit: int, has_zone: bool) -> Coded:
        """Codes times of the kind of the edges."""
        if has_zone != self._has_zone:
            return self.nothing(len(values))
        if unit < self._resolution:  # the day of a time
            values, unit = values // (self._resolution // unit), self._resolution
        # In the column's own units: what reaches an edge reaches the first unit from there on.
        low, *inner = (-(-edge // unit) for edge in self._edges[:-1])
        high = self._edges[-1] // unit
        below = 0
        if values.dtype != object:
            # An edge that the column's type cannot hold is below all of its values, or above.
            below = sum(edge < _INT64.min for edge in inner)
            inner = [edge for edge in inner if _INT64.min <= edge <= _INT64.max]
        places = np.searchsorted(np.array(inner, values.dtype), values, side="right") + below
        # numpy compares with any integer of Python exactly.
        outside = (values < low) | (values > high)
        is_kept = self._clips or not outside.any()
        coded = Coded(places.astype(self.dtype), None if is_kept else outside)
        for null in self._nulls:
            if null % unit == 0:
                coded = self._as_null(coded, values == null // unit)
        return coded

    def _texts(self, values: pa.Array) -> Coded:
        return self._narrow(by_distinct(values, self._code_texts))

    def _code_texts(self, texts: list[bytes]) -> NDArray[np.int64]:
        read = [time_of(text) for text in texts]
        mine = np.array([each is not None and each[1] == self._has_zone for each in read], np.bool_)
        # Nanoseconds of all years fit in no type of numpy's.
        times = np.array([each[0] for each in read if each and each[1] == self._has_zone], object)
        coded = self.times(times, 1, self._has_zone)
        codes = np.full(len(texts), -1)
        codes[mine] = np.where(inside(coded), coded.codes.astype(np.int64), -1)
        return codes
