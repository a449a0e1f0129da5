"""Sparse queries about records whose keys are all of one type."""

from __future__ import annotations

from typing import Any

from beam_dp.errors import InputError
from beam_dp.hashing import HashKey, universe_elements
from beam_dp.queries.sparse import Element, KeyType, SparseQuery

_TYPES: dict[KeyType, type] = {"text": str, "bytes": bytes, "integer": int}


class SparseQueries:
    """Reads sparse queries about records that are counted by fingerprints of their keys.

    Two keys of one query never share a fingerprint: else one record would count for both, and
    could change the query's sum by more than one. Whoever knows the hash key can find such keys.

    Args:
        key_type: what the keys of the records are.
        max_sparsity: the most elements that a query may have.
        hash_key: of the fingerprints.
    """

    def __init__(self, key_type: KeyType, max_sparsity: int, hash_key: HashKey) -> None:
        self.key_type = key_type
        self.max_sparsity = max_sparsity
        self.hash_key = hash_key

    def from_json(self, parsed: Any) -> SparseQuery:
        """Returns the query that a JSON value describes: see ``SparseQuery.from_json``.

        Raises:
            InputError: if it describes none, or one with too many elements, with elements of
                another type, or with two that share a fingerprint.
        """
        query = of_type(SparseQuery.from_json(parsed), self.key_type)
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


def _typed(element: Element, key_type: KeyType) -> Element:
    if key_type == "bytes" and isinstance(element, str):
        return element.encode("utf-8", "surrogatepass")
    if not isinstance(element, _TYPES[key_type]):
        raise InputError("sparse", element, f"must be {key_type}, as the keys of the records are")
    return element
