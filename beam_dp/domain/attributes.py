"""The base class of declared columns, which numbers the levels of any attribute."""

from __future__ import annotations

import datetime
import difflib
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_dp.checks import check_choice, is_id
from beam_dp.domain.texts import BLANKS, int64_of, normal_form
from beam_dp.errors import InputError, shown

Value = str | int | float | bool | datetime.date | None
CASES = ("exact", "ignore")

OTHER_LABEL = "other"
NULL_LABEL = "null"
_COMPARED_NAMES, _COMPARED_LETTERS = 1000, 200
MAX_INDEXED_CELLS = 2**62  # indices and every intermediate product stay inside int64


def nearest_known(name: str, options: Iterable[str], *, list_all: bool = True) -> str:
    """Returns a hint for the end of an error message: the known name most similar to ``name``.

    ``list_all``: whether to list the first known names, instead of returning an empty string, if no
    known name is similar.
    """
    names = list(options)
    # A comparison takes time proportional to the product of the lengths; files may have long names.
    comparable = [option for option in names[:_COMPARED_NAMES] if len(option) <= _COMPARED_LETTERS]
    is_comparable = len(name) <= _COMPARED_LETTERS
    near = [option for option in comparable if option.casefold() == name.casefold()]
    if is_comparable and not near:
        near = difflib.get_close_matches(name, comparable, n=1)
    if near:
        return f"the nearest known is {shown(near[0])}"
    if not list_all:
        return ""
    if not names:
        return "there are none"
    listed = ", ".join(shown(option) for option in names[:8])
    return f"known are {listed}" + (", ..." if len(names) > 8 else "")


_RELEASE = re.compile(r"(?P<dataset_id>.{1,200})/[1-9][0-9]{0,9}")
_KEYS = {"ledger_release", "draw_id"}
_FORM = 'must be {"ledger_release": "NAME/NUMBER", "draw_id": "32 hexadecimal digits"}'


