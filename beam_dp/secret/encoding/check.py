"""Shows how a domain maps each value in a sample of public or made-up rows.

All results, including suggested declarations, come from the encoder that releases use.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beam_dp.domain.attributes import Attribute, ListedAttribute
from beam_dp.domain.files import domain_from_json
from beam_dp.domain.ordered import BinnedAttribute, OrderedAttribute
from beam_dp.domain.texts import int64_of, normal_form
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError, shown
from beam_dp.secret.encoding.records import column_of, encode_batch, encode_column

_WORDS = (("true", "false"), ("yes", "no"), ("y", "n"), ("t", "f"), ("on", "off"), ("1", "2"))
_NULL_WORDS = ("", "NA", "N/A", "NaN", "null", "None", "NULL", "-", ".", "?", "unknown")
_LOOSE: tuple[dict[str, Any], ...] = (
    {"case": "ignore"},
    {"trim": True},
    {"case": "ignore", "trim": True},
)
# The words that a boolean reads by default; declared words replace the default words.
_BUILT_IN = {"true_values": ["true", "1"], "false_values": ["false", "0"]}
# Dates and numbers that are not read, and how to write them.
_OTHER_FORMS = (
    (r"\d{1,2}([./-])\d{1,2}\1\d{2,4}", "write dates as 2020-12-31"),
    (r"[+-]?\d+,\d{1,2}", "write decimals with a point, such as 1.5"),
    (r"[+-]?\d{1,3}([,' ]\d{3})+(\.\d+)?", "write numbers without separators, such as 1000"),
    (r"[+-]?[\d.,]+ ?%", "write percentages without the sign"),
    (r"[$€£¥] ?[\d.,]+|[\d.,]+ ?[$€£¥]", "write amounts without the sign of the currency"),
)
LEFT_OUT = -1
LEFT_OUT_FATE = "left out"


@dataclasses.dataclass
class ColumnCheck:
    """Counts rows by value and outcome ("fate"), and by code, for one attribute."""

    attribute: Attribute
    fates: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter)
    codes: Counter[int] = dataclasses.field(default_factory=Counter)
    left_out: list[pa.Array] = dataclasses.field(default_factory=list)
    kept: list[pa.Array] = dataclasses.field(default_factory=list)

    @property
    def num_left_out(self) -> int:
        """Number of rows whose value has no level."""
        return sum(map(len, self.left_out))

    def add(self, column: pa.Array, codes: NDArray[Any]) -> None:
        """Counts the values of some rows, given their codes; values without a level have -1."""
        inner = self._unclipped(column, codes)
        texts = [_shown(value) for value in column]
        fates = {(code, is_clipped): self._fate(code, is_clipped) for code, is_clipped in inner}
        pairs = zip(texts, (fates[pair] for pair in inner), strict=True)
        self.fates.update(pairs)
        self.codes.update(codes.tolist())
        for parts, here in ((self.left_out, codes == LEFT_OUT), (self.kept, codes != LEFT_OUT)):
            if here.any():
                parts.append(column.filter(pa.array(here)))

    @property
    def has_bins(self) -> bool:
        """Whether the levels are bins; an empty bin may indicate a wrong edge."""
        return isinstance(self.attribute, BinnedAttribute)

    def rows_by_level(self) -> dict[str, int]:
        """Returns the number of rows per level, in order; levels without rows only for bins."""
        codes = range(self.attribute.size) if self.has_bins else sorted(self.codes.keys() - {-1})
        return {self.attribute.label(code): self.codes[code] for code in codes}

    def ordered_fates(self) -> list[tuple[tuple[str, str], int]]:
        """Returns each value with its fate and number of rows, left-out values first."""
        return sorted(
            self.fates.items(), key=lambda item: (item[0][1] != LEFT_OUT_FATE, -item[1], item[0])
        )

    def to_json(self, limit: int) -> dict[str, Any]:
        """Returns the result as JSON, with at most ``limit`` values of the column."""
        values = [
            {"value": value, "becomes": fate, "rows": rows}
            for (value, fate), rows in self.ordered_fates()[:limit]
        ]
        keys, kept = self.suggestion() or ({}, 0)
        return {
            "name": self.attribute.name,
            "type": self.attribute.kind,
            "left_out": self.num_left_out,
            "levels": [{"level": level, "rows": n} for level, n in self.rows_by_level().items()],
            "values": values,
            "num_values": len(self.fates),
            "suggestion": {"keys": keys, "rows": kept},
            "hints": self.hints()[:limit],
        }

    def suggestion(self) -> tuple[dict[str, Any], int] | None:
        """Returns the domain-file keys that would keep the most left-out rows, and how many rows.

        Each step adds keys to the result of the previous step. ``other``, which merges all values,
        is suggested only if the remaining keys keep no row. Returns None without a suggestion.
        """
        best: tuple[dict[str, Any], int] = {}, 0
        for step in (self._words(), _LOOSE, self._integers(), self._nulls(), ({"clip": True},)):
            kind, _ = best
            tried = (self._kept_with({**kind, **keys}) for keys in step)
            best = max([best, *tried], key=itemgetter(1))
        if not best[1]:
            best = self._kept_with({"other": True})
        return best if best[1] else None

    def hints(self) -> list[str]:
        """Returns how left-out values differ from values that are read."""
        attribute, values, hints = self.attribute, sorted(self._left_out_texts()), list[str]()
        for form, cure in () if isinstance(attribute, ListedAttribute) else _OTHER_FORMS:
            like = [value for value in values if re.fullmatch(form, value.strip())]
            hints += [f"{shown(like[0])}: {cure}"] if like else []
        levels = {_looks(str(level)): str(level) for level in getattr(attribute, "values", ())}
        for value in values:
            level = levels.get(_looks(value), value)
            signs = ", ".join(f"U+{ord(sign):04X}" for sign in sorted({*value} ^ {*level}))
            if signs:
                hints.append(f"{shown(value)} looks like {shown(level)}: differs in {signs}")
        return hints

    def _left_out_texts(self) -> set[str]:
        return {value.as_py() for part in self.left_out for value in part if part.type == "string"}

    def _kept_with(self, keys: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """Returns the keys and the number of left-out rows kept; 0 if any kept row is lost."""
        try:
            entry = {**self.attribute.to_json(), **keys}
            (attribute,) = domain_from_json({"attributes": [entry]}).attributes
        except InputError:
            return keys, 0
        if _num_read(attribute, self.kept) < sum(map(len, self.kept)):
            return keys, 0
        return keys, _num_read(attribute, self.left_out)

    def _unclipped(self, column: pa.Array, codes: NDArray[Any]) -> list[tuple[int, bool]]:
        """Returns the code of each value, and whether the value was clipped."""
        clipped = np.zeros(len(codes), np.bool_)
        attribute = self.attribute
        if isinstance(attribute, OrderedAttribute) and attribute.clip:
            ends = dataclasses.replace(attribute, clip=False, other=True)
            is_end = (codes == 0) | (codes == ends.num_levels - 1)
            clipped = (encode_column(ends, column) == ends.other_code) & is_end
        return list(zip(codes.tolist(), clipped.tolist(), strict=True))

    def _fate(self, code: int, is_clipped: bool) -> str:
        attribute = self.attribute
        if code == LEFT_OUT:
            return LEFT_OUT_FATE
        if code == attribute.other_code:
            return "other"
        if code == attribute.null_code:
            return "null"
        return f"{'clipped to ' if is_clipped else ''}{attribute.label(code)}"

    def _words(self) -> Iterator[dict[str, Any]]:
        """Yields declarations with more words for true and false, the most common words first."""
        declared = {**(_BUILT_IN if self.kept else {}), **self.attribute.to_json()}
        if self.attribute.kind == "boolean":
            for how in ({}, *_LOOSE):
                for true, false in _WORDS:
                    words = {"true_values": [true], "false_values": [false]}
                    yield {key: [*declared.get(key, ()), *words[key]] for key in words} | how

    def _integers(self) -> Iterator[dict[str, Any]]:
        """Yields declared values with texts as integers, which have any spelling, such as 1.00."""
        if self.attribute.kind == "categorical":
            values = self.attribute.to_json()["values"]
            whole = [int64_of(str(value).encode()) for value in values]
            yield {"values": [v if w is None else w for v, w in zip(values, whole, strict=True)]}

    def _nulls(self) -> Iterator[dict[str, Any]]:
        """Yields declarations of null, and of left-out words that often mean null."""
        yield {"nullable": True}
        words = self._left_out_texts()
        nulls = [word for word in _NULL_WORDS if word in words]
        if nulls:
            yield {"nullable": True, "null_values": [*self.attribute.null_values, *nulls]}


@dataclasses.dataclass
class DomainCheck:
    """The outcomes of a sample's rows, per attribute, and faults of lines that are no records."""

    domain: Domain
    faults: Counter[str] = dataclasses.field(default_factory=Counter)
    num_rows: int = 0
    num_left_out: int = 0
    num_impossible: int = 0

    def __post_init__(self) -> None:
        self.columns = [ColumnCheck(attribute) for attribute in self.domain]

    def add(self, batch: pa.RecordBatch) -> None:
        """Counts the rows of a batch; a missing column is read as null."""
        codes, keep = encode_batch(self.domain, batch)
        for check, column_codes in zip(self.columns, codes, strict=True):
            check.add(column_of(batch, check.attribute.name), column_codes)
        self.num_rows += batch.num_rows
        if keep is not None:
            unread = np.logical_or.reduce([column == LEFT_OUT for column in codes])
            self.num_left_out += int(np.count_nonzero(~keep))
            self.num_impossible += int(np.count_nonzero(~keep & ~unread))


def _looks(text: str) -> str:
    """Returns a text without what can't be seen: forms of Unicode, and blanks at the ends."""
    return normal_form(unicodedata.normalize("NFKC", text), ignore_case=False, trim=True)


def _num_read(attribute: Attribute, parts: list[pa.Array]) -> int:
    """Returns the number of values that have a level."""
    codes = (encode_column(attribute, part) for part in parts)
    return sum(int(np.count_nonzero(code != LEFT_OUT)) for code in codes)


def _shown(scalar: pa.Scalar) -> str:
    try:
        value = scalar.as_py()
    except (ValueError, OverflowError, ArithmeticError, NotImplementedError):
        return str(scalar)  # a value beyond the range of Python's types
    if isinstance(value, datetime.date):  # including datetimes
        value = value.isoformat()
    return "null" if value is None else shown(value)
