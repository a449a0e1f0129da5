"""Records that nobody would have by chance: different ones of one unit with equal hashes.

The hash of ``select_records`` is public and made of bijections: anybody can run it backwards.
Everything is written in Python's integers, apart from the code that it is held against.
"""

import collections
import functools
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from beam_dp.secret.encoding.contributions import select_records
from beam_dp.secret.encoding.units import unit_fingerprints

_WORD = 2**64 - 1
_FACTORS = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_STEP = 0x9E3779B97F4A7C15


def mix(word: int) -> int:
    word = (word + _STEP) & _WORD
    word = (word ^ (word >> 30)) * _FACTORS[0] & _WORD
    word = (word ^ (word >> 27)) * _FACTORS[1] & _WORD
    return word ^ (word >> 31)


def unmix(word: int) -> int:
    """The word that ``mix`` makes this one of."""
    word = _unshift(word, 31) * pow(_FACTORS[1], -1, 2**64) & _WORD
    word = _unshift(word, 27) * pow(_FACTORS[0], -1, 2**64) & _WORD
    return (_unshift(word, 30) - _STEP) & _WORD


def _unshift(word: int, bits: int) -> int:
    found = word
    for _ in range(64 // bits):
        found = word ^ (found >> bits)
    return found


@functools.cache
def unit_hash(unit: int | str) -> int:
    """What the hashes of a unit's records start from."""
    (high,), (low,) = unit_fingerprints(pa.array([unit]))[0].tolist()
    return mix(high ^ mix(low))


def record_hash(unit: int | str, words: tuple[int, ...], number: int = 0) -> int:
    """The hash of the record that is so-manieth of its unit's identical ones."""
    found = unit_hash(unit)
    for word in words:
        found = mix(found ^ (word & _WORD))
    return mix(found ^ mix(number)) if number else found


def with_hash(unit: int | str, first: int, wanted: int) -> int:
    """The second word that gives a record with this first one the hash."""
    return unmix(wanted) ^ mix(unit_hash(unit) ^ first)


def colliding_cells(unit: int | str, num_cells: int = 2**62) -> Iterator[tuple[int, int]]:
    """Pairs of wide words, each below the number of cells, all with one hash."""
    wanted = record_hash(unit, (1, 2))
    for first in itertools.count():
        second = with_hash(unit, first, wanted)
        if second < num_cells:
            yield first, second


def colliding_weights(unit: int | str, key: int, weights: tuple[int, ...]) -> list[tuple[int, int]]:
    """Keys with these weights, the first as given, all with one hash."""
    start = unit_hash(unit)
    before_weight = mix(start ^ key) ^ weights[0]
    return [(unmix(before_weight ^ weight) ^ start, weight) for weight in weights]


def survivors(
    held: Sequence[tuple[int, tuple[int, ...]]], k: int
) -> collections.Counter[tuple[int, tuple[int, ...]]]:
    """Units with what ``select_records`` keeps of them."""
    units, _ = unit_fingerprints(pa.array([unit for unit, _ in held], pa.int64()))
    columns = zip(*(words for _, words in held), strict=True) if held else [()]
    words = [np.array(each, np.uint64) for each in columns]
    kept = select_records(units, words, np.ones(len(held), np.int64), k, None)
    return collections.Counter(held[i] for i in kept)


def kept_by_definition(
    held: Sequence[tuple[int, tuple[int, ...]]], k: int
) -> collections.Counter[tuple[int, tuple[int, ...]]]:
    """Units with what stays of them: the k lowest by hash, the first one's hash, then words."""
    kept: collections.Counter[tuple[int, tuple[int, ...]]] = collections.Counter()
    for unit in {unit for unit, _ in held}:
        own = collections.Counter(words for owner, words in held if owner == unit)
        ranked = sorted(
            (record_hash(unit, words, number), record_hash(unit, words), words)
            for words, count in own.items()
            for number in range(count)
        )
        kept.update((unit, words) for _, _, words in ranked[:k])
    return kept
