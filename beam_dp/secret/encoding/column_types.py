"""Checks of column types, by one rule for all sources.

A column whose type never has a level would drop every record, and the release would be pure noise.
Each source (Avro, Parquet, declared types of Python) translates its types to ``Kind``.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable

import pyarrow as pa

from beam_dp.domain.attributes import (
    Attribute,
    BooleanAttribute,
    CategoricalAttribute,
    nearest_known,
)
from beam_dp.domain.dates import TimeAttribute
from beam_dp.privacy.guarantee import RECORD
from beam_dp.secret.encoding.layouts import may_be_address

# Arguments that name columns in which at least some values must be readable; otherwise every record
# would be dropped, or nothing would be counted.
NEED_LEVELS = ("domain", "key", "weight", "rows")
NEED_TIMES = ("event_time", "arrival")


class Kind(enum.Enum):
    """Kinds of values, distinguished by the attributes and keys that can read them."""

    UNKNOWN = enum.auto()  # values of any type, or only null
    TEXT = enum.auto()  # text or bytes
    NUMBER = enum.auto()  # numbers or booleans
    SYMBOL = enum.auto()  # text that never spells a number
    UUID = enum.auto()  # text that never spells a number or a boolean
    BYTES_OF_UUID = enum.auto()  # a UUID as 16 bytes, not as text
    TIME = enum.auto()  # dates, or times without a zone
    MOMENT = enum.auto()  # times with a zone
    OTHER = enum.auto()  # nested values, times of day, durations, objects of a class


_VALUES = frozenset((Kind.UNKNOWN, Kind.TEXT, Kind.NUMBER))
_TIMES = _VALUES | {Kind.TIME, Kind.MOMENT}
_KEYS = _VALUES | {Kind.SYMBOL, Kind.UUID, Kind.BYTES_OF_UUID}


@dataclasses.dataclass(frozen=True)
class ColumnType:
    """The type of a column; ``stored`` has the kinds that keys and weights read, if they differ."""

    name: str
    kinds: frozenset[Kind]
    stored: frozenset[Kind] | None = None
    may_be_address: bool = False
    is_decodable: bool = True

    @classmethod
    def of_arrow(cls, kind: pa.DataType) -> ColumnType:
        """Returns the column type for an Arrow type."""
        return cls(str(kind), frozenset((arrow_kind(kind),)), may_be_address=may_be_address(kind))

    def is_readable(self, attribute: Attribute | None) -> bool:
        """Returns whether values may have a level of ``attribute`` or, if it is None, be keys."""
        if attribute is None:
            return not _KEYS.isdisjoint(self.kinds if self.stored is None else self.stored)
        return any(has_levels(attribute, kind) for kind in self.kinds)


def nearest_column(
    argument: str, column: str, known: Iterable[str], *, list_all: bool = True
) -> str:
    """Returns a hint for a missing column; the privacy unit may also be the record."""
    units = [RECORD] if argument == "privacy_unit" else []
    return nearest_known(column, [*known, *units], list_all=list_all)


def unfit(kind: ColumnType, argument: str, attribute: Attribute | None) -> str | None:
    """Describes the values that an argument's column must contain; None if the type fits."""
    if not kind.is_decodable:
        return "values that can be read here (else convert them to text or numbers)"
    if argument == "privacy_unit" and kind.may_be_address:
        return (
            "ids that are not 8 bytes of fixed size, which may be addresses in memory"
            " (cast such ids to binary)"
        )
    if argument in NEED_TIMES and _TIMES.isdisjoint(kind.kinds):
        return "times, dates, text or numbers of seconds since 1970"
    if argument in NEED_LEVELS and not kind.is_readable(attribute):
        return readable(attribute)
    return None


def has_levels(attribute: Attribute, kind: Kind) -> bool:
    """Returns whether values of this kind may have a level of the attribute."""
    if isinstance(attribute, TimeAttribute):
        return kind in (Kind.UNKNOWN, Kind.TEXT, Kind.MOMENT if attribute.has_zone else Kind.TIME)
    if kind is Kind.UUID:
        return isinstance(attribute, CategoricalAttribute)
    if kind is Kind.SYMBOL:
        return isinstance(attribute, (CategoricalAttribute, BooleanAttribute))
    return kind in _VALUES


def readable(attribute: Attribute | None) -> str:
    """Describes the values that can have a level of the attribute."""
    if not isinstance(attribute, TimeAttribute):
        return "numbers, text or booleans"
    return "text or times with a zone" if attribute.has_zone else "text, dates or times, not in UTC"


def arrow_kind(kind: pa.DataType) -> Kind:
    """Returns the kind of the values of an Arrow type."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        named = kind.extension_name == "arrow.uuid"
        return Kind.BYTES_OF_UUID if named else arrow_kind(kind.storage_type)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return arrow_kind(kind.value_type)
    if types.is_null(kind):
        return Kind.UNKNOWN
    if types.is_timestamp(kind):
        return Kind.TIME if kind.tz is None else Kind.MOMENT
    if types.is_date(kind):
        return Kind.TIME
    if types.is_nested(kind) or types.is_temporal(kind):
        return Kind.OTHER
    is_number = types.is_decimal(kind) or types.is_integer(kind) or types.is_floating(kind)
    return Kind.NUMBER if is_number or types.is_boolean(kind) else Kind.TEXT
