"""Integer and numeric attributes: levels that have an order."""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_dp.checks import is_integer, is_number
from beam_dp.domain.attributes import Attribute, PaidRelease, Value
from beam_dp.domain.texts import int64_of, number_of

_LARGEST_WHOLE = 2.0**53  # floats represent every integer up to this number exactly


@dataclass(frozen=True)
class OrderedAttribute(Attribute):
    """An attribute with ordered levels; ``clip`` replaces values beyond an end by that end."""

    clip: bool = field(default=False, kw_only=True)

    def regular(self) -> OrderedAttribute:
        """Returns the attribute without ``other`` and null, which have no place in the order."""
        return replace(self, other=False, nullable=False, null_values=())

    @property
    @abstractmethod
    def ends(self) -> tuple[Any, Any]:
        """The smallest and the largest value with a regular level, in comparable form."""

    def _is_level(self, value: str | int | float) -> bool:
        native = self._native(value)
        return native is not None and bool(self.ends[0] <= native <= self.ends[1])


@dataclass(frozen=True)
class IntegerAttribute(OrderedAttribute):
    """A column of integers from ``minimum`` to ``maximum``, both included.

    Args:
        minimum: lowest value.
        maximum: highest value, >= minimum.
        clip, other, nullable, null_values, case, trim: see ``OrderedAttribute``.

    Example:
        >>> IntegerAttribute("hours", 0, 99).size
        100
    """

    minimum: int
    maximum: int

    kind: ClassVar[str] = "integer"

    @property
    def num_levels(self) -> int:
        """Number of integers in the declared range."""
        return self.maximum - self.minimum + 1

    @property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest integer."""
        return self.minimum, self.maximum

    def _check(self) -> None:
        for argument in ("minimum", "maximum"):
            value = getattr(self, argument)
            if not (is_integer(value) or isinstance(value, np.integer)):
                raise self._refusal(argument, value, "must be an integer")
            object.__setattr__(self, argument, int(value))
            if not -(2**63) <= value < 2**63:
                raise self._refusal(argument, value, "must fit in 64 bits")
        if self.maximum < self.minimum:
            raise self._refusal("maximum", self.maximum, f"must be >= the minimum {self.minimum}")

    def _level_label(self, code: int) -> str:
        return str(self.minimum + code)

    def _decode_levels(self, codes: NDArray[np.int64]) -> list[Value]:
        levels: list[Value] = (codes + self.minimum).tolist()
        return levels

    def _native(self, value: str | int | float) -> int | None:
        if isinstance(value, str):
            return int64_of(value.encode())
        return value if isinstance(value, int) else None

    def _json_fields(self) -> dict[str, Any]:
        return {"min": self.minimum, "max": self.maximum}

    def _avro_members(self) -> list[Any]:
        return ["long"]


@dataclass(frozen=True)
class BinnedAttribute(OrderedAttribute):
    """An attribute whose levels are bins [low, high); the last bin also contains its upper edge.

    ``edges``: at least two edges, strictly increasing.
    ``edges_from``: the release from which the edges were computed; None for public edges.
    ``is_found``: whether the edges are, or stand for, those of a release. Nobody knows then which
    values there are, so a missing or unreadable one counts as null, or else in the middle bin.
    """

    edges: tuple[Any, ...]
    edges_from: PaidRelease | None = field(default=None, kw_only=True)
    is_found: bool = field(default=False, kw_only=True, repr=False, compare=False)

    edge_noun: ClassVar[str]
    edge_form: ClassVar[str] = ""

    @property
    def num_levels(self) -> int:
        """Number of bins."""
        return len(self.edges) - 1

    @property
    def outside_code(self) -> int | None:
        """See ``Attribute``; of found bins without ``other``, that of null or of the middle bin."""
        is_found = self.is_found or self.edges_from is not None
        if self.other or not is_found:
            return self.other_code
        return self.null_code if self.nullable else self.num_levels // 2

    @cached_property
    def midpoints(self) -> tuple[Any, ...]:
        """The released value for each bin, a value inside the bin."""
        return tuple(map(self._middle, self.edges, self.edges[1:]))

    @property
    @abstractmethod
    def whole_ends(self) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """The first and last integer (day, microsecond) in each bin; None for other values."""

    @property
    def bin_ends(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The smallest and the largest value that ``values_within`` may return for each bin."""
        if self.whole_ends is not None:
            return self.whole_ends
        edges = np.array(self.edges, np.float64)
        return edges[:-1], np.append(np.nextafter(edges[1:-1], -np.inf), edges[-1:])

    @property
    def places(self) -> NDArray[np.float64]:
        """The edges as numbers; whole numbers end before the next one begins."""
        first, last = self.bin_ends
        is_whole = self.whole_ends is not None
        return np.append(first, last[-1] + is_whole).astype(np.float64)

    def values_within(self, codes: ArrayLike, uniforms: NDArray[np.float64]) -> NDArray[Any]:
        """Returns a value in the bin of each code: int64 if there are ``whole_ends``, else float64.

        ``uniforms``: numbers in [0, 1), one per code, shape (n,). If the numbers are uniform, each
        value is uniform in its bin.
        """
        bins = np.asarray(codes, np.int64)
        if self.whole_ends is not None:
            first, last = (ends[bins] for ends in self.whole_ends)
            return np.minimum(first + (uniforms * (last - first + 1.0)).astype(np.int64), last)
        edges = np.array(self.edges, np.float64)
        low, high = edges[bins], edges[bins + 1]
        # Never computes a width, which might overflow; clips values that round up to the next bin.
        return np.clip(low * (1 - uniforms) + high * uniforms, low, np.nextafter(high, low))

    def bins_of(self, numbers: NDArray[Any]) -> NDArray[np.int64]:
        """Returns the bin of each value; -1 for values that ``values_within`` can't return."""
        first, last = self.bin_ends
        bins = np.searchsorted(first, numbers, "right") - 1
        return np.where((bins >= 0) & (numbers <= last[bins]), bins, -1)

    @abstractmethod
    def released(self, number: float) -> Value:
        """Converts a number returned by ``values_within`` to a released value."""

    def edge_place(self, written: object) -> int | None:
        """Returns the position of an edge that a user wrote, or None."""
        edge = self._read_edge(written)
        if edge is None:
            return None
        place = bisect_left(self.edges, edge)
        return place if place < len(self.edges) and self.edges[place] == edge else None

    def edges_to_json(self) -> list[Any]:
        """Returns the edges as JSON values of a domain file."""
        return list(map(self._edge_to_json, self.edges))

    def _check(self) -> None:
        given: object = self.edges  # of any type, from a caller or a file
        if isinstance(given, str) or not isinstance(given, (Sequence, np.ndarray)):
            raise self._refusal("edges", given, f"must be a list of {self.edge_noun}s")
        edges: list[Any] = []
        for written in given:
            edge = self._read_edge(written)
            if edge is None:
                raise self._refusal("edges", written, f"must be a {self.edge_noun}{self.edge_form}")
            edge = self._checked_edge(edge, edges)
            if edges and not edges[-1] < edge:
                before = self._edge_to_json(edges[-1])
                raise self._refusal("edges", written, f"must be > the edge before it, {before!r}")
            edges.append(edge)
        if len(edges) < 2:
            raise self._refusal("edges", given, "must list at least two edges")
        object.__setattr__(self, "edges", tuple(edges))
        self._check_origin("edges_from")

    def typed_edges(self) -> list[Any]:
        """Returns the edges as people type them, such as 0 for 0.0."""
        return self.edges_to_json()

    def _level_label(self, code: int) -> str:
        low, high = map(self._edge_label, self.edges[code : code + 2])
        return f"[{low}, {high}{']' if code == self.num_levels - 1 else ')'}"

    def _decode_levels(self, codes: NDArray[Any]) -> list[Value]:
        return [self.midpoints[code] for code in codes.tolist()]

    def _json_fields(self) -> dict[str, Any]:
        return {"edges": self.edges_to_json(), **self._origin("edges_from")}

    @abstractmethod
    def _read_edge(self, written: object) -> Any:
        """Returns the edge that a user wrote, in comparable form; None if it is invalid."""

    def _checked_edge(self, edge: Any, before: Sequence[Any]) -> Any:
        """Returns an edge as stored; refuses an edge that does not fit the edges before it."""
        return edge

    @abstractmethod
    def _edge_to_json(self, edge: Any) -> Any:
        """Returns an edge as a JSON value of a domain file."""

    def _edge_label(self, edge: Any) -> str:
        return str(self._edge_to_json(edge))

    @abstractmethod
    def _middle(self, low: Any, high: Any) -> Any:
        """Returns a value in [low, high), close to the middle."""


