"""Domains with attributes whose values or edges a private release still has to find."""

from __future__ import annotations

import datetime
import decimal
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

from numpy.typing import NDArray

from beam_dp.checks import checked_integer, is_integer, is_number
from beam_dp.domain.attributes import (
    OTHER_LABEL,
    Attribute,
    CategoricalAttribute,
    PaidRelease,
    Value,
    is_unicode,
    nearest_known,
)
from beam_dp.domain.dates import DateAttribute, DatetimeAttribute
from beam_dp.domain.ordered import BinnedAttribute, NumericAttribute
from beam_dp.domain.readings import READINGS, UNTYPED, ReadingsAttribute
from beam_dp.domain.texts import number_of, time_of
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError, shown

# The leaves of a range of numbers: small public bins, which a private release joins to bins.
#
# Equal leaves would be too wide: of a range from 0 to 10,000,000, most incomes lie in the first
# hundredth. So leaves are narrow near 0, and nowhere wider than a thousandth of the range or of
# their distance from 0: years and times far from 0 have leaves as fine as small numbers.


# Numbers with four digits: 9,000 per power of 10.
_DIGITS = range(1_000, 10_000)
# So many powers of 10 below that of the largest number; smaller numbers share a leaf with 0.
_POWERS = 7
# The range has at least so many equal steps, of 1, 2 or 5 times a power of 10.
_EQUAL_STEPS = 1000
# Without a declared range: numbers up to this magnitude, and down to 10^-3.
LARGEST, _ALL_POWERS = 10.0**12, 15


@functools.lru_cache
def number_leaves(
    low: float | None, high: float | None, *, whole: bool = False
) -> tuple[float, ...]:
    """Returns the increasing edges of the leaves of a range of numbers, readable ones inside.

    The edges are both ends, all multiples in the range of a step of about a thousandth of it, and
    the numbers with four digits, down to 10^-7 of the largest power of 10. So a leaf is at most a
    thousandth as wide as its distance from 0, or lies next to 0. There are at most 271,000 leaves.

    ``low, high``: finite numbers, low < high; None for both ends, to cover all numbers up to 10^12
    in magnitude, down to 10^-3 next to 0.
    ``whole``: whether to return whole numbers only; then ``low`` and ``high`` must be whole.

    Example:
        >>> edges = number_leaves(0, 10_000_000)
        >>> [edge for edge in edges if 30_000 <= edge < 30_040]
        [30000.0, 30010.0, 30020.0, 30030.0]
        >>> len(edges)
        63002
    """
    powers = _POWERS
    if low is None or high is None:
        low, high, powers = -LARGEST, LARGEST, _ALL_POWERS
    first, last = float(low), float(high)
    largest = decimal.Decimal(max(abs(first), abs(last))).adjusted()
    magnitudes = [
        float(f"{digits}e{power}")
        for power in range(largest - 3, largest - 4 - powers, -1)
        for digits in _DIGITS
    ]
    edges = {first, last, 0.0, *magnitudes, *(-number for number in magnitudes)}
    edges.update(_multiples(first, last) if powers == _POWERS else ())
    kept = (edge for edge in edges if first <= edge <= last and (not whole or edge.is_integer()))
    return tuple(sorted(edge + 0.0 for edge in kept))  # no negative zero


def _multiples(low: float, high: float) -> list[float]:
    """Returns the multiples in a range of the largest readable step that is small enough."""
    limit = (Fraction(high) - Fraction(low)) / _EQUAL_STEPS
    power = (decimal.Decimal(limit.numerator) / limit.denominator).adjusted()
    while Fraction(10) ** power > limit:
        power -= 1
    factor = next(digit for digit in (5, 2, 1) if digit * Fraction(10) ** power <= limit)
    step = factor * Fraction(10) ** power
    numbers = range(math.ceil(Fraction(low) / step), math.floor(Fraction(high) / step) + 1)
    return [float(f"{number * factor}e{power}") for number in numbers]


