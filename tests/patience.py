"""How tests wait: for events. A time only cuts off what hangs, far beyond the slowest machine.

What must take little time is held to processor time, which other work on the machine does not
lengthen, with a limit that only another order of growth would reach.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

HANG_SECONDS = 900.0


def wait_for(what: str, ready: Callable[[], Any]) -> Any:
    """Returns the first true value that a function returns.

    Raises:
        TimeoutError: if it hangs.
    """
    end = time.monotonic() + HANG_SECONDS
    while time.monotonic() < end:
        found = ready()
        if found:
            return found
        time.sleep(0.005)
    raise TimeoutError(f"waited {HANG_SECONDS:.0f} s for {what}")


@contextlib.contextmanager
def processor_seconds_below(limit: float) -> Iterator[None]:
    """Demands that the block costs this thread less processor time."""
    start = time.thread_time()
    yield
    assert time.thread_time() - start < limit
