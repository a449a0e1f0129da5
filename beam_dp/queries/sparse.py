"""Sparse queries: values for a few elements of a universe, and 0 for all other elements.

Elements are strings, bytes or integers; ``"1"``, ``b"1"`` and ``1`` are three elements. Values are
multiples of 2^-16, as in ``linear``, so sums over records are exact integers. Elements may be rows
of bits: strings of ``0`` and ``1``, whose first character is bit 0.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product, repeat
from operator import mul
from pathlib import Path
from typing import Any, Literal

from beam_dp.checks import check_choice, checked_integer, is_number
from beam_dp.domain.texts import (
    Element,
    KeyType,
    checked_json,
    integer_key,
    json_text,
    plain_integer,
)
from beam_dp.errors import InputError, magnitude, shown
from beam_dp.hashing.keys import HashKey, universe_elements
from beam_dp.queries.linear import VALUE_BITS
from beam_dp.queries.reader import MAX_QUERIES

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


# Limit on the rows in the supports of all conjunctions of a family; the rows are kept in memory.
MAX_ROWS = 2**22
MAX_BITS = 1024

_FORM, _MONOTONE_FORM = ROW_FORMS = "row_conjunctions", "monotone_row_conjunctions"


@dataclass(frozen=True)
class RowConjunctions:
    """All conjunctions of exactly w literals on w different bits of rows of d bits.

    A conjunction is true on 2^k of the 2^d rows, with k = d - w. There are C(d, k) 2^w
    conjunctions: each choice of w bits has 2^w patterns of signs, which are true on disjoint rows.
    With ``is_monotone``, literals are not negated ("these bits are all 1"), so there are C(d, k)
    conjunctions.

    A conjunction is written with one character per bit: 1 or 0 for a literal, ``*`` for any bit.

    Args:
        num_bits: d, the number of bits per row, at most 1,024.
        num_literals: w, from 1 to d, and at least d - 20.

    Raises:
        InputError: if there are more than 2^18 conjunctions, or more than 2^22 rows in total.

    Reference: Blum and Roth (2011), Definition 3.9.

    Example:
        >>> family = RowConjunctions(3, 2, is_monotone=True)
        >>> list(family), family.sparsity
        (['11*', '1*1', '*11'], 2)
        >>> len(RowConjunctions(3, 2))
        12
    """

    num_bits: int
    num_literals: int
    is_monotone: bool = False

    def __post_init__(self) -> None:
        checked_integer("num_bits", self.num_bits, 1, MAX_BITS)
        checked_integer("num_literals", self.num_literals, 1, self.num_bits)
        num_free = self.num_bits - self.num_literals
        if num_free > MAX_FREE_BITS:
            condition = f"must leave at most {MAX_FREE_BITS} of {self.num_bits} bits out"
            raise InputError("num_literals", self.num_literals, condition)
        for number, what, limit in (
            (self._number, "conjunctions", MAX_QUERIES),
            (self._number * self.sparsity, "rows in all conjunctions", MAX_ROWS),
        ):
            if number > limit:
                condition = f"makes {magnitude(number)} {what}; must make at most {limit:,}"
                raise InputError("num_literals", self.num_literals, condition)

    @property
    def sparsity(self) -> int:
        """The number of rows on which each conjunction is true: 2^k."""
        return 1 << (self.num_bits - self.num_literals)

    def __len__(self) -> int:
        return self._number

    @property
    def _number(self) -> int:
        """The number of conjunctions, which may be larger than ``len`` can return."""
        signs = 1 if self.is_monotone else 1 << self.num_literals
        return math.comb(self.num_bits, self.num_literals) * signs

    def __iter__(self) -> Iterator[str]:
        signs = ["1"] if self.is_monotone else ["0", "1"]
        for bits in combinations(range(self.num_bits), self.num_literals):
            for literals in product(signs, repeat=self.num_literals):
                text = ["*"] * self.num_bits
                for bit, literal in zip(bits, literals, strict=True):
                    text[bit] = literal
                yield "".join(text)

    def to_json(self) -> list[dict[str, Any]]:
        """Returns the conjunctions as JSON values, one per line of a query file."""
        return [{"row_conjunction": text} for text in self]


def conjunction_of_text(text: Any) -> SparseQuery:
    """Returns the conjunction for a string of 0, 1 and at most 20 ``*``, one character per bit."""
    if not isinstance(text, str) or not text or not set(text) <= set("01*"):
        condition = "a row_conjunction must be a string of 0, 1 and *, one per bit"
        raise InputError("query", text, condition)
    literals = {bit: int(letter) for bit, letter in enumerate(text) if letter != "*"}
    return row_conjunction(len(text), literals)


def names_row_conjunctions(spec: str) -> bool:
    """Returns whether ``spec`` names a family of conjunctions over rows, rather than a file."""
    return spec.partition(":")[0] in ROW_FORMS and ":" in spec


def parse_row_conjunctions(spec: str) -> RowConjunctions:
    """Reads ``row_conjunctions:D,W`` or ``monotone_row_conjunctions:D,W`` from a command line."""
    form, _, numbers = spec.partition(":")
    given = [text.strip() for text in numbers.split(",")]
    if len(given) != 2 or not all(text.isascii() and text.isdecimal() for text in given):
        condition = f"must be {form}:D,W, of W literals over D bits, such as {form}:12,10"
        raise InputError("workload", spec, condition)
    try:
        return RowConjunctions(int(given[0]), int(given[1]), form == _MONOTONE_FORM)
    except InputError as error:
        raise InputError("workload", spec, f"{error.name}: {error.condition}") from None


MAX_FREE_BITS = 20


def row_conjunction(num_bits: int, literals: Mapping[int, int]) -> SparseQuery:
    """Returns the query that is 1 on the rows where all literals are true.

    Args:
        num_bits: d, the number of bits per row.
        literals: the value 0 or 1 for each bit; k <= 20 bits may be omitted.

    Cost: O(d 2^k): the support has 2^k rows.

    Example:
        >>> row_conjunction(3, {0: 1, 2: 0}).elements
        ('100', '110')
    """
    return SparseQuery.of_list(_rows(num_bits, literals))


def row_disjunction(num_bits: int, literals: Mapping[int, int], bits: Iterable[int]) -> SparseQuery:
    """Returns the query that is 1 if all literals are true and at least one of ``bits`` is 1.

    The other arguments, the errors and the cost are those of ``row_conjunction``.

    Example:
        >>> row_disjunction(3, {0: 1}, [1, 2]).elements
        ('101', '110', '111')
    """
    rows, taken = _rows(num_bits, literals), _checked_bits(num_bits, bits)
    return SparseQuery.of_list(row for row in rows if any(row[bit] == "1" for bit in taken))


def row_parity(num_bits: int, literals: Mapping[int, int], bits: Iterable[int]) -> SparseQuery:
    """Returns the query that is 1 if all literals are true and an odd number of ``bits`` is 1.

    The other arguments, the errors and the cost are those of ``row_conjunction``.

    Example:
        >>> row_parity(3, {0: 1}, [1, 2]).elements
        ('101', '110')
    """
    rows, taken = _rows(num_bits, literals), _checked_bits(num_bits, bits)
    return SparseQuery.of_list(row for row in rows if sum(row[bit] == "1" for bit in taken) % 2)


def _checked_bits(num_bits: int, bits: Iterable[int]) -> list[int]:
    taken = list(bits)
    for bit in taken:
        checked_integer("bits", bit, 0, num_bits - 1)
    if len(set(taken)) < len(taken):
        raise InputError("bits", taken, "must name each bit once")
    return taken


def _rows(num_bits: int, literals: Mapping[int, int]) -> Iterator[str]:
    """Returns the rows where all literals are true; checks the arguments immediately."""
    checked_integer("num_bits", num_bits, 1)
    if not isinstance(literals, Mapping):
        raise InputError("literals", literals, "must be 0 or 1 by bit")
    for bit, value in literals.items():
        checked_integer("literals", bit, 0, num_bits - 1)
        if isinstance(value, bool) or value not in (0, 1):
            raise InputError("literals", value, f"bit {bit} must be 0 or 1")
    num_free = num_bits - len(literals)
    if num_free > MAX_FREE_BITS:
        condition = f"must fix all of {num_bits} bits but at most {MAX_FREE_BITS}"
        raise InputError("literals", f"{len(literals)} bits", condition)
    choices = [str(literals[bit]) if bit in literals else "01" for bit in range(num_bits)]
    return map("".join, product(*choices))


# The version of the rule that reads keys of records, stated on cards: version 2 reads 7.0 as 7.
KEY_RULE = 2

_TYPES: dict[KeyType, type] = {"text": str, "bytes": bytes, "integer": int}


class SparseQueries:
    """Reads sparse queries about records that are counted by the fingerprints of their keys.

    A query with two keys that share a fingerprint is refused, because one record would count for
    both keys and could change the sum by more than 1. Anyone who knows the hash key can find keys
    that share a fingerprint.
    """

    def __init__(self, key_type: KeyType, max_sparsity: int, hash_key: HashKey) -> None:
        self.key_type = key_type
        self.max_sparsity = max_sparsity
        self.hash_key = hash_key

    def from_json(self, parsed: Any) -> SparseQuery:
        """Returns the query of ``SparseQuery.from_json`` or of ``conjunction_of_text``."""
        if isinstance(parsed, Mapping) and set(parsed) == {"row_conjunction"}:
            read = conjunction_of_text(parsed["row_conjunction"])
        else:
            read = SparseQuery.from_json(parsed)
        query = with_plain_keys(of_type(read, self.key_type))
        if query.sparsity > self.max_sparsity:
            condition = f"must have at most max_sparsity = {self.max_sparsity:,}"
            raise InputError("query", f"{query.sparsity:,} elements", condition)
        if len(set(universe_elements(query.elements, self.hash_key).tolist())) < query.sparsity:
            raise InputError("query", "two elements", "must not share a fingerprint")
        return query


def of_type(query: SparseQuery, key_type: KeyType) -> SparseQuery:
    """Returns a query whose elements have the given type; converts strings to bytes if needed."""
    values = [numerator / 2**16 for numerator in query.numerators]
    elements = [_typed(element, key_type) for element in query.elements]
    return SparseQuery(zip(elements, values, strict=True))


def with_plain_keys(query: SparseQuery) -> SparseQuery:
    """Returns a query whose strings and bytes are normalized like the keys of records."""
    plain = {element: _plain(element) for element in query.elements}
    if all(key is element for element, key in plain.items()):
        return query
    keys: dict[Element, Element] = {}
    for element, key in plain.items():
        if (other := keys.setdefault(key, element)) != element:
            raise InputError(
                "query", element, f"must be given once: {shown(other)} is the same key"
            )
    values = [numerator / 2**16 for numerator in query.numerators]
    return SparseQuery(zip(plain.values(), values, strict=True))


def _plain(element: Element) -> Element:
    """Returns the key in the form used for records; the same object if nothing changes."""
    if isinstance(element, bytes):
        return plain_integer(element)
    if isinstance(element, str) and element.endswith(".0") and element.isascii():
        plain = plain_integer(element.encode()).decode()
        return element if plain == element else plain
    return element


def _typed(element: Element, key_type: KeyType) -> Element:
    if key_type == "bytes" and isinstance(element, str):
        return element.encode("utf-8", "surrogatepass")
    if not isinstance(element, _TYPES[key_type]):
        raise InputError("sparse", element, f"must be {key_type}, as the keys of the records are")
    return element


_FILE_FORM = "; must have a key per line, or be a JSON object with sparse, in UTF-8"


def read_sparse_query(
    path: str | Path, *, keys: Literal["text", "integer"] = "text"
) -> SparseQuery:
    """Reads a query from a file: a set of keys, or a value for each key.

    A file whose name ends in ``.json`` contains an argument of ``SparseQuery.from_json``. Any other
    file has one distinct key per line, optionally followed by a tab and a value (default 1). Either
    all lines end with a newline, or all lines end with a carriage return and a newline.

    Args:
        path: the path of a UTF-8 file.
        keys: the type of keys on lines, text or integers.

    Raises:
        InputError: if the file is invalid; the message names the file and any invalid line.
    """
    check_choice("keys", keys, ("text", "integer"))
    text = json_text("query", Path(path), _FILE_FORM)  # keeps line ends, which keys may contain
    if Path(path).suffix == ".json":
        return SparseQuery.from_json(checked_json("query", str(path), text))
    return _from_lines(str(path), text, keys)


def _from_lines(path: str, text: str, keys: str) -> SparseQuery:
    values: dict[Element, float] = {}
    # ``splitlines`` would also split at separators that a key may contain.
    end = "\r\n" if text.count("\r\n") == text.count("\n") > 0 else "\n"
    lines = text.removesuffix(end).split(end) if text else []
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        written, tab, weight = line.rpartition("\t")
        if not tab:
            written, weight = weight, "1"
        key = _key(where, written, keys)
        if key in values:
            raise InputError(where, key, "must be given once: an element is repeated")
        values[key] = _value(where, weight)
    return SparseQuery(values)


def _key(where: str, written: str, keys: str) -> Element:
    if not written:
        raise InputError(where, written, "must contain a key")
    if keys == "text":
        return written
    number = integer_key(written.encode("utf-8", "surrogatepass"))
    if number is None:
        raise InputError(where, written, "must contain an integer key, without leading zeros")
    return number


def _value(where: str, written: str) -> float:
    try:
        value = float(written)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        condition = "after the tab must be a number from 0 to 1, or no tab at all"
        raise InputError(where, written, condition)
    return value
