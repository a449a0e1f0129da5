"""Reading of JSON lines: a refusal names the line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from beam_dp.domain.strict_json import (
    RepeatedKeyError,
    parse_json,
)
from beam_dp.errors import InputError, shown


def read_workload_text(spec: str, known_forms: str) -> str:
    """Returns JSON lines: those of a file of queries, or the text itself if it starts with ``{``.

    Args:
        spec: a path, or the lines.
        known_forms: what else a workload may be, for the refusal.

    Raises:
        InputError: if it can't be read or is not UTF-8.
    """
    if spec.lstrip().startswith("{"):
        return spec
    try:
        return Path(spec).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("workload", spec, f"is not UTF-8 at byte {error.start}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        condition = f"cannot be read as a file ({reason}); {known_forms}"
        raise InputError("workload", spec, condition) from None


def parsed_lines(text: str, source: str) -> Iterator[tuple[int, Any]]:
    """Yields the number of each line that is not blank, from 1, and what its JSON holds.

    Raises:
        InputError: at a line that is not JSON, or gives a key twice.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            parsed = parse_json(line)
        except RepeatedKeyError as error:
            condition = f"line {number} must give {shown(error.key)} once"
            raise InputError("workload", source, condition) from None
        except json.JSONDecodeError as error:
            place = f"line {number}, column {error.colno}"
            raise InputError("workload", source, f"is not JSON at {place}: {error.msg}") from None
        except (RecursionError, ValueError):
            raise InputError("workload", source, f"is not JSON at line {number}") from None
        yield number, parsed
