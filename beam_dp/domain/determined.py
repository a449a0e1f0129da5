"""Attributes that another attribute determines: ``"determines"`` of a domain file.

A mapping becomes impossible combinations: with each level of the determined attribute, all levels
that map to another one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.attributes import Attribute, BooleanAttribute, nearest_known
from beam_dp.domain.discover import OpenAttribute
from beam_dp.domain.impossible import Impossible, LevelReader, Range
from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.errors import InputError, shown

# A card lists, for each level, all levels that it excludes.
_MAX_CELLS = 2**20


def determined_combinations(
    attributes: Sequence[Attribute | OpenAttribute], written: Any
) -> tuple[Impossible, ...]:
    """Returns what mappings make impossible.

    ``written``: ``{"city": {"state": {"Boston": "MA", "Austin": "TX"}}}``, with every level of
    ``city``. Keys of other types than text are JSON: ``"17"``, ``"[0, 18]"``, ``"null"``.
    """
    found: list[Impossible] = []
    for name, targets in _items(written, "determines", "mappings by attribute"):
        for other, mapping in _items(targets, f"determines, {shown(name)}", "a mapping by name"):
            axes = [_axis(attributes, each, "determines") for each in (name, other)]
            place = f"determines, {shown(name)}, {shown(other)}"
            if axes[0] == axes[1]:
                raise InputError(place, other, "must be another attribute")
            found += _combinations(attributes, axes, mapping, place)
    return tuple(found)


def determined_pairs(shape: Sequence[int], impossible: Iterable[Impossible]) -> set[Any]:
    """Returns the pairs of axes of which one has a single possible code for each of the other's."""
    tables: dict[tuple[int, ...], NDArray[np.bool_]] = {}
    for each in impossible:
        if len(each.axes) == 2:
            tables[each.axes] = tables.get(each.axes, False) | each.mask(shape)
    return {
        axes
        for axes, table in tables.items()
        if any(((~table).sum(axis=axis) <= 1).all() for axis in range(2))
    }


def _items(written: Any, place: str, form: str) -> Iterable[tuple[Any, Any]]:
    if not isinstance(written, Mapping) or not written:
        raise InputError(place, written, f"must be {form}")
    return written.items()


def _axis(attributes: Sequence[Attribute | OpenAttribute], name: Any, place: str) -> int:
    names = [each.name for each in attributes]
    if name not in names:
        raise InputError(place, name, f"is not an attribute; {nearest_known(str(name), names)}")
    axis = names.index(name)
    if isinstance(attributes[axis], OpenAttribute):
        raise InputError(place, name, "must have declared levels, not discover")
    return axis


def _combinations(
    attributes: Sequence[Any], axes: Sequence[int], mapping: Any, place: str
) -> Iterator[Impossible]:
    """Yields a combination for each level of the second axis."""
    source, target = (attributes[axis] for axis in axes)
    if source.size * target.size > _MAX_CELLS:
        raise InputError(place, source.size * target.size, "must be at most 2^20 cells together")
    readers = LevelReader(source), LevelReader(target)
    is_text = not isinstance(source, BooleanAttribute | IntegerAttribute)
    labels = {source.label(code) for code in range(source.num_levels)} if is_text else set()
    mapped = np.full(source.size, -1)
    for key, level in _items(mapping, place, "levels by level"):
        ((code, end),) = readers[1].read_all([level], place, may_be_all=True)
        if end > code + 1:
            raise InputError(place, level, "must be a single level")
        for start, stop in readers[0].read_all([_level(key, labels)], place, may_be_all=True):
            if (mapped[start:stop] >= 0).any():
                raise InputError(place, key, "must be mapped once")
            mapped[start:stop] = code
    for code in np.flatnonzero(mapped < 0)[:1].tolist():
        raise InputError(place, source.label(code), "must be mapped, as every level")
    for code in range(target.size):
        elsewhere = _ranges(mapped != code)
        if elsewhere == ((0, source.size),):
            raise InputError(place, target.label(code), "must have a level that is mapped to it")
        if elsewhere:
            held = {axes[0]: elsewhere, axes[1]: ((code, code + 1),)}
            ordered = tuple(sorted(held))
            yield Impossible(ordered, tuple(held[axis] for axis in ordered))


def _level(key: Any, labels: set[str]) -> Any:
    """Returns the level that a key of JSON means: the text itself, or what it is the JSON of."""
    if not isinstance(key, str) or key in labels:
        return list(key) if isinstance(key, tuple) else key
    try:
        return json.loads(key)
    except ValueError:
        return key


def _ranges(held: NDArray[np.bool_]) -> tuple[Range, ...]:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], held, [False])).astype(np.int8)))
    return tuple(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
