"""Records outside the domain, each assigned to the first attribute that it fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.encoding.batch import EncodedBatch
from beam_dp.encoding.texts import Mask


def left_out_records(
    codes: Sequence[NDArray[Any]], outside: Mask, units: NDArray[np.uint64] | None
) -> EncodedBatch:
    """Returns the records outside the domain, as cells: the first attribute that each one fails.

    Args:
        codes: of each attribute, in domain order, shape (n,), -1 where the value has no level.
        outside: shape (n,), which records are outside.
        units: shape (2, n), fingerprints of their units, or None.

    Returns:
        One record for each that is outside, in their order, whatever number of attributes it
        fails. Its cell is the position of the first one; the number of attributes, if it fails
        none and matches an impossible combination.
    """
    places = np.flatnonzero(outside)
    failed = np.full(len(places), len(codes))
    for axis in reversed(range(len(codes))):
        failed[codes[axis].take(places) < 0] = axis
    return EncodedBatch(cells=failed, units=None if units is None else units.take(places, axis=1))
