"""Encoders of declared values: categories, and words for true and false."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.listed import BooleanAttribute, ListedAttribute
from beam_dp.domain.texts import int64_of
from beam_dp.encoding.coded import Coded, Levels
from beam_dp.encoding.numbers import by_table
from beam_dp.encoding.texts import Mask, TextFinder, parse_integers

if TYPE_CHECKING:
    import pyarrow as pa


class ListedLevels(Levels):
    """Codes a list of strings and integers, among them those that stand for null.

    A declared string that is the usual writing of an integer stands for the integer too, so that
    ``"1"`` is found in a column of integers, and 1 in a column of texts.
    """

    def __init__(self, attribute: ListedAttribute) -> None:
        super().__init__(attribute)
        self._null_texts = None  # they are in the list
        values, codes = zip(*attribute.listed(), strict=True)
        texts = [attribute.normal(str(value)) for value in values]
        self._finder = TextFinder(attribute, texts)
        # Where a text is not there.
        self._codes = np.array([*codes, -1], np.int64)
        usual: dict[int, int] = {}
        declared: dict[int, int] = {}
        for value, text, code in zip(values, texts, codes, strict=True):
            whole = int64_of(text.encode())
            if whole is not None and str(whole) == text:
                usual.setdefault(whole, code)
                if isinstance(value, int):
                    declared.setdefault(whole, code)
        self._usual, self._declared = _Integers(usual), _Integers(declared)
        words = (b"false", b"true")
        self._boolean_codes = np.array([self._code_of_boolean(word) for word in words], np.int64)
        if isinstance(attribute, BooleanAttribute):
            self._boolean_codes = np.arange(2)

    def integers(self, values: NDArray[Any]) -> Coded:
        """Codes integers of any numpy type."""
        if self._usual.is_empty:
            return self.nothing(values.size)
        return by_table(values, lambda column: self._narrow(self._usual.find(column)))

    def floats(self, values: NDArray[np.float64]) -> Coded:
        """Codes floats; NaN has no code."""
        return self._whole_floats(values)

    def booleans(self, values: Mask) -> Coded:
        """Codes booleans."""
        return self._narrow(self._boolean_codes[values.view(np.uint8)])

    def _texts(self, values: pa.Array) -> Coded:
        codes = self._codes.take(self._finder.find(values))
        if not self._declared.is_empty and (missing := np.flatnonzero(codes < 0)).size:
            # Other ways to write a declared integer, such as "01" or " 1 ".
            integers, readable = parse_integers(values.take(missing))
            codes[missing] = np.where(readable, self._declared.find(integers), -1)
        return self._narrow(codes)

    def _code_of_boolean(self, word: bytes) -> int:
        import pyarrow as pa

        code = int(self._codes[self._finder.find(pa.array([word]))[0]])
        return code if code >= 0 else int(self._usual.find(np.array([word == b"true"], "u1"))[0])


class _Integers:
    """Looks integers up among some that have codes."""

    def __init__(self, code_of: dict[int, int]) -> None:
        self._values = np.array(sorted(code_of), np.int64)
        self._codes = np.array([code_of[value] for value in sorted(code_of)], np.int64)
        self.is_empty = not code_of

    def find(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Returns the code of each integer of any numpy type, -1 where it is not there."""
        if self.is_empty:
            return np.full(len(values), -1)
        place = np.searchsorted(self._values, values.astype(np.int64))
        np.minimum(place, len(self._values) - 1, out=place)
        # Compared in the column's own type: a large uint64 must not wrap to a declared value.
        same = (self._values[place] == values) & (values <= np.iinfo(np.int64).max)
        return np.where(same, self._codes[place], -1)
