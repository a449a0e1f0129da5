"""Errors that a job may show, which hold nothing of a record."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from beam_dp.errors import (
    PrivateStepError as PrivateStepError,
    public_fault,
    withhold_messages as withhold_messages,
)

P = ParamSpec("P")
T = TypeVar("T")


class ReadError(RuntimeError):
    """An input file is damaged or gone, or of another schema: its name, and public ones."""


class SetupError(RuntimeError):
    """A worker could not be set up, before it saw any record; the message names what is missing."""


class FileError(ValueError):
    """A file violates a requirement; the message contains nothing from the file."""


def show_setup(setup: Callable[P, T]) -> Callable[P, T]:
    """Lets ``DoFn.setup`` report what a worker lacks, if ``public_fault`` knows it.

    Not for other methods: a runner calls ``setup`` before it hands over elements. Other errors
    pass unchanged, and are withheld where the job is run.
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
    """Replaces any error of reading a file by one that contains only the file's name."""
    try:
        yield
    except ReadError:
        raise
    except FileError as error:
        raise ReadError(f"{path}: {error}") from None
    except Exception:
        # Parsers quote the bytes they stumble on.
        raise ReadError(f"{path}: cannot be read") from None
