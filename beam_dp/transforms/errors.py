"""The errors that a job may show: none holds anything of a record."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ReadError(RuntimeError):
    """An input file is damaged or gone, or of another schema: its name, and public ones."""


class FileError(ValueError):
    """What must be true of a file and is not, to be said of it: words that hold nothing of it."""


class PrivateStepError(RuntimeError):
    """A step that holds private data failed; what it had to say may show records."""

    def __init__(
        self, message: str = "a step on private data failed; its message is withheld"
    ) -> None:
        super().__init__(message)  # Beam makes a copy that says which step it was


def withhold_messages(step: Callable[P, T]) -> Callable[P, T]:
    """Replaces whatever a step on private data raises by one constant message.

    Steps are written so that they raise nothing that depends on data; this is for the day
    that one does. The traceback stays: it shows code, not values.
    """

    @functools.wraps(step)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            result = step(*args, **kwargs)
        except Exception as error:
            raise PrivateStepError().with_traceback(error.__traceback__) from None
        return _guarded_items(result) if isinstance(result, Iterator) else result

    return guarded


def _guarded_items(items: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from items
    except Exception as error:
        raise PrivateStepError().with_traceback(error.__traceback__) from None


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
