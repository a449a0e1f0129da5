"""Declared columns: the levels that each kind of attribute has, and how they are numbered."""

from __future__ import annotations

import difflib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_dp.errors import InputError, shown

Value = str | int | float | bool | None

OTHER_LABEL = "other"
NULL_LABEL = "null"
_COMPARED_NAMES, _COMPARED_LETTERS = 1000, 200
MAX_INDEXED_CELLS = 2**62  # indices and every intermediate product stay inside int64


def nearest_known(name: str, known: Iterable[str], *, list_all: bool = True) -> str:
    """Returns a clause that names what the caller may have meant, for the end of a refusal.

    Args:
        name: what the caller wrote.
        known: what would have been accepted.
        list_all: whether to list known names when none is near.

    Returns:
        The nearest known name; when none is near, the first few known names, or nothing.

    Example:
        >>> nearest_known("agee", ["sex", "age"])
        "the nearest known is 'age'"
        >>> nearest_known("zzz", ["sex", "age"])
        "known are 'sex', 'age'"
    """
    names = list(known)
    # Comparing takes the product of the lengths, and a file may hold names of any length.
    comparable = [each for each in names[:_COMPARED_NAMES] if len(each) <= _COMPARED_LETTERS]
    is_comparable = len(name) <= _COMPARED_LETTERS
    near = difflib.get_close_matches(name, comparable, n=1) if is_comparable else []
    if near:
        return f"the nearest known is {shown(near[0])}"
    if not list_all:
        return ""
    listed = ", ".join(shown(each) for each in names[:8])
    return f"known are {listed}" + (", ..." if len(names) > 8 else "")


@dataclass(frozen=True)
class Attribute(ABC):
    """One declared column: a public list of levels, numbered from 0.

    Codes are, in this order, the regular levels, then ``other`` where declared (every value
    outside the regular levels), then null where ``nullable`` (null is a level of its own).

    Args:
        name: the column's name, not empty.
        other: whether values outside the declared ones have a level.
        nullable: whether null has a level.
    """

    name: str
    other: bool = field(default=False, kw_only=True)
    nullable: bool = field(default=False, kw_only=True)

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or not _is_unicode(self.name):
            raise InputError("attribute name", self.name, "must be a non-empty Unicode string")
        for flag in ("other", "nullable"):
            if not isinstance(getattr(self, flag), bool):
                raise self._refusal(flag, getattr(self, flag), "must be true or false")
        self._check()
        if self.size > MAX_INDEXED_CELLS:
            raise self._refusal("size", self.size, "must be at most 2^62 codes")

    @property
    @abstractmethod
    def num_levels(self) -> int:
        """Number of regular levels, without ``other`` and null."""

    @property
    def size(self) -> int:
        """Number of codes."""
        return self.num_levels + self.other + self.nullable

    @property
    def other_code(self) -> int | None:
        """The code of values outside the declared ones, or None where they have no level."""
        return self.num_levels if self.other else None

    @property
    def null_code(self) -> int | None:
        """The code of null, or None where null has no level."""
        return self.num_levels + self.other if self.nullable else None

    def label(self, code: int) -> str:
        """Returns what people read for one code."""
        if not 0 <= code < self.size:
            raise IndexError(f"code {code} of attribute {self.name!r} is not in 0..{self.size - 1}")
        if code == self.other_code:
            return OTHER_LABEL
        if code == self.null_code:
            return NULL_LABEL
        return self._level_label(code)

    def labels(self) -> tuple[str, ...]:
        """Returns what people read, one label a code. Cost: O(size)."""
        return tuple(self.label(code) for code in range(self.size))

    def decode(self, codes: ArrayLike) -> list[Value]:
        """Returns the released values: level, integer, bin midpoint, ``"other"`` or None.

        Args:
            codes: shape (n,), integers in ``0..size-1``.

        Returns:
            n Python values.
        """
        array = np.asarray(codes, dtype=np.int64)
        if array.size and (int(array.min()) < 0 or int(array.max()) >= self.size):
            raise IndexError(f"codes of attribute {self.name!r} must be in 0..{self.size - 1}")
        special = array >= self.num_levels
        values = self._decode_levels(np.where(special, 0, array))
        for position in np.flatnonzero(special).tolist():
            values[position] = OTHER_LABEL if array[position] == self.other_code else None
        return values

    def to_json(self) -> dict[str, Any]:
        """Returns the attribute as one entry of a domain file."""
        entry: dict[str, Any] = {"name": self.name, "type": self.kind, **self._json_fields()}
        for flag in ("other", "nullable"):
            if getattr(self, flag):
                entry[flag] = True
        return entry

    def avro_type(self) -> Any:
        """Returns the Avro type of a released value: a union where null or ``other`` need one."""
        members = self._avro_members()
        if self.other and "string" not in members:
            members.append("string")
        if self.nullable:
            members.insert(0, "null")
        return members[0] if len(members) == 1 else members

    @abstractmethod
    def _check(self) -> None:
        """Refuses fields that make no attribute."""

    @abstractmethod
    def _level_label(self, code: int) -> str:
        """The label of one regular level."""

    @abstractmethod
    def _decode_levels(self, codes: NDArray[np.int64]) -> list[Value]:
        """The values of regular levels."""

    @abstractmethod
    def _json_fields(self) -> dict[str, Any]:
        """What a domain file says beside name, type, other and nullable."""

    @abstractmethod
    def _avro_members(self) -> list[Any]:
        """The Avro types of regular levels."""

    def _refusal(self, argument: str, value: object, condition: str) -> InputError:
        return InputError(f"attribute {shown(self.name)}, {argument}", value, condition)


