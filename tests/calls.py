"""How often a function is called, whoever imported it under whatever name."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def calls_of(function: Callable[..., Any]) -> Iterator[list[str]]:
    """Within a ``with`` statement, gains the name of each caller in this thread."""
    callers: list[str] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if before is not None:  # another one of these
            before(frame, event, argument)
        if event == "call" and frame.f_code is function.__code__:
            callers.append("" if frame.f_back is None else frame.f_back.f_code.co_qualname)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield callers
    finally:
        sys.setprofile(before)
