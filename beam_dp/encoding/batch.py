"""Encoded batches: records of a domain as integer columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.encoding.texts import Mask


@dataclass(frozen=True, eq=False, repr=False)
class EncodedBatch:
    """Records inside the domain, as one cell index each or as one code column an attribute.

    Exactly one of ``cells`` and ``codes`` is given: cells where the domain has an index and
    the summary counts cells, else codes.

    Args:
        cells: shape (n,), any integer type, cell indices.
        codes: one array of shape (n,) an attribute, any integer type.
        units: shape (2, n), uint64, the 128-bit fingerprint of each record's privacy unit;
            None once contributions are limited, or where the unit is the record.
    """

    cells: NDArray[Any] | None = None
    codes: Sequence[NDArray[Any]] | None = None
    units: NDArray[np.uint64] | None = None

    def __post_init__(self) -> None:
        if (self.cells is None) == (self.codes is None):
            raise ValueError("a batch holds either cells or codes")

    def __repr__(self) -> str:
        return "EncodedBatch(secret)"

    def cell_index(self, domain: Domain) -> NDArray[Any]:
        """Returns the cell of each record, shape (n,)."""
        if self.cells is not None:
            return self.cells
        assert self.codes is not None
        return domain.cell_index(self.codes)

    def code_columns(self, domain: Domain) -> Sequence[NDArray[Any]]:
        """Returns the codes of each attribute, arrays of shape (n,)."""
        if self.codes is not None:
            return self.codes
        assert self.cells is not None
        return domain.codes(self.cells)


@dataclass(frozen=True, eq=False, repr=False)
class WindowBatch:
    """Records inside the domain that count in some window, as one cell index each.

    Args:
        numbers: shape (n,), any integer type, the window of each.
        cells: shape (n,), any integer type.
        units: shape (2, n), uint64, fingerprints of their privacy units; None where the unit is
            the record.
    """

    numbers: NDArray[Any]
    cells: NDArray[Any]
    units: NDArray[np.uint64] | None = None

    def __repr__(self) -> str:
        return "WindowBatch(secret)"


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
