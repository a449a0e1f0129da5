"""Date and datetime attributes: bins between declared moments.

There are two kinds of time: local times (dates, and times without a zone) and moments (times with
a zone, compared in UTC). Local times and moments are never converted into each other. All times are
compared as integers: days or nanoseconds since 1970.
"""

from __future__ import annotations

import datetime
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.ordered import BinnedAttribute
from beam_dp.domain.texts import DAY, time_of

_EPOCH = datetime.date(1970, 1, 1)
_EPOCH_TIME = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)


@dataclass(frozen=True)
class TimeAttribute(BinnedAttribute):
    """An attribute of dates or times."""

    null_types: ClassVar[dict[type, str]] = {str: "a string"}
    # Nanoseconds per unit; edges and null values are counted in units.
    resolution: ClassVar[int]
    released_units: ClassVar[int] = 1  # units per step of a released value

    @property
    def has_zone(self) -> bool:
        """Whether the edges and the values read are times with a zone, rather than local times."""
        return getattr(self.edges[0], "tzinfo", None) is not None

    @abstractmethod
    def units(self, value: Any) -> int:
        """Returns the number of units between 1970 and an edge or a midpoint."""

    @property
    def ends(self) -> tuple[int, int]:
        """The first and the last edge, in units since 1970."""
        return self.units(self.edges[0]), self.units(self.edges[-1])

    @cached_property
    def whole_ends(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """See ``BinnedAttribute``."""
        edges = [self.units(edge) // self.released_units for edge in self.edges]
        return np.array(edges[:-1]), np.array([*(edge - 1 for edge in edges[1:-1]), edges[-1]])

    def _native(self, value: str | int | float) -> int | None:
        read = _time_of(value) if isinstance(value, str) else None
        return read[0] // self.resolution if read is not None and read[1] == self.has_zone else None

    def _edge_to_json(self, edge: datetime.date) -> str:
        return edge.isoformat()

    def _middle(self, low: Any, high: Any) -> Any:
        return low + (high - low) // 2


@dataclass(frozen=True)
class DateAttribute(TimeAttribute):
    """A column of dates in declared bins [low, high); the last bin also contains its upper edge.

    A time without a zone is read as its day.

    Args:
        edges: at least two dates, or strings ``YYYY-MM-DD``, strictly increasing.
        edges_from: see ``BinnedAttribute``.
        clip, other, nullable, null_values, case, trim: see ``OrderedAttribute``.

    Example:
        >>> visit = DateAttribute("visit", ("2020-01-01", "2020-04-01", "2020-07-01"))
        >>> visit.labels()[0], visit.decode([0])
        ('[2020-01-01, 2020-04-01)', [datetime.date(2020, 2, 15)])
    """

    edges: tuple[datetime.date, ...]

    kind: ClassVar[str] = "date"
    resolution: ClassVar[int] = DAY
    edge_noun: ClassVar[str] = "date"
    edge_form: ClassVar[str] = ", such as 2020-01-31"

    def units(self, value: datetime.date) -> int:
        """Returns the number of days between 1970 and a date."""
        return (value - _EPOCH).days

    def released(self, number: float) -> datetime.date:
        """Returns the date that is ``number`` days after 1970."""
        return _EPOCH + datetime.timedelta(days=int(number))

    def _read_edge(self, written: object) -> datetime.date | None:
        if isinstance(written, datetime.datetime):
            return None
        if isinstance(written, datetime.date):
            return written
        read = _time_of(written) if isinstance(written, str) and len(written) == 10 else None
        return None if read is None else _EPOCH + datetime.timedelta(days=read[0] // DAY)

    def _avro_members(self) -> list[Any]:
        return [{"type": "int", "logicalType": "date", "edges": self.edges_to_json()}]


@dataclass(frozen=True)
class DatetimeAttribute(TimeAttribute):
    """A column of times in declared bins [low, high); the last bin also contains its upper edge.

    If the edges have a zone, the column reads only times with a zone, compared in UTC. If the edges
    have no zone, it reads only times without a zone, and dates as midnight.

    Args:
        edges: at least two datetimes, or ISO 8601 strings such as ``2020-01-01T08:00`` and
            ``2020-01-01T08:00Z``, strictly increasing, all with a zone or all without a zone,
            and no finer than microseconds.
        edges_from: see ``BinnedAttribute``.
        clip, other, nullable, null_values, case, trim: see ``OrderedAttribute``.

    Example:
        >>> DatetimeAttribute("at", ("2020-01-01T00:00Z", "2020-01-01T03:00+01:00")).labels()
        ('[2020-01-01T00:00:00+00:00, 2020-01-01T02:00:00+00:00]',)
    """

    edges: tuple[datetime.datetime, ...]

    kind: ClassVar[str] = "datetime"
    resolution: ClassVar[int] = 1
    released_units: ClassVar[int] = 1000
    edge_noun: ClassVar[str] = "datetime"
    edge_form: ClassVar[str] = ", such as 2020-01-31T08:00 or 2020-01-31T08:00Z, to the microsecond"

    def units(self, value: datetime.datetime) -> int:
        """Returns the number of nanoseconds between 1970 and a time."""
        return (value.replace(tzinfo=None) - _EPOCH_TIME) // _MICROSECOND * 1000

    def released(self, number: float) -> datetime.datetime:
        """Returns the time that is ``number`` microseconds after 1970."""
        time = _EPOCH_TIME + int(number) * _MICROSECOND
        return time.replace(tzinfo=datetime.UTC) if self.has_zone else time

    def _read_edge(self, written: object) -> datetime.datetime | None:
        try:
            if isinstance(written, datetime.datetime):
                zone = written.utcoffset()
                edge = written.replace(tzinfo=None, fold=0)
                return edge if zone is None else (edge - zone).replace(tzinfo=datetime.UTC)
            read = _time_of(written) if isinstance(written, str) else None
            if read is None or read[0] % 1000:
                return None
            edge = _EPOCH_TIME + datetime.timedelta(microseconds=read[0] // 1000)
        except OverflowError:  # the zone shifts the time out of the calendar
            return None
        return edge.replace(tzinfo=datetime.UTC) if read[1] else edge

    def edge_place(self, written: object) -> int | None:
        """Returns the position of an edge that a user wrote, or None."""
        edge = self._read_edge(written)
        is_alike = edge is not None and (edge.tzinfo is not None) == self.has_zone
        return super().edge_place(edge) if is_alike else None

    @cached_property
    def _has_whole_days(self) -> bool:
        midnight = datetime.time()
        return not self.has_zone and all(edge.time() == midnight for edge in self.edges)

    def _edge_label(self, edge: datetime.datetime) -> str:
        return (edge.date() if self._has_whole_days else edge).isoformat()

    def _checked_edge(self, edge: Any, before: Sequence[Any]) -> Any:
        if before and (edge.tzinfo is None) != (before[0].tzinfo is None):
            raise self._refusal("edges", edge.isoformat(), "must have a zone like the other edges")
        return edge

    def _avro_members(self) -> list[Any]:
        logical = "timestamp-micros" if self.has_zone else "local-timestamp-micros"
        return [{"type": "long", "logicalType": logical, "edges": self.edges_to_json()}]


def _time_of(text: str) -> tuple[int, bool] | None:
    # A JSON escape may be half a character.
    return time_of(text.encode("utf-8", "surrogatepass"))
