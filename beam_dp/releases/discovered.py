"""What a card states about an earlier release that was paid for together with a release."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Self

from beam_dp.domain.ordered import BinnedAttribute, NumericAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.privacy.discovery import record_levels
from beam_dp.privacy.guarantee import Guarantee

RECORDS = "records per unit"  # what the choice of this number measures
_DRAWN, LIMIT = "draw_id", "max_records_per_unit"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Discovered:
    """An earlier release, and how a guarantee is split between it and a later release.

    The earlier release is that of a domain, or it chose the number of records per unit. The later
    release uses the values and edges of the domain, or this number; it is about the same people,
    and keeps ``whole`` together with the earlier release.
    """

    whole: Guarantee  # of both releases together
    main: Guarantee  # of the later release alone
    noise: tuple[Mapping[str, Any], ...]  # the noise of the earlier release, as its card states it
    draw_id: str | None = None  # of the earlier release; None before it is drawn

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON entry of a card."""
        drawn = {} if self.draw_id is None else {_DRAWN: self.draw_id}
        release: dict[str, Any] = {"epsilon": self.main.epsilon, "delta": self.main.delta}
        if self.main.max_records_per_unit != self.whole.max_records_per_unit:
            release[LIMIT] = self.main.max_records_per_unit
        return {**drawn, "release": release, "noise": [dict(each) for each in self.noise]}

    @classmethod
    def from_json(cls, parsed: Any, whole: Guarantee) -> Self:
        """Returns what ``to_json`` wrote on the card of a release with a guarantee."""
        keys = {_DRAWN, "release", "noise"}
        if not isinstance(parsed, Mapping) or set(parsed) != keys:
            raise InputError("discovered", type(parsed).__name__, f"must have the fields {keys}")
        release, noise, draw_id = parsed["release"], parsed["noise"], parsed[_DRAWN]
        if not isinstance(release, Mapping) or set(release) - {LIMIT} != {"epsilon", "delta"}:
            raise InputError("discovered", "release", "must have an epsilon and a delta")
        if not isinstance(noise, list) or not all(isinstance(each, Mapping) for each in noise):
            raise InputError("discovered", "noise", "must be a list of JSON objects")
        if not isinstance(draw_id, str):
            raise InputError("discovered", _DRAWN, "must be a string")
        main = dataclasses.replace(whole, **release, allow_large_delta=True)
        return cls(whole=whole, main=main, noise=tuple(noise), draw_id=draw_id)


ONE_BIN, CUT, SEPARATOR = "one bin", "far values may be cut", ", "


def not_described(
    domain: Domain, in_other: Mapping[str, float], cut: Iterable[str] = ()
) -> dict[str, str]:
    """Returns the columns of which released records say little, with the reasons, by name.

    ``in_other``: the share of the released rows in ``other``, by attribute.
    ``cut``: the columns whose far values may be cut.
    """
    reasons = {name: [CUT] for name in cut}
    for each in domain:
        if isinstance(each, BinnedAttribute) and each.num_levels == 1:
            reasons.setdefault(each.name, []).append(ONE_BIN)
    for name, share in in_other.items():
        if share > 0.5:
            reasons.setdefault(name, []).append(f"{share:.0%} in other")
    return {name: SEPARATOR.join(each) for name, each in reasons.items()}


def earlier_releases(
    parsed: Mapping[str, Any], guarantee: Guarantee
) -> dict[str, Discovered | None]:
    """Returns the ``discovered`` and ``records_per_unit`` of a card with this guarantee."""
    domain, choice = parsed.get("discovered"), parsed.get("records_per_unit")
    records = None if choice is None else Discovered.from_json(choice, guarantee)
    limited = guarantee if records is None else records.main
    values = None if domain is None else Discovered.from_json(domain, limited)
    return {"discovered": values, "records_per_unit": records}


def records_attribute(max_records: int) -> NumericAttribute:
    """Returns the attribute whose levels are those of ``record_levels(max_records)``."""
    edges = tuple(map(float, (*record_levels(max_records), max_records + 0.5)))
    return NumericAttribute(RECORDS, edges, clip=True, whole=True)
