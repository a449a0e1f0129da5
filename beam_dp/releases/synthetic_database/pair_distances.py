"""How far pairs of attributes are from independent: noisy scores that a selection paid for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from beam_dp.checks import checked_number
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.noise.bound import noise_bound
from beam_dp.releases.synthetic_database.independent_tables import IndependentTables
from beam_dp.releases.synthetic_database.measured_tables import Names


@dataclass(frozen=True)
class PairDistances:
    """Noisy L1 distances of pairs of attributes from independence: public, at no further cost.

    Args:
        deviation: standard deviation of the noise of each, in records, > 0.
        pairs: for two names in domain order the sum, over the cells of their table, of how far the
            count is from that of independent attributes, in records. The noise may make it < 0.
        independent: the tables that they are distances from; None where they were not kept.
    """

    deviation: float
    pairs: Mapping[Names, float]
    independent: IndependentTables | None = field(default=None, compare=False)

    def noise_bound(self, failure_probability: float) -> float:
        """Returns what the noise of no score exceeds, in records, except with a probability.

        Of all pairs that were scored, measured afterwards or not, hence whatever was chosen by it.
        """
        return noise_bound(self.deviation**2, len(self.pairs), None, failure_probability)

    def to_json(self) -> dict[str, Any]:
        """Returns the distances as the card states them."""
        pairs = [
            {"attributes": list(names), "distance": distance}
            for names, distance in self.pairs.items()
        ]
        stated: dict[str, Any] = {"standard_deviation": self.deviation, "pairs": pairs}
        if self.independent is not None:
            stated["independent"] = self.independent.to_json()
        return stated

    @classmethod
    def from_json(
        cls, parsed: Any, domain: Domain, independent: IndependentTables | None = None
    ) -> Self:
        """Returns the distances that a card states.

        Raises:
            InputError: if it states none of pairs of this domain.
        """
        fields = {"standard_deviation", "pairs"} | (
            set() if independent is None else {"independent"}
        )
        if not isinstance(parsed, dict) or set(parsed) != fields:
            condition = f"must have exactly the fields {', '.join(sorted(fields))}"
            raise InputError("distances", type(parsed).__name__, condition)
        deviation = checked_number("standard_deviation", parsed["standard_deviation"], above=0)
        if not isinstance(parsed["pairs"], list):
            raise InputError("distances", type(parsed["pairs"]).__name__, "must list pairs")
        pairs = dict(_pair(entry, domain) for entry in parsed["pairs"])
        return cls(deviation, pairs, independent)


def _pair(entry: Any, domain: Domain) -> tuple[Names, float]:
    if not isinstance(entry, dict) or set(entry) != {"attributes", "distance"}:
        condition = "must have exactly the fields attributes, distance"
        raise InputError("distances", type(entry).__name__, condition)
    names = entry["attributes"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError("attributes", type(names).__name__, "must be a list of names")
    axes = domain.axes(names)
    if len(axes) != 2 or axes[0] >= axes[1]:
        raise InputError("attributes", names, "must be two, in domain order")
    return tuple(names), checked_number("distance", entry["distance"], above=-math.inf)
