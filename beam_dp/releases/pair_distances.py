"""How far pairs of attributes are from independent: noisy scores that a selection paid for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from beam_dp.checks import checked_number
from beam_dp.domain import Domain
from beam_dp.errors import InputError
from beam_dp.releases.measured_tables import Names


@dataclass(frozen=True)
class PairDistances:
    """Noisy L1 distances of pairs of attributes from independence: public, at no further cost.

    Args:
        deviation: standard deviation of the noise of each, in records, > 0.
        pairs: for two names in domain order the sum, over the cells of their table, of how far the
            count is from that of independent attributes, in records. The noise may make it < 0.
    """

    deviation: float
    pairs: Mapping[Names, float]

    def to_json(self) -> dict[str, Any]:
        """Returns the distances as the card states them."""
        pairs = [
            {"attributes": list(names), "distance": distance}
            for names, distance in self.pairs.items()
        ]
        return {"standard_deviation": self.deviation, "pairs": pairs}

    @classmethod
    def from_json(cls, parsed: Any, domain: Domain) -> Self:
        """Returns the distances that a card states.

        Raises:
            InputError: if it states none of pairs of this domain.
        """
        if not isinstance(parsed, dict) or set(parsed) != {"standard_deviation", "pairs"}:
            condition = "must have exactly the fields standard_deviation, pairs"
            raise InputError("distances", type(parsed).__name__, condition)
        deviation = checked_number("standard_deviation", parsed["standard_deviation"], above=0)
        if not isinstance(parsed["pairs"], list):
            raise InputError("distances", type(parsed["pairs"]).__name__, "must list pairs")
        return cls(deviation, dict(_pair(entry, domain) for entry in parsed["pairs"]))


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
