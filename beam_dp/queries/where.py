"""Conditions on records, as analysts write them: ``sex == 'female' and 25 <= age < 40``.

Python's own parser parses a condition, but its code is never run.
"""

from __future__ import annotations

import ast
import keyword
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.attributes import Attribute, BooleanAttribute, nearest_known
from beam_dp.domain.impossible import LevelReader
from beam_dp.domain.ordered import BinnedAttribute, IntegerAttribute, NumericAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError, shown

Mask = NDArray[np.bool_]

_MAX_LENGTH = 10_000
_FORMS = (
    "must be conditions such as `age < 40`, `sex == 'female'` and `class in (1, 2)`, joined by"
    " `and`, `or` and `not`; put names with blanks or signs in backquotes"
)
_WORDS = {"null": None, "None": None, "true": True, "false": False}
# Names that are invalid in Python are in backquotes, or are keywords of statements, such as
# `class`, which conditions never need. Strings may contain backquotes and keywords.
_OF_CONDITIONS = {"and", "in", "is", "not", "or", "False", "None", "True"}
_OF_EXPRESSIONS = {"async", "await", "else", "for", "if", "lambda", "yield"}
_NAMES = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`([^`]+)`|\b("
    + "|".join(sorted(set(keyword.kwlist) - _OF_CONDITIONS - _OF_EXPRESSIONS))
    + r")\b"
)
# What other languages write, and what conditions have in its place.
_FOREIGN = (
    (re.compile("(&+)"), "`and`"),
    (re.compile(r"(\|+)"), "`or`"),
    (re.compile("(<>)"), "`!=`"),
    (re.compile("(=[<>])"), "`<=` or `>=`"),
    (re.compile("(===|(?<![=!<>])=(?!=))"), "`==`"),
    (re.compile("(!)(?!=)"), "`not`"),
    (re.compile(r"[<>=]\s*([+-]?\d+,\d+)"), "a number without commas, such as 1000 or 1.5,"),
    (re.compile(r"(?i)\b(between)\b"), "`25 <= age < 40`"),
    (re.compile(r"\b(AND|OR|NOT|IN)\b"), "the word in small letters"),
)
_ORDERS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
}
_SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


def read_condition(domain: Domain, text: str) -> dict[int, Mask]:
    """Returns, by position, a mask of each attribute's codes for which a condition is true.

    A record meets the condition if all masks, of shape (size,), are true at its codes; attributes
    that the condition does not restrict have no mask.

    ``text``: comparisons ``==``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``in`` and ``not in`` of
    an attribute with its levels, chains such as ``25 <= age < 40``, and names of boolean
    attributes, combined with ``and``, ``not`` and, within one attribute, ``or``. Names with
    blanks or signs are in backquotes. ``null`` and ``'other'`` are levels if the domain declares
    them: ``!=`` is true for ``null`` and ``'other'``, and comparisons of order are always false for
    both levels.
    """
    if not isinstance(text, str) or not text.strip():
        raise InputError("where", text, _FORMS)
    if len(text) > _MAX_LENGTH:
        raise InputError("where", text, f"must have at most {_MAX_LENGTH:,} characters")
    names: dict[str, str] = {}

    def named(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name is None:
            return match[0]
        place = f"quoted_name_{len(names)}_"
        names[place] = name
        return place

    plain = _NAMES.sub(named, text.strip())
    try:
        masks = _Reader(domain, names).read(ast.parse(plain, mode="eval").body)
    except RecursionError:
        raise InputError("where", text, "must be nested less deeply") from None
    except (SyntaxError, ValueError, MemoryError) as error:
        unquoted = _NAMES.sub("", text)
        for pattern, right in _FOREIGN:
            if match := pattern.search(unquoted):
                condition = f"must have {right} in place of `{match[1]}`"
                raise InputError("where", text, condition) from None
        if isinstance(error, InputError):
            raise
        raise InputError("where", text, _FORMS) from None
    for axis, mask in masks.items():
        if not mask.any():
            name = domain.names[axis]
            raise InputError("where", text, f"must be true for some level of {shown(name)}")
    return {axis: mask for axis, mask in masks.items() if not mask.all()}


class _Reader:
    """Reads the parts of a condition as masks of attributes, which must all be true together."""

    def __init__(self, domain: Domain, names: dict[str, str]) -> None:
        self._domain = domain
        self._names = names

    def read(self, node: ast.expr) -> dict[int, Mask]:
        if isinstance(node, ast.BoolOp):
            parts = [self.read(value) for value in node.values]
            return self._all(parts) if isinstance(node.op, ast.And) else self._any(parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            negated = self.read(node.operand)
            if len(negated) > 1:
                condition = (
                    "must negate conditions on one attribute. Subtract the count of the condition"
                    " from that of all records"
                )
                raise InputError("where", "not", condition)
            return {axis: ~mask for axis, mask in negated.items()}
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            pairs = zip(sides, node.ops, sides[1:], strict=False)
            return self._all([self._compared(*pair) for pair in pairs])
        if isinstance(node, ast.Name) and node.id not in _WORDS:
            axis, attribute = self._attribute(node.id)
            if isinstance(attribute, BooleanAttribute):
                return {axis: self._levels(attribute, [True])}
            right = f"== {shown(attribute.decode([0])[0])}"
            if isinstance(attribute, BinnedAttribute):
                right = f">= {shown(_as_declared(attribute.edges_to_json()[0]))}"
            condition = f"must be compared with a level, such as {self._source(node)} {right}"
            raise InputError("where", attribute.name, condition)
        raise InputError("where", self._source(node), _FORMS)

    def _all(self, parts: Sequence[dict[int, Mask]]) -> dict[int, Mask]:
        masks: dict[int, Mask] = {}
        for part in parts:
            for axis, mask in part.items():
                masks[axis] = masks[axis] & mask if axis in masks else mask
        return masks

    def _any(self, parts: Sequence[dict[int, Mask]]) -> dict[int, Mask]:
        axes = {axis for part in parts for axis in part}
        if len(axes) > 1:
            names = " and ".join(shown(self._domain.names[axis]) for axis in sorted(axes))
            condition = (
                f"must join conditions on one attribute, not on {names}. To count A or B, add the"
                " count of A and that of B, and subtract that of `A and B`"
            )
            raise InputError("where", "or", condition)
        (axis,) = axes
        return {axis: np.logical_or.reduce([part[axis] for part in parts])}

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> dict[int, Mask]:
        if not self._is_name(left) and self._is_name(right):
            if isinstance(op, ast.In | ast.NotIn):
                raise InputError("where", self._source(left), "must be `attribute in (...)`")
            left, right = right, left
            op = _MIRRORED.get(type(op), type(op))()
        if not self._is_name(left):
            raise InputError("where", self._source(left), "must be compared with an attribute")
        assert isinstance(left, ast.Name)
        axis, attribute = self._attribute(left.id)
        if self._is_name(right):
            condition = f"must be a level of {shown(attribute.name)}: put strings in quotes"
            raise InputError("where", self._source(right), condition)
        if type(op) in _ORDERS:
            return {axis: self._ordered(attribute, type(op), self._value(right))}
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(right, ast.Tuple | ast.List | ast.Set) or not right.elts:
                raise InputError("where", self._source(right), "must be a list such as (1, 2)")
            mask = self._levels(attribute, [self._value(elt) for elt in right.elts])
        else:
            mask = self._levels(attribute, [self._value(right)])
        is_negated = isinstance(op, ast.NotIn | ast.NotEq | ast.IsNot)
        return {axis: ~mask if is_negated else mask}

    def _is_name(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id not in _WORDS

    def _attribute(self, word: str) -> tuple[int, Attribute]:
        name = self._names.get(word, word)
        if name not in self._domain:
            condition = f"is not an attribute; {nearest_known(name, self._domain.names)}"
            raise InputError("where", name, condition)
        (axis,) = self._domain.axes((name,))
        return axis, self._domain.attributes[axis]

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name) and node.id in _WORDS:
            return _WORDS[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._value(node.operand)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return -value
        if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | None):
            return node.value
        if isinstance(node, ast.Tuple | ast.List):
            return [self._value(elt) for elt in node.elts]
        raise InputError(
            "where", self._source(node), "must be a string, a number, true, false or null"
        )

    def _levels(self, attribute: Attribute, levels: Sequence[Any]) -> Mask:
        where = f"where, attribute {shown(attribute.name)}"
        mask = np.zeros(attribute.size, np.bool_)
        for start, stop in LevelReader(attribute).read_all(levels, where, may_be_all=True):
            mask[start:stop] = True
        return mask

    def _ordered(self, attribute: Attribute, op: type[ast.cmpop], value: Any) -> Mask:
        mask = np.zeros(attribute.size, np.bool_)
        if isinstance(attribute, IntegerAttribute):
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise InputError("where", value, f"must be a number for {shown(attribute.name)}")
            levels = np.arange(attribute.minimum, attribute.maximum + 1, dtype=object)
            mask[: attribute.num_levels] = _ORDERS[op](levels, value)
        elif isinstance(attribute, BinnedAttribute):
            mask[: attribute.num_levels] = _bins(attribute, op, value)
        else:
            condition = f"must be == or in: the levels of {shown(attribute.name)} have no order"
            raise InputError("where", _SIGNS[op], condition)
        return mask

    def _source(self, node: ast.expr) -> str:
        text = ast.unparse(node)
        for place, name in self._names.items():
            text = text.replace(place, f"`{name}`")
        return text


def _bins(attribute: BinnedAttribute, op: type[ast.cmpop], value: Any) -> Mask:
    """Returns the bins for which a comparison is true; raises if it would divide a bin."""
    place = attribute.edge_place(value)
    edges, last = [*map(_as_declared, attribute.edges_to_json())], attribute.num_levels
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if isinstance(attribute, NumericAttribute) and attribute.whole_ends and is_integer:
        # Of whole numbers, `<= 24` is `< 25`.
        edges = [*attribute.whole_ends[0].tolist(), int(attribute.whole_ends[1][-1]) + 1]
        least = value + (op in (ast.LtE, ast.Gt))
        if least in edges:
            below = np.arange(last) < edges.index(least)
            return below if op in (ast.Lt, ast.LtE) else ~below
        place = None
    if place is None:
        condition = f"must be an edge of {shown(attribute.name)}, as bins cannot be divided: "
        raise InputError("where", value, condition + ", ".join(map(shown, edges[:40])))
    # A bin contains its lower edge; the last bin also contains its upper edge.
    allowed = (ast.LtE, ast.Gt) if place == last else (ast.Lt, ast.GtE)
    if op not in allowed:
        sign = _SIGNS[allowed[0] if op in (ast.Lt, ast.LtE) else allowed[1]]
        condition = (
            f"must be {sign} {shown(edges[place])}: a bin contains its lower edge, and the last"
        )
        raise InputError("where", f"{_SIGNS[op]} {edges[place]}", f"{condition} one its upper edge")
    below = np.arange(last) < place
    return below if op in (ast.Lt, ast.LtE) else ~below


def _as_declared(edge: Any) -> Any:
    """Returns a whole-numbered edge as an integer, as people write it."""
    return int(edge) if isinstance(edge, float) and edge.is_integer() else edge
