"""Hash keys (the public randomness of a hash family), and elements as 64-bit words."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer
from beam_dp.errors import InputError

Words = NDArray[np.uint64]

MAX_INDEPENDENCE = 1024
_MAGIC = b"beam_dp hash key 1\n"
_FINGERPRINT_KEY_BYTES = 16


@dataclass(frozen=True, eq=False)
class HashKey:
    """A public key that chooses one function of the family; drawn before any data is read.

    ``words``: the coefficients below, shape (r (r + 1) / 2,), uint64.
    ``fingerprint_key``: 16 bytes, used to hash elements that are strings or bytes.

    Privacy: the key must be drawn independently of the data, and never be drawn again after
    looking at a result. The key is part of the artifact, and publishing it does no harm to privacy.
    But anyone who knows the key can choose elements that collide, and make answers about these
    elements arbitrarily wrong.

    The words are the coefficients c_ij, i + j < r, of a polynomial in two variables of total degree
    below r, in the order (0, 0), (0, 1), ..., (0, r - 1), (1, 0), ...: r (r + 1) / 2 words
    of 8 bytes, 9.4 KB at r = 48, for any number of rows.
    """

    independence: int
    words: Words
    fingerprint_key: bytes

    def __post_init__(self) -> None:
        checked_integer("independence", self.independence, 1, MAX_INDEPENDENCE)
        expected = num_words(self.independence)
        if self.words.dtype != np.uint64 or self.words.shape != (expected,):
            raise InputError(
                "words",
                f"{self.words.dtype} {self.words.shape}",
                f"must be uint64 of shape ({expected},) for independence {self.independence}",
            )
        if len(self.fingerprint_key) != _FINGERPRINT_KEY_BYTES:
            raise InputError(
                "fingerprint_key", self.fingerprint_key, f"must have {_FINGERPRINT_KEY_BYTES} bytes"
            )
        # Read-only, because a key that changes after the draw no longer describes its projection.
        words = self.words.copy()
        words.flags.writeable = False
        object.__setattr__(self, "words", words)

    @classmethod
    def draw(cls, independence: int = 48) -> HashKey:
        """Returns a fresh uniform key from the operating system's entropy.

        ``independence``: r, in 1..1024. The published r is 2 log(k T / (2 beta)) for k queries,
        width T and failure probability beta, rounded up to an even integer.

        Reference: Blum and Roth (2011), Algorithm 2 and Remark 4.4.
        """
        # Imported here because reading a key must not need the library that draws noise.
        from beam_dp.privacy.noise.source import NoiseSource

        checked_integer("independence", independence, 1, MAX_INDEPENDENCE)
        size = 8 * num_words(independence)
        drawn = NoiseSource().bits(8 * (size + _FINGERPRINT_KEY_BYTES))
        return cls._from_payload(independence, drawn.to_bytes(size + _FINGERPRINT_KEY_BYTES))

    def to_bytes(self) -> bytes:
        """Returns the key as bytes for the artifact; the bytes are the same on every machine."""
        return b"".join(
            [
                _MAGIC,
                self.independence.to_bytes(4, "little"),
                self.words.astype("<u8").tobytes(),
                self.fingerprint_key,
            ]
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> HashKey:
        """Returns the key that ``to_bytes`` wrote."""
        start = len(_MAGIC) + 4
        independence = int.from_bytes(data[len(_MAGIC) : start], "little")
        if (
            not data.startswith(_MAGIC)
            or not 1 <= independence <= MAX_INDEPENDENCE
            or len(data) != start + 8 * num_words(independence) + _FINGERPRINT_KEY_BYTES
        ):
            raise InputError("hash key", data[:start], f"must be {_MAGIC!r}, r, words, 16 bytes")
        return cls._from_payload(independence, data[start:])

    @classmethod
    def _from_payload(cls, independence: int, payload: bytes) -> HashKey:
        size = 8 * num_words(independence)
        words = np.frombuffer(payload[:size], dtype="<u8").astype(np.uint64)
        return cls(independence, words, payload[size:])

    def __reduce__(self) -> tuple[Callable[[bytes], HashKey], tuple[bytes]]:
        return HashKey.from_bytes, (self.to_bytes(),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashKey) and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.to_bytes())


def num_words(independence: int) -> int:
    """Returns the number of coefficients c_ij with i + j < r."""
    return independence * (independence + 1) // 2


_CONDITION = "must be text, bytes or an integer in 0..2^64 - 1"


def universe_elements(values: Any, key: HashKey, name: str = "element") -> Words:
    """Returns the 64-bit keys of universe elements, for projections.

    An integer x with 0 <= x < 2^64 is its own key. Strings (as UTF-8) and bytes are hashed to 64
    bits of BLAKE2b, keyed by the public fingerprint key and the type: ``5``, ``"5"`` and ``b"5"``
    are three elements. Two different elements, at least one of them a string or bytes, share a key
    only by chance: among n elements with a probability of at most n^2 / 2^65 (2.7e-8 for a million,
    2.7 % for 1e9). A shared key costs accuracy, never privacy.

    Raises an error for values that are not elements, so records must be selected first
    (``encoding.keys``).

    ``values``: a numpy array (integers, strings, or objects), an Arrow array (integers, strings,
    binary, or a dictionary array of these types, without nulls), or an iterable of Python values. A
    numpy array of dtype ``S`` has lost the zero bytes at the end of its elements.

    Example:
        >>> key = HashKey.draw(4)
        >>> len(set(universe_elements([5, "5", b"5"], key).tolist()))
        3
    """
    if isinstance(values, str | bytes):
        raise InputError(name, values, "must be a list or an array of elements, not one element")
    if type(values).__module__.partition(".")[0] == "pyarrow":
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
        # A boolean is an integer in Python, but not an element.
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
    # A string may contain half of a surrogate pair, which UTF-8 cannot encode.
    return text.encode("utf-8", "surrogatepass")


def _fingerprints(values: Iterable[bytes], key: HashKey, kind: bytes) -> Words:
    # The key is absorbed once: copying the state costs half as much as a new hash.
    keyed = hashlib.blake2b(digest_size=8, key=key.fingerprint_key, person=kind).copy

    def digest(value: bytes, copy: Callable[[], Any] = keyed) -> bytes:
        state = copy()
        state.update(value)
        result: bytes = state.digest()
        return result

    return np.frombuffer(b"".join(map(digest, values)), dtype="<u8").astype(np.uint64)


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
        # Arrow stores strings as UTF-8, so the bytes are hashed directly.
        binary = pa.binary() if pa.types.is_string(values.type) else pa.large_binary()
        return _fingerprints(values.cast(binary).to_pylist(), key, b"text")
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return _fingerprints(values.to_pylist(), key, b"bytes")
    raise InputError(name, str(values.type), _CONDITION)
