"""The user's notation of sparse queries about keys of one type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beam_dp.domain.texts import plain_integer
from beam_dp.errors import InputError, shown
from beam_dp.hashing.elements import universe_elements
from beam_dp.hashing.keys import HashKey
from beam_dp.queries.row_families import conjunction_of_text
from beam_dp.queries.sparse import Element, KeyType, SparseQuery

# By which rule the texts of records are read as keys: 2 reads 7.0 as 7. A card names its rule.
KEY_RULE = 2

_TYPES: dict[KeyType, type] = {"text": str, "bytes": bytes, "integer": int}


class SparseQueries:
    """Reads sparse queries about records that are counted by fingerprints of their keys.

    Two keys of one query never share a fingerprint: else one record would count for both, and
    could change the query's sum by more than one. Whoever knows the hash key can find such keys.
    """

    def __init__(self, key_type: KeyType, max_sparsity: int, hash_key: HashKey) -> None:
        self.key_type = key_type
        self.max_sparsity = max_sparsity
        self.hash_key = hash_key

    def from_json(self, parsed: Any) -> SparseQuery:
        """Returns the query that a JSON value describes.

        Args:
            parsed: as of ``SparseQuery.from_json``, or ``{"row_conjunction": "1*0"}``: see
                ``conjunction_of_text``.

        Raises:
            InputError: if it describes none, or one with too many elements, with elements of
                another type, or with two that share a fingerprint.
        """
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
    """Returns a query whose elements are keys of one type; texts become bytes for those.

    Raises:
        InputError: naming an element of another type.
    """
    values = [numerator / 2**16 for numerator in query.numerators]
    elements = [_typed(element, key_type) for element in query.elements]
    return SparseQuery(zip(elements, values, strict=True))


def with_plain_keys(query: SparseQuery) -> SparseQuery:
    """Returns a query whose texts and bytes are read as the keys of records are.

    Raises:
        InputError: if two elements are one key, whose value would be ambiguous.

    Example:
        >>> with_plain_keys(SparseQuery({"7.0": 1.0, "07": 0.5})).elements
        ('7', '07')
    """
    plain = {element: _plain(element) for element in query.elements}
    if all(key is element for element, key in plain.items()):
        return query
    found: dict[Element, Element] = {}
    for element, key in plain.items():
        if (other := found.setdefault(key, element)) != element:
            raise InputError(
                "query", element, f"must be given once: {shown(other)} is the same key"
            )
    values = [numerator / 2**16 for numerator in query.numerators]
    return SparseQuery(zip(plain.values(), values, strict=True))


def _plain(element: Element) -> Element:
    """The key itself, not a copy, where it stays as it is."""
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
