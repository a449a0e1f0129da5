"""Threads of one process, for work that lets go of the interpreter's lock.

Their number is Arrow's: all cores that the process may use, OMP_NUM_THREADS, or --num_threads.
Runners start a worker for every core, so a worker takes one thread. Results come in the order of
the calls, whatever the number of threads. Nothing here draws noise.
"""

from __future__ import annotations

import collections
import functools
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def num_threads() -> int:
    """Returns the number of threads that this process uses."""
    import pyarrow as pa  # loads slowly

    program = getattr(sys.modules["__main__"], "__spec__", None)
    is_worker = program is not None and program.name.startswith("apache_beam.runners.worker.")
    return 1 if is_worker else int(pa.cpu_count())


def in_parts(function: Callable[[slice], None], size: int) -> None:
    """Calls a function with one slice of 0..size for each thread, and waits for all of them.

    The threads stay for the next call, so that even a millisecond of work is worth dividing. The
    function must not divide its own work.
    """
    number = max(min(num_threads(), size), 1)
    cuts = [size * place // number for place in range(number + 1)]
    parts = map(slice, cuts[:-1], cuts[1:])
    divided = map if number == 1 else _pool(os.getpid(), number).map
    for _ in divided(function, parts):
        pass


@functools.lru_cache(maxsize=1)
def _pool(process: int, number: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number)  # a child process inherits no threads


def in_order(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yields the results of a function in the order of the items."""
    calls = Calls(function, ahead=2)  # threads find work while the caller uses a result
    try:
        yield from itertools.chain.from_iterable(map(calls.add, items))
        yield from calls.rest()
    finally:
        calls.end()


class Calls(Generic[Item, Result]):
    """Calls of one function in threads, for a caller that gets the items one at a time.

    ``ahead``: how many more calls than threads there may be; without them, none waits.
    """

    def __init__(self, function: Callable[[Item], Result], ahead: int = 0) -> None:
        self._function = function
        self._ahead = ahead
        self._pool: ThreadPoolExecutor | None = None
        self._pending: collections.deque[Future[Result]] = collections.deque()

    def add(self, item: Item) -> Iterator[Result]:
        """Calls the function, once there is room; yields the results that this waits for."""
        number = num_threads()
        if number == 1:
            yield self._function(item)
            return
        while len(self._pending) >= number + self._ahead:
            yield self._pending.popleft().result()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(number)
        self._pending.append(self._pool.submit(self._function, item))

    def rest(self) -> Iterator[Result]:
        """Yields the results of all calls that run."""
        while self._pending:
            yield self._pending.popleft().result()
        self.end()

    def end(self) -> None:
        """Drops the calls that do not run yet."""
        # The garbage collector may call this for an abandoned generator, inside a thread that is
        # starting. That thread holds a lock which other threads need to end, so waiting for them
        # would be a deadlock.
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = None
        self._pending.clear()
