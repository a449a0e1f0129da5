"""Reads sparse queries about keys of one type, from JSON or from files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from beam_dp.checks import check_choice
from beam_dp.domain.texts import (
    Element,
    KeyType,
    checked_json,
    integer_key,
    json_text,
    plain_integer,
)
from beam_dp.errors import InputError, shown
from beam_dp.hashing.keys import HashKey, universe_elements
from beam_dp.queries.row_families import conjunction_of_text
from beam_dp.queries.sparse import SparseQuery

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


_FORM = "; must have a key per line, or be a JSON object with sparse, in UTF-8"


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
    text = json_text("query", Path(path), _FORM)  # keeps line ends, which keys may contain
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