@dataclass(frozen=True)
class PaidRelease:
    """The release from which the edges or the values of an attribute were computed.

    They depend on the records, through a release that was paid for. A release that uses them is
    about the same people, so it must be paid for from the same budget: for a release without a
    ledger, by no ledger either, because no ledger knows the loss of the earlier release.
    """

    # The entry of that release in a ledger, such as ``visits/3``; None without a ledger.
    ledger_release: str | None
    draw_id: str

    @property
    def dataset_id(self) -> str | None:
        """The dataset id whose budget paid for the release; None without a ledger."""
        return self.ledger_release and self.ledger_release.rpartition("/")[0]

    @property
    def text(self) -> str:
        """The release's name in messages."""
        if self.ledger_release is None:
            return f"{shown(self.draw_id)}, which no ledger paid for"
        return shown(self.ledger_release)

    def to_json(self) -> dict[str, str]:
        """Returns the JSON entry that a domain file stores for the release."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def read_paid_release(given: Any) -> PaidRelease | None:
    """Returns the release named by a domain file or a caller; None if the form is invalid."""
    if isinstance(given, PaidRelease):
        given = given.to_json()
    if not isinstance(given, Mapping) or not {"draw_id"} <= set(given) <= _KEYS:
        return None
    draw = given["draw_id"]
    if not is_id(draw):
        return None
    if "ledger_release" not in given:
        return PaidRelease(None, draw)
    release = given["ledger_release"]
    if not isinstance(release, str) or not (release.isprintable() and _RELEASE.fullmatch(release)):
        return None
    return PaidRelease(release, draw)


@dataclass(frozen=True)
class Attribute(ABC):
    """One declared column: a public list of levels (values or bins), numbered from 0.

    The codes are, in this order: the regular levels; ``other``, if declared, for all values outside
    the regular levels; and null, if the attribute is ``nullable``.

    Args:
        name: the column's name, not empty.
        other: whether values outside the regular levels have a level.
        nullable: whether null has a level.
        null_values: values that mean null. Null values are compared before the levels and must not
            be levels. A null value of the attribute's own kind, such as ``"-9"`` for an integer
            attribute, is compared as a number or time; other null values are compared as text.
        case: ``"exact"``, or ``"ignore"`` to compare declared strings case-insensitively.
        trim: whether to strip blanks from strings before they are compared with declared strings.
        any_type: whether a column of any type is read, because nobody has declared the type.
    """

    name: str
    other: bool = field(default=False, kw_only=True)
    nullable: bool = field(default=False, kw_only=True)
    null_values: tuple[str | int | float, ...] = field(default=(), kw_only=True)
    case: str = field(default="exact", kw_only=True)
    trim: bool = field(default=False, kw_only=True)
    any_type: bool = field(default=False, kw_only=True, repr=False, compare=False)

    kind: ClassVar[str]
    null_types: ClassVar[dict[type, str]] = {str: "a string", int: "an integer"}

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or not is_unicode(self.name):
            raise InputError("attribute name", self.name, "must be a non-empty Unicode string")
        for flag in ("other", "nullable", "trim", "any_type", "clip", "whole"):
            value = getattr(self, flag, False)  # only some attribute types have the last two flags
            if not isinstance(value, bool):
                raise self._refusal(flag, value, "must be true or false")
        check_choice(self._place("case"), self.case, CASES)
        given = self.null_values
        nulls = self._declared("null_values", given, self.null_types)
        object.__setattr__(self, "null_values", nulls)
        if nulls and not self.nullable:
            raise self._refusal("null_values", given, "must come with nullable: true")
        self._check()
        for value in nulls:
            if self._is_level(value):
                raise self._refusal("null_values", value, "must not be one of the levels")
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
        """The code of values outside the regular levels; None if ``other`` is not declared."""
        return self.num_levels if self.other else None

    @property
    def outside_code(self) -> int | None:
        """The code of values without a level of their own; None if they leave their record out."""
        return self.other_code

    @property
    def null_code(self) -> int | None:
        """The code of null; None if null has no level."""
        return self.num_levels + self.other if self.nullable else None

    def normal(self, text: str) -> str:
        """Returns the form in which a string from a record is compared with declared strings."""
        return normal_form(text, ignore_case=self.case == "ignore", trim=self.trim)

    @cached_property
    def null_natives(self) -> tuple[Any, ...]:
        """The null values of the attribute's own kind: integers, numbers, days or times."""
        natives = map(self._native, self.null_values)
        return tuple(dict.fromkeys(native for native in natives if native is not None))

    @cached_property
    def null_texts(self) -> tuple[str, ...]:
        """The null values that are not of the attribute's own kind, as strings."""
        return tuple(str(value) for value in self.null_values if self._native(value) is None)

    def label(self, code: int) -> str:
        """Returns the label of one code, for display."""
        if not 0 <= code < self.size:
            raise IndexError(f"code {code} of attribute {self.name!r} is not in 0..{self.size - 1}")
        if code == self.other_code:
            return OTHER_LABEL
        if code == self.null_code:
            return NULL_LABEL
        return self._level_label(code)

    def labels(self) -> tuple[str, ...]:
        """Returns the labels of all codes, for display. Cost: O(size)."""
        return tuple(self.label(code) for code in range(self.size))

    def decode(self, codes: ArrayLike) -> list[Value]:
        """Returns the values of codes: level, integer, bin midpoint, ``"other"`` or None."""
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
        for flag in ("whole", "clip", "other", "nullable"):
            if getattr(self, flag, False):
                entry[flag] = True
        if self.null_values:
            entry["null_values"] = list(self.null_values)
        if self.case != "exact":
            entry["case"] = self.case
        if self.trim:
            entry["trim"] = True
        return entry

    def avro_type(self) -> Any:
        """Returns the Avro type of a released value, a union if null or ``other`` needs one."""
        members = self._avro_members()
        if self.other and "string" not in members:
            members.append("string")
        if self.nullable:
            members.insert(0, "null")
        return members[0] if len(members) == 1 else members

    @abstractmethod
    def _check(self) -> None:
        """Refuses invalid fields."""

    @abstractmethod
    def _level_label(self, code: int) -> str:
        """Returns the label of one regular level."""

    @abstractmethod
    def _decode_levels(self, codes: NDArray[np.int64]) -> list[Value]:
        """Returns the values of regular levels."""

    @abstractmethod
    def _json_fields(self) -> dict[str, Any]:
        """Returns the fields of a domain file that only this kind of attribute has."""

    @abstractmethod
    def _avro_members(self) -> list[Any]:
        """Returns the Avro types of regular levels."""

    @abstractmethod
    def _native(self, value: str | int | float) -> Any:
        """Returns a declared value as the attribute's own kind; None if the value is just text."""

    @abstractmethod
    def _is_level(self, value: str | int | float) -> bool:
        """Returns whether a declared value would be read as a regular level, without clipping."""

    def _declared(self, argument: str, given: object, types: dict[type, str]) -> tuple[Any, ...]:
        """Returns the values of a declared list; raises unless all values have these types."""
        kinds = " or ".join(types.values())
        if isinstance(given, str) or not isinstance(given, Sequence):
            plural = kinds.replace("a string", "strings").replace("an integer", "integers")
            plural = plural.replace("a number", "numbers")
            raise self._refusal(argument, given, f"must be a list of {plural}")
        for value in given:
            if isinstance(value, bool) or not isinstance(value, tuple(types)):
                raise self._refusal(argument, value, f"must be {kinds}")
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise self._refusal(argument, value, "must fit in 64 bits")
            if isinstance(value, float) and not math.isfinite(value):
                raise self._refusal(argument, value, "must be finite")
            if isinstance(value, str) and not is_unicode(value):
                raise self._refusal(argument, value, "must be Unicode text")
        return tuple(given)

    def _check_origin(self, argument: str) -> None:
        """Replaces the name of a paid release by the release; refuses other values than None."""
        given: object = getattr(self, argument)
        if given is not None:
            object.__setattr__(self, argument, read_paid_release(given))
            if getattr(self, argument) is None:
                raise self._refusal(argument, given, _FORM)

    def _origin(self, argument: str) -> dict[str, Any]:
        """Returns the entry of a domain file about a paid release, if any."""
        origin: PaidRelease | None = getattr(self, argument)
        return {} if origin is None else {argument: origin.to_json()}

    def _refusal(self, argument: str, value: object, condition: str) -> InputError:
        return InputError(self._place(argument), value, condition)

    def _place(self, argument: str) -> str:
        return f"attribute {shown(self.name)}, {argument}"


