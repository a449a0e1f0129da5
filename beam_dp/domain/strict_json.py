"""A JSON parser that refuses an object with a repeated key."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from beam_dp.errors import InputError, shown


def checked_json(name: str, source: str, text: str, line: int | None = None) -> Any:
    """Returns what JSON text holds that somebody else may have written.

    Args:
        name: the flag or argument that gives it.
        source: where it came from.
        text: the text.
        line: which line of the source it is, if it is one.

    Raises:
        InputError: in one line: if it is not JSON, gives a key of an object twice, is nested too
            deeply, or holds too long a number, NaN or an infinity.

    Example:
        >>> checked_json("domain", "<text>", '{"age": 3}')
        {'age': 3}
    """
    where = "" if line is None else f" at line {line}"

    def refuse(constant: str) -> NoReturn:
        raise InputError(name, source, f"{constant} is not a JSON number{where}")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                condition = f"the key {shown(key)} must stand once in an object{where}"
                raise InputError(name, source, condition)
            found[key] = value
        return found

    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=refuse)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno if line is None else line}, column {error.colno}"
        condition = f"is not JSON at {place}: {error.msg}"
    except RecursionError:
        condition = f"is nested too deeply{where}"
    except InputError:
        raise
    except ValueError:  # an integer of thousands of digits
        condition = f"holds a number that is too long{where}"
    raise InputError(name, source, condition)


def parsed_lines(name: str, source: str, text: str) -> Iterator[tuple[int, Any]]:
    """Yields the number of each line that is not blank, from 1, and what its JSON holds.

    Raises:
        InputError: as ``checked_json``, naming the line.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, checked_json(name, source, line, number)


def json_text(name: str, text_or_path: str | os.PathLike[str], otherwise: str = "") -> str:
    """Returns the text of a local file, or JSON text itself.

    Args:
        name: the flag or argument that gives it.
        text_or_path: a path, or a string that starts with ``{``.
        otherwise: what else it may be, for the refusal.

    Raises:
        InputError: if the file can't be read or is not UTF-8.
    """
    if isinstance(text_or_path, str) and text_or_path.lstrip().startswith("{"):
        return text_or_path
    if not isinstance(text_or_path, str | os.PathLike):
        raise InputError(name, text_or_path, f"must be a path, or JSON as a text{otherwise}")
    source = os.fspath(text_or_path)
    try:
        return Path(source).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(name, source, f"is not UTF-8 at byte {error.start}{otherwise}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise InputError(name, source, f"cannot be read as a file ({reason}){otherwise}") from None
