"""Released domains: the values of columns and the edges of bins that noise let pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.attributes import PaidRelease
from beam_dp.domain.discover import OpenAttribute, OpenDomain
from beam_dp.domain.readings import type_of
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases.earlier_stage import Discovered
from beam_dp.releases.release import Release, library_versions, plain_json

MECHANISM = "discovery"
FOLDER, TYPES_FOLDER = "domain", "types"  # each in the directory of the release that uses it


class Found(NamedTuple):
    """The result for one open attribute. Public.

    ``values``: the texts that were found, or the edges of bins, as a domain file has them; for a
    type its readings. ``counts``: noisy numbers of privacy units, float64: one per value, and for
    bins one less. ``standard_errors``: of these numbers, as for levels fixed in advance.
    """

    values: tuple[str, ...] | tuple[float, ...]
    counts: NDArray[np.float64]
    standard_errors: NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class DomainRelease(Release):
    """A public domain whose open attributes have the values and edges that a release found.

    Args:
        open_domain: the domain before the release.
        found: the result for each open attribute, in order.
        noise: the noise for each open attribute, as stated on the card.
        plan: other public parameters: the split of the guarantee, and the entry of a ledger.
        guarantee: the guarantee of the domain alone.
        versions: the versions of the libraries that made the release.
    """

    KIND: ClassVar[str] = "domain"

    open_domain: OpenDomain
    found: Sequence[Found]
    noise: Sequence[Mapping[str, Any]]
    plan: Mapping[str, Any]
    versions: Mapping[str, str] = dataclasses.field(default_factory=library_versions)

    def __post_init__(self) -> None:
        if not len(self.found) == len(self.noise) == len(self.open_domain.open):
            condition = "must be one per attribute to discover"
            raise InputError("found", len(self.found), condition)
        for attribute, result, noise in self.columns():
            if noise.get("measured") != (name := attribute.measured):
                raise InputError("noise", noise.get("measured"), f"must be of {name!r}")
            num_counts = len(result.values) - attribute.has_bins
            for numbers in (result.counts, result.standard_errors):
                if numbers.shape != (num_counts,) or not np.isfinite(numbers).all():
                    condition = "must be one finite number per level"
                    raise InputError("counts", attribute.name, condition)
        _ = self.result, self.discovered  # refuses values that are no levels, and another split

    def __repr__(self) -> str:
        return f"DomainRelease(names={self.open_domain.names!r}, draw_id={self.draw_id!r})"

    def columns(self) -> list[tuple[OpenAttribute, Found, Mapping[str, Any]]]:
        """Returns each open attribute with what was found, and with its noise."""
        return list(zip(self.open_domain.open, self.found, self.noise, strict=True))

    @cached_property
    def readings(self) -> dict[str, str]:
        """The types that were found, by column; empty if values and edges were found."""
        return {
            column.name: type_of(votes.counts, votes.standard_errors[0])
            for column, votes, _ in self.columns()
            if not column.has_type
        }

    @cached_property
    def result(self) -> Domain | OpenDomain:
        """The domain with the types that were found, or else ``domain``."""
        return self.open_domain.typed(self.readings) if self.readings else self.domain

    @cached_property
    def domain(self) -> Domain:
        """The domain with all found values and edges, which name this release as their origin."""
        if self.readings:
            condition = "has types only: the domain is in the folder above it"
            raise InputError("domain", self.directory or self.draw_id, condition)
        origin = PaidRelease(self.plan.get("ledger_release"), self.draw_id)
        values = {attribute.name: result.values for attribute, result, _ in self.columns()}
        return self.open_domain.closed(values, origin)

    @property
    def records_domain(self) -> Domain:
        """The domain of the records."""
        return self.domain

    @cached_property
    def discovered(self) -> Discovered:
        """What the card of a later release states, if both were paid for together."""
        entry = {"release": self.plan.get("release"), "noise": list(self.noise)}
        entry |= {"types": self.plan["types"]} if "types" in self.plan else {}
        whole = Guarantee.from_json(self.plan.get("whole", {}))
        return Discovered.from_json({**entry, "draw_id": self.draw_id}, whole)

    @property
    def mechanism(self) -> str:
        """The name of the mechanism."""
        return MECHANISM

    @cached_property
    def card(self) -> dict[str, Any]:
        """The content of the card, as JSON values."""
        return {
            "mechanism": MECHANISM,
            "guarantee": self.guarantee.to_json(),
            "domain": self.open_domain.to_json(),
            "parameters": plain_json(self.plan),
            "noise": plain_json(self.noise),
            "versions": dict(self.versions),
        }
