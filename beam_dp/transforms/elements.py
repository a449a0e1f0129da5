"""What goes from the step that draws noise to the one that writes.

All of it is public, in elements of a few MB that any runner carries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

ReleaseShard = tuple[str, tuple[int, int, bytes]]  # draw id, (number, how many, bytes)
Row = dict[str, Any]


class AnswerBatch(NamedTuple):
    """Answers that were committed together; public.

    ``number``: of the batch in its run, from 0.
    ``num_records``: N of the run, public or noisy; None where it is private and not needed.
    ``num_batches``: of the run; None for a stream, which is not counted before it ends.
    """

    run_id: str
    number: int
    num_records: int | None
    answers: list[Row]
    num_batches: int | None = None


# Characters of an element; of a row besides its texts.
ELEMENT_TEXT = 2**21
_ROW_TEXT = 512


def answer_batches(run_id: str, num_records: int | None, rows: list[Row]) -> list[AnswerBatch]:
    """Returns all answers of a run, in batches of a few MB; one if there are no answers."""
    parts = _parts(rows, lambda row: len(row["query"] or "") + _ROW_TEXT) or [[]]
    return [
        AnswerBatch(run_id, number, num_records, part, len(parts))
        for number, part in enumerate(parts)
    ]


def numbered_queries(lines: Sequence[str]) -> list[tuple[int, list[str]]]:
    """Returns queries in numbered lists of a few MB: a collection keeps no order."""
    return list(enumerate(_parts(lines, len)))


def _parts(items: Sequence[Any], size: Any) -> list[list[Any]]:
    """Splits items into lists of at most ``ELEMENT_TEXT`` characters, but at least one item."""
    parts: list[list[Any]] = []
    held = ELEMENT_TEXT
    for item in items:
        if held + size(item) > ELEMENT_TEXT:
            parts.append([])
            held = 0
        parts[-1].append(item)
        held += size(item)
    return parts


def each_query(elements: Iterable[Any]) -> Iterator[Any]:
    """Yields the single queries of queries, lists of them, and numbered lists.

    Numbered lists come first, by their numbers; the others as they are.
    """
    others: list[Any] = []
    numbered: list[tuple[int, list[Any]]] = []
    for element in elements:
        (numbered if _is_numbered(element) else others).append(element)
    for _, queries in sorted(numbered, key=lambda element: element[0]):
        yield from queries
    for element in others:
        if isinstance(element, Sequence) and not isinstance(element, str | bytes):
            yield from element
        else:
            yield element


def _is_numbered(element: Any) -> bool:
    return (
        isinstance(element, tuple)
        and len(element) == 2
        and isinstance(element[0], int)
        and isinstance(element[1], list)
    )
