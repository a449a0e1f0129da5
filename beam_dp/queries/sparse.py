"""Sparse queries: values for a few elements of a universe, and 0 for all other elements.

Elements are strings, bytes or integers; ``"1"``, ``b"1"`` and ``1`` are three elements. Values are
multiples of 2^-16, as in ``linear``, so sums over records are exact integers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import repeat
from operator import mul
from typing import Any

from beam_dp.checks import is_number
from beam_dp.domain.texts import Element
from beam_dp.errors import InputError, shown
from beam_dp.queries.linear import VALUE_BITS

_KINDS = frozenset((str, bytes, int))
_ONE = 1 << VALUE_BITS


class SparseQuery:
    """A function from elements to [0, 1] that is 0 outside its support. Immutable.

    Values are rounded to multiples of 2^-16, and elements whose value becomes 0 are dropped, so
    queries are equal, and hash alike, if they are the same function.

    Args:
        values: a mapping from elements to values, or pairs of an element and its value.

    Raises:
        InputError: if an element is not a string, bytes or an integer, is repeated, or has a value
            outside 0 to 1; the message contains the element.

    Cost: O(m) for m elements, also for ``count`` and ``weigh``.

    Example:
        >>> query = SparseQuery({"alice@example.org": 1.0, "bob@example.org": 0.5, "carol": 0})
        >>> query.sparsity, query.to_json()
        (2, {'sparse': {'alice@example.org': 1.0, 'bob@example.org': 0.5}})
        >>> query.count({"bob@example.org": 3, "dave@example.org": 9}) / 2**16
        1.5
    """

    __slots__ = ("_hash", "_is_list", "elements", "numerators")

    elements: tuple[Element, ...]
    numerators: tuple[int, ...]
    _is_list: bool
    _hash: int

    def __init__(self, values: Mapping[Element, float] | Iterable[tuple[Element, float]]) -> None:
        by_element = dict(values) if isinstance(values, Mapping) else _by_element(values)
        _check(by_element)
        numerators = _scaled(by_element.values())
        if 0 in numerators:
            by_element = {x: value for x, value in by_element.items() if round(value * _ONE)}
            numerators = tuple(numerator for numerator in numerators if numerator)
        set_once = super().__setattr__
        set_once("elements", tuple(by_element))
        set_once("numerators", numerators)
        is_list = numerators.count(_ONE) == len(numerators)
        set_once("_is_list", is_list)
        # The result does not depend on the order of the elements.
        set_once("_hash", hash(frozenset(by_element if is_list else self._items())))

    @classmethod
    def of_list(cls, elements: Iterable[Element]) -> SparseQuery:
        """Returns the query that is 1 for the given elements, which must be distinct."""
        return cls(zip(elements, repeat(1.0)))

    @property
    def sparsity(self) -> int:
        """The number of elements for which the query is not 0."""
        return len(self.elements)

    def count(self, counts: Mapping[Element, int]) -> int:
        """Returns 2^16 times the sum of the query over records, exactly.

        One record changes the sum by at most 2^16. ``counts`` may omit elements without records.
        """
        # These two sums take most of the time of an answer, so they run in C.
        values = map(counts.get, self.elements, repeat(0))
        if self._is_list:
            return sum(values) * _ONE
        return sum(map(mul, self.numerators, values))

    def weigh(self, weights: Mapping[Element, float], common: float) -> float:
        """Returns the sum of query times weight; ``common`` is the weight of all other elements."""
        values = map(weights.get, self.elements, repeat(common))
        if self._is_list:
            return float(sum(values))
        return float(sum(map(mul, self.numerators, values))) / _ONE

    def to_json(self) -> dict[str, Any]:
        """Returns the query as JSON values that ``from_json`` reads."""
        pairs = self._pairs()
        if all(isinstance(element, str) for element, _ in pairs):
            return {"sparse": dict(pairs)}
        return {
            "sparse": [
                [{"hex": element.hex()} if isinstance(element, bytes) else element, value]
                for element, value in pairs
            ]
        }

    @classmethod
    def from_json(cls, parsed: Any) -> SparseQuery:
        """Returns the query that a JSON value describes.

        Args:
            parsed: ``{"sparse": {string: value, ...}}`` or
                ``{"sparse": [[element, value], ...]}``, where an element is a string, an integer
                or, for bytes, ``{"hex": "00ff"}``.

        Raises:
            InputError: if ``parsed`` has neither form.
        """
        if not isinstance(parsed, Mapping) or set(parsed) != {"sparse"}:
            raise InputError("query", parsed, 'must be {"sparse": {element: value, ...}}')
        listed = parsed["sparse"]
        if isinstance(listed, Mapping):
            return cls(listed)
        if not isinstance(listed, list):
            raise InputError("query", listed, "must be values by element, or a list of pairs")
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in listed):
            raise InputError("query", listed, "a list must contain pairs of element and value")
        return cls([(_decoded(element), value) for element, value in listed])

    def _pairs(self) -> list[tuple[Element, float]]:
        values = [numerator / _ONE for numerator in self.numerators]
        return list(zip(self.elements, values, strict=True))

    def _items(self) -> Iterable[tuple[Element, int]]:
        return zip(self.elements, self.numerators, strict=True)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SparseQuery)
            and self._hash == other._hash
            and dict(self._items()) == dict(other._items())
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"SparseQuery(sparsity={self.sparsity})"

    def __reduce__(self) -> tuple[Any, ...]:
        # The hash of a string differs between processes.
        return SparseQuery, (self._pairs(),)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a SparseQuery does not change")


def _by_element(pairs: Iterable[tuple[Element, float]]) -> dict[Element, float]:
    values: dict[Element, float] = {}
    try:
        for element, value in pairs:
            _check_element(element)
            if element in values:
                raise InputError("query", element, "must be given once: an element is repeated")
            values[element] = value
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        condition = "must be values by element, or pairs of an element and its value"
        raise InputError("query", type(pairs).__name__, condition) from None
    return values


def _check(by_element: Mapping[Element, float]) -> None:
    # This check runs in C if all values are valid.
    if not set(map(type, by_element)) <= _KINDS:
        for element in by_element:
            _check_element(element)
    if not set(map(type, by_element.values())) <= {int, float}:
        for element, value in by_element.items():
            if not is_number(value):
                raise InputError("query", value, f"the value of {shown(element)} must be a number")
    # ``min`` and ``max`` may skip NaN, but the sum does not.
    values = by_element.values()
    if values and not (min(values) >= 0 and max(values) <= 1 and sum(values) >= 0):
        element, value = next(pair for pair in by_element.items() if not 0 <= pair[1] <= 1)
        raise InputError("query", value, f"the value of {shown(element)} must be from 0 to 1")


def _scaled(values: Collection[float]) -> tuple[int, ...]:
    """Returns 2^16 times each value, rounded."""
    if values and min(values) == max(values):
        return (round(next(iter(values)) * _ONE),) * len(values)
    return tuple(map(round, map(mul, values, repeat(float(_ONE)))))


def _check_element(element: object) -> None:
    if type(element) not in _KINDS:
        raise InputError("query", element, "an element must be text, bytes or an integer")


def _decoded(element: Any) -> Any:
    """Returns the element for a JSON value: an object with hexadecimal digits means bytes."""
    if not isinstance(element, Mapping):
        return element
    try:
        (form,) = element
        if form == "hex":
            return bytes.fromhex(element[form])
    except (TypeError, ValueError):
        pass
    raise InputError("query", element, 'bytes must be written as {"hex": "00ff"}')
