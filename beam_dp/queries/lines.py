"""Linear queries as JSON lines, where a bad line concerns only itself."""

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
    """What reads the queries of one kind, such as ``LinearQueries``."""

    def from_json(self, parsed: Any) -> Any:
        """Returns the query that a JSON value describes, or raises InputError."""


@dataclasses.dataclass(frozen=True)
class QueryLine:
    """What a line asks; all of it is public.

    ``id``: as the line has it, as text; None without one.
    ``text``: the query as JSON, shortened where it is very long.
    ``query``: the query; None where it was refused.
    ``error``: why it was refused, in one line, or None.
    """

    id: str | None
    text: str
    query: Any | None
    error: str | None


def read_line(queries: QueryReader, line: Any) -> QueryLine:
    """Returns what a line asks; never raises for what it holds.

    ``line``: a line of JSON, or the object that it holds: a query as
    ``LinearQueries.from_json`` reads it, with an ``id`` (a text or an integer) if it likes.

    Example:
        >>> from beam_dp.domain.files import read_domain
        >>> from beam_dp.queries.reader import LinearQueries
        >>> queries = LinearQueries(read_domain('{"age": 5}'))
        >>> read_line(queries, '{"id": 1, "conjunction": {"age": 3}}').id
        '1'
        >>> read_line(queries, '{"conjunction": {"agee": 3}}').error
        "query: 'agee' is refused; is not an attribute; the nearest known is 'age'"
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
        refused = f"query: {shown(line)} is refused; must be a query of this domain"
    return QueryLine(identity, text, None, _text(refused))


def expand_line(queries: LinearQueries, line: str) -> list[str]:
    """Returns the lines of the cells of ``{"marginal": [...]}``, and any other line as it is.

    Every cell has the ``id`` of its line, if that has one. A marginal that is refused is left as
    it is, for ``read_line`` to say why; so is one with a ``weight`` other than 1, which is of
    marginals for a synthetic database: answers have none.

    Example:
        >>> from beam_dp.domain.files import read_domain
        >>> queries = LinearQueries(read_domain('{"sex": 2}'))
        >>> expand_line(queries, '{"id": 1, "marginal": ["sex"]}')[1]
        '{"id": 1, "codes": [[0, [[1, 2]]]]}'
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
        raise InputError("id", given, "must be a text or an integer")
    return _text(given if isinstance(given, str) else shown(given))


def _text(text: str) -> str:
    """What Avro can hold: not too long, and no lone surrogate."""
    return text[:SHOWN_LETTERS].encode(errors="replace").decode()
