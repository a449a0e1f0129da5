"""`Column`: the output of every reader of a schema, and the only input of a draft.

Privacy: besides its schema, a file may contain facts about the records: statistics and row counts
in a Parquet footer, values of an Arrow dictionary, the ``RangeIndex`` that pandas writes. A column
has no field for any of these facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from beam_dp.checks import is_integer, is_number

# The kind of a column without a declared type: the user must choose its type.
Kind = Literal["boolean", "categorical", "date", "datetime", "integer", "numeric", "open"]

NESTED = "nested values have no levels"
NO_LEVELS = "times of day and durations have no levels"
ONLY_NULL = "its type admits nothing but null"


@dataclass(frozen=True)
class Column:
    """One column of a schema.

    ``kind``: the kind of attribute for this column; None if its type cannot become an attribute.
    ``has_zone``: whether times have a time zone; None if the schema does not say.
    ``low``: the smallest value that the schema allows, if it states one.
    ``reason``: the reason if the column cannot become an attribute.
    """

    name: str
    kind: Kind | None
    nullable: bool = False
    has_zone: bool | None = None
    values: tuple[str | int, ...] = ()
    low: int | float | None = None
    high: int | float | None = None
    is_domain: bool = False
    reason: str = ""

    @classmethod
    def unusable(cls, name: str, reason: str) -> Self:
        """Returns a column that cannot become an attribute."""
        return cls(name, None, reason=reason)

    def within(self, low: Any, high: Any, *, is_open: tuple[bool, bool] = (False, False)) -> Column:
        """Returns the column with declared bounds; ``is_open``: whether a bound is excluded."""
        bounds: list[int | float | None] = []
        for bound, excluded, step in ((low, is_open[0], 1), (high, is_open[1], -1)):
            if not is_number(bound) or not abs(bound) < 2**63:
                bounds.append(None)
            elif self.kind == "integer":
                # A fraction moves to the next integer inside; an excluded integer moves by 1.
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
    """Returns the column for values of several types, each given as a column.

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
    if len(kinds) == 1 and None not in kinds and len({each.has_zone for each in members}) == 1:
        return Column(name, members[0].kind, has_zone=members[0].has_zone)
    if kinds == {"integer", "numeric"}:
        return Column(name, "numeric")
    if kinds == {"integer", "categorical"}:
        return Column(name, "categorical")
    return Column.unusable(name, "values of several types have no levels in common")