@dataclass(frozen=True)
class NumericAttribute(BinnedAttribute):
    """A column of numbers in declared bins [low, high); the last bin also contains its upper edge.

    Args:
        edges: at least two finite numbers, strictly increasing.
        whole: whether all numbers in the column are whole; then released numbers are whole, too.
        edges_from: see ``BinnedAttribute``.
        clip, other, nullable, null_values, case, trim: see ``OrderedAttribute``.

    Example:
        >>> age = NumericAttribute("age", (17, 25, 35))
        >>> age.labels(), age.decode([0, 1])
        (('[17, 25)', '[25, 35]'), [21.0, 30.0])
    """

    edges: tuple[float, ...]
    whole: bool = field(default=False, kw_only=True)

    kind: ClassVar[str] = "numeric"
    edge_noun: ClassVar[str] = "number"
    null_types: ClassVar[dict[type, str]] = {str: "a string", int: "an integer", float: "a number"}

    @property
    def ends(self) -> tuple[float, float]:
        """The first and the last edge."""
        return self.edges[0], self.edges[-1]

    @cached_property
    def midpoints(self) -> tuple[Any, ...]:
        """See ``BinnedAttribute``; whole numbers if ``whole`` is true."""
        if self.whole_ends is None:
            return tuple(map(self._middle, self.edges, self.edges[1:]))
        first, last = self.whole_ends
        return tuple(((first + last) // 2).tolist())

    @cached_property
    def inner_edges(self) -> NDArray[np.float64]:
        """All edges but the first and the last one."""
        return np.array(self.edges[1:-1], np.float64)

    @cached_property
    def whole_ends(self) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """See ``BinnedAttribute``; None unless ``whole`` is true."""
        if not self.whole:
            return None
        first = np.ceil(self.edges).astype(np.int64)
        last = np.append(first[1:-1] - 1, math.floor(self.edges[-1]))
        return first[:-1], last

    def _level_label(self, code: int) -> str:
        if self.whole_ends is not None:
            first, last = (int(ends[code]) for ends in self.whole_ends)
            if first == last:
                return str(first)
        return super()._level_label(code)

    def released(self, number: float) -> Value:
        """Returns the number as a Python int or float."""
        return int(number) if self.whole else float(number)

    def _check(self) -> None:
        if not self._has_many_edges():
            super()._check()
        for edge in self.edges[:: len(self.edges) - 1] if self.whole else ():
            if not abs(edge) <= _LARGEST_WHOLE:
                raise self._refusal("edges", edge, "must be within 2^53 of 0 for whole numbers")
        if self.whole_ends is not None:
            for place in np.flatnonzero(np.greater(*self.whole_ends)).tolist():
                bin_edges = self.typed_edges()[place : place + 2]
                raise self._refusal("edges", bin_edges, "must have a whole number in each bin")

    def _has_many_edges(self) -> bool:
        """Returns whether these are the edges of leaves, which are checked at once."""
        if type(self.edges) is not tuple or len(self.edges) < 1000 or self.edges_from is not None:
            return False
        if set(map(type, self.edges)) != {float}:
            return False
        edges = np.array(self.edges)
        return bool(np.isfinite(edges).all() and (edges[:-1] < edges[1:]).all())

    def _read_edge(self, written: object) -> Any:
        return written if is_number(written) or isinstance(written, np.number) else None

    def _checked_edge(self, edge: Any, before: Sequence[Any]) -> float:
        try:
            number = float(edge)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self._refusal("edges", edge, "must be finite")
        return number

    def _native(self, value: str | int | float) -> float | None:
        number = number_of(value.encode()) if isinstance(value, str) else float(value)
        return number if number is not None and math.isfinite(number) else None

    def _edge_to_json(self, edge: float) -> float:
        return edge

    def typed_edges(self) -> list[Any]:
        """See ``BinnedAttribute``."""
        return [_typed(edge) for edge in self.edges]

    def _edge_label(self, edge: float) -> str:
        return repr(_typed(edge))

    def _middle(self, low: float, high: float) -> float:
        width = high - low
        middle = low + width / 2 if math.isfinite(width) else low / 2 + high / 2
        return middle if middle < high else low

    def _avro_members(self) -> list[Any]:
        return [{"type": "long" if self.whole else "double", "edges": self.edges_to_json()}]


def _typed(edge: float) -> int | float:
    return int(edge) if edge.is_integer() and abs(edge) < 1e15 else edge
