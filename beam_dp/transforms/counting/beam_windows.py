"""The windows of a horizon as Beam has them: each ends when its records may no longer arrive."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator

import apache_beam as beam
from apache_beam.transforms.window import FixedWindows, IntervalWindow, TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from beam_dp.windows.horizon import Horizon

_MICROSECONDS = 10**6
_MILLISECOND = 1000


@dataclasses.dataclass(frozen=True)
class BeamWindows:
    """Windows, or blocks of windows, as those of Beam.

    Args:
        horizon: the windows.
        size: how many of them are one of Beam's. Of blocks the last one may have fewer; Beam's ends
            as if it had as many.
    """

    horizon: Horizon
    size: int = 1

    @property
    def _seconds(self) -> int:
        return self.size * self.horizon.window

    @property
    def _first_end(self) -> int:
        return self.horizon.closes(self.size - 1)

    def into(self) -> beam.WindowInto:
        """Returns the transform into these windows."""
        return beam.WindowInto(FixedWindows(self._seconds, offset=self._first_end % self._seconds))

    def number(self, window: IntervalWindow) -> int:
        """Returns the number of one of Beam's."""
        end: int = window.end.micros // _MICROSECONDS
        return (end - self._first_end) // self._seconds


def stamp(horizon: Horizon, number: int) -> Timestamp:
    """Returns the last millisecond before a window closes."""
    return Timestamp(micros=horizon.closes(number) * _MICROSECONDS - _MILLISECOND)


def of_each_window(
    pipeline: beam.Pipeline,
    horizon: Horizon,
    elements: Callable[[int], Iterable[tuple[int, bytes]]],
) -> beam.PCollection[tuple[int, bytes]]:
    """Returns elements of each window, stamped, so that no window is without one."""
    each = beam.ParDo(_OfEachWindow(horizon, elements)).with_output_types(tuple[int, bytes])
    return pipeline | "Begin" >> beam.Impulse() | "Of each window" >> each


class _OfEachWindow(beam.DoFn):
    def __init__(
        self, horizon: Horizon, elements: Callable[[int], Iterable[tuple[int, bytes]]]
    ) -> None:
        self.horizon = horizon
        self.elements = elements

    def process(self, _: bytes) -> Iterator[TimestampedValue]:
        for number in range(self.horizon.num_windows):
            for element in self.elements(number):
                yield TimestampedValue(element, stamp(self.horizon, number))
