"""Vectorised coding of Avro's variable-length integers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from beam_dp.releases.files.container import DamagedFileError

_MAX_BYTES = 10  # seven bits each


def encode_longs(values: NDArray[np.int64]) -> bytes:
    r"""Returns 64-bit integers, shape (n,), one after the other in Avro's zigzag form.

    Cost: about 50 ns a value.

    Example:
        >>> encode_longs(np.array([-1, 64]))
        b'\x01\x80\x01'
    """
    rest = ((values << 1) ^ (values >> 63)).astype(np.int64).view(np.uint64)
    digits = np.empty((len(values), _MAX_BYTES), np.uint8)
    used = np.empty((len(values), _MAX_BYTES), np.bool_)
    for place in range(_MAX_BYTES):
        digits[:, place] = rest & np.uint64(0x7F)
        used[:, place] = True if place == 0 else rest > 0
        rest >>= np.uint64(7)
    # All digits but the last one are marked.
    digits[:, :-1] |= np.where(used[:, 1:], np.uint8(0x80), np.uint8(0))
    return digits[used].tobytes()


def decode_longs(data: bytes, position: int, number: int) -> tuple[NDArray[np.int64], int]:
    r"""Returns so many integers from a position on, and the position after them.

    Raises:
        DamagedFileError: if they are not all there.

    Cost: about 30 ns a value.

    Example:
        >>> decode_longs(b"\x01\x80\x01", 0, 2)
        (array([-1, 64]), 3)
    """
    if number == 0:
        return np.zeros(0, np.int64), position
    window = np.frombuffer(data, np.uint8)[position : position + _MAX_BYTES * number]
    last = np.flatnonzero(window < 0x80)[:number]
    if len(last) < number:
        raise DamagedFileError("a number is cut short or too long")
    starts = np.concatenate(([0], last[:-1] + 1))
    lengths = last - starts + 1
    window = window[: int(last[-1]) + 1]
    place = np.arange(len(window)) - np.repeat(starts, lengths)
    if int(place.max()) >= _MAX_BYTES or (window[place == _MAX_BYTES - 1] > 1).any():
        raise DamagedFileError("a number is cut short or too long")
    digits = (window & 0x7F).astype(np.uint64) << (place * 7).astype(np.uint64)
    zigzag = np.bitwise_or.reduceat(digits, starts)
    values = (zigzag >> np.uint64(1)) ^ -(zigzag & np.uint64(1)).astype(np.int64).view(np.uint64)
    return values.view(np.int64), position + len(window)
