"""How tests wait: for events. A time only cuts off what hangs, far beyond the slowest machine."""

import time
from collections.abc import Callable
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
