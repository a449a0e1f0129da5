"""Parses domain files: the long form lists attributes, the short form only their sizes.

A mapping of ``"determines"`` becomes impossible combinations: with each level of the determined
attribute, all levels that map to another one.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import is_integer, is_number
from beam_dp.domain import attributes
from beam_dp.domain.attributes import Attribute, BooleanAttribute, nearest_known
from beam_dp.domain.dates import DateAttribute, DatetimeAttribute
from beam_dp.domain.discover import OpenAttribute, OpenDomain, open_attribute
from beam_dp.domain.impossible import Impossible, LevelReader, Range, combination_to_json
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.domain.readings import UNTYPED
from beam_dp.domain.texts import checked_json, json_text
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError, shown

# Per type: the class of the attribute, the required keys of an entry, and the optional keys.
_Kind = tuple[Callable[..., attributes.Attribute], tuple[str, ...], tuple[str, ...]]
_KINDS: dict[str, _Kind] = {
    "boolean": (attributes.BooleanAttribute, (), ("true_values", "false_values")),
    "categorical": (attributes.CategoricalAttribute, ("values",), ("values_from",)),
    "date": (DateAttribute, ("edges",), ("clip", "edges_from")),
    "datetime": (DatetimeAttribute, ("edges",), ("clip", "edges_from")),
    "integer": (IntegerAttribute, ("min", "max"), ("clip",)),
    "numeric": (
        NumericAttribute,
        ("edges",),
        ("whole", "clip", "edges_from", "min", "max", "bins"),
    ),
}
# The keys that declare bins of equal width, as an alternative to edges.
_EQUAL_WIDTH = ("min", "max", "bins")
_MAX_BINS = 1_000_000
_SHARED = ("other", "nullable", "null_values", "case", "trim")
_ARGUMENTS = {"min": "minimum", "max": "maximum"}
# A card lists, for each level of a determined attribute, all levels that it excludes.
_MAX_CELLS = 2**20


def read_domain(text_or_path: str | os.PathLike[str] | Mapping[str, Any]) -> Domain:
    """Reads a domain from a local file, JSON text, or a dict with the same structure.

    Args:
        text_or_path: a path, a string that starts with ``{``, or a dict.

    Raises:
        InputError: if the file can't be read, or is not a domain (see ``parse_domain``).

    Example:
        >>> read_domain('{"age": 85, "sex": 2}').shape
        (85, 2)
    """
    return _declared(*_read(text_or_path))


def read_open_domain(
    text_or_path: str | os.PathLike[str] | Mapping[str, Any],
) -> Domain | OpenDomain:
    """Reads a domain like ``read_domain``; attributes may leave values or bins to a release.

    Such an attribute has ``"discover"`` instead of its values or edges (see ``OpenAttribute``)::

        {"name": "city", "type": "categorical",
         "discover": {"max_values": 500, "include": ["Rome"]}}
        {"name": "income", "type": "numeric", "discover": {"bins": 20, "min": 0, "max": 9999}}
        {"name": "age", "type": "discover"}

    Example:
        >>> entry = {"name": "city", "type": "categorical", "discover": {"max_values": 500}}
        >>> read_open_domain({"attributes": [entry]}).open[0].discover.max_values
        500
    """
    return _read(text_or_path)[0]


def _read(
    text_or_path: str | os.PathLike[str] | Mapping[str, Any],
) -> tuple[Domain | OpenDomain, str]:
    """Returns the domain, and its source for error messages."""
    if isinstance(text_or_path, Mapping):
        return parse_open_domain(text_or_path), "<text>"
    text = json_text("domain", text_or_path)
    source = "<text>" if text is text_or_path else os.fspath(text_or_path)
    return parse_open_domain(text, source), source


def _declared(domain: Domain | OpenDomain, source: str) -> Domain:
    """Returns a domain without open attributes; refuses others."""
    if isinstance(domain, OpenDomain):
        raise domain.refusal(source)
    return domain


def parse_domain(text: str | Mapping[str, Any], source: str = "<text>") -> Domain:
    """Reads a domain from JSON text, or from a dict with the same structure.

    A domain has a long or a short form. The long form lists attributes::

        {"attributes": [
          {"name": "age",   "type": "numeric",     "edges": [17, 25, 91]},
          {"name": "hours", "type": "integer",     "min": 0, "max": 99},
          {"name": "sex",   "type": "categorical", "values": ["Female", "Male"], "other": true},
          {"name": "alive", "type": "boolean",     "nullable": true},
          {"name": "born",  "type": "date",        "edges": ["1900-01-01", "1950-01-01"]}]}

    An entry may also declare how strings are read (see ``Attribute``): ``"null_values"``,
    ``"case": "ignore"``, ``"trim": true``. Booleans may declare ``"true_values"`` and
    ``"false_values"``, ordered types ``"clip": true``, and columns of whole numbers
    ``"whole": true``. ``"min": 0, "max": 512, "bins": 32`` declares bins of equal width.

    The short form lists sizes, for columns that already contain codes: ``{"age": 85, "sex": 2}``.

    The long form may also declare combinations of levels that no record has. A combination names
    at least two attributes (``Domain.with_impossible`` describes how levels are written)::

        "impossible": [{"sex": ["Male"], "alive": [false, null]},
                       {"age": [[17, 25]], "hours": [[60, 99]]}]

    An attribute that determines another one maps each of its levels; see ``docs/domain.md``::

        "determines": {"city": {"state": {"Boston": "MA", "Austin": "TX"}}}

    A draft (``domain_draft``) is refused until its open points are filled in. Attributes with
    ``"discover"`` are refused; ``read_open_domain`` reads them.

    Args:
        text: the JSON text, or a dict with the same structure.
        source: the origin of the text, for error messages.

    Raises:
        InputError: if the text is not JSON (with line and column), repeats a key or a name, has
            an open point, or does not describe a domain.

    Example:
        >>> parse_domain('{"attributes": [{"name": "alive", "type": "boolean"}]}').names
        ('alive',)
        >>> parse_domain({"age": 85, "sex": 2}).shape
        (85, 2)
    """
    return _declared(parse_open_domain(text, source), source)


def parse_open_domain(text: str | Mapping[str, Any], source: str = "<text>") -> Domain | OpenDomain:
    """Reads a domain like ``parse_domain``, or one with attributes to discover."""
    if not isinstance(text, str | Mapping):
        raise InputError("domain", text, "must be JSON text, or a dict of its form")
    parsed = checked_json("domain", source, text) if isinstance(text, str) else dict(text)
    try:
        return open_domain_from_json(parsed, source)
    except RecursionError:
        raise InputError("domain", source, "is nested too deeply") from None


def domain_from_json(parsed: Any, source: str = "<json>") -> Domain:
    """Returns the domain from parsed JSON in long or short form; inverts ``Domain.to_json``."""
    return _declared(open_domain_from_json(parsed, source), source)


def open_domain_from_json(parsed: Any, source: str = "<json>") -> Domain | OpenDomain:
    """Returns the domain from parsed JSON, which may have attributes to discover."""
    if not isinstance(parsed, dict):
        raise InputError("domain", source, "must be a JSON object")
    is_long = isinstance(parsed.get("attributes"), list | tuple)
    if not is_long:
        entries: list[Any] = [_from_size(name, size, source) for name, size in parsed.items()]
    else:
        for key in parsed:
            if key not in ("attributes", "impossible", "determines", "types_from"):
                raise InputError(
                    "domain", source, f"the key {shown(key)} is unknown next to attributes"
                )
        points = list(open_points(parsed["attributes"]))
        if points:
            more = f"; and {len(points) - 1:,} more" if len(points) > 1 else ""
            raise InputError("domain", source, f"{points[0]}{more}")
        entries = [
            _from_entry(entry, position, source)
            for position, entry in enumerate(parsed["attributes"], start=1)
        ]
    if not entries:
        raise InputError("domain", source, "must declare at least one attribute")
    try:
        has_mappings = is_long and "determines" in parsed
        mapped = determined_combinations(entries, parsed["determines"]) if has_mappings else ()
        written = parsed.get("impossible", ()) if is_long else ()
        types_from = parsed.get("types_from", "") if is_long else ""
        if any(isinstance(entry, OpenAttribute) for entry in entries):
            if mapped:
                written = (*written, *(combination_to_json(entries, rule) for rule in mapped))
            return OpenDomain(tuple(entries), written, types_from)
        domain = Domain(tuple(entries), types_from=types_from).with_impossible(written)
        return replace(domain, impossible=(*domain.impossible, *mapped)) if mapped else domain
    except InputError as error:
        raise _at(source, error) from None


def _from_size(name: str, size: object, source: str) -> attributes.Attribute:
    if not is_integer(size) or size < 1:
        raise InputError(
            "domain", source, f"the size {shown(size)} of {shown(name)} must be an integer >= 1"
        )
    try:
        return IntegerAttribute(name, 0, size - 1)
    except InputError as error:
        raise _at(source, error) from None


def _from_entry(entry: object, position: int, source: str) -> attributes.Attribute | OpenAttribute:
    """Builds one attribute of the long form; ``position`` counts from 1."""
    if not isinstance(entry, dict):
        raise InputError("domain", source, f"attribute {position} must be a JSON object")
    place = f"attribute {shown(entry.get('name', position))}"
    for key in ("name", "type"):
        if not isinstance(entry.get(key), str):
            raise InputError("domain", source, f"{place} must have a {key}, a string")
    kind = entry["type"]
    if kind not in (*_KINDS, UNTYPED):
        hint = attributes.nearest_known(kind, _KINDS)
        raise InputError("domain", source, f"{place} has the unknown type {shown(kind)}; {hint}")
    if "discover" in entry or kind == UNTYPED:
        try:
            return open_attribute(entry)
        except InputError as error:
            raise _at(source, error) from None
    build, required, optional = _KINDS[kind]
    keys = ("name", "type", "discover", *required, *optional, *_SHARED)
    for key in entry:
        if key not in keys:
            raise InputError("domain", source, f"{place} {_unknown_key(str(key), kind, keys)}")
    if kind == "numeric" and not entry.keys().isdisjoint(_EQUAL_WIDTH):
        entry = _with_edges(entry, place, source)
    for key in required:
        if key not in entry:
            raise InputError("domain", source, f"{place} must have {shown(key)}")
    arguments = {_ARGUMENTS.get(key, key): entry[key] for key in keys if key in entry}
    del arguments["type"]
    try:
        return build(**arguments)
    except InputError as error:
        raise _at(source, error) from None


def _with_edges(entry: dict[str, Any], place: str, source: str) -> dict[str, Any]:
    """Returns the entry with edges instead of equal bins; each edge is rounded only once."""
    for key in ("edges", "edges_from"):
        if key in entry:
            condition = f"{place} must have either {key}, or min, max and bins"
            raise InputError("domain", source, condition)
    for key in _EQUAL_WIDTH:
        if key not in entry:
            raise InputError("domain", source, f"{place} must have {shown(key)}")
    low, high, bins = (entry[key] for key in _EQUAL_WIDTH)
    for key, value in (("min", low), ("max", high)):
        if not is_number(value) or not abs(value) <= sys.float_info.max:
            condition = f"{place}, {key} = {shown(value)}: must be a finite number"
            raise InputError("domain", source, condition)
    if low >= high:
        condition = f"{place}, max = {shown(high)}: must be > the min {shown(low)}"
        raise InputError("domain", source, condition)
    if not is_integer(bins) or not 1 <= bins <= _MAX_BINS:
        condition = f"{place}, bins = {shown(bins)}: must be an integer from 1 to {_MAX_BINS:,}"
        raise InputError("domain", source, condition)
    # Numbers are read exactly: 0.1 is one tenth here, not the nearest float.
    start, width = Fraction(str(low)), (Fraction(str(high)) - Fraction(str(low))) / bins
    edges = [float(start + width * place) for place in range(bins + 1)]
    rest = {key: value for key, value in entry.items() if key not in _EQUAL_WIDTH}
    return {**rest, "edges": edges}


def _unknown_key(key: str, kind: str, keys: Sequence[str]) -> str:
    owners = [
        name for name, (_, required, optional) in _KINDS.items() if key in (*required, *optional)
    ]
    if owners:
        return f"is {kind}; {key} applies only to {', '.join(owners)}"
    return f"has the unknown key {shown(key)}; {attributes.nearest_known(key, keys)}"


def _at(source: str, error: InputError) -> InputError:
    """Returns the same error, with the domain file as the refused argument."""
    return InputError("domain", source, f"{error.name} = {shown(error.value)}: {error.condition}")


_OPEN, _CONFIRM = "open", "confirm"


class OpenPoint(NamedTuple):
    """A key of an attribute in a draft that a person must fill in or confirm."""

    attribute: Any
    key: str
    is_declared: bool
    words: Any

    @property
    def task(self) -> str:
        """The task for a person; its wording may come from the file."""
        if not self.is_declared:
            return str(self.words)
        return f"confirm {shown(self.words)}: public, and true of every value?"

    def __str__(self) -> str:
        key = self.key if self.key.isidentifier() else shown(self.key)
        place = f"attribute {shown(self.attribute)}, {key}"
        if self.is_declared:
            condition = "if it is public, and true of every value"
            return f"{place} is not confirmed: write {shown(self.words)} itself {condition}"
        return f"{place} is open: {shown(self.words)}"


def to_fill_in(what: str) -> dict[str, Any]:
    """Returns the placeholder for a value that a person must fill in."""
    return {_OPEN: what}


def to_confirm(value: Any) -> dict[str, Any]:
    """Returns the placeholder for a value that a schema declares and a person must confirm."""
    return {_CONFIRM: value}


def open_points(entries: Iterable[Any]) -> Iterator[OpenPoint]:
    """Yields the open points in the attributes of a domain file, given as parsed JSON."""
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        for key, value in entry.items():
            if isinstance(value, dict) and len(value) == 1:
                for mark in value.keys() & {_OPEN, _CONFIRM}:
                    yield OpenPoint(entry.get("name"), str(key), mark == _CONFIRM, value[mark])


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
