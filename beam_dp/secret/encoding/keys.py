"""Encoding of keys as texts and as universe elements, and of numbers as whole numbers.

Each value is read independently of other values in its batch; otherwise one record could change how
other records are read.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beam_dp.checks import check_choice
from beam_dp.domain.texts import KEY_TYPES, KeyType, integer_key, plain_integers
from beam_dp.errors import InputError
from beam_dp.hashing.keys import HashKey, universe_elements
from beam_dp.queries.sparse import KEY_RULE
from beam_dp.secret.encoding.batch import KeyBatch
from beam_dp.secret.encoding.canonical import canonical_bytes
from beam_dp.secret.encoding.layouts import Mask, as_bytes, by_values, gather, not_null
from beam_dp.secret.encoding.units import SHORT_BYTES, unit_fingerprints

# Longer texts are counted like others, but are not listed.
MAX_LISTED_BYTES = 256
_NOTHING = np.zeros(0, np.uint64), np.zeros(0, np.bool_)
_NOTHING_NAMED = _NOTHING[0], np.zeros((2, 0), np.uint64), _NOTHING[1]


@dataclasses.dataclass(frozen=True)
class KeyColumns:
    """The columns that contain keys and weights. Public.

    Args:
        key: the column of keys.
        key_type: the type of the keys: ``text``, ``bytes`` or ``integer`` (see
            ``encoding.keys.key_elements``).
        weight: the column of whole-number weights; None if every record has weight 1.
        list_keys: whether a release of counts lists the texts of its keys, up to 256 bytes long. A
            key is only listed if the count of its own text was released.

    Raises:
        InputError: if the type is unknown, key and weight are the same column, or integers are to
            be listed.
    """

    key: str
    key_type: KeyType = "text"
    weight: str | None = None
    list_keys: bool = False

    def __post_init__(self) -> None:
        check_choice("key_type", self.key_type, KEY_TYPES)
        if self.list_keys and self.key_type == "integer":
            condition = "must be of text or bytes: every release of counts contains its integers"
            raise InputError("list_keys", True, condition)
        if self.weight == self.key:
            raise InputError("weight", self.weight, "must be another column than the key's")

    def stated(self) -> dict[str, str | bool | None]:
        """Returns the entries of a card about the columns and the rule for reading keys."""
        fields = {**dataclasses.asdict(self), "rule": KEY_RULE}
        if not self.list_keys:
            del fields["list_keys"]
        return fields


def key_texts(chunk: pa.Array) -> pa.Array:
    """Returns the values as large binary; null for values that are not keys."""
    import pyarrow.compute as pc

    kind = chunk.type
    if pa.types.is_boolean(kind):
        return key_texts(chunk.cast(pa.int8()))
    if (texts := as_bytes(chunk)) is not None:
        return plain_integers(texts.cast(pa.large_binary()))
    if pa.types.is_integer(kind):
        return chunk.cast(pa.large_string()).view(pa.large_binary())
    if pa.types.is_floating(kind):
        numbers, negative, valid = whole_numbers(chunk)
        digits = pa.array(numbers, mask=~valid).cast(pa.large_string())
        signs = pa.array(np.where(negative, "-", "")).cast(pa.large_string())
        nothing = pa.scalar("", pa.large_string())
        return pc.binary_join_element_wise(signs, digits, nothing).view(pa.large_binary())
    if pa.types.is_decimal(kind):
        return pa.array([canonical_bytes(value) for value in chunk.to_pylist()], pa.large_binary())
    return pa.nulls(len(chunk), pa.large_binary())


def whole_numbers(chunk: pa.Array) -> tuple[NDArray[np.uint64], Mask, Mask]:
    """Returns absolute values of whole numbers, the mask of negatives, and the mask of numbers."""
    kind = chunk.type
    if pa.types.is_boolean(kind):
        return whole_numbers(chunk.cast(pa.int8()))
    if pa.types.is_integer(kind):
        numbers = chunk.fill_null(0).to_numpy(zero_copy_only=False)
        if numbers.dtype.kind == "u":
            return numbers.astype(np.uint64), np.zeros(len(chunk), np.bool_), not_null(chunk)
        return _split(numbers.astype(np.int64), not_null(chunk))
    if pa.types.is_floating(kind):
        floats = chunk.cast(pa.float64()).to_numpy(zero_copy_only=False)  # null as NaN
        whole = (floats >= -(2.0**63)) & (floats < 2.0**64) & (floats == np.floor(floats))
        return np.where(whole, np.abs(floats), 0).astype(np.uint64), floats < 0, whole
    texts = key_texts(chunk) if pa.types.is_decimal(kind) else as_bytes(chunk)
    if texts is not None:
        return _read_digits(texts)
    nothing = np.zeros(len(chunk), np.bool_)
    return np.zeros(len(chunk), np.uint64), nothing, nothing


def _split(numbers: NDArray[np.int64], valid: Mask) -> tuple[NDArray[np.uint64], Mask, Mask]:
    # The absolute value of -2^63 wraps to -2^63, which is correct as an unsigned number.
    return np.abs(numbers).view(np.uint64), numbers < 0, valid


def _read_digits(texts: pa.Array) -> tuple[NDArray[np.uint64], Mask, Mask]:
    """Returns the numbers that digits spell; each distinct string is read once."""
    encoded = texts.dictionary_encode()
    read = [integer_key(text) for text in encoded.dictionary.to_pylist()]
    sizes = np.array([abs(number or 0) for number in read], np.uint64)
    signs = np.array([(number is not None, (number or 0) < 0) for number in read], np.bool_)
    is_number, negative = gather(signs.reshape(-1, 2).T, encoded.indices)
    return gather(sizes, encoded.indices), negative, is_number


def key_elements(
    column: pa.Array | pa.ChunkedArray, key_type: KeyType, hash_key: HashKey
) -> tuple[NDArray[np.uint64], Mask]:
    """Returns the element of each record, and the mask of records that have an element.

    A key is text, bytes, a decimal, or a whole number of up to 64 bits, which may be stored as a
    float or a boolean. The key types ``text`` and ``bytes`` read numbers as their digits; the type
    ``integer`` reads digits as a number. Text such as ``"7.0"`` is read as ``"7"``
    (``plain_integer``). So ``7``, ``"7"`` and ``"7.0"`` are the same key within a release, and
    ``"007"`` is a different key. Null, fractions, dates and nested values have no element. With
    type ``integer``, values outside 0 to 2^64 - 1 have no element. Nothing is raised or reported.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    parts = [by_values(chunk, partial(_elements, key_type, hash_key)) for chunk in chunks]
    elements, valid = zip(*parts, strict=True) if parts else ((), ())
    return np.concatenate([_NOTHING[0], *elements]), np.concatenate([_NOTHING[1], *valid])


