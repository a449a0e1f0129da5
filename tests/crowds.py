"""Threads that meet where a race would begin, so that code without its lock loses it surely."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from noise_sources import NoNoise
from numpy.typing import NDArray

from beam_dp.mechanisms import sparse_vector as live


class Crowd:
    """Holds one thread where it first draws noise until all others draw, wait for it or are done.

    Nothing depends on time. Without a lock the first thread is between what it checked and what
    follows from that while the others do all they like; with one, they wait.

    Args:
        patch: until its end, locks that are made say that somebody waits for them.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        make = live.Lock
        patch.setattr(live, "Lock", lambda: _WatchedLock(make(), self))
        self._first: threading.Thread | None = None
        self._draws = threading.Event()
        self._known: set[threading.Thread] = set()
        self._arrived = threading.Semaphore(0)

    def noise(self) -> NoNoise:
        """No noise, but a place to meet."""
        return _MeetingNoise(self)

    def run(self, first: Callable[[], Any], *others: Callable[[], Any]) -> list[Any]:
        """Calls ``first``, and all others while it draws; returns what each returned or raised."""
        calls = (first, *others)
        found: list[Any] = [None] * len(calls)
        self._num_others = len(others)

        def one(place: int) -> None:
            if place == 0:
                self._first = threading.current_thread()
            try:
                found[place] = calls[place]()
            except Exception as error:
                found[place] = error
            finally:
                self._draws.set()
                self.arrive()

        threads = [threading.Thread(target=one, args=(each,)) for each in range(len(calls))]
        threads[0].start()
        self._draws.wait()
        for thread in threads[1:]:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def arrive(self) -> None:
        """Counts one of the others, once; each thread adds itself only."""
        caller = threading.current_thread()
        if self._first not in (None, caller) and caller not in self._known:
            self._known.add(caller)
            self._arrived.release()

    def meet(self) -> None:
        """Where a thread draws."""
        self.arrive()
        if threading.current_thread() == self._first and not self._draws.is_set():
            self._draws.set()
            for _ in range(self._num_others):
                self._arrived.acquire()


class _MeetingNoise(NoNoise):
    def __init__(self, crowd: Crowd) -> None:
        super().__init__()
        self._crowd = crowd

    def noisy(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        self._crowd.meet()
        return super().noisy(values)


class _WatchedLock:
    def __init__(self, lock: Any, crowd: Crowd) -> None:
        self._lock = lock
        self._crowd = crowd

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._crowd.arrive()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class NoLock:
    """A lock that locks nothing: a mutant."""

    def acquire(self, blocking: bool = True) -> bool:
        return True

    def release(self) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass
