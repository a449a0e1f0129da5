"""Counts the lines of Python that code executes: the same number on every machine."""

import contextlib
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def lines_below(limit: int) -> Iterator[None]:
    """Demands that the functions called by a block execute fewer lines of Python.

    Raises:
        AssertionError: as soon as there are more. A limit of another order than the usual number
            catches loops that grow faster than they should.
    """
    executed, too_many = 0, f"{limit:,} lines of Python or more are executed"

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal executed
        executed += event == "line"
        if executed >= limit:
            sys.settrace(None)
            raise AssertionError(too_many)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
    assert executed < limit, too_many  # also where the code caught the error above