@dataclass(frozen=True)
class CategoricalAttribute(Attribute):
    """A column with a declared list of strings or integers.

    Args:
        name: the column's name.
        values: the levels, distinct also when written as text (``1`` and ``"1"`` are the same).
        other: whether other values have a level, labelled ``"other"``.
        nullable: whether null has a level.

    Example:
        >>> CategoricalAttribute("degree", ("BA", "MA"), other=True).labels()
        ('BA', 'MA', 'other')
    """

    values: tuple[str | int, ...]

    kind: ClassVar[str] = "categorical"

    @property
    def num_levels(self) -> int:
        """Number of declared values."""
        return len(self.values)

    def _check(self) -> None:
        given: object = self.values  # whatever a caller or a file passed
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise self._refusal("values", given, "must be a list of strings or integers")
        object.__setattr__(self, "values", tuple(given))
        if not self.values:
            raise self._refusal("values", [], "must list at least one value")
        seen = set()
        for value in self.values:
            if isinstance(value, bool) or not isinstance(value, (str, int)):
                raise self._refusal("values", value, "must be a string or an integer")
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise self._refusal("values", value, "must fit in 64 bits")
            if isinstance(value, str) and not _is_unicode(value):
                raise self._refusal("values", value, "must be Unicode text")
            if str(value) in seen:
                raise self._refusal("values", value, "must be listed once")
            seen.add(str(value))
        if self.other and OTHER_LABEL in seen:
            raise self._refusal(
                "values", OTHER_LABEL, "must not be a value where other is declared"
            )

    def _level_label(self, code: int) -> str:
        return str(self.values[code])

    def _decode_levels(self, codes: NDArray[np.int64]) -> list[Value]:
        return [self.values[code] for code in codes.tolist()]

    def _json_fields(self) -> dict[str, Any]:
        return {"values": list(self.values)}

    def _avro_members(self) -> list[Any]:
        kinds = {str: "string", int: "long"}
        return sorted({kinds[type(value)] for value in self.values})


