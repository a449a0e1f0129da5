"""The errors that users of the package see."""

from __future__ import annotations

import errno
import functools
import math
import os
import re
import reprlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    import numpy as np

# Printed if a message is withheld.
NOTHING_KEPT = "was not stored; `beam-dp check-domain` tests a domain on public or made-up rows"
# Two columns of one name: which one is the privacy unit must not depend on their order.
ONE_COLUMN = "must be the name of only one column; rename the others"
_PRIVATE_STEP = f"a step on private data failed; its message is withheld, and {NOTHING_KEPT}"
P = ParamSpec("P")
T = TypeVar("T")
_SHOWN_LETTERS = 400
_MODULE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_MODULE_LETTERS = 100
_GIVEN = "must be given"
# First words of conditions that continue the sentence about the value.
_VERBS = re.compile(
    "(applies|are|can(not|'t)?|contains|gives|has|is|lacks|leaves|makes|may|needs|requires|still) "
)


class InputError(ValueError):
    """A public parameter is invalid: one line with its name, its value and the valid values.

    The error depends on public parameters only and is raised when an object is constructed, so
    neither the error nor its text can depend on a record. A long value is shown in part, because it
    may come from an untrusted file.

    Args:
        name: the invalid argument, flag or field, such as ``epsilon``.
        value: the invalid value.
        condition: the condition that a valid value satisfies.

    Example:
        >>> str(InputError("epsilon", 0, "must be finite and > 0"))
        'epsilon: 0 is not valid: must be finite and > 0'
    """

    def __init__(self, name: str, value: object, condition: str) -> None:
        super().__init__(name, value, condition)
        self.name = name
        self.value = value
        self.condition = condition

    def __str__(self) -> str:
        return invalid(self.name, self.value, self.condition)


def invalid(name: str, value: object, condition: str) -> str:
    """Returns the line about an invalid value; a condition with a verb continues the sentence.

    Example:
        >>> invalid("--epsilon", "x", "must be a number")
        "--epsilon: 'x' is not valid: must be a number"
        >>> invalid("--where", "agee", "is not an attribute")
        "--where: 'agee' is not an attribute"
        >>> invalid("ledger", None, "must be given with a dataset_id")
        'ledger is required with a dataset_id'
    """
    if value is None and condition.startswith(_GIVEN):
        return f"{name} is required{condition.removeprefix(_GIVEN)}"
    verb = "" if _VERBS.match(condition) else " is not valid:"
    return f"{name}: {shown(value)}{verb} {condition}"


class FileError(ValueError):
    """A file violates a requirement; the message contains no record, and of a schema only names."""


class ReadError(RuntimeError):
    """An input file is damaged or missing, or its schema differs; the message quotes no records."""


class SetupError(RuntimeError):
    """A worker could not be set up, before it received records; the message states the reason."""


class UnreadableError(InputError):
    """A table can't be read, by its schema or another library; the message shows no record."""


class PrivateStepError(RuntimeError):
    """A step on private data failed; the original message, which may show records, is withheld."""

    def __init__(self, message: str = _PRIVATE_STEP) -> None:
        super().__init__(message)  # Beam copies the error and adds the name of the step


def usual_floats() -> np.errstate:
    """Returns a context with numpy's own rules for overflows, whatever the caller has set.

    With ``np.seterr(all="raise")``, a harmless underflow would end a release that is paid for.
    """
    import numpy  # which most commands do not need

    return numpy.errstate(divide="warn", over="warn", under="ignore", invalid="warn")


def withhold_messages(step: Callable[P, T]) -> Callable[P, T]:
    """Decorates a step on private data: replaces any error by an error with a constant message.

    Steps should never raise errors because of their data; this decorator is a safety net. The
    traceback is kept, because it shows code and not values. ``UnreadableError`` is not replaced.
    """

    @functools.wraps(step)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            with usual_floats():
                result = step(*args, **kwargs)
        except UnreadableError:
            raise
        except Exception as error:
            raise PrivateStepError().with_traceback(error.__traceback__) from None
        return _guarded_items(result) if isinstance(result, Iterator) else result

    return guarded


def _guarded_items(items: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from items
    except Exception as error:
        raise PrivateStepError().with_traceback(error.__traceback__) from None


def shown(value: object) -> str:
    """Returns one short line for any value, however long or deeply nested."""
    try:
        text = _REPR.repr(value)
    except (ArithmeticError, LookupError, RecursionError, ValueError):
        # Some values have no text, such as an integer of thousands of digits.
        text = type(value).__name__
    return text if len(text) <= _SHOWN_LETTERS else f"{text[: _SHOWN_LETTERS - 3]}..."


def public_fault(error: BaseException) -> str | None:
    """Returns a short description of an error that is safe to show; None if it must be withheld.

    Reads only fields that cannot contain data: the name of a module, if it looks like a module
    name, and the system's message for an error number. Never reads the error's message.
    """
    if isinstance(error, ImportError):
        name = error.name or ""
        if len(name) > _MODULE_LETTERS or not _MODULE_NAME.fullmatch(name):
            return None
        if isinstance(error, ModuleNotFoundError):
            return f"the module {name!r} is not installed"
        return f"the module {name!r} is not of a version that fits"
    if isinstance(error, OSError) and error.errno is not None and error.errno in errno.errorcode:
        return os.strerror(error.errno)
    return None


def magnitude(number: int) -> str:
    """Returns an integer >= 0 of any length in a few characters, such as ``10^60.2``."""
    return f"{number:,}" if number < 10**15 else f"10^{math.log10(number):.1f}"


class _Repr(reprlib.Repr):
    """Raises ValueError for an integer of thousands of digits, like ``repr``.

    Since Python 3.14 the base class writes an address instead, which differs between runs.
    """

    def repr_int(self, x: int, level: int) -> str:
        repr(x)
        return super().repr_int(x, level)


_REPR = _Repr()
_REPR.maxlevel = 6
_REPR.maxstring = _REPR.maxlong = _REPR.maxother = _SHOWN_LETTERS
_REPR.maxlist = _REPR.maxtuple = _REPR.maxdict = _REPR.maxset = 20
