"""Objects that must not be copied, because a copy would spend the same budget again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import NoReturn, SupportsIndex

from beam_dp.errors import InputError


class HaltedError(RuntimeError):
    """A question that nothing pays for any more; says nothing that is not public."""


class Live:
    """Something secret that goes on from call to call, in one place.

    Calls from several threads take turns: ``_turn``. It is not copied or pickled. Only the process
    that made it may go on with it: a forked child holds a copy.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._made_in = _this_process()
        self._ended: str | None = None  # why

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuses ``copy``, ``deepcopy`` and ``pickle``."""
        condition = "must not be copied or pickled: each copy would spend the same budget again"
        raise InputError("object", type(self).__name__, condition)

    @contextmanager
    def _turn(self, *, also_ended: bool = False) -> Iterator[None]:
        """A call of its own: others wait.

        Raises:
            HaltedError: in a forked child, or if the object has ended.
        """
        # Before the lock, which may have been held by a thread that no child has.
        if self._made_in != _this_process():
            raise HaltedError("this is a copy in a forked process: use the original")
        with self._lock:
            if self._ended is not None and not also_ended:
                raise HaltedError(self._ended)
            yield

    def _end(self, reason: str) -> None:
        self._ended = reason


# An object and not the process id alone, which a child may have again once its parent is gone; the
# id too, for a fork that C code made and Python was not told of.
_process = object()


def _this_process() -> tuple[object, int]:
    return _process, os.getpid()


def _renew() -> None:
    global _process
    _process = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
