"""Linear queries as JSON lines; an invalid line does not affect other lines."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping
from typing import Any, Protocol

from beam_dp.checks import is_integer
from beam_dp.domain.texts import checked_json
from beam_dp.errors import InputError, shown
from beam_dp.queries.linear_workload import MAX_QUERIES
from beam_dp.queries.reader import LinearQueries

SHOWN_LETTERS = 2000


class QueryReader(Protocol):
    """A reader of one kind of queries, such as ``LinearQueries``."""

    def from_json(self, parsed: Any) -> Any:
        """Returns the query that a JSON value describes, or raises InputError."""


@dataclasses.dataclass(frozen=True)
class QueryLine:
    """The query of a line, or the reason for its refusal; ``text``: JSON, shortened if long."""

    id: str | None
    text: str
    query: Any | None
    error: str | None


def read_line(queries: QueryReader, line: Any) -> QueryLine:
    """Returns the query of a line, or the reason why the line is invalid; never raises.

    ``line``: a line of JSON or the parsed object, which is an argument of
    ``LinearQueries.from_json`` with an optional ``id`` (a string or an integer).
    """
    identity, text = None, _text(str(line))
    try:
        parsed = _parsed(line)
        identity = _identity(parsed.get("id"))
        form = {name: value for name, value in parsed.items() if name != "id"}
        text = _text(json.dumps(form, ensure_ascii=False, default=repr))
        return QueryLine(identity, text, queries.from_json(form), None)
    except InputError as error:
        refused = " ".join(str(error).split())
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
        refused = f"query: {shown(line)} is not valid: must be a query of this domain"
    return QueryLine(identity, text, None, _text(refused))


def expand_line(queries: LinearQueries, line: str) -> list[str]:
    """Expands ``{"marginal": [...]}`` to one line per cell; returns any other line unchanged.

    Every cell gets the ``id`` of the line, if the line has an id. An invalid marginal, or a
    marginal with a ``weight`` other than 1, is returned unchanged, so that ``read_line`` refuses
    the marginal. Only marginals for a synthetic database have weights.
    """
    try:
        parsed = _parsed(line)
        if set(parsed) - {"id", "weight"} != {"marginal"} or not _has_weight_one(parsed):
            return [line]
        cells = list(itertools.islice(queries.marginal_cells(parsed["marginal"]), MAX_QUERIES + 1))
    except InputError:
        return [line]
    if len(cells) > MAX_QUERIES:
        raise InputError("query", line, f"must have at most {MAX_QUERIES:,} cells")
    identity = {"id": parsed["id"]} if "id" in parsed else {}
    return [json.dumps({**identity, **cell.to_json()}) for cell in cells]


def _has_weight_one(parsed: Mapping[str, Any]) -> bool:
    weight = parsed.get("weight", 1)
    return weight == 1 and not isinstance(weight, bool)


def _parsed(line: Any) -> Mapping[str, Any]:
    if isinstance(line, str):
        line = checked_json("query", line, line)
    if not isinstance(line, Mapping):
        raise InputError("query", line, "must be a JSON object")
    return line


def _identity(given: Any) -> str | None:
    if given is None:
        return None
    if not (isinstance(given, str) or is_integer(given)):
        raise InputError("id", given, "must be a string or an integer")
    return _text(given if isinstance(given, str) else shown(given))


def _text(text: str) -> str:
    """Shortens a string for Avro, and replaces lone surrogates."""
    return text[:SHOWN_LETTERS].encode(errors="replace").decode()
