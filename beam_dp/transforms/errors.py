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
    """A worker could not be set up, before it saw any record: what is missing there."""


class FileError(ValueError):
    """What must be true of a file and is not, to be said of it: words that hold nothing of it."""


def show_setup(setup: Callable[P, T]) -> Callable[P, T]:
    """Lets ``DoFn.setup`` say what a worker lacks, as far as ``public_fault`` tells it.

    For no other method: a runner calls it before it hands over elements. What else it raises
    passes, and is withheld where the job is run.
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
    """Lets whatever reading a file raises become the file's name."""
    try:
        yield
    except ReadError:
        raise
    except FileError as error:
        raise ReadError(f"{path}: {error}") from None
    except Exception:
        # Parsers quote the bytes they stumble on.
        raise ReadError(f"{path}: cannot be read") from None
