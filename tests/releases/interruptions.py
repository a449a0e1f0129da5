"""Two things at once, in a given order of their steps."""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from beam_dp.errors import InputError

STORE_STEPS = ("read", "fingerprint", "open_draft", "write_draft", "create_exclusively", "place",
               "drafts", "withdraw", "remove_draft")  # fmt: skip
BUCKET_STEPS = ("create", "write", "replace", "copy", "copy_exclusively", "size", "read", "names",
                "delete")  # fmt: skip
_ACTOR: contextvars.ContextVar[_Actor | None] = contextvars.ContextVar("actor", default=None)


class _Actor:
    """Something that is done step by step, in a thread of its own, each step when it is let."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._turn, self._waits = threading.Semaphore(0), threading.Semaphore(0)
        self.is_done = False
        self.outcome: Any = None
        self._thread = threading.Thread(target=self._run, args=(act,), daemon=True)
        self._thread.start()

    def go_on(self, num_steps: int) -> None:
        """Does so many steps, or what is left of them."""
        for _ in range(num_steps):
            if self.is_done:
                return
            self._turn.release()
            self._waits.acquire()

    def finish(self) -> None:
        """Does all steps that are left."""
        while not self.is_done:
            self.go_on(1)
        self._thread.join()

    def wait(self) -> None:
        """Called by the actor before each step but the first, which begins with its turn."""
        self._waits.release()
        self._turn.acquire()

    def _run(self, act: Callable[[], Any]) -> None:
        _ACTOR.set(self)
        self._turn.acquire()
        try:
            self.outcome = act()
        except (InputError, OSError) as error:
            self.outcome = error
        self.is_done = True
        self._waits.release()


def stepping(patch: pytest.MonkeyPatch, owner: type, steps: Sequence[str]) -> None:
    """Has actors wait for their turn before each call of these methods."""

    def wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def step(*args: Any) -> Any:
            actor = _ACTOR.get()
            if actor is not None:
                actor.wait()
            return original(*args)

        return step

    for name in steps:
        patch.setattr(owner, name, wrapped(getattr(owner, name)))


def orders(
    first: Callable[[], Any], second: Callable[[], Any], reset: Callable[[], Any]
) -> Iterator[tuple[Any, Any, bool]]:
    """Does two things in all orders with at most three changes of turn.

    The first does some steps, the second does some, then the first ends, then the second.

    Args:
        first: one.
        second: the other.
        reset: called before each order.

    Yields:
        What both returned, or their InputError or OSError; whether the second was not done before
        the first ended.
    """
    one_came_to_an_end = False
    before = 0
    while not one_came_to_an_end:
        meanwhile = 0
        while True:
            reset()
            one, other = _Actor(first), _Actor(second)
            one.go_on(before)
            one_came_to_an_end = one.is_done
            other.go_on(meanwhile)
            was_done = other.is_done
            one.finish()
            other.finish()
            yield one.outcome, other.outcome, not was_done
            if was_done:
                break
            meanwhile += 1
        before += 1
