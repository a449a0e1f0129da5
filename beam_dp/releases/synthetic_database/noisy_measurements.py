"""What a release was made from: noisy tables, which answer linear queries without bias."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.releases.synthetic_database.measured_tables import MeasuredTable
from beam_dp.releases.synthetic_database.noise_bounds import Choice, NoiseBounds
from beam_dp.releases.synthetic_database.pair_distances import PairDistances

PROVED = "of_any_choice"  # for whatever noise chose to measure; earlier cards do not say so


@dataclass(frozen=True, eq=False)
class NoisyMeasurements:
    """Noisy tables as they were drawn: public, at no further cost.

    Args:
        described: what each of them is, and its noise.
        tables: of each, one axis an attribute, float64, records.
        are_fixed: whether it was fixed before any record was read what is measured, and how
            precisely. Else noise had a say in it, and estimates from these tables are unbiased
            only approximately.
        distances: the noisy scores of pairs, where it was chosen by these what is measured.
        has_proved_bounds: whether the bounds that a release states of them hold for whatever noise
            chose, as those of earlier versions need not; of what was fixed all do.

    Raises:
        InputError: if a table is not finite, or there are not as many as are described.
    """

    described: tuple[MeasuredTable, ...]
    tables: tuple[NDArray[np.float64], ...]
    are_fixed: bool
    distances: PairDistances | None = None
    has_proved_bounds: bool = True

    def __post_init__(self) -> None:
        if len(self.described) != len(self.tables):
            condition = f"must be one of each of {len(self.described)} descriptions"
            raise InputError("measurements", len(self.tables), condition)
        tables = tuple(np.asarray(table, np.float64) for table in self.tables)
        object.__setattr__(self, "tables", tables)
        if not isinstance(self.are_fixed, bool):
            raise InputError("measurements", self.are_fixed, "must say whether they are fixed")

    def stated(self) -> dict[str, Any]:
        """Returns what a card says of them, as JSON values."""
        scored = {} if self.distances is None else {"distances": self.distances.to_json()}
        is_said = self.has_proved_bounds and not self.are_fixed
        proved = {"bounds": PROVED} if is_said else {}
        return {"fixed": self.are_fixed, **proved, **scored}

    def bounds(self, domain: Domain, total_is_public: bool) -> NoiseBounds:
        """Returns what errors of unbiased estimates from these tables are bounded by."""
        choice: Choice = "in_turn" if self.distances is None else "once"
        if self.are_fixed:
            choice = "beforehand"
        return NoiseBounds(domain, self.described, choice, total_is_public)

    def check(self, domain: Domain) -> None:
        """Refuses tables that are not of a domain.

        Raises:
            InputError: naming the measurements.
        """
        for described, table in zip(self.described, self.tables, strict=True):
            shape = domain.restrict(described.names).shape
            if table.shape != shape or not np.isfinite(table).all():
                condition = f"must be of shape {shape} and finite"
                raise InputError("measurements", ",".join(described.names), condition)
