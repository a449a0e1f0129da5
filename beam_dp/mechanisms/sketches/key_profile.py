"""Public assumptions about the keys of a table, from which errors are predicted."""

from __future__ import annotations

import dataclasses
import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer
from beam_dp.errors import InputError, magnitude
from beam_dp.flags.numbers import integer
from beam_dp.flags.options import option

_EXACT_RANKS = 1024
_RANKS_A_GROUP = 1.01
_LEAST_SHAPE, _MOST_SHAPE = 1e-9, 1e6


@dataclasses.dataclass(frozen=True)
class KeyProfile:
    """Counts by key that fall with the rank by a generalised Pareto law.

    The key of rank r of N has a (((N + 1) / r)^s - 1) / s records, at least one. Three numbers fix
    a and the shape s, that goes from equal counts (minus infinity) over uniform (-1) and geometric
    ones (0) to power laws: about 1.1 for words and web pages. Excesses over a high threshold have
    this law whatever the data (Pickands, 1975); and unless all counts are much alike it has keys of
    few records, as real tables do, where a power law with the same ends has none.

    Privacy does not depend on it; if it is wrong, a prediction is, and a plan may not be the best.

    Args:
        num_records: the sum of all counts; public, or a public guess.
        num_keys: distinct keys.
        largest_count: of one key.

    Raises:
        InputError: unless num_keys <= num_records <= num_keys * largest_count, and the other keys
            have at least a record each.

    Example:
        >>> counts, keys = KeyProfile(10**6, 10**6, 1).groups
        >>> float(keys @ counts**2)
        1000000.0
    """

    num_records: int = dataclasses.field(
        metadata=option("auto: about how many records there are; a public guess", "N", integer)
    )
    num_keys: int = dataclasses.field(
        metadata=option("auto: about how many distinct keys; a public guess", "N", integer)
    )
    largest_count: int = dataclasses.field(
        metadata=option(
            "auto: about how many records the most frequent key has; a public guess", "N", integer
        )
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            checked_integer(field.name, getattr(self, field.name), 1, 2**50)
        least = self.largest_count + self.num_keys - 1
        most = self.num_keys * self.largest_count
        if not least <= self.num_records <= most:
            condition = (
                f"must be from largest_count + num_keys - 1 = {magnitude(least)}"
                f" to num_keys * largest_count = {magnitude(most)}"
            )
            raise InputError("num_records", self.num_records, condition)

    @cached_property
    def groups(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Counts, and how many keys have each: of groups of neighbouring ranks."""
        from scipy.optimize import brentq  # imported here because it loads slowly

        num_keys, largest = self.num_keys, self.largest_count
        edges = [*range(1, min(_EXACT_RANKS, num_keys) + 1)]
        while edges[-1] < num_keys:
            edges.append(min(num_keys, math.ceil(edges[-1] * _RANKS_A_GROUP)))
        ends = np.array(edges, np.float64)
        keys = np.diff(ends, prepend=0.0)
        ranks = ends - (keys - 1) / 2
        logs = np.log(ranks / (num_keys + 1))

        def counts(shape: float) -> NDArray[np.float64]:
            # In terms of the largest count, and so that no power overflows.
            if abs(shape) < _LEAST_SHAPE:
                falling = logs / logs[0]
            else:
                falling = np.expm1(abs(shape) * logs) / np.expm1(abs(shape) * logs[0])
                falling *= ranks ** -max(shape, 0.0)
            # A key that is counted has a record.
            return np.asarray(np.maximum(largest * falling, 1.0))

        # The sum falls as the shape grows; angles, because shapes have no bounds.
        def excess(turned: float) -> float:
            return float(keys @ counts(math.tan(turned))) - self.num_records

        if num_keys == 1:
            return np.array([float(largest)]), keys
        low, high = math.atan(-_MOST_SHAPE), math.atan(_MOST_SHAPE)
        if excess(low) <= 0:
            return np.full(len(keys), self.num_records / num_keys), keys
        if excess(high) >= 0:
            return counts(_MOST_SHAPE), keys
        return counts(math.tan(float(brentq(excess, low, high)))), keys
