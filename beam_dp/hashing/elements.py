"""Universe elements as 64-bit keys: integers as they are, text and bytes by a keyed fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.errors import InputError
from beam_dp.hashing.field import Words
from beam_dp.hashing.keys import HashKey

_CONDITION = "must be text, bytes or an integer in 0..2^64 - 1"


def universe_elements(values: Any, key: HashKey, name: str = "element") -> Words:
    """Returns the keys of universe elements, for projections.

    An integer x with 0 <= x < 2^64 is its own key. Text (as UTF-8) and bytes get 64 bits of
    BLAKE2b, keyed by the public fingerprint key and by their type: ``5``, ``"5"`` and ``b"5"`` are
    three elements. Two different elements of which one at least is text or bytes share a key by
    chance only: among n elements with a probability of at most n^2 / 2^65 (2.7e-8 for a million,
    2.7 % for 1e9). That costs accuracy, never privacy.

    The elements may be public (the support of a query) or records. It raises on a value that is
    no element, so records must be chosen first (``encoding.keys``).

    ``values``: a numpy array (integers, text, or objects), an Arrow array (integers, text,
    binary, or a dictionary of these, without nulls), or any iterable of Python values. A numpy
    array of dtype ``S`` has lost the zero bytes at the end of its elements.

    Returns:
        shape (n,), uint64.

    Example:
        >>> key = HashKey.draw(4)
        >>> universe_elements([5, 2**64 - 1], key)
        array([                   5, 18446744073709551615], dtype=uint64)
        >>> len(set(universe_elements([5, "5", b"5"], key).tolist()))
        3
    """
    if isinstance(values, str | bytes):
        raise InputError(name, values, "must be a list or an array of elements, not one element")
    if _is_arrow(values):
        return _arrow_elements(values, key, name)
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise InputError(name, f"shape {values.shape}", "must be an array of shape (n,)")
        if values.dtype.kind in "iu":
            return _integer_elements(values, name)
        values = values.tolist()
    values = list(values)
    kinds = set(map(type, values))
    if kinds <= {str}:
        return _fingerprints(map(_encoded, values), key, b"text")
    if kinds <= {bytes}:
        return _fingerprints(values, key, b"bytes")
    elements = np.empty(len(values), dtype=np.uint64)
    for index, value in enumerate(values):
        if isinstance(value, str):
            value = _fingerprints([_encoded(value)], key, b"text")[0]
        elif isinstance(value, bytes):
            value = _fingerprints([value], key, b"bytes")[0]
        # A boolean is an integer for Python, but no element.
        is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not (is_integer and 0 <= int(value) < 2**64):
            raise InputError(name, value, _CONDITION)
        elements[index] = int(value)
    return elements


def _integer_elements(values: NDArray[Any], name: str) -> Words:
    if values.dtype.kind == "i" and values.min(initial=0) < 0:
        raise InputError(name, int(values.min()), _CONDITION)
    return values.astype(np.uint64)


def _encoded(text: str) -> bytes:
    # Half of a surrogate pair has no UTF-8, but it can stand in a string.
    return text.encode("utf-8", "surrogatepass")


def _fingerprints(values: Iterable[bytes], key: HashKey, kind: bytes) -> Words:
    # The key is absorbed once: a copy of that state costs half of a new hash.
    keyed = hashlib.blake2b(digest_size=8, key=key.fingerprint_key, person=kind).copy

    def digest(value: bytes, copy: Callable[[], Any] = keyed) -> bytes:
        state = copy()
        state.update(value)
        result: bytes = state.digest()
        return result

    return np.frombuffer(b"".join(map(digest, values)), dtype="<u8").astype(np.uint64)


def _is_arrow(values: object) -> bool:
    return type(values).__module__.partition(".")[0] == "pyarrow"


def _arrow_elements(values: Any, key: HashKey, name: str) -> Words:
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        parts = [_arrow_elements(chunk, key, name) for chunk in values.chunks]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint64)
    if values.null_count:
        raise InputError(name, None, _CONDITION)
    if pa.types.is_dictionary(values.type):
        distinct = _arrow_elements(values.dictionary, key, name)
        elements: Words = distinct[values.indices.to_numpy()]
        return elements
    if pa.types.is_integer(values.type):
        return _integer_elements(values.to_numpy(), name)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        # Arrow holds UTF-8: its bytes are hashed as they are.
        binary = pa.binary() if pa.types.is_string(values.type) else pa.large_binary()
        return _fingerprints(values.cast(binary).to_pylist(), key, b"text")
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return _fingerprints(values.to_pylist(), key, b"bytes")
    raise InputError(name, str(values.type), _CONDITION)
