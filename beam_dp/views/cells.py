"""The cells of a report, with answers, error bars and, for data owners, exact counts."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.attributes import Attribute
from beam_dp.domain.dates import TimeAttribute
from beam_dp.domain.ordered import OrderedAttribute
from beam_dp.domain.universe import Domain
from beam_dp.privacy.noise.bound import NOISY_SHARE
from beam_dp.releases.earlier_stage import CUT, ONE_BIN, SEPARATOR
from beam_dp.releases.error_bars import Estimate
from beam_dp.views.terminal import counted, some

# Attributes with more levels are grouped in order, not by size, because asking for the count of
# every level would be too slow.
_MAX_ASKED = 2_000


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """Levels of an attribute that a report shows as one level."""

    label: str
    codes: NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Cell:
    """The answer for one cell, with the exact count if the owner compares."""

    labels: tuple[str, ...]  # one label per attribute of the cell
    answer: Estimate
    truth: int | None = None  # the private exact count; None without the original records

    @property
    def label(self) -> str:
        """The labels as one text."""
        return ", ".join(label[:60] for label in self.labels)

    @property
    def is_noisy(self) -> bool:
        """Whether the cell's error bar is longer than half of its value."""
        margin = self.answer.margin
        return margin is not None and margin > NOISY_SHARE * abs(self.answer.value)

    @property
    def is_good(self) -> bool:
        """Whether the cell has an error bar of at most half of the value, which is not negative."""
        margin = self.answer.margin
        return margin is not None and margin <= NOISY_SHARE * self.answer.value

    @property
    def is_absent(self) -> bool:
        """Whether noise may explain all that the cell holds."""
        return self.answer.margin is not None and self.answer.value <= self.answer.margin

    @property
    def is_missed(self) -> bool:
        """Whether the truth is known and outside the error bar."""
        if self.truth is None or self.answer.margin is None:
            return False
        # Answers without noise may still differ from the truth by rounding.
        return abs(self.answer.value - self.truth) > self.answer.margin + 1e-6


Groups = Sequence[Sequence[Group]]
# A table to ask for: the positions of its attributes, ascending, and the groups of each attribute.
Asked = tuple[tuple[int, ...], Groups]


class Answers(Protocol):
    """The questions that a report asks of a release."""

    @property
    def domain(self) -> Domain:
        """The attributes that the release can be asked about."""

    def of(self, tables: Sequence[Asked]) -> list[list[Estimate]]:
        """Returns the counts of the cells of each table; the last attribute changes fastest.

        Asking for all tables in one call costs little more than asking for one table.
        """


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Truth:
    """The confidential records to compare with a release; ``truth`` reads them."""

    domain: Domain
    codes: Sequence[NDArray[Any]]  # the codes of each attribute, shape (num_records,)
    num_left_out: int
    num_beyond: int = 0
    windows: NDArray[np.int64] | None = None  # the window of each record, ascending
    # Of all rows and each attribute: the codes, -1 without a level, and numbers, NaN without one.
    columns: Sequence[Sequence[NDArray[Any]]] = ()
    missing: Sequence[str] = ()  # the columns of the records that the release does not have

    def __repr__(self) -> str:
        return "Truth(secret)"

    @property
    def num_records(self) -> int:
        """The number of records that are counted."""
        return len(self.codes[0])

    @property
    def not_counted(self) -> str:
        """The numbers of records that are not counted, in words; empty if all are counted."""
        where = "outside the domain"
        where += "" if self.windows is None else ", too late, or in no released window"
        numbers = {where: self.num_left_out, "beyond the limit of their unit": self.num_beyond}
        parts = [f"{counted(number, 'record')} {why}" for why, number in numbers.items() if number]
        parts += [f"the columns {some(self.missing)}"] if self.missing else []
        return ", and ".join(parts)

    def among(self, windows: range) -> Truth:
        """Returns the records in consecutive windows."""
        assert self.windows is not None
        part = slice(*np.searchsorted(self.windows, (windows.start, windows.stop)))
        codes, numbers = [column[part] for column in self.codes], self.windows[part]
        return dataclasses.replace(self, codes=codes, windows=numbers)

    def of(self, axes: tuple[int, ...], groups: Groups) -> list[int]:
        """Returns the count of each combination of groups; the last axis changes fastest."""
        shape = [len(group) for group in groups]
        index = np.zeros(self.num_records, np.int64)
        inside = np.ones(self.num_records, np.bool_)
        for axis, group in zip(axes, groups, strict=True):
            places = np.full(self.domain.shape[axis], -1)
            for place, level in enumerate(group):
                places[level.codes] = place
            positions = places[self.codes[axis]]
            inside &= positions >= 0
            index = index * len(group) + positions
        counts: list[int] = np.bincount(index[inside], minlength=math.prod(shape)).tolist()
        return counts


