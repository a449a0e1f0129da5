"""`DomainDraft`: the domain that a schema declares, with open points for missing facts."""

from __future__ import annotations

import collections
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

from beam_dp.checks import is_integer, is_number
from beam_dp.domain.attributes import is_unicode, nearest_known
from beam_dp.domain.discover import OpenDomain
from beam_dp.domain.files import (
    OpenPoint,
    open_points,
    parse_open_domain,
    to_confirm,
    to_fill_in,
)
from beam_dp.domain.readings import USUAL_BINS, USUAL_VALUES, usual_days
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError, shown
from beam_dp.privacy.guarantee import IDS, words_of
from beam_dp.storage.store import write_new_file

# A release finds the type of a column of the kind ``discover``.
Kind = Literal["boolean", "categorical", "date", "datetime", "discover", "integer", "numeric"]
TYPES = ("boolean", "categorical", "date", "datetime", "discover", "integer", "numeric")

NESTED = "nested values have no levels"
NO_LEVELS = "times of day and durations have no levels"
ONLY_NULL = "its type admits nothing but null"


@dataclass(frozen=True)
class Column:
    """One column of a schema."""

    name: str
    kind: Kind | None  # None if the column cannot become an attribute
    nullable: bool = False
    has_zone: bool | None = None  # of times; None if the schema does not say
    values: tuple[str | int, ...] = ()
    low: int | float | None = None  # the smallest value that the schema allows
    high: int | float | None = None
    is_domain: bool = False
    reason: str = ""  # why the column cannot become an attribute

    @classmethod
    def unusable(cls, name: str, reason: str) -> Self:
        """Returns the draft of a column that cannot become an attribute."""
        return cls(name, None, reason=reason)

    def within(self, low: Any, high: Any, *, is_open: tuple[bool, bool] = (False, False)) -> Column:
        """Returns the column with declared bounds; ``is_open``: whether a bound is excluded."""
        bounds: list[int | float | None] = []
        for bound, excluded, step in ((low, is_open[0], 1), (high, is_open[1], -1)):
            if not is_number(bound) or not abs(bound) < 2**63:
                bounds.append(None)
            elif self.kind == "integer":
                # A fraction is rounded to the next integer inside the bounds; an excluded integer
                # moves by 1.
                whole = -int(-bound // 1) if step > 0 else int(bound // 1)
                bounds.append(whole + step if excluded and whole == bound else whole)
            else:
                bounds.append(bound)
        low, high = bounds
        low = self.low if low is None else low
        return replace(self, low=low, high=self.high if high is None else high)

    def listing(self, values: Sequence[Any]) -> Column:
        """Returns the column with a declared list of values, if the values can be levels."""
        if not values or not all(isinstance(value, str) or is_integer(value) for value in values):
            return self
        return replace(self, kind="categorical", values=tuple(values), low=None, high=None)


def common_kind(members: Sequence[Column]) -> Column:
    """Returns the column for values of several types, with one column given per type.

    Integers mixed with other numbers are numbers; strings mixed with integers are strings. Other
    mixtures cannot become an attribute.
    """
    kinds = {member.kind for member in members}
    if len(members) == 1:
        return members[0]
    name = members[0].name if members else ""
    if kinds == {"categorical"} and all(member.values for member in members):
        every = [value for member in members for value in member.values]
        return Column(name, "categorical", values=tuple(dict.fromkeys(every)))
    if len(kinds) == 1 and None not in kinds and len({member.has_zone for member in members}) == 1:
        return Column(name, members[0].kind, has_zone=members[0].has_zone)
    if kinds == {"integer", "numeric"}:
        return Column(name, "numeric")
    if kinds == {"integer", "categorical"}:
        return Column(name, "categorical")
    return Column.unusable(name, "values of several types have no levels in common")


@dataclass(frozen=True)
class DomainDraft:
    """A domain, as far as a schema declares it. The draft depends on names and types only.

    Args:
        source: the source of the schema.
        attributes: the entries of a domain file, with placeholders for missing values.
        left_out: columns that did not become attributes, with a reason per column.
        rest: the other keys of a domain file.

    Example:
        >>> from beam_dp.domain.schemas.read import domain_draft
        >>> draft = domain_draft({"age": 85, "sex": {"values": ["F", "M"]}})
        >>> [point.attribute for point in draft.open_points]
        ['sex']
    """

    source: str
    attributes: tuple[Mapping[str, Any], ...]
    left_out: tuple[tuple[str, str], ...] = ()
    rest: Mapping[str, Any] = field(default_factory=dict)

    @property
    def discovered(self) -> list[str]:
        """The columns whose values or bins a release finds."""
        return [str(attribute["name"]) for attribute in self.attributes if "discover" in attribute]

    @property
    def names(self) -> list[str]:
        """The names of the attributes."""
        return [str(attribute["name"]) for attribute in self.attributes]

    @property
    def identifiers(self) -> list[str]:
        """The columns that identify people or things, as their names say."""
        return [str(point.attribute) for point in self.open_points if point.key == "type"]

    @cached_property
    def open_points(self) -> tuple[OpenPoint, ...]:
        """The points to fill in or confirm, in the order of the file."""
        return tuple(open_points(self.attributes))

    def to_json(self) -> dict[str, Any]:
        """Returns the content of the domain file."""
        return {"attributes": [dict(attribute) for attribute in self.attributes], **self.rest}

    def text(self) -> str:
        """Returns the text of the domain file, with one attribute per line."""
        text = self._text(ensure_ascii=False)
        # A JSON escape may be half a surrogate pair, which UTF-8 cannot encode.
        return text if is_unicode(text) else self._text(ensure_ascii=True)

    def _text(self, ensure_ascii: bool) -> str:
        def written(value: Any) -> str:
            return json.dumps(value, ensure_ascii=ensure_ascii)

        lines = ",\n  ".join(written(dict(attribute)) for attribute in self.attributes)
        rest = [f" {written(key)}: {written(value)}" for key, value in self.rest.items()]
        return ",\n".join(['{"attributes": [\n  ' + lines + "]", *rest]) + "}\n"

    def domain(self) -> Domain | OpenDomain:
        """Returns the domain; raises InputError for the first open point or an invalid draft."""
        return parse_open_domain(self.to_json(), self.source)

    def write(self, path: str | Path) -> None:
        """Writes the domain file; raises InputError if it exists or can't be written."""
        write_new_file(path, self.text().encode())

    def without_null(self, *, discovered_only: bool = False) -> DomainDraft:
        """Returns the draft without levels for null."""
        changed = [dict(attribute) for attribute in self.attributes]
        for entry in changed:
            if not discovered_only or "discover" in (entry["type"], *entry):
                entry.pop("nullable", None)
                entry.pop("null_values", None)
        return replace(self, attributes=tuple(changed))

    def with_types(self, types: Mapping[str, str]) -> DomainDraft:
        """Returns the draft with columns of other types, whose values or bins are discovered.

        Raises:
            InputError: if a column or a type is unknown, or a column's values are declared.
        """
        changed = self
        for name, kind in types.items():
            place = self._place("types", name)
            if kind not in TYPES:
                condition = f"is not a type of {shown(name)}; {nearest_known(kind, TYPES)}"
                raise InputError("types", kind, condition)
            if isinstance(self.attributes[place].get("values"), dict | list):
                raise InputError("types", name, "must be a column without declared values")
            keys = _KEYS[kind](Column(name, kind))  # type: ignore[arg-type]  # checked above
            changed = changed._with_entry(place, {"name": name, "type": kind, **keys})
        return changed

    def without_types(self) -> DomainDraft:
        """Returns the draft with the names of its columns alone; a release finds their types."""
        entries = [
            _entry(Column(entry["name"], "discover", nullable=entry.get("nullable") is True))
            for entry in self.attributes
        ]
        return replace(self, attributes=tuple(entries), rest={})

    def without(self, names: Sequence[str]) -> DomainDraft:
        """Returns the draft without some columns; raises InputError if one is unknown."""
        places = {self._place("leave_out", name) for name in names}
        kept = [entry for place, entry in enumerate(self.attributes) if place not in places]
        if not kept:
            raise InputError("leave_out", list(names), "must leave an attribute")
        return replace(self, attributes=tuple(kept))

    def for_unit(self, unit: str, leave_out: Sequence[str]) -> tuple[DomainDraft, list[str]]:
        """Returns the draft without a privacy unit, identifiers and other columns; and these."""
        units = [name for name in self.names if name == unit]
        names = list(dict.fromkeys([*units, *self.identifiers, *leave_out]))
        return (self.without(names) if names else self), names

    def _place(self, argument: str, name: str) -> int:
        if name not in self.names:
            condition = f"must be a column of {self.source}; {nearest_known(name, self.names)}"
            raise InputError(argument, name, condition)
        return self.names.index(name)

    def _with_entry(self, place: int, entry: dict[str, Any]) -> DomainDraft:
        """Returns the draft with a column's entry replaced, except for its level for null."""
        if self.attributes[place].get("nullable") is True:
            entry["nullable"] = True
        changed = [*self.attributes[:place], entry, *self.attributes[place + 1 :]]
        return replace(self, attributes=tuple(changed))


def draft_of(columns: Sequence[Column], source: str) -> DomainDraft:
    """Returns the draft of a schema."""
    counted = collections.Counter(column.name for column in columns)
    entries, left_out = [], []
    for column in columns:
        reason = column.reason
        if not column.name or not is_unicode(column.name):
            reason = "its name is not a non-empty Unicode string"
        elif counted[column.name] > 1:
            reason = f"its name occurs {counted[column.name]} times in the schema"
        if reason or column.kind is None:
            left_out.append((column.name, reason))
        else:
            entries.append(_entry(column))
    if not entries:
        why = f"; {shown(left_out[0][0])}: {left_out[0][1]}" if left_out else ""
        condition = f"must have a column that an attribute can be made of{why}"
        raise InputError("schema", source, condition)
    return DomainDraft(source, tuple(entries), tuple(dict(left_out).items()))


def _entry(column: Column) -> dict[str, Any]:
    assert column.kind is not None
    entry = {"name": column.name, "type": column.kind, **_KEYS[column.kind](column)}
    if _names_units(column):
        entry["type"] = to_fill_in(
            f"remove this attribute if it identifies people or things, as a privacy unit does;"
            f" else write {json.dumps(entry['type'])}"
        )
    return {**entry, "nullable": True} if column.nullable else entry


def _names_units(column: Column) -> bool:
    """Returns whether a column probably identifies units, by its name and declared type."""
    is_listed = bool(column.values) or column.is_domain
    last = words_of(column.name)[-1:]
    is_likely = column.kind in ("integer", "categorical", "discover") and not is_listed
    return is_likely and not IDS.isdisjoint(last)


def _categorical(column: Column) -> dict[str, Any]:
    if column.values:
        return {"values": to_confirm(list(column.values))}
    return {"discover": {"max_values": USUAL_VALUES}}


def _integer(column: Column) -> dict[str, Any]:
    if column.low is None or column.high is None:
        return {"type": "numeric", "whole": True, **_numeric(column)}
    ends = {"min": column.low, "max": column.high}
    return ends if column.is_domain else {key: to_confirm(end) for key, end in ends.items()}


def _numeric(_: Column) -> dict[str, Any]:
    return {"discover": {"bins": USUAL_BINS}}


def _date(_: Column) -> dict[str, Any]:
    return {"discover": usual_days()}


def _datetime(column: Column) -> dict[str, Any]:
    if column.has_zone is None:
        example = '["2020-01-01T00:00", "2020-01-01T12:00"]'
        task = f"list edges of bins, such as {example} (with a Z where times have a zone)"
        return {"edges": to_fill_in(task)}
    return {"discover": usual_days("T00:00Z" if column.has_zone else "T00:00")}


_KEYS: dict[str, Callable[[Column], dict[str, Any]]] = {
    "boolean": lambda _: {},
    "categorical": _categorical,
    "date": _date,
    "datetime": _datetime,
    "discover": lambda _: {},
    "integer": _integer,
    "numeric": _numeric,
}
