"""Reads linear queries as users write them: attributes by name, levels by value, JSON by line.

An invalid line does not affect other lines.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Protocol

from numpy.typing import ArrayLike

from beam_dp.checks import check_is, checked_integer, is_integer
from beam_dp.domain.attributes import nearest_known
from beam_dp.domain.impossible import LevelReader
from beam_dp.domain.ordered import BinnedAttribute, OrderedAttribute
from beam_dp.domain.texts import checked_json
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError, magnitude, shown
from beam_dp.queries import linear
from beam_dp.queries.linear import Disjunction, negation

MAX_QUERIES = 2**18
SHOWN_LETTERS = 2000
Ranges = tuple[linear.Range, ...]

_FORMS = "conjunction, disjunction, interval, prefix, parity, values, not"
_OF_CODES: dict[str, type[linear.Product | Disjunction | linear.Parity]]
_OF_CODES = {
    "codes": linear.Product,
    "disjunction_codes": Disjunction,
    "parity_codes": linear.Parity,
}


class LinearQueries:
    """Creates the linear queries of one domain; raises ``InputError`` for invalid queries.

    A level is written as in a domain file's ``impossible``: a declared value; ``"other"`` or None
    if the attribute has such a level; ``[low, high]`` for integers (both ends included); a pair of
    edges for an attribute with bins. Edges of dates and times are ISO 8601 strings.

    Args:
        domain: the universe, of at most 2^26 cells.

    Raises:
        InputError: if the domain has more than 2^26 cells.

    Example:
        >>> from beam_dp.domain.files import read_domain
        >>> queries = LinearQueries(read_domain('{"age": 5, "sex": 2}'))
        >>> queries.conjunction({"age": {"not": 3}, "sex": 1}).values().reshape(5, 2).T.tolist()
        [[0.0, 0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0, 1.0]]
        >>> queries.interval("age", 1, 2) == queries.from_json(
        ...     {"interval": {"attribute": "age", "low": 1, "high": 2}})
        True
    """

    def __init__(self, domain: Domain) -> None:
        check_is("domain", domain, Domain)
        if domain.num_cells > linear.MAX_QUERY_CELLS:
            condition = (
                f"must have at most 2^26 = {linear.MAX_QUERY_CELLS:,} cells for linear queries"
            )
            raise InputError("domain", f"{magnitude(domain.num_cells)} cells", condition)
        self.domain = domain
        self._readers: dict[int, LevelReader] = {}

    def conjunction(self, literals: Mapping[str, Any]) -> linear.Product:
        """Returns the query that is 1 if all literals are true; without literals, always 1.

        Args:
            literals: for each attribute name, a level, a list of alternative levels, or
                ``{"not": ...}`` with a level or a list.
        """
        return linear.Product.of(self.domain.shape, self._literals("conjunction", literals))

    def disjunction(self, literals: Mapping[str, Any]) -> linear.LiteralQuery:
        """Returns the query that is 1 if any literal is true; see ``conjunction``."""
        ranges = self._literals("disjunction", literals)
        if not ranges:
            raise InputError("query", literals, "a disjunction must have at least one literal")
        return Disjunction.of(self.domain.shape, ranges)

    def marginal_cells(self, names: Sequence[str]) -> Iterator[linear.Product]:
        """Yields one query for each cell of a marginal, in the order of the cells."""
        if isinstance(names, str) or not isinstance(names, Sequence):
            raise InputError("query", names, "a marginal must be a list of attribute names")
        axes = sorted({self._axis(name) for name in names})
        if len(axes) < len(names) or not axes:
            raise InputError("query", names, "a marginal must name attributes, each once")
        sizes = [range(self.domain.shape[axis]) for axis in axes]
        for codes in product(*sizes):
            ranges = {axis: ((code, code + 1),) for axis, code in zip(axes, codes, strict=True)}
            yield linear.Product.of(self.domain.shape, ranges)

    def interval(self, attribute: str, low: Any, high: Any) -> linear.Product:
        """Returns the query that is 1 if an attribute is between two levels.

        Args:
            attribute: the name of an integer attribute, an attribute with bins (then low and high
                are edges), or an attribute with declared values, which are used in their order.
            low: the first level.
            high: the last level, included; for an attribute with bins, the edge at the end.
        """
        axis = self._axis(attribute)
        if isinstance(self.domain.attributes[axis], OrderedAttribute):
            (ranges,) = [self._levels(axis, [[low, high]])]
        else:
            ((start, _),) = self._levels(axis, [low])
            ((_, stop),) = self._levels(axis, [high])
            if start >= stop:
                raise InputError("query", [low, high], "an interval must have low <= high")
            ranges = ((start, stop),)
        return linear.Product.of(self.domain.shape, {axis: ranges})

    def prefix(self, attribute: str, high: Any) -> linear.Product:
        """Returns the query that is 1 up to a level of an attribute; see ``interval``."""
        ordered = self.domain.attributes[self._axis(attribute)]
        if isinstance(ordered, BinnedAttribute):
            return self.interval(attribute, ordered.edges[0], high)
        return self.interval(attribute, ordered.decode([0])[0], high)

    def parity(self, literals: Mapping[str, Any]) -> linear.Parity:
        """Returns the query that is 1 if an odd number of literals is true; see ``conjunction``."""
        ranges = self._literals("parity", literals)
        return linear.Parity(self.domain.shape, tuple(ranges), tuple(ranges.values()))

    def explicit(self, values: ArrayLike) -> linear.Explicit:
        """Returns the query with one value in [0, 1] per cell, rounded to a multiple of 2^-16."""
        return linear.Explicit.of(self.domain.shape, values)

    def from_json(self, parsed: Any) -> linear.LinearQuery:
        """Returns the query that a line of JSON describes.

        Args:
            parsed: one of ``{"conjunction": {...}}``, ``{"disjunction": {...}}``,
                ``{"interval": {"attribute", "low", "high"}}``, ``{"prefix": {"attribute",
                "high"}}``, ``{"parity": {...}}``, ``{"values": [...]}``, or output of
                ``LinearQuery.to_json``; or ``{"not": one of these}``, which is 1 - q.

        Raises:
            InputError: if the query has none of these forms, or does not fit the domain.
        """
        is_negated = False
        while isinstance(parsed, Mapping) and set(parsed) == {"not"}:
            parsed, is_negated = parsed["not"], not is_negated
        query = self._form(parsed)
        return negation(query) if is_negated else query

    def _form(self, parsed: Any) -> linear.LinearQuery:
        """Returns the query that a line describes, in any form except a negation."""
        if not isinstance(parsed, Mapping) or len(parsed) != 1:
            raise InputError("query", parsed, f"must be an object with one of {_FORMS}")
        ((form, value),) = parsed.items()
        makers: dict[str, Callable[[Any], linear.LinearQuery]] = {
            "conjunction": self.conjunction,
            "disjunction": self.disjunction,
            "parity": self.parity,
            "values": self.explicit,
            "numerators": self._from_numerators,
        }
        if form in makers:
            return makers[form](value)
        if form in ("interval", "prefix"):
            fields = ("attribute", "low", "high") if form == "interval" else ("attribute", "high")
            if not isinstance(value, Mapping) or set(value) != set(fields):
                raise InputError("query", parsed, f"{form} must have {', '.join(fields)}")
            make = self.interval if form == "interval" else self.prefix
            return make(*(value[name] for name in fields))
        if form == "marginal":
            next(self.marginal_cells(value))  # raises a more specific error for an invalid marginal
            condition = "is many queries, one per cell; allowed only as a whole line of a file"
            raise InputError("query", form, condition)
        if form in _OF_CODES:
            return self._from_codes(form, value)
        raise InputError("query", form, f"known are {_FORMS}")

    def _literals(self, form: str, literals: Any) -> dict[int, Ranges]:
        """Returns the ranges of codes for each attribute in ``literals``, by position."""
        if not isinstance(literals, Mapping):
            raise InputError("query", literals, f"a {form} must be levels by attribute")
        spans = {}
        for name, level in literals.items():
            axis = self._axis(name)
            negated = isinstance(level, Mapping)
            if negated and set(level) != {"not"}:
                raise InputError("query", level, 'must be a level, a list, or {"not": ...}')
            listed = level["not"] if negated else level
            ranges = self._levels(axis, listed if isinstance(listed, list | tuple) else [listed])
            if negated:
                ranges = linear.complement(ranges, self.domain.shape[axis])
                if not ranges:
                    raise InputError("query", level, "must leave at least one level")
            spans[axis] = ranges
        return dict(sorted(spans.items()))

    def _levels(self, axis: int, levels: Sequence[Any]) -> Ranges:
        attribute = self.domain.attributes[axis]
        if axis not in self._readers:
            self._readers[axis] = LevelReader(attribute)
        where = f"query, attribute {shown(attribute.name)}"
        return self._readers[axis].read_all(levels, where, may_be_all=True)

    def _axis(self, name: Any) -> int:
        if not isinstance(name, str) or name not in self.domain:
            condition = f"is not an attribute; {nearest_known(str(name), self.domain.names)}"
            raise InputError("query", name, condition)
        return self.domain.axes((name,))[0]

    def _from_codes(self, form: str, value: Any) -> linear.LinearQuery:
        try:
            axes = tuple(_code(axis) for axis, _ in value)
            ranges = tuple(
                tuple((_code(start), _code(stop)) for start, stop in listed) for _, listed in value
            )
        except (TypeError, ValueError):
            raise InputError("query", value, "must be axes with ranges of codes") from None
        return _OF_CODES[form](self.domain.shape, axes, ranges)

    def _from_numerators(self, listed: Any) -> linear.Explicit:
        try:
            values = [_code(code) / 2**16 for code in listed]
        except (TypeError, ValueError, OverflowError):
            raise InputError("query", type(listed).__name__, "must be a list of integers") from None
        return self.explicit(values)


def _code(value: Any) -> int:
    return checked_integer("query", value)


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
