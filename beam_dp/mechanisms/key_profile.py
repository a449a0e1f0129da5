"""What is publicly assumed of a table's keys, to predict errors: three numbers, no data."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from beam_dp.errors import InputError, magnitude

_EXACT_RANKS = 1024
_RANKS_A_GROUP = 1.01


@dataclasses.dataclass(frozen=True)
class KeyProfile:
    """Counts by key that fall with the rank by a power law, from the largest one down to one.

    A law with these three numbers has a fixed exponent: 0 where every key has as many records, and
    about 1.1 for words and web pages. Privacy does not depend on it; if it is wrong, a prediction
    is, and a plan may not be the best.

    Args:
        num_records: the sum of all counts; public, or a public guess.
        num_keys: distinct keys.
        largest_count: of one key.

    Raises:
        InputError: unless num_keys <= num_records <= num_keys * largest_count, and the other keys
            have at least a record each.

    Example:
        >>> KeyProfile(10**6, 10**6, 1).squared_norm
        1000000.0
    """

    num_records: int
    num_keys: int
    largest_count: int

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 2**50:
                raise InputError(field.name, value, "must be an integer from 1 to 2^50")
        least = self.largest_count + self.num_keys - 1
        most = self.num_keys * self.largest_count
        if not least <= self.num_records <= most:
            condition = (
                f"must be from largest_count + num_keys - 1 = {magnitude(least)}"
                f" to num_keys * largest_count = {magnitude(most)}"
            )
            raise InputError("num_records", self.num_records, condition)

    @property
    def groups(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Counts, and how many keys have each: of groups of neighbouring ranks."""
        return _groups(self.num_records, self.num_keys, self.largest_count)

    @property
    def squared_norm(self) -> float:
        """The sum of all squared counts."""
        counts, keys = self.groups
        return float(keys @ counts**2)


def _groups(
    num_records: int, num_keys: int, largest: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    edges = [*range(1, min(_EXACT_RANKS, num_keys) + 1)]
    while edges[-1] < num_keys:
        edges.append(min(num_keys, math.ceil(edges[-1] * _RANKS_A_GROUP)))
    ends = np.array(edges, np.float64)
    keys = np.diff(ends, prepend=0.0)
    ranks = ends - (keys - 1) / 2

    def counts(exponent: float) -> NDArray[np.float64]:
        falling = largest * ranks**-exponent
        # A count is a whole number: of small ones some keys have one more, for the same sum.
        return np.maximum(falling, 1.0)

    def excess(exponent: float) -> float:
        return float(keys @ counts(exponent)) - num_records

    if excess(0.0) <= 0 or num_keys == 1:
        return counts(0.0), keys
    highest = 64.0
    exponent = highest if excess(highest) >= 0 else float(brentq(excess, 0.0, highest))
    return counts(exponent), keys