@dataclass(frozen=True)
class IntegerAttribute(Attribute):
    """A column of integers from ``minimum`` to ``maximum``, both included.

    Args:
        name: the column's name.
        minimum: lowest value.
        maximum: highest value, >= minimum.
        other: whether other values have a level, labelled ``"other"``.
        nullable: whether null has a level.

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

    def _check(self) -> None:
        for argument in ("minimum", "maximum"):
            value = getattr(self, argument)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
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

    def _json_fields(self) -> dict[str, Any]:
        return {"min": self.minimum, "max": self.maximum}

    def _avro_members(self) -> list[Any]:
        return ["long"]


@dataclass(frozen=True)
class NumericAttribute(Attribute):
    """A column of numbers in declared bins, closed on the left, the last one on both sides.

    Args:
        name: the column's name.
        edges: at least two finite numbers, strictly increasing.
        other: whether numbers outside the bins have a level, labelled ``"other"``.
        nullable: whether null has a level.

    Example:
        >>> age = NumericAttribute("age", (17, 25, 35))
        >>> age.labels(), age.decode([0, 1])
        (('[17, 25)', '[25, 35]'), [21.0, 30.0])
    """

    edges: tuple[float, ...]

    kind: ClassVar[str] = "numeric"

    @property
    def num_levels(self) -> int:
        """Number of bins."""
        return len(self.edges) - 1

    def _check(self) -> None:
        given: object = self.edges  # whatever a caller or a file passed
        if isinstance(given, str) or not isinstance(given, (Sequence, np.ndarray)):
            raise self._refusal("edges", given, "must be a list of numbers")
        edges: list[float] = []
        for edge in given:
            if isinstance(edge, (bool, str)) or not isinstance(edge, (int, float, np.number)):
                raise self._refusal("edges", edge, "must be a number")
            try:
                number = float(edge)
            except OverflowError:
                number = math.inf
            if not math.isfinite(number):
                raise self._refusal("edges", edge, "must be finite")
            if edges and not edges[-1] < number:
                raise self._refusal("edges", edge, f"must be > the edge before it, {edges[-1]!r}")
            edges.append(number)
        if len(edges) < 2:
            raise self._refusal("edges", edges, "must list at least two edges")
        object.__setattr__(self, "edges", tuple(edges))

    @cached_property
    def midpoints(self) -> tuple[float, ...]:
        """The value that stands for each bin; it lies in the bin."""
        return tuple(map(_midpoint, self.edges, self.edges[1:]))

    def _level_label(self, code: int) -> str:
        closing = "]" if code == self.num_levels - 1 else ")"
        return f"[{_short(self.edges[code])}, {_short(self.edges[code + 1])}{closing}"

    def _decode_levels(self, codes: NDArray[np.int64]) -> list[Value]:
        return [self.midpoints[code] for code in codes.tolist()]

    def _json_fields(self) -> dict[str, Any]:
        return {"edges": list(self.edges)}

    def _avro_members(self) -> list[Any]:
        return [{"type": "double", "edges": list(self.edges)}]


@dataclass(frozen=True)
class BooleanAttribute(Attribute):
    """A column of true and false.

    Args:
        name: the column's name.
        other: whether other values have a level, labelled ``"other"``.
        nullable: whether null has a level.

    Example:
        >>> BooleanAttribute("member", nullable=True).labels()
        ('false', 'true', 'null')
    """

    kind: ClassVar[str] = "boolean"

    @property
    def num_levels(self) -> int:
        """Two: false, true."""
        return 2

    def _check(self) -> None:
        pass

    def _level_label(self, code: int) -> str:
        return ("false", "true")[code]

    def _decode_levels(self, codes: NDArray[np.int64]) -> list[Value]:
        return [code == 1 for code in codes.tolist()]

    def _json_fields(self) -> dict[str, Any]:
        return {}

    def _avro_members(self) -> list[Any]:
        return ["boolean"]


def _is_unicode(text: str) -> bool:
    """Whether the text can be written as UTF-8 (a JSON escape may hold half a character)."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _midpoint(low: float, high: float) -> float:
    """The middle of [low, high), and always a member of it."""
    width = high - low
    middle = low + width / 2 if math.isfinite(width) else low / 2 + high / 2
    return middle if middle < high else low


def _short(number: float) -> str:
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
