"""The result of encoding a column, and the interface of all attribute encoders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.attributes import Attribute
from beam_dp.encoding.texts import Mask, TextFinder

if TYPE_CHECKING:
    import pyarrow as pa


class Coded(NamedTuple):
    """Codes of a column, and which of its values have none.

    codes: shape (n,), the smallest unsigned type that holds the attribute's codes; arbitrary
        where outside. May be a read-only view of the column.
    outside: shape (n,), or None when every value has a code.
    """

    codes: NDArray[Any]
    outside: Mask | None


class Levels(ABC):
    """Codes the regular levels of one attribute, and the values that stand for null.

    Null itself and ``other`` are the caller's. Every method takes a whole column, and none raises
    on data.
    """

    def __init__(self, attribute: Attribute) -> None:
        self.attribute = attribute
        self.dtype = np.min_scalar_type(max(attribute.size - 1, 1))
        texts = attribute.null_texts
        self._null_texts = TextFinder(attribute, texts) if texts else None

    def integers(self, values: NDArray[Any]) -> Coded:
        """Codes integers of any numpy type."""
        return self.nothing(values.size)

    def floats(self, values: NDArray[np.float64]) -> Coded:
        """Codes floats; NaN has no code."""
        return self.nothing(values.size)

    def texts(self, values: pa.Array) -> Coded:
        """Codes UTF-8 strings, given as an array of (large) binary; null has any code."""
        coded = self._texts(values)
        if self._null_texts is None:
            return coded
        return self._as_null(coded, self._null_texts.find(values) >= 0)

    @abstractmethod
    def _texts(self, values: pa.Array) -> Coded:
        """Codes the texts that do not stand for null."""

    def times(self, values: NDArray[Any], unit: int, has_zone: bool) -> Coded:
        """Codes dates and times.

        Args:
            values: shape (n,), int64 or Python integers, counted from 1970.
            unit: nanoseconds of what they count; a day for dates.
            has_zone: whether they are moments, in UTC; else what a clock on the wall shows.
        """
        return self.nothing(len(values))

    def booleans(self, values: Mask) -> Coded:
        """Codes booleans, as 0 and 1."""
        return self.integers(values.view(np.uint8))

    def nothing(self, length: int) -> Coded:
        """What values of a type that has no meaning here are coded as."""
        return Coded(np.zeros(length, self.dtype), np.ones(length, np.bool_))

    def _narrow(self, codes: NDArray[Any]) -> Coded:
        """From signed codes, -1 where there is none."""
        outside = codes < 0
        return Coded(codes.astype(self.dtype), outside if outside.any() else None)

    def _whole_floats(self, values: NDArray[np.float64]) -> Coded:
        """Codes floats that are integers, as those."""
        whole = (values == np.trunc(values)) & (values >= -(2.0**63)) & (values < 2.0**63)
        coded = self.integers(np.where(whole, values, 0).astype(np.int64))
        return also_outside(coded, ~whole)

    def _as_null(self, coded: Coded, places: Mask) -> Coded:
        null = self.attribute.null_code
        return coded if null is None else self._give(coded, places, null)

    def _give(self, coded: Coded, places: Mask, code: int) -> Coded:
        """One code for the values at some places, whatever they were coded as."""
        if not places.any():
            return coded
        codes = coded.codes.copy()
        codes[places] = code
        return Coded(codes, None if coded.outside is None else coded.outside & ~places)


def inside(coded: Coded) -> Mask:
    """Returns which values have a code."""
    return np.ones(len(coded.codes), np.bool_) if coded.outside is None else ~coded.outside


def also_outside(coded: Coded, outside: Mask) -> Coded:
    """Returns the codes where values at some more places have none."""
    if not outside.any():
        return coded
    return Coded(coded.codes, outside if coded.outside is None else coded.outside | outside)
