"""Errors that a job may show, because their messages contain nothing from records."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from beam_dp.errors import (
    FileError as FileError,
    PrivateStepError as PrivateStepError,
    public_fault,
    withhold_messages as withhold_messages,
)

P = ParamSpec("P")
T = TypeVar("T")


class ReadError(RuntimeError):
    """An input file is damaged or missing, or its schema differs; the message quotes no records."""


class SetupError(RuntimeError):
    """A worker could not be set up, before it received records; the message states the reason."""


def show_setup(setup: Callable[P, T]) -> Callable[P, T]:
    """Decorates ``DoFn.setup``: raises errors that ``public_fault`` describes as ``SetupError``.

    Use the decorator only for ``setup``, which a runner calls before it hands over elements. Other
    errors pass unchanged; the program that runs the job withholds them.
    """

    @functools.wraps(setup)
    def telling(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return setup(*args, **kwargs)
        except (ImportError, OSError) as error:
            fault = public_fault(error)
            if fault is None:
                raise
            raise SetupError(f"a worker can't be set up: {fault}") from None

    return telling


@contextlib.contextmanager
def name_file_only(path: str) -> Iterator[None]:
    """Replaces any error raised in reading a file with one that contains only the file's name."""
    try:
        yield
    except ReadError:
        raise
    except FileError as error:
        raise ReadError(f"{path}: {error}") from None
    except Exception as error:
        # Parsers quote invalid bytes in their messages.
        raise ReadError(f"{path}: cannot be read{reason_of(error)}") from None


def reason_of(error: Exception) -> str:
    """Returns the reason that may be shown, to print after what has failed."""
    fault = public_fault(error)
    return "" if fault is None else f": {fault}"
