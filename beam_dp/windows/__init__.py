"""Windows of a stream: which records count where, and which windows of a unit are kept. No Beam."""

from beam_dp.windows.blocks import Blocks as Blocks
from beam_dp.windows.horizon import (
    Horizon as Horizon,
    counted_windows as counted_windows,
    seconds_of_duration as seconds_of_duration,
    span_text as span_text,
)
from beam_dp.windows.unit import (
    KeptWindows as KeptWindows,
    WindowUnit as WindowUnit,
    keep_windows as keep_windows,
)
