"""Tables of pairs as if attributes were independent: noisy scores are distances from these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer, checked_number
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.models.residual_basis import Support
from beam_dp.releases.synthetic_database.marginal_weights import marginal_weights
from beam_dp.releases.synthetic_database.measured_tables import MAX_GRID, Names

# Scores saturate here: a clipped score has the same sensitivity, one that wraps has none.
MAX_SCORE = 2**61
_FIELDS = ("num_records", "grid")


@dataclass(frozen=True, eq=False)
class IndependentTables:
    """A public distribution of independent attributes, given that no cell is impossible.

    Args:
        num_records: that it was scaled to.
        grid: units of a score that make one record; its tables were rounded to them.
        potentials: for each attribute a table of logarithms, shape (its size,), finite.
    """

    num_records: float
    grid: int
    potentials: tuple[tuple[Names, NDArray[np.float64]], ...]

    def answers(
        self, domain: Domain, pairs: Sequence[Support]
    ) -> dict[Support, NDArray[np.float64]]:
        """Returns the tables of some pairs, in records.

        Raises:
            InputError: if one has more than 2^28 cells.
        """
        potentials = [(domain.axes(names), table) for names, table in self.potentials]
        tables = marginal_weights(domain.shape, potentials, pairs, domain.impossible)
        return {axes: self.num_records * table for axes, table in zip(pairs, tables, strict=True)}

    def rounding(self, table: NDArray[np.float64]) -> float:
        """Returns how far a distance from a table may be from the one that was scored, in records.

        Each cell was rounded to the grid; floating point adds what a billionth of the records is.
        """
        return table.size / (2 * self.grid) + 1e-9 * self.num_records

    def saturates(self, table: NDArray[np.float64], distance: float) -> bool:
        """Whether the score of a table at such a distance from this one may have been clipped."""
        return 2 * self.grid * (float(table.max()) + distance + 1) * table.size >= MAX_SCORE

    def to_json(self) -> dict[str, Any]:
        """Returns what the card states beside the file of potentials."""
        return {"num_records": self.num_records, "grid": self.grid}

    @classmethod
    def from_json(
        cls, parsed: Any, potentials: Sequence[tuple[Names, NDArray[np.float64]]], domain: Domain
    ) -> Self:
        """Returns the tables that a card and a file state.

        Raises:
            InputError: if they state none of this domain.
        """
        if not isinstance(parsed, dict) or set(parsed) != set(_FIELDS):
            condition = f"must have exactly the fields {', '.join(_FIELDS)}"
            raise InputError("independent", type(parsed).__name__, condition)
        if [names for names, _ in potentials] != [(name,) for name in domain.names]:
            raise InputError("independent", len(potentials), "must have a table of each attribute")
        if not all(np.isfinite(table).all() for _, table in potentials):
            raise InputError("independent", "potentials", "must be finite")
        number = checked_number("num_records", parsed["num_records"], above=0)
        return cls(number, checked_integer("grid", parsed["grid"], 1, MAX_GRID), tuple(potentials))