MAX_VALUES, MAX_BINS = 100_000, 1_024
MAX_LEAVES = 2**14  # of a range of dates or times
MAX_TEXT_BYTES = 256  # a longer text has no level of its own
# Sums that find values are integers in steps of 1 / GRID of a privacy unit.
GRID = 2**20
# Leaves are counted level by level; a level divides what the one before left into about so many
# cells.
NUM_CELLS = 16
_BINNED = {"date": DateAttribute, "datetime": DatetimeAttribute, "numeric": NumericAttribute}
OPEN_KINDS = ("categorical", *_BINNED)
_SHARED = ("nullable", "null_values", "case", "trim")
_ANY = "any_type"  # for a column whose type was found
_TAKEN_BY = "beam-dp release-synthetic-database"
_NONE_FOUND = "(none found)"  # the level of a column for which nothing was found or included

Found = Sequence[str] | Sequence[float]


@dataclass(frozen=True)
class DiscoverValues:
    """Finds at most ``max_values`` texts of a column; ``include``: public texts, always levels."""

    max_values: int
    include: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checked_integer("max_values", self.max_values, 1, MAX_VALUES)
        given: object = self.include
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise InputError("include", given, "must be a list of strings")
        for text in given:
            is_short = isinstance(text, str) and is_unicode(text)
            if not is_short or len(text.encode()) > MAX_TEXT_BYTES:
                condition = f"must be a string of at most {MAX_TEXT_BYTES} bytes of UTF-8"
                raise InputError("include", text, condition)
        object.__setattr__(self, "include", tuple(given))

    def to_json(self) -> dict[str, Any]:
        """Returns the entry of a domain file."""
        included = {"include": list(self.include)} if self.include else {}
        return {"max_values": self.max_values, **included}


@dataclass(frozen=True)
class DiscoverBins:
    """Finds at most ``bins`` bins of a column, between two public ends as a domain file has them.

    Without ends, numbers up to 10^12 in magnitude are expected; dates and times need ends.
    """

    bins: int
    low: Any = None
    high: Any = None

    def __post_init__(self) -> None:
        checked_integer("bins", self.bins, 2, MAX_BINS)
        if (self.low is None) != (self.high is None):
            name = "max" if self.high is None else "min"
            raise InputError(name, None, "must be given with the other end of the range")

    def to_json(self) -> dict[str, Any]:
        """Returns the entry of a domain file."""
        ends = {} if self.low is None else {"min": self.low, "max": self.high}
        for name, end in ends.items():
            ends[name] = end.isoformat() if isinstance(end, datetime.date) else end
        return {"bins": self.bins, **ends}


_ARGUMENTS = {"min": "low", "max": "high"}
_KEYS = {DiscoverValues: ("max_values", "include"), DiscoverBins: ("bins", "min", "max")}


