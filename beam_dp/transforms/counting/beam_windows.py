"""The windows of a horizon as Beam has them: each ends when its records may no longer arrive."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.transforms.window import FixedWindows, IntervalWindow, TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from beam_dp.windows import Horizon

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


def each_window(pipeline: beam.Pipeline, horizon: Horizon) -> beam.PCollection[int]:
    """Returns the numbers of all windows, stamped, so that none is without an element."""
    stamped = beam.ParDo(_EachWindow(horizon)).with_output_types(int)
    return pipeline | "Begin" >> beam.Impulse() | "Windows" >> stamped


class _EachWindow(beam.DoFn):
    def __init__(self, horizon: Horizon) -> None:
        self.horizon = horizon

    def process(self, _: bytes) -> Iterator[TimestampedValue]:
        for number in range(self.horizon.num_windows):
            yield TimestampedValue(number, stamp(self.horizon, number))
