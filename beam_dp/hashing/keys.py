"""Hash keys: the public randomness of a hash family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from beam_dp.checks import checked_integer
from beam_dp.errors import InputError
from beam_dp.hashing.field import Words

MAX_INDEPENDENCE = 1024
_MAGIC = b"beam_dp hash key 1\n"
_FINGERPRINT_KEY_BYTES = 16


@dataclass(frozen=True, eq=False)
class HashKey:
    """What chooses one function of the family: public, drawn before any data is read.

    ``words``: shape (r (r + 1) / 2,), uint64.
    ``fingerprint_key``: 16 bytes, for elements that are text or bytes.

    Privacy: needs only that the key is drawn independently of the data, and never drawn again
    after looking at a result. It belongs into the artifact, and publishing it is free. But whoever
    knows it can choose elements that collide: an answer about chosen elements can be made as
    inaccurate as somebody likes.

    The words are the coefficients c_ij, i + j < r, of one polynomial of two variables and total
    degree below r, in the order (0, 0), (0, 1), ..., (0, r - 1), (1, 0), ...: r (r + 1) / 2 words
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
        # A key that changed after it was drawn would no longer describe its projection.
        words = self.words.copy()
        words.flags.writeable = False
        object.__setattr__(self, "words", words)

    @classmethod
    def draw(cls, independence: int = 48) -> HashKey:
        """Returns a fresh uniform key from the operating system's entropy.

        ``independence``: r, in 1..1024. The paper's r is 2 log(k T / (2 beta)) for k
        queries, width T and failure probability beta, rounded up to an even integer.

        Reference: Blum and Roth (2011), Algorithm 2 and Remark 4.4.
        """
        # Reading a key back needs no noise, nor the library that draws it.
        from beam_dp.noise.source import NoiseSource

        checked_integer("independence", independence, 1, MAX_INDEPENDENCE)
        size = 8 * num_words(independence)
        drawn = NoiseSource().bits(8 * (size + _FINGERPRINT_KEY_BYTES))
        return cls._from_payload(independence, drawn.to_bytes(size + _FINGERPRINT_KEY_BYTES))

    def to_bytes(self) -> bytes:
        """Returns the key as bytes, the same on every machine, for the artifact."""
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
        """Returns the key that ``to_bytes`` wrote.

        Example:
            >>> key = HashKey.draw(4)
            >>> HashKey.from_bytes(key.to_bytes()) == key
            True
        """
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