@dataclass(frozen=True)
class OpenAttribute:
    """A column whose values or bins, or first whose type, are found by a private release.

    Args:
        name: the column's name.
        kind: ``categorical``, ``numeric``, ``date`` or ``datetime``; ``discover`` for any of them.
        discover: what to find: values of a categorical column, bins of the others; else None.
        other: whether unreadable values of a binned column have a level; the values of a
            categorical column that are not found always have one.
        whole: whether all numbers of a numeric column are whole.
        nullable, null_values, case, trim, any_type: see ``Attribute``.

    Example:
        >>> income = OpenAttribute("income", "numeric", DiscoverBins(20, 0, 8192), whole=True)
        >>> income.leaves.num_levels, income.leaves.edges[:3]
        (8193, (0.0, 1.0, 2.0))
        >>> income.closed(income.edges_at([0, 20, 8193])).labels()
        ('[0, 20)', '[20, 8192]')
    """

    name: str
    kind: str
    discover: DiscoverValues | DiscoverBins | None = None
    other: bool = field(default=False, kw_only=True)
    whole: bool = field(default=False, kw_only=True)
    nullable: bool = field(default=False, kw_only=True)
    null_values: tuple[str | int | float, ...] = field(default=(), kw_only=True)
    case: str = field(default="exact", kw_only=True)
    trim: bool = field(default=False, kw_only=True)
    any_type: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        _check_kind(self.name, self.kind)
        values: dict[str, type] = {"categorical": DiscoverValues, UNTYPED: type(None)}
        wanted = values.get(self.kind, DiscoverBins)
        if not isinstance(self.discover, wanted):
            condition = f"must be {wanted.__name__.removesuffix('Type')} for a {self.kind} column"
            raise self._refusal("discover", type(self.discover).__name__, condition)
        if self.whole and self.kind != "numeric":
            raise self._refusal("whole", self.whole, "applies only to numeric")
        if not self.has_type:
            self._check_nulls()
            return
        if self.has_values:
            object.__setattr__(self, "other", True)
        # Leaves are cached by column, and a file's lists cannot be hashed: check fields before.
        first = self.texts if self.has_values else self._made_leaves()
        object.__setattr__(self, "null_values", first.null_values)
        self._checked()

    def _check_nulls(self) -> None:
        """Refuses null values that a type which may be found does not have."""
        object.__setattr__(self, "null_values", self.bounded().null_values)
        for null in self.null_values:
            text = str(null).encode()
            if isinstance(null, int) or (number_of(text), time_of(text)) != (None, None):
                condition = "must be text that is no number and no date, as the type is not known"
                raise self._refusal("null_values", null, condition)

    def _checked(self) -> Attribute:
        """Returns an attribute that stands in for the found one, and checks all other fields."""
        return self.bounded() if self.has_bins else self.texts if self.has_type else self.leaves

    @property
    def has_type(self) -> bool:
        """Whether the type is known."""
        return self.kind != UNTYPED

    @property
    def has_bins(self) -> bool:
        """Whether bins of the column are found."""
        return isinstance(self.discover, DiscoverBins)

    @property
    def measured(self) -> str:
        """What a release measures of the column, as its card says."""
        return self.name if self.has_type else f"type of {self.name}"

    def typed(self, reading: str = "text") -> OpenAttribute:
        """Returns the column with the type of one of ``READINGS``."""
        kept = {**self._shared(), _ANY: True}
        return open_attribute({"name": self.name, **READINGS[reading], **kept})

    @property
    def has_values(self) -> bool:
        """Whether the values of the column are found, rather than bins."""
        return isinstance(self.discover, DiscoverValues)

    @cached_property
    def texts(self) -> CategoricalAttribute:
        """A categorical attribute of the included texts; texts to count are ``other``."""
        assert isinstance(self.discover, DiscoverValues)
        try:
            return self._listed(self.discover.include)
        except InputError as error:
            argument = error.name.replace(", values", ", discover, include")
            raise InputError(argument, error.value, error.condition) from None

    @property
    def leaves(self) -> BinnedAttribute:
        """The small bins that are counted. Found bins consist of them; the ends hold all beyond."""
        return _leaves_of(self)

    def _made_leaves(self) -> Any:
        if not self.has_type:  # readings are counted as leaves are
            return ReadingsAttribute(self.name, **{**self._shared(), _ANY: True})
        assert isinstance(self.discover, DiscoverBins)
        low, high = self.discover.low, self.discover.high
        if self.kind != "numeric":
            return self._in_bins(self._moments(self.discover))
        if low is None:
            return self._at_edges(number_leaves(None, None, whole=self.whole))
        for name, end in (("min", low), ("max", high)):
            if not is_number(end) or not abs(end) <= 2.0**1022:
                raise self._refusal(name, end, "must be a number within 2^1022 of 0")
            is_whole = is_integer(end) or end == int(end)
            if self.whole and not (is_whole and abs(end) <= 2**53):
                condition = "must be a whole number within 2^53 of 0, as whole is true"
                raise self._refusal(name, end, condition)
        if not low < high:
            raise self._refusal("max", high, f"must be > the min {shown(low)}")
        if not self.whole:
            return self._at_edges(number_leaves(low, high))
        edges = number_leaves(int(low), int(high) + 1, whole=True)
        # The last bin includes its last edge, but must not include a larger integer.
        return self._at_edges((*edges[:-1], _last(edges[-2], int(high))))

    def _at_edges(self, edges: tuple[float, ...]) -> BinnedAttribute:
        """Returns leaves at edges of ``number_leaves``, which need no check; there are many."""
        return _with_edges(self._in_bins([edges[0], edges[-1]]), NumericAttribute, edges)

    def _moments(self, ends: DiscoverBins) -> list[Any]:
        """Returns the edges of leaves of a range of dates or times."""
        if ends.low is None:
            raise self._refusal("discover", ends.to_json(), "must have a min and a max")
        try:
            first, last = self._in_bins([ends.low, ends.high]).edges
        except InputError as error:
            raise self._refusal("discover, min and max", error.value, error.condition) from None
        one = datetime.timedelta(days=1) if self.kind == "date" else datetime.timedelta.resolution
        length = (last - first) // one
        parts = min(MAX_LEAVES, length)
        return [first + length * place // parts * one for place in range(parts + 1)]

    def closed(self, levels: Found, origin: PaidRelease | None = None) -> Attribute:
        """Returns the attribute with what a release found.

        ``levels``: texts in the form in which they are compared, without the included ones; or the
        edges of bins, as a domain file has them.
        """
        if isinstance(self.discover, DiscoverValues):
            label = self.texts.normal(OTHER_LABEL)  # this text cannot be a level next to other
            values = [str(text) for text in levels if self.texts.normal(str(text)) != label]
            return replace(self._listed((*self.discover.include, *values)), values_from=origin)
        return replace(self._in_bins(levels), edges_from=origin, is_found=True)

    def edges_at(self, places: Sequence[int]) -> list[Any]:
        """Returns the edges of bins as a domain file has them.

        ``places``: increasing positions of at least two edges among those of ``leaves``.
        """
        edges: list[Any] = [self.leaves.edges[place] for place in places]
        if self.whole and isinstance(self.discover, DiscoverBins):
            # The last bin includes its last edge, which is the largest number that it may hold: one
            # below a leaf's upper edge, except at the end of a declared range.
            is_end = places[-1] == self.leaves.num_levels and self.discover.low is not None
            edges[-1] = _last(edges[-2], math.floor(edges[-1]) - (not is_end))
        if self.kind == "date" and places[-1] < self.leaves.num_levels:
            day_before = edges[-1] - datetime.timedelta(days=1)
            edges[-1] = max(day_before, edges[-2] + datetime.timedelta(days=1))
        return self._in_bins(edges).edges_to_json()

    def bounded(self) -> Attribute:
        """Returns the largest attribute that may be found; bins have equally many leaves."""
        if self.discover is None:
            return self.typed().bounded()
        if isinstance(self.discover, DiscoverBins):
            last = self.leaves.num_levels
            bins = min(self.discover.bins, last)
            places = [last * place // bins for place in range(bins + 1)]
            return self.closed(self.edges_at(places))
        included = self.discover.include
        size = len(included) + self.discover.max_values
        return LargestAttribute(
            self.name, self.texts.values, num_values=size, other=True, **self._shared()
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the attribute as one entry of a domain file."""
        entry: dict[str, Any] = {"name": self.name, "type": self.kind}
        entry |= {} if self.discover is None else {"discover": self.discover.to_json()}
        shared = self._checked().to_json()
        kept = (*_SHARED, "whole", *(("other",) if self.has_bins else ()))
        entry |= {key: shared[key] for key in kept if key in shared}
        return entry | ({_ANY: True} if self.any_type else {})

    def _listed(self, values: Sequence[str]) -> CategoricalAttribute:
        listed = tuple(values) or (_NONE_FOUND,)
        return CategoricalAttribute(self.name, listed, other=True, **self._shared())

    def _in_bins(self, edges: Sequence[Any]) -> BinnedAttribute:
        more = {"whole": True} if self.whole else {}
        build: Any = _BINNED[self.kind]
        binned: BinnedAttribute = build(
            self.name, edges, clip=True, other=self.other, **more, **self._shared()
        )
        return binned

    def _shared(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*_SHARED, _ANY)}

    def _refusal(self, argument: str, value: object, condition: str) -> InputError:
        return InputError(f"attribute {shown(self.name)}, {argument}", value, condition)


class _NumberLeaves(NumericAttribute):
    """Leaves of numbers: so many that they are pickled as the column that they are of."""

    column: OpenAttribute

    def __reduce__(self) -> tuple[Any, ...]:
        return _leaves_of, (self.column,)


@lru_cache(maxsize=1024)
def _leaves_of(column: OpenAttribute) -> BinnedAttribute:
    leaves: BinnedAttribute = column._made_leaves()
    if isinstance(leaves, NumericAttribute):
        leaves = _with_edges(leaves, _NumberLeaves, leaves.edges)
        object.__setattr__(leaves, "column", column)
    return leaves


def _with_edges(
    attribute: BinnedAttribute, kind: type[NumericAttribute], edges: tuple[float, ...]
) -> NumericAttribute:
    """Returns an attribute with other edges and the same fields, without checking them again."""
    leaves = object.__new__(kind)
    for each in fields(attribute):
        object.__setattr__(leaves, each.name, getattr(attribute, each.name))
    object.__setattr__(leaves, "edges", edges)
    return leaves


@dataclass(frozen=True)
class LargestAttribute(CategoricalAttribute):
    """A column with the largest number of values that may be found.

    Only the values that the domain file includes have texts: plans need nothing but the number.
    """

    num_values: int = field(kw_only=True)

    @property
    def num_levels(self) -> int:
        """Number of values."""
        return self.num_values

    def _level_label(self, code: int) -> str:
        return str(self.values[code]) if code < len(self.values) else f"value {code + 1}"

    def _decode_levels(self, codes: NDArray[Any]) -> list[Value]:
        return [self._level_label(code) for code in codes.tolist()]


def open_attribute(entry: Mapping[str, Any]) -> OpenAttribute:
    """Returns the attribute of an entry of a domain file with the key or the type ``discover``.

    ``entry``: has a name and a type, both strings; other keys and values are checked.
    """
    name, kind, written = entry["name"], entry["type"], entry.get("discover")
    place = f"attribute {shown(name)}"
    _check_kind(name, kind)
    if kind == UNTYPED:
        for key in sorted(entry.keys() - {"name", "type", *_SHARED}):
            condition = f"must not be given with the type {UNTYPED}"
            raise InputError(f"{place}, {key}", entry[key], condition)
        return OpenAttribute(name, kind, **{key: entry[key] for key in _SHARED if key in entry})
    if not isinstance(written, Mapping):
        raise InputError(f"{place}, discover", written, "must be a JSON object")
    build = DiscoverValues if kind == "categorical" else DiscoverBins
    more = {"categorical": (), "numeric": ("whole", "other")}.get(kind, ("other",))
    keys = ("name", "type", "discover", *more, *_SHARED)
    for key in entry:
        if key in ("values", "edges", "min", "max", "bins"):
            inside = f": write {key} inside discover" if key in _KEYS[build] else ""
            condition = f"must not be given together with discover{inside}"
            raise InputError(f"{place}, {key}", entry[key], condition)
        if key not in (*keys, _ANY):
            condition = f"is unknown next to discover; {nearest_known(str(key), keys)}"
            raise InputError(f"{place}, key", key, condition)
    for key in written:
        if key not in _KEYS[build]:
            condition = f"is unknown for {kind}; {nearest_known(str(key), _KEYS[build])}"
            raise InputError(f"{place}, discover, key", key, condition)
    arguments: dict[str, Any] = {
        _ARGUMENTS.get(str(key), str(key)): written[key] for key in written
    }
    first = _KEYS[build][0]
    if first not in written:
        raise InputError(f"{place}, discover", dict(written), f"must have {shown(first)}")
    try:
        discover: Any = build(**arguments)
    except InputError as error:
        name_of = f"{place}, discover, {error.name}"
        raise InputError(name_of, error.value, error.condition) from None
    kept: dict[str, Any] = {key: entry[key] for key in (*more, *_SHARED, _ANY) if key in entry}
    return OpenAttribute(name, kind, discover, **kept)


def levels_of(num_leaves: int) -> list[int]:
    """Returns the number of cells of each level: levels go on until cells can be leaves."""
    levels = [num_leaves]
    while NUM_CELLS ** len(levels) < num_leaves:
        levels.insert(0, NUM_CELLS)
    return levels


def _check_kind(name: object, kind: object) -> None:
    if kind not in (*OPEN_KINDS, UNTYPED):
        condition = f"must be {', '.join(OPEN_KINDS[:-1])} or {OPEN_KINDS[-1]} to be discovered"
        raise InputError(f"attribute {shown(name)}, type", kind, condition)


@dataclass(frozen=True)
class OpenDomain:
    """Declared attributes, and attributes whose values or bins a private release finds.

    Args:
        attributes: the columns in order, with distinct names, at least one of them open.
        impossible: combinations as a domain file has them (``Domain.with_impossible``). Of an open
            attribute they may name null and the included values only.
        types_from: see ``Domain``.
    """

    attributes: tuple[Attribute | OpenAttribute, ...]
    impossible: tuple[Mapping[str, Sequence[Any]], ...] = ()
    types_from: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", tuple(self.attributes))
        if not self.open:
            raise InputError("domain", list(self.names), "must have an attribute to discover")
        written: object = self.impossible
        if isinstance(written, list | tuple):
            object.__setattr__(self, "impossible", tuple(written))
            self._check_levels()
        self.bounded()  # checks names and combinations

    def _check_levels(self) -> None:
        """Refuses levels of open attributes that a release may or may not find."""
        public = {
            each.name: (*getattr(each.discover, "include", ()), *([None] if each.nullable else []))
            for each in self.attributes
            if isinstance(each, OpenAttribute)
        }
        for number, levels in enumerate(self.impossible, start=1):
            for name, listed in levels.items() if isinstance(levels, Mapping) else ():
                for level in listed if name in public and isinstance(listed, list | tuple) else ():
                    if level not in public[name]:
                        condition = (
                            'must be a value in "include" or null: what else a release finds is'
                            " not known"
                        )
                        raise InputError(f"impossible {number}, {shown(name)}", level, condition)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The attributes' names, in order."""
        return tuple(attribute.name for attribute in self.attributes)

    @cached_property
    def open(self) -> tuple[OpenAttribute, ...]:
        """What the next release discovers, in order: the types of columns, or else the rest."""
        columns = [column for column in self.attributes if isinstance(column, OpenAttribute)]
        return tuple(column for column in columns if not column.has_type) or tuple(columns)

    @property
    def lacks_types(self) -> bool:
        """Whether the next release discovers types."""
        return not self.open[0].has_type

    def typed(self, readings: Mapping[str, str] | None = None) -> OpenDomain:
        """Returns the domain with types: those of the largest domain, text, if none are given."""
        readings = dict.fromkeys(self.names, "text") if readings is None else readings
        types = {column.name: column.typed(readings[column.name]) for column in self.open}
        attributes = tuple(types.get(column.name, column) for column in self.attributes)
        return replace(self, attributes=attributes) if self.lacks_types else self

    @cached_property
    def declared(self) -> Domain | None:
        """The domain of the declared attributes; None if all are open."""
        declared = tuple(column for column in self.attributes if isinstance(column, Attribute))
        if not declared:
            return None
        names = {each.name for each in declared}
        kept = [each for each in self.impossible if names.issuperset(each)]
        return Domain(declared).with_impossible(kept)

    def bounded(self) -> Domain:
        """Returns the largest domain that may be found (``OpenAttribute.bounded``)."""
        return self._bounded

    @cached_property
    def _bounded(self) -> Domain:
        return self._with_impossible([_bounded(attribute) for attribute in self.attributes])

    def closed(self, levels: Mapping[str, Found], origin: PaidRelease | None = None) -> Domain:
        """Returns the domain with what a release found, by attribute (``OpenAttribute.closed``)."""
        return self._with_impossible(
            [
                each.closed(levels[each.name], origin) if isinstance(each, OpenAttribute) else each
                for each in self.attributes
            ]
        )

    def _with_impossible(self, attributes: Sequence[Attribute]) -> Domain:
        domain = Domain(tuple(attributes), types_from=self.types_from)
        return domain.with_impossible(self.impossible)

    def to_json(self) -> dict[str, Any]:
        """Returns the content of the domain file."""
        parsed: dict[str, Any] = {"attributes": [column.to_json() for column in self.attributes]}
        if self.impossible:
            parsed["impossible"] = [dict(levels) for levels in self.impossible]
        return parsed | ({"types_from": self.types_from} if self.types_from else {})

    def refusal(self, source: str) -> InputError:
        """Returns the error of a place that needs a domain without open attributes."""
        names = ", ".join(shown(attribute.name) for attribute in self.open[:3])
        more = ", ..." if len(self.open) > 3 else ""
        condition = (
            f"must declare the levels of {names}{more}: only {_TAKEN_BY} takes a domain with"
            " discover"
        )
        return InputError("domain", source, condition)


def _bounded(attribute: Attribute | OpenAttribute) -> Any:
    return attribute.bounded() if isinstance(attribute, OpenAttribute) else attribute


def _last(before: float, most: float) -> float:
    """Returns the last edge of bins of whole numbers up to ``most``."""
    return most if before < most else before + 0.5