def column_warnings(reasons: Mapping[str, str]) -> list[str]:
    """Returns warnings about the columns of ``not_described``."""
    pairs = [
        (name, text) for name, of_column in reasons.items() for text in of_column.split(SEPARATOR)
    ]
    single = [name for name, reason in pairs if reason == ONE_BIN]
    cut = [name for name, reason in pairs if reason == CUT]
    lost = [f"{name} {reason}" for name, reason in pairs if reason not in (ONE_BIN, CUT)]
    columns = {
        "Only one bin, so the values carry no information": single,
        "Far values may be cut (declare edges or raise --domain_share)": cut,
        "More than half of the rows are in one level": lost,
    }
    return [f"{what}: {some(names)}" for what, names in columns.items() if names]


def cells_of(answers: Answers, tables: Sequence[Asked], truth: Truth | None) -> list[list[Cell]]:
    """Returns the cells of some tables; the last attribute changes fastest."""
    cells = []
    for (axes, groups), estimates in zip(tables, answers.of(tables), strict=True):
        labels = itertools.product(*([level.label for level in group] for group in groups))
        true: Sequence[int | None] = [None] * len(estimates)
        if truth is not None:
            true = truth.of(axes, groups)
        cells.append([Cell(*cell) for cell in zip(labels, estimates, true, strict=True)])
    return cells


def single_levels(attribute: Attribute) -> list[Group]:
    """Returns each level as a group."""
    return [Group(label, np.array([code])) for code, label in enumerate(attribute.labels())]


def groups_of(answers: Answers, axis: int, max_groups: int) -> list[Group]:
    """Returns the levels of an attribute in at most ``most`` groups.

    Many ordered levels become groups of neighbours, with about the same number of levels per group.
    For an attribute without an order, the levels with the largest answers keep groups of their
    own, and the other levels share one.
    """
    attribute = answers.domain.attributes[axis]
    if attribute.size <= max_groups:
        return single_levels(attribute)
    is_ordered = isinstance(attribute, OrderedAttribute)
    if not is_ordered and attribute.size <= _MAX_ASKED:
        levels = single_levels(attribute)
        (estimates,) = answers.of([((axis,), (levels,))])
        values = [estimate.value for estimate in estimates]
        order = np.argsort(-np.array(values), kind="stable")
        kept = [levels[code] for code in sorted(order[: max_groups - 1].tolist())]
        others = np.sort(order[max_groups - 1 :])
        return [*kept, Group(f"{len(others):,} others together", others)]
    apart = [code for code in (attribute.other_code, attribute.null_code) if code is not None]
    step = -(-attribute.num_levels // (max_groups - len(apart)))
    grouped = []
    for start in range(0, attribute.num_levels, step):
        codes = np.arange(start, min(start + step, attribute.num_levels))
        label = attribute.label(start)
        if len(codes) > 1:
            label = _span(label, attribute.label(int(codes[-1])))
        grouped.append(Group(label, codes))
    return grouped + [Group(attribute.label(code), np.array([code])) for code in apart]


def _span(first: str, last: str) -> str:
    """Returns the label of consecutive levels; for bins, the label of the merged bin."""
    low, high = first.partition(", "), last.partition(", ")
    are_bins = first.startswith("[") and last.startswith("[") and low[1] and high[1]
    return f"{low[0]}, {high[2]}" if are_bins else f"{first} to {last}"


def summed_groups(values: NDArray[Any], groups: Groups) -> NDArray[Any]:
    """Returns a table with one axis per attribute, summed over the levels of each group."""
    for place, group in enumerate(groups):
        sums = [values.take(level.codes, axis=place).sum(axis=place) for level in group]
        values = np.stack(sums, axis=place)
    return values


def indicators(groups: Sequence[Group], size: int) -> list[NDArray[np.float64]]:
    """Returns one vector per group, with 1 at the codes of the group's levels."""
    vectors = []
    for group in groups:
        vector = np.zeros(size)
        vector[group.codes] = 1.0
        vectors.append(vector)
    return vectors


def numbers_of(attribute: OrderedAttribute, column: Any) -> Any:
    """Returns the numbers in a column, or the days since 1970; NaN for all other values."""
    import pandas as pd

    if not isinstance(attribute, TimeAttribute):
        numbers = pd.to_numeric(column.to_pandas(), errors="coerce").to_numpy(np.float64)
        return np.where(np.isfinite(numbers), numbers, np.nan)
    times = pd.to_datetime(column.to_pandas(), errors="coerce", utc=True, format="ISO8601")
    return (times.to_numpy("M8[us]") - np.datetime64(0, "us")) / np.timedelta64(1, "D")
