"""Bytes as a list of choices: what hypothesis, atheris and chance all know how to make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Consumes bytes from the front; when they are used up, every choice is the first one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def __bool__(self) -> bool:
        return self._position < len(self._data)

    def number(self, limit: int) -> int:
        """An integer in 0..limit-1."""
        width = max(1, ((limit - 1).bit_length() + 7) // 8)
        return int.from_bytes(self.bytes(width), "little") % limit

    def bytes(self, length: int) -> bytes:
        taken = self._data[self._position : self._position + length]
        self._position += length
        return taken

    def one_of(self, options: Sequence[T]) -> T:
        return options[self.number(len(options))]

    def rest(self) -> bytes:
        return self.bytes(max(0, len(self._data) - self._position))
