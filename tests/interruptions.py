"""Runs two actions concurrently, in a given order of their steps."""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from beam_dp.errors import InputError

# Checksums are left out: they read data that is written only once.
STORE_STEPS = ("read", "open_draft", "write_draft", "create_exclusively", "place", "drafts",
               "withdraw", "remove_draft")  # fmt: skip
BUCKET_STEPS = (
    "create",
    "write",
    "replace",
    "copy",
    "copy_exclusively",
    "size",
    "listed",
    "delete",
)
_ACTOR: contextvars.ContextVar[_Actor | None] = contextvars.ContextVar("actor", default=None)


class KilledError(BaseException):
    """Ends a writer: no handler catches it, so no cleanup runs."""


class _Actor:
    """An action in a thread of its own, which takes each step when it is allowed to."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._turn, self._waits = threading.Semaphore(0), threading.Semaphore(0)
        self.is_done = False
        self.outcome: Any = None
        self._thread = threading.Thread(target=self._run, args=(act,), daemon=True)
        self._thread.start()

    def go_on(self, num_steps: int) -> None:
        """Takes the given number of steps, or all remaining steps if there are fewer."""
        for _ in range(num_steps):
            if self.is_done:
                return
            self._turn.release()
            self._waits.acquire()

    def finish(self) -> None:
        """Takes all remaining steps."""
        while not self.is_done:
            self.go_on(1)
        self._thread.join()

    def wait(self) -> None:
        """Called by the actor before each step except the first, which starts its turn."""
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
    """Makes actors wait for their turn before each call of these methods."""

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
    first: Callable[[], Any], second: Callable[[], Any], reset: Callable[[], Any], *, num_stops: int
) -> Iterator[tuple[Any, Any]]:
    """Runs two actions in all orders of their steps with a few interruptions of each.

    Args:
        first: the action that takes the first step.
        second: the other action.
        reset: called before each order.
        num_stops: how many times in total the running action stops and the other continues; then
            the running action finishes, and the other action after it.

    Yields:
        The results of both actions; an InputError or OSError instead of the result of an action
        that failed.
    """
    stops = [0] * num_stops
    while True:
        reset()
        actors = (_Actor(first), _Actor(second))
        came_to_an_end = num_stops
        for number, num_steps in enumerate(stops):
            actors[number % 2].go_on(num_steps)
            if actors[number % 2].is_done:
                came_to_an_end = number
                break
        actors[num_stops % 2].finish()
        actors[1 - num_stops % 2].finish()
        yield actors[0].outcome, actors[1].outcome
        # Counts up like an odometer; more steps do not help an actor that has finished.
        last = min(came_to_an_end, num_stops - 1)
        stops[last + 1 :] = [0] * (num_stops - last - 1)
        if came_to_an_end < num_stops:
            stops[last] = 0
            last -= 1
        if last < 0:
            return
        stops[last] += 1
