"""Reading of JSON lines: a refusal names the line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from beam_dp.domain.strict_json import checked_json


def parsed_lines(text: str, source: str) -> Iterator[tuple[int, Any]]:
    """Yields the number of each line that is not blank, from 1, and what its JSON holds.

    Raises:
        InputError: at a line that is not JSON, or gives a key twice.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, checked_json("workload", source, line, number)
