"""Columns that rows for test systems need and no record has: ids, made-up units and constants."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.ordered import NumericAttribute
from beam_dp.errors import InputError
from beam_dp.releases.domain.earlier import RECORDS_FOLDER, UnitCounts, below
from beam_dp.releases.domain.release import FOLDER, TYPES_FOLDER
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.synthetic_database.shards import random_words

if TYPE_CHECKING:
    import pyarrow as pa

_PATTERN = re.compile(r"[^{}]*\{:(?:0([1-9]|1[0-8]))?d\}[^{}]*")
# Where the counts of units may be, in the folder of a release.
_FOLDERS = [f"{place}{RECORDS_FOLDER}" for place in ("", f"{FOLDER}/", f"{FOLDER}/{TYPES_FOLDER}/")]
AT_RANDOM = (
    "rows of one made-up unit are put together at random: nothing about a person over several rows"
    " can be learned from them"
)


@dataclass(frozen=True, kw_only=True)
class MadeUp:
    """Columns to add to rows; they follow from the release alone and from public parameters.

    ``row_id``: the name of a column with a different id in each row, and the pattern of the ids.
    ``unit_id``: the name of a column of made-up units. Rows of a unit follow each other. Their
    number follows the released numbers of records per unit, up to the limit of the guarantee, if
    the release that chose this limit is in the folder; else it is 1.
    ``constants``: the text in all rows, by column.
    ``is_random``: whether numbers are random among those with the digits of the pattern; by
    default, they are 1, 2, 3, ...
    """

    row_id: tuple[str, str] | None = None
    unit_id: str | None = None
    constants: Mapping[str, str] = field(default_factory=dict)
    is_random: bool = False

    def __post_init__(self) -> None:
        if self.row_id is not None:
            pattern = self.row_id[1]
            if not (_PATTERN.fullmatch(pattern) and pattern.isprintable()):
                condition = "must have one number, with at most 18 digits, such as P{:08d} or {:d}"
                raise InputError("row_id", pattern, condition)

    @property
    def names(self) -> list[tuple[str, str]]:
        """The argument and the name of each column."""
        named = [] if self.row_id is None else [("row_id", self.row_id[0])]
        named += [] if self.unit_id is None else [("unit_id", self.unit_id)]
        return [*named, *(("constants", name) for name in self.constants)]

    @property
    def words(self) -> str:
        """What to say after the number of rows; empty if nothing is made up."""
        unit = "" if self.unit_id is None else f"; {AT_RANDOM}"
        names = ", ".join(name for _, name in self.names)
        return f"; made up: {names}{unit}" if names else ""

    def check(self, columns: Collection[str]) -> None:
        """Refuses a name that is empty, not printable, given twice, or one of other columns."""
        taken = set(columns)
        for argument, name in self.names:
            if name in taken or not name or not name.isprintable():
                condition = "must be a printable name that no other column has"
                raise InputError(argument, name, condition)
            taken.add(name)

    def added_to(self, table: pa.Table, release: SyntheticDatabase, seed: int = 0) -> pa.Table:
        """Returns rows of a release with these columns: ids first, constants last."""
        import pyarrow as pa

        self.check(table.column_names)
        number, name = table.num_rows, f"made up {seed} {release.draw_id}"
        if self.unit_id is not None:
            sizes = _unit_sizes(release, number, name)
            numbers = self._numbers(len(sizes), 0, f"{name} units")
            units = np.repeat(numbers, sizes)[:number]
            table = table.add_column(0, self.unit_id, pa.array(units))
        if self.row_id is not None:
            column, pattern = self.row_id
            digits = re.findall(r"\{:0(\d+)d\}", pattern)
            numbers = self._numbers(number, int(digits[0]) if digits else 0, f"{name} rows")
            ids = pa.array([pattern.format(each) for each in numbers.tolist()], pa.string())
            table = table.add_column(0, column, ids)
        for column, value in self.constants.items():
            table = table.append_column(column, pa.repeat(value, number))
        return table

    def _numbers(self, number: int, digits: int, name: str) -> NDArray[np.int64]:
        """Returns different numbers >= 1, with at most so many digits if these are enough."""
        first = np.arange(1, number + 1)
        if not self.is_random:
            return first
        # One number in each of as many ranges of equal length, in random order.
        length = max(1, (10**digits - 1) // max(number, 1))
        within = (random_words(name, number, "<u8") % np.uint64(length)).astype(np.int64)
        spread: NDArray[np.int64] = (first - 1) * length + within + 1
        return spread[np.argsort(random_words(f"{name} order", number, "<u8"))]


def _unit_sizes(release: SyntheticDatabase, number: int, name: str) -> NDArray[np.int64]:
    """Returns the numbers of rows of made-up units that have at least ``number`` rows together."""
    place = release.directory
    releases = (below(place, folder, UnitCounts) for folder in _FOLDERS if place)
    counts = next((counts for counts in releases if counts is not None), None)
    if counts is None:
        return np.ones(number, np.int64)
    assert isinstance(counts.attribute, NumericAttribute)
    *starts, end = counts.attribute.edges
    places = np.arange(counts.num_leaves)
    weights = np.cumsum(counts.estimate.answer(places, places).clip(1e-9))
    first, last = np.array(starts, np.int64), np.append(starts[1:], end + 0.5).astype(np.int64)
    shares = (random_words(f"{name} level", number, "<u4") + 0.5) / 2**32
    levels = np.searchsorted(weights / weights[-1], shares)
    within = random_words(f"{name} size", number, "<u4") % (last - first)[levels]
    limit = release.limited_guarantee.max_records_per_unit
    sizes: NDArray[np.int64] = np.minimum(first[levels] + within, limit)
    return sizes[: int(np.searchsorted(np.cumsum(sizes), number)) + 1]


def read_constants(text: str) -> dict[str, str]:
    """Returns the constants in a text such as ``country=DE,source=test``."""
    parts = [part.partition("=") for part in text.split(",")]
    constants = {name: value for name, sign, value in parts if sign}
    if len(constants) < len(parts) or not text.isprintable():
        condition = "must be NAME=VALUE, separated by commas, each name once"
        raise InputError("constants", text, condition)
    return constants
