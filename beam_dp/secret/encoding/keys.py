"""Encoding of key columns as texts, and of number columns as whole numbers.

Each value is read independently of other values in its batch; otherwise one record could change how
other records are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.texts import integer_key, plain_integers
from beam_dp.secret.encoding.canonical import canonical_bytes
from beam_dp.secret.encoding.layouts import as_bytes, gather, not_null

if TYPE_CHECKING:
    import pyarrow as pa

Mask = NDArray[np.bool_]

# Longer texts are counted like others, but are not listed.
MAX_LISTED_BYTES = 256


def key_texts(chunk: pa.Array) -> pa.Array:
    """Returns the values as large binary; null for values that are not keys."""
    import pyarrow as pa
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
    import pyarrow as pa

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
