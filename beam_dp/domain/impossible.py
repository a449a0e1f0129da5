"""Impossible combinations of levels: how they are declared, checked and looked up."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.attributes import (
    OTHER_LABEL,
    Attribute,
    BooleanAttribute,
    ListedAttribute,
    nearest_known,
)
from beam_dp.domain.ordered import BinnedAttribute, IntegerAttribute, NumericAttribute
from beam_dp.errors import InputError, shown

Range = tuple[int, int]  # a half-open range of codes: start, stop

MAX_COMBINATIONS = 4096
# Tables with at most this number of cells are searched for levels without a possible combination.
_SEARCHED_CELLS = 2**16
_MAX_TABLE_CELLS = 2**28
_COMPARED_RANGES = 4  # for more ranges, looking up codes in a table is faster than comparing
_TABULATED_CODES = 2**16
_WINDOW = 2**16  # records per step, so that intermediate arrays fit in the cache


@dataclass(frozen=True)
class Impossible:
    """A combination of levels that no record has.

    ``axes``: the positions of at least two attributes in the domain, ascending.
    ``ranges``: per attribute, ascending half-open ranges of codes that do not touch. A record
    matches if, for every attribute of ``axes``, its code is in one of the attribute's ranges.
    """

    axes: tuple[int, ...]
    ranges: tuple[tuple[Range, ...], ...]

    def mask(self, shape: Sequence[int]) -> NDArray[np.bool_]:
        """Returns the mask of impossible cells in the table of the combination's attributes."""
        sizes = [shape[axis] for axis in self.axes]
        if math.prod(sizes) > _MAX_TABLE_CELLS:
            condition = "must have at most 2^28 cells to become a table"
            raise InputError("impossible", sizes, condition)
        table = np.zeros(sizes, np.bool_)
        table[np.ix_(*map(_tabulate, self.ranges, sizes))] = True
        return table

    def matches(self, codes: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
        """Returns the mask of matching records, shape (n,); arbitrary for invalid codes."""
        mask: NDArray[np.bool_] | None = None
        for axis, ranges in zip(self.axes, self.ranges, strict=True):
            part = _is_among(codes[axis], ranges)
            mask = part if mask is None else np.logical_and(mask, part, out=mask)
        assert mask is not None
        return mask


def read_combinations(
    attributes: Sequence[Attribute], written: Sequence[Mapping[str, Sequence[Any]]]
) -> tuple[Impossible, ...]:
    """Returns the combinations that a user wrote as lists of levels, keyed by attribute name."""
    # A level is a declared value, ``"other"`` or None; a bin is a pair of edges, or a label. Levels
    # of integer attributes may be pairs ``[low, high]``, both included.
    if isinstance(written, (str, Mapping)) or not isinstance(written, Sequence):
        raise InputError("impossible", written, "must be a list of combinations")
    axis_of = {attribute.name: axis for axis, attribute in enumerate(attributes)}
    readers: dict[int, LevelReader] = {}  # shared, since an attribute may have many levels
    combinations = []
    for number, levels in enumerate(written, start=1):
        place = f"impossible {number}"
        if not isinstance(levels, Mapping):
            raise InputError(place, levels, "must be lists of levels by attribute")
        ranges = {}
        for name, listed in levels.items():
            if name not in axis_of:
                condition = f"is not an attribute; {nearest_known(str(name), axis_of)}"
                raise InputError(place, name, condition)
            axis = axis_of[name]
            if axis not in readers:
                readers[axis] = LevelReader(attributes[axis])
            ranges[axis] = readers[axis].read_all(listed, f"{place}, {shown(name)}")
        if len(ranges) < 2:
            condition = "must name two attributes or more: omit a level that no record has"
            raise InputError(place, list(levels), condition)
        axes = tuple(sorted(ranges))
        combinations.append(Impossible(axes, tuple(ranges[axis] for axis in axes)))
    return tuple(combinations)


def combination_to_json(
    attributes: Sequence[Attribute], combination: Impossible
) -> dict[str, list[Any]]:
    """Returns a combination in the form that ``read_combinations`` reads."""
    return {
        attributes[axis].name: [
            level for span in ranges for level in _levels(attributes[axis], span)
        ]
        for axis, ranges in zip(combination.axes, combination.ranges, strict=True)
    }


def check_combinations(attributes: Sequence[Attribute], impossible: Sequence[Impossible]) -> None:
    """Refuses invalid or repeated combinations, and combinations that together exclude a level."""
    if len(impossible) > MAX_COMBINATIONS:
        condition = f"must be at most {MAX_COMBINATIONS} combinations"
        raise InputError("impossible", len(impossible), condition)
    shape = [attribute.size for attribute in attributes]
    tables: dict[tuple[int, ...], NDArray[np.bool_]] = {}
    seen = set()
    for number, rule in enumerate(impossible, start=1):
        if not isinstance(rule, Impossible):
            raise InputError("impossible", rule, "must contain only combinations")
        names = [attributes[axis].name for axis in rule.axes if 0 <= axis < len(shape)]
        is_one = (
            len(rule.axes) == len(rule.ranges) == len(names) >= 2
            and list(rule.axes) == sorted(set(rule.axes))
            and all(
                ranges
                and _union(ranges) == ranges
                and ranges[0][0] >= 0
                and ranges[-1][1] <= shape[axis]
                and ranges != ((0, shape[axis]),)
                for axis, ranges in zip(rule.axes, rule.ranges, strict=True)
            )
        )
        if not is_one:
            raise InputError("impossible", rule, "must name at least two attributes, and codes")
        if rule in seen:
            raise InputError(f"impossible {number}", names, "must be listed once")
        seen.add(rule)
        if math.prod(shape[axis] for axis in rule.axes) <= _SEARCHED_CELLS:
            table = rule.mask(shape)
            tables[rule.axes] = tables.get(rule.axes, False) | table
    for axes, table in tables.items():
        for place, axis in enumerate(axes):
            others = tuple(other for other in range(table.ndim) if other != place)
            for code in np.flatnonzero(table.all(axis=others))[:1].tolist():
                within = ", ".join(shown(attributes[other].name) for other in axes)
                raise InputError(
                    f"impossible, {shown(attributes[axis].name)}",
                    attributes[axis].label(code),
                    f"must be possible in some combination of {within}",
                )


def restrict_combinations(
    impossible: Sequence[Impossible], kept: Sequence[int]
) -> tuple[Impossible, ...]:
    """Returns the combinations of kept attributes only, with new attribute positions as axes."""
    place = {axis: new for new, axis in enumerate(kept)}
    restricted = []
    for rule in impossible:
        if all(axis in place for axis in rule.axes):
            pairs = sorted((place[a], r) for a, r in zip(rule.axes, rule.ranges, strict=True))
            restricted.append(Impossible(tuple(a for a, _ in pairs), tuple(r for _, r in pairs)))
    return tuple(restricted)


def any_impossible(
    impossible: Sequence[Impossible], codes: Sequence[NDArray[Any]]
) -> NDArray[np.bool_] | None:
    """Returns the mask of records that match a combination, shape (n,), or None without a match."""
    matches = np.zeros(len(codes[0]), np.bool_)
    for start in range(0, len(matches), _WINDOW):
        part = slice(start, start + _WINDOW)
        window = [column[part] for column in codes]
        for combination in impossible:
            matches[part] |= combination.matches(window)
    return matches if matches.any() else None


def _is_among(codes: NDArray[Any], ranges: Sequence[Range]) -> NDArray[np.bool_]:
    if len(ranges) > _COMPARED_RANGES and ranges[-1][1] <= _TABULATED_CODES:
        table = _tabulate(ranges, ranges[-1][1] + 1)
        looked_up: NDArray[np.bool_] = table.take(codes, mode="clip")
        return looked_up
    is_among = np.zeros(codes.shape, np.bool_)
    for start, stop in ranges:
        is_among |= codes == start if stop == start + 1 else (codes >= start) & (codes < stop)
    return is_among


def _tabulate(ranges: Sequence[Range], size: int) -> NDArray[np.bool_]:
    table = np.zeros(size, np.bool_)
    for start, stop in ranges:
        table[start:stop] = True
    return table


def _union(ranges: Sequence[Range]) -> tuple[Range, ...]:
    """Returns the union of ranges as ascending ranges that do not touch."""
    joined: list[Range] = []
    for start, stop in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return tuple(joined)


class LevelReader:
    """Reads levels of one attribute in the form that ``read_combinations`` accepts."""

    def __init__(self, attribute: Attribute) -> None:
        self._attribute = attribute
        self._labels: dict[str, int] = {}
        if not isinstance(attribute, IntegerAttribute):
            codes = range(attribute.num_levels)
            self._labels = {attribute.label(code): code for code in codes}

    def read_all(
        self, levels: Sequence[Any], where: str, *, may_be_all: bool = False
    ) -> tuple[Range, ...]:
        """Returns the codes of a list of levels, as ascending ranges that do not touch."""
        if isinstance(levels, str) or not isinstance(levels, Sequence) or not levels:
            raise InputError(where, levels, "must be a list of at least one level")
        spans = []
        for level in levels:
            codes = self._read(level)
            if codes is None:
                raise InputError(where, level, f"is not one of its levels; {self._hint(level)}")
            spans.append(codes)
        ranges = _union(spans)
        if not may_be_all and ranges == ((0, self._attribute.size),):
            raise InputError(where, levels, "must not list all levels: omit the attribute instead")
        return ranges

    def _read(self, level: Any) -> Range | None:
        attribute = self._attribute
        code: int | None = None
        if level is None:
            code = attribute.null_code
        elif isinstance(attribute, BooleanAttribute) and isinstance(level, bool):
            code = int(level)
        elif isinstance(level, bool):
            code = None
        elif level == OTHER_LABEL and attribute.other:
            code = attribute.other_code
        elif isinstance(level, (list, tuple)):
            return self._read_pair(level)
        elif isinstance(attribute, IntegerAttribute):
            return self._read_pair((level, level))
        elif isinstance(attribute, NumericAttribute) and isinstance(level, int | float):
            is_whole = isinstance(level, int) or level.is_integer()
            code = self._labels.get(str(int(level))) if is_whole else None
        elif isinstance(level, str) or (
            isinstance(level, int) and isinstance(attribute, ListedAttribute)
        ):
            code = self._labels.get(str(level))
        return None if code is None else (code, code + 1)

    def _read_pair(self, pair: Sequence[Any]) -> Range | None:
        attribute = self._attribute
        if len(pair) != 2 or any(isinstance(end, bool) for end in pair):
            return None
        low, high = pair
        if isinstance(attribute, IntegerAttribute):
            if isinstance(low, int) and isinstance(high, int):
                start, stop = low - attribute.minimum, high - attribute.minimum + 1
                return (start, stop) if 0 <= start < stop <= attribute.num_levels else None
        elif isinstance(attribute, BinnedAttribute):
            first, last = (attribute.edge_place(end) for end in pair)
            if first is not None and last is not None and first < last:
                return first, last
        return None

    def _hint(self, level: Any) -> str:
        attribute = self._attribute
        if isinstance(attribute, IntegerAttribute):
            low, high = attribute.minimum, attribute.maximum
            return f"known are integers from {low} to {high}, and pairs [low, high] of these"
        if isinstance(attribute, BinnedAttribute):
            pair = json.dumps(attribute.typed_edges()[:2])
            if isinstance(level, list):
                return f"known are pairs of its edges, such as {pair}"
            numbers = [label for label in self._labels if not label.startswith("[")]
            listed = ", ".join(numbers[:8]) + (", ..." if numbers[8:] else "")
            single = f"{listed} and " if numbers else ""
            return (
                f"known are {single}pairs of its edges, each a list in the list, such as [{pair}]"
            )
        if isinstance(attribute, BooleanAttribute) and not attribute.is_listed:
            return "known are true and false"
        return nearest_known(shown(level) if not isinstance(level, str) else level, self._labels)


def _levels(attribute: Attribute, codes: Range) -> Iterator[Any]:
    """Yields the levels of a range of codes in the form that users write."""
    start, stop = codes[0], min(codes[1], attribute.num_levels)
    if start < stop:
        if isinstance(attribute, BinnedAttribute):
            edges = attribute.edges_to_json()
            yield [edges[start], edges[stop]]
        elif isinstance(attribute, IntegerAttribute) and stop > start + 1:
            yield [attribute.minimum + start, attribute.minimum + stop - 1]
        else:
            yield from attribute.decode(range(start, stop))
    for code in range(max(start, attribute.num_levels), codes[1]):
        yield OTHER_LABEL if code == attribute.other_code else None