def is_unicode(text: str) -> bool:
    """Returns whether a string can be encoded as UTF-8; a JSON escape may be a lone surrogate."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


_LISTED_TYPES = {str: "a string", int: "an integer"}
_AVRO_TYPES = {str: "string", int: "long"}
# Argument name, declared values, and their common code; None if codes are positions in the list.
_List = tuple[str, Sequence[Any], int | None]


@dataclass(frozen=True)
class ListedAttribute(Attribute):
    """An attribute whose values are looked up in public lists of strings and integers."""

    def listed(self) -> Iterator[tuple[str | int, int]]:
        """Yields each declared value, including the null values, with its code."""
        for _, value, code in self._entries():
            yield value, code

    @abstractmethod
    def _lists(self) -> list[_List]:
        """Returns the declared lists of levels."""

    def _entries(self) -> Iterator[tuple[str, Any, int]]:
        nulls: list[_List] = []
        if self.null_code is not None:
            nulls.append(("null_values", self.null_values, self.null_code))
        for argument, values, code in [*self._lists(), *nulls]:
            for place, value in enumerate(values):
                yield argument, value, place if code is None else code

    def _check_distinct(self) -> None:
        """Refuses values that compare as equal but mean different levels."""
        seen: dict[str, tuple[str, Any, int]] = {}
        for argument, value, code in self._entries():
            earlier, before, meaning = seen.setdefault(
                self.normal(str(value)), (argument, value, code)
            )
            if meaning == code:
                continue
            if earlier == argument and str(before) == str(value):
                raise self._refusal(argument, value, "must be listed once")
            condition = f"must differ from {shown(before)} of {earlier}{self._comparison()}"
            raise self._refusal(argument, value, condition)
        if self.other and self.normal(OTHER_LABEL) in seen:
            argument, value, _ = seen[self.normal(OTHER_LABEL)]
            raise self._refusal(argument, value, "must not be a value if other is declared")

    def _comparison(self) -> str:
        how = ["case is ignored"] if self.case == "ignore" else []
        how += ["blanks are trimmed"] if self.trim else []
        return f": {' and '.join(how)}" if how else ""

    def _native(self, value: str | int | float) -> Any:
        return None  # null values are compared as written

    def _is_level(self, value: str | int | float) -> bool:
        return False  # values that are listed twice were refused before


@dataclass(frozen=True)
class CategoricalAttribute(ListedAttribute):
    """A column with a declared list of strings or integers.

    Args:
        values: the levels. Levels must stay distinct when converted to text (``1`` and ``"1"`` are
            equal) and when compared under ``case`` and ``trim``.
        values_from: the release that found the values; None for public values.
        other, nullable, null_values, case, trim: see ``Attribute``.

    Example:
        >>> CategoricalAttribute("degree", ("BA", "MA"), other=True).labels()
        ('BA', 'MA', 'other')
    """

    values: tuple[str | int, ...]
    values_from: PaidRelease | None = field(default=None, kw_only=True)

    kind: ClassVar[str] = "categorical"

    @property
    def num_levels(self) -> int:
        """Number of declared values."""
        return len(self.values)

    def _check(self) -> None:
        object.__setattr__(self, "values", self._declared("values", self.values, _LISTED_TYPES))
        if not self.values:
            raise self._refusal("values", [], "must list at least one value")
        self._check_distinct()
        self._check_origin("values_from")

    def _lists(self) -> list[_List]:
        return [("values", self.values, None)]

    def _level_label(self, code: int) -> str:
        return str(self.values[code])

    def _decode_levels(self, codes: NDArray[Any]) -> list[Value]:
        return [self.values[code] for code in codes.tolist()]

    def _json_fields(self) -> dict[str, Any]:
        return {"values": list(self.values), **self._origin("values_from")}

    def _avro_members(self) -> list[Any]:
        return sorted({_AVRO_TYPES[type(value)] for value in self.values})


@dataclass(frozen=True)
class BooleanAttribute(ListedAttribute):
    """A column of true and false.

    Args:
        true_values: strings or integers that mean true. If given, only the listed values and
            booleans are read, and a release contains the first listed value. If empty, booleans,
            0, 1 and the words true and false (ignoring case) are read; a release has booleans.
        false_values: strings or integers that mean false; required with ``true_values``.
        other, nullable, null_values, case, trim: see ``Attribute``.

    Example:
        >>> BooleanAttribute("member", nullable=True).labels()
        ('false', 'true', 'null')
        >>> BooleanAttribute("smoker", true_values=("yes", "Y"), false_values=("no",)).decode([1])
        ['yes']
    """

    true_values: tuple[str | int, ...] = field(default=(), kw_only=True)
    false_values: tuple[str | int, ...] = field(default=(), kw_only=True)

    kind: ClassVar[str] = "boolean"

    @property
    def num_levels(self) -> int:
        """Two levels: false and true."""
        return 2

    @property
    def is_listed(self) -> bool:
        """Whether the values for true and false are declared."""
        return bool(self.true_values)

    def _check(self) -> None:
        true, false = ("true_values", self.true_values), ("false_values", self.false_values)
        for (name, values), (opposite, others) in ((true, false), (false, true)):
            object.__setattr__(self, name, self._declared(name, values, _LISTED_TYPES))
            if others and not values:
                condition = f"must list at least one value, as {opposite} does"
                raise self._refusal(name, values, condition)
        if self.is_listed:
            self._check_distinct()

    def _lists(self) -> list[_List]:
        return [("false_values", self.false_values, 0), ("true_values", self.true_values, 1)]

    def _native(self, value: str | int | float) -> Any:
        if self.is_listed or isinstance(value, float):
            return None
        if isinstance(value, int):
            return value
        word = value.strip(BLANKS)
        if word.isascii() and word.lower() in ("false", "true"):
            return int(word.lower() == "true")
        return int64_of(value.encode())

    def _is_level(self, value: str | int | float) -> bool:
        forms = [value, self.normal(value)] if isinstance(value, str) else [value]
        return any(self._native(form) in (0, 1) for form in forms)

    def _level_label(self, code: int) -> str:
        return str(self._released[code]) if self.is_listed else ("false", "true")[code]

    @property
    def _released(self) -> tuple[Any, Any]:
        return (self.false_values[0], self.true_values[0]) if self.is_listed else (False, True)

    def _decode_levels(self, codes: NDArray[Any]) -> list[Value]:
        return [self._released[code] for code in codes.tolist()]

    def _json_fields(self) -> dict[str, Any]:
        names = ("true_values", "false_values") if self.is_listed else ()
        return {name: list(getattr(self, name)) for name in names}

    def _avro_members(self) -> list[Any]:
        if not self.is_listed:
            return ["boolean"]
        return sorted({_AVRO_TYPES[type(value)] for value in self._released})
