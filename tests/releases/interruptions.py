"""Does one thing in the middle of another, at each step in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from beam_dp.errors import InputError


def interrupted(
    owner: type, steps: Sequence[str], act: Callable[[], Any], other: Callable[[], Any], at: int
) -> tuple[Any, bool]:
    """Does one thing, and another one whole just before its step number ``at``.

    Args:
        owner: the class of what the first thing is done with.
        steps: the methods of it that count as steps.
        act: the first thing.
        other: what is done meanwhile.
        at: the number of the step, from 0 on.

    Returns:
        What the first returned, or its InputError or OSError, and whether it came so far.
    """
    count, was_reached = 0, False

    def counting(original: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any) -> Any:
            nonlocal count, was_reached
            if not was_reached:
                if count == at:
                    was_reached = True
                    other()
                count += 1
            return original(*args)

        return step

    with pytest.MonkeyPatch.context() as patch:
        for name in steps:
            patch.setattr(owner, name, counting(getattr(owner, name)))
        try:
            return act(), was_reached
        except (InputError, OSError) as error:
            return error, was_reached