def named_key_elements(
    column: pa.Array | pa.ChunkedArray, key_type: KeyType, hash_key: HashKey
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], Mask, list[KeyBatch]]:
    """Returns elements, fingerprints of shape (2, n) and the mask of keys, and texts to be listed.

    Keys are text or bytes, and read as ``key_elements`` reads them. The texts weigh 0, and are only
    those that are too long for their fingerprints to contain them. Two of these with the same
    fingerprint cannot be found.
    """
    import pyarrow.compute as pc

    listed: list[KeyBatch] = []

    def read(chunk: pa.Array) -> tuple[NDArray[np.uint64], NDArray[np.uint64], Mask]:
        texts = key_texts(chunk)
        encoded = texts.dictionary_encode()
        names, _ = unit_fingerprints(encoded.dictionary)
        lengths = pc.binary_length(encoded.dictionary).to_numpy()
        kept = np.flatnonzero((lengths > SHORT_BYTES) & (lengths <= MAX_LISTED_BYTES))
        elements = _hashed(encoded.dictionary, key_type, hash_key)
        shown = encoded.dictionary.take(pa.array(kept))
        weights = np.zeros(len(kept), np.int64)
        listed.append(KeyBatch(elements[kept], weights, names=names[:, kept], texts=shown))
        return (
            gather(elements, encoded.indices),
            gather(names, encoded.indices),
            not_null(texts),
        )

    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    parts = [_NOTHING_NAMED, *(by_values(chunk, read) for chunk in chunks)]
    elements, names, valid = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
    return elements, names, valid, listed


def _hashed(distinct: pa.Array, key_type: KeyType, hash_key: HashKey) -> NDArray[np.uint64]:
    """Returns the elements of texts that are large binary, without null."""
    as_text = distinct.view(pa.large_string()) if key_type == "text" else distinct
    return universe_elements(as_text, hash_key)


def clamped_numbers(
    column: pa.Array | pa.ChunkedArray, largest: int
) -> tuple[NDArray[np.int64], Mask]:
    """Returns whole numbers, clamped to 0..largest, and a mask of the records that have one."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    numbers, valid = [np.zeros(0, np.int64)], [_NOTHING[1]]
    for chunk in chunks:
        values, negative, is_number = by_values(chunk, whole_numbers)
        clamped = np.minimum(values, np.uint64(largest)).astype(np.int64)
        numbers.append(np.where(negative, 0, clamped))
        valid.append(is_number)
    return np.concatenate(numbers), np.concatenate(valid)


def _elements(
    key_type: KeyType, hash_key: HashKey, chunk: pa.Array
) -> tuple[NDArray[np.uint64], Mask]:
    if key_type == "integer":
        numbers, negative, valid = whole_numbers(chunk)
        return numbers, valid & ~negative
    # Columns of text contain repeated values; each distinct value is hashed once.
    texts = key_texts(chunk)
    encoded = texts.dictionary_encode()
    elements = _hashed(encoded.dictionary, key_type, hash_key)
    return gather(elements, encoded.indices), not_null(texts)
