"""Categorical and boolean attributes: levels that are declared one by one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from numpy.typing import NDArray

from beam_dp.domain.attributes import OTHER_LABEL, Attribute, Value
from beam_dp.domain.texts import BLANKS, int64_of
from beam_dp.errors import shown

_LISTED_TYPES = {str: "a string", int: "an integer"}
_AVRO_TYPES = {str: "string", int: "long"}
# A list of values, under its name; each value has the code of its place, or all have one code.
_List = tuple[str, Sequence[Any], int | None]


@dataclass(frozen=True)
class ListedAttribute(Attribute):
    """An attribute whose values are found in public lists of texts and integers."""

    def listed(self) -> Iterator[tuple[str | int, int]]:
        """Yields each declared value, also those that stand for null, with its code."""
        for _, value, code in self._entries():
            yield value, code

    @abstractmethod
    def _lists(self) -> list[_List]:
        """The declared lists of levels."""

    def _entries(self) -> Iterator[tuple[str, Any, int]]:
        nulls: list[_List] = []
        if self.null_code is not None:
            nulls.append(("null_values", self.null_values, self.null_code))
        for argument, values, code in [*self._lists(), *nulls]:
            for place, value in enumerate(values):
                yield argument, value, place if code is None else code

    def _check_distinct(self) -> None:
        """Refuses values that count as one but mean different levels."""
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
            raise self._refusal(argument, value, "must not be a value where other is declared")

    def _comparison(self) -> str:
        how = ["case is ignored"] if self.case == "ignore" else []
        how += ["blanks are trimmed"] if self.trim else []
        return f": {' and '.join(how)}" if how else ""

    def _native(self, value: str | int | float) -> Any:
        return None  # null values are compared as they are listed

    def _is_level(self, value: str | int | float) -> bool:
        return False  # what is listed twice was refused


@dataclass(frozen=True)
class CategoricalAttribute(ListedAttribute):
    """A column with a declared list of strings or integers.

    Args:
        name: the column's name.
        values: the levels, distinct also when written as text (``1`` and ``"1"`` are the same),
            and under ``case`` and ``trim``.
        other: whether other values have a level, labelled ``"other"``.
        nullable: whether null has a level.
        null_values, case, trim: see ``Attribute``.

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
        object.__setattr__(self, "values", self._declared("values", self.values, _LISTED_TYPES))
        if not self.values:
            raise self._refusal("values", [], "must list at least one value")
        self._check_distinct()

    def _lists(self) -> list[_List]:
        return [("values", self.values, None)]

    def _level_label(self, code: int) -> str:
        return str(self.values[code])

    def _decode_levels(self, codes: NDArray[Any]) -> list[Value]:
        return [self.values[code] for code in codes.tolist()]

    def _json_fields(self) -> dict[str, Any]:
        return {"values": list(self.values)}

    def _avro_members(self) -> list[Any]:
        return sorted({_AVRO_TYPES[type(value)] for value in self.values})


@dataclass(frozen=True)
class BooleanAttribute(ListedAttribute):
    """A column of true and false.

    Args:
        name: the column's name.
        true_values: texts or integers that are true; then these and booleans are read, nothing
            else, and the first one is what a release holds. None: booleans, 0 and 1, and the
            texts true and false in any capitals are read, and a release holds booleans.
        false_values: the same for false; both must be given, or none.
        other: whether other values have a level, labelled ``"other"``.
        nullable: whether null has a level.
        null_values, case, trim: see ``Attribute``.

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
        """Two: false, true."""
        return 2

    @property
    def is_listed(self) -> bool:
        """Whether its values are declared."""
        return bool(self.true_values)

    def _check(self) -> None:
        for argument, opposite in (("true", "false"), ("false", "true")):
            name = f"{argument}_values"
            given = getattr(self, name)
            object.__setattr__(self, name, self._declared(name, given, _LISTED_TYPES))
            if getattr(self, f"{opposite}_values") and not given:
                condition = f"must list at least one value, as {opposite}_values does"
                raise self._refusal(name, given, condition)
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
