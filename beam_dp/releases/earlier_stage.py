"""What a card states about an earlier release that was paid for together with a release.

Also which columns it says little of: told from public numbers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.ordered import BinnedAttribute, NumericAttribute
from beam_dp.errors import InputError
from beam_dp.privacy.discovery import record_levels
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.bound import noise_variance

RECORDS = "records per unit"  # what the choice of this number measures
_DRAWN, LIMIT, _TYPES = "draw_id", "max_records_per_unit", "types"


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
    types: Discovered | None = None  # the release of types, before that of a domain

    @property
    def all_noise(self) -> tuple[Mapping[str, Any], ...]:
        """The noise of the earlier release and, before it, of types."""
        return self.noise if self.types is None else (*self.types.noise, *self.noise)

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON entry of a card."""
        drawn = {} if self.draw_id is None else {_DRAWN: self.draw_id}
        release: dict[str, Any] = {"epsilon": self.main.epsilon, "delta": self.main.delta}
        if self.main.max_records_per_unit != self.whole.max_records_per_unit:
            release[LIMIT] = self.main.max_records_per_unit
        types = {} if self.types is None else {_TYPES: self.types.to_json()}
        return {**drawn, "release": release, "noise": [dict(step) for step in self.noise], **types}

    @classmethod
    def from_json(cls, parsed: Any, whole: Guarantee) -> Self:
        """Returns what ``to_json`` wrote on the card of a release with a guarantee."""
        keys = {_DRAWN, "release", "noise"}
        if not isinstance(parsed, Mapping) or set(parsed) - {_TYPES} != keys:
            raise InputError("discovered", type(parsed).__name__, f"must have the fields {keys}")
        release, noise, draw_id = parsed["release"], parsed["noise"], parsed[_DRAWN]
        if not isinstance(release, Mapping) or set(release) - {LIMIT} != {"epsilon", "delta"}:
            raise InputError("discovered", "release", "must have an epsilon and a delta")
        if not isinstance(noise, list) or not all(isinstance(step, Mapping) for step in noise):
            raise InputError("discovered", "noise", "must be a list of JSON objects")
        if not isinstance(draw_id, str):
            raise InputError("discovered", _DRAWN, "must be a string")
        main = whole.with_limits(**release)
        types = cls.from_json(parsed[_TYPES], whole) if _TYPES in parsed else None
        return cls(whole=whole, main=main, noise=tuple(noise), draw_id=draw_id, types=types)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PaidTogether:
    """What a plan, a card or a release states of earlier releases; the last one first.

    ``discovered``: the release of the domain. ``records_per_unit``: the choice of this number; its
    guarantee covers the release of the domain, too.
    """

    discovered: Discovered | None = None
    records_per_unit: Discovered | None = None

    @property
    def earlier(self) -> dict[str, Any]:
        """The earlier releases that are stated, by field."""
        parts = ((name, getattr(self, name)) for name in _EARLIER)
        return {name: part for name, part in parts if part is not None}

    def earlier_json(self) -> dict[str, Any]:
        """Returns the same as JSON values of a card."""
        return {name: part.to_json() for name, part in self.earlier.items()}


_EARLIER = [field.name for field in dataclasses.fields(PaidTogether)]


def earlier_releases(parsed: Mapping[str, Any], guarantee: Guarantee) -> dict[str, Any]:
    """Returns the fields of ``PaidTogether`` of a card with this guarantee."""
    parts = {}
    for name in reversed(_EARLIER):
        if parsed.get(name) is not None:
            parts[name] = Discovered.from_json(parsed[name], guarantee)
            guarantee = parts[name].main
    return parts


ONE_BIN, CUT, SEPARATOR = "one bin", "far values may be cut", ", "


def not_described(
    attributes: Iterable[object], in_other: Mapping[str, float], cut: Iterable[str] = ()
) -> dict[str, str]:
    """Returns the columns that released records describe badly, with the reasons, by name.

    ``in_other``: the share of the released rows in ``other``, by attribute.
    ``cut``: the columns whose far values may be cut.
    """
    reasons = {name: [CUT] for name in cut}
    for attribute in attributes:
        if isinstance(attribute, BinnedAttribute) and attribute.num_levels == 1:
            reasons.setdefault(attribute.name, []).append(ONE_BIN)
    for name, share in in_other.items():
        if share > 0.5:
            reasons.setdefault(name, []).append(f"{share:.0%} in other")
    return {name: SEPARATOR.join(texts) for name, texts in reasons.items()}


def records_attribute(max_records: int) -> NumericAttribute:
    """Returns the attribute whose levels are those of ``record_levels(max_records)``."""
    edges = tuple(map(float, (*record_levels(max_records), max_records + 0.5)))
    return NumericAttribute(RECORDS, edges, clip=True, whole=True)


# Which columns with found bins may lack their far values; from public numbers alone.
#
# The release that finds bins cuts off the ends of a column at which noise hides the units. How far
# the hidden values are from the found ends is not known. Here it is assumed that a tail goes on as
# it falls between the median and the found end.


# In standard deviations of the noise of a sum: units beyond which each end is cut off.
END_ERRORS = 3.5
# An end that hides so large a share of all units cuts any distribution that is not a few numbers.
_MOST_HIDDEN = 1 / 8
# The standard deviation that was lost, as a share of the one that is left.
_MOST_LOST = 1 / 4
# A tail begins at most here, so that the bins between the median and the tail say how it falls.
_LARGEST_TAIL = 1 / 3
_MEDIAN = 1 / 2
# The ends would have been found further out if so many times the hidden units were beyond them.
_MOST_BEYOND = 2.0
# Shapes of generalised Pareto tails: -5 ends at once, and a tail of shape 2 has no mean.
_SHAPES, _NO_SHAPE = (-5.0, 2.0), 1e-6
_MOST_QUANTILES = 2**16


def hidden_units(noise: Mapping[str, Any]) -> float:
    """Returns about how many units each end of a column cuts off.

    ``noise``: that of the leaves, as a card states it.
    """
    variance = noise_variance(noise["distribution"], noise["scale"])
    return END_ERRORS * math.sqrt(variance) / float(noise["grid"])


def may_be_cut(
    column: BinnedAttribute, counts: NDArray[Any], hidden: float, max_records: int = 1
) -> bool:
    """Returns whether far values may be cut that would make the spread a quarter larger.

    ``counts``: estimated numbers of records in the found bins, shape (bins,).
    ``hidden``: the number of units that each end hides (``hidden_units``).
    ``max_records``: the largest number of records that a unit has.
    """
    counts = np.maximum(counts, 0.0)
    edges, total, ends = column.places, float(counts.sum()), column.whole_ends
    are_single = ends is not None and np.array_equal(*ends)  # codes, such as 0 and 1
    if column.num_levels == 1 or are_single or not total > 0:
        return False
    if hidden > _MOST_HIDDEN * total:
        return True
    if column.num_levels == 2:
        return False
    num_quantiles = min(math.ceil(total), _MOST_QUANTILES)
    ranks = (np.arange(num_quantiles) + 0.5) * (total / num_quantiles)
    with np.errstate(all="ignore"):  # extreme edges may overflow; no warning then
        values = np.interp(ranks, np.append(0.0, np.cumsum(counts)), edges)
        rows = hidden * max_records
        longer = _with_tail(values, edges, counts, hidden, rows)
        longer = _with_tail(-longer[::-1], -edges[::-1], counts[::-1], hidden, rows)
        return bool(longer.std() > (1 + _MOST_LOST) * values.std())


def _with_tail(
    values: NDArray[np.float64],
    edges: NDArray[np.float64],
    counts: NDArray[np.float64],
    hidden: float,
    most_hidden: float,
) -> NDArray[np.float64]:
    """Returns quantiles with a generalised Pareto tail in place of the bins that may be cut.

    The tail begins at the last edge beyond which there are more units than are hidden. Its shape
    is that of the quantiles there, at the median, and halfway in the logarithm of their ranks.
    """
    total = float(counts.sum())
    beyond = total - np.append(0.0, np.cumsum(counts))
    place = int(np.flatnonzero(beyond[:-1] >= hidden)[-1])
    begin, share = float(edges[place]), float(beyond[place]) / total
    if not 1 / len(values) <= share < _LARGEST_TAIL:
        return values
    ratio = math.sqrt(_MEDIAN / share)
    half, median = np.interp([total * (1 - ratio * share), total * _MEDIAN], total - beyond, edges)
    if not begin > half > median:
        return values
    shape = float(np.log((begin - half) / (half - median))) / math.log(ratio)
    shape = float(np.clip(shape, *_SHAPES)) or _NO_SHAPE
    scale = (begin - half) * shape / -math.expm1(-shape * math.log(ratio))
    num_values = round(share * len(values))
    ranks = (num_values - np.arange(num_values) - 0.5) / num_values
    tail = begin + scale * (ranks**-shape - 1) / shape
    if np.mean(tail > edges[-1]) * beyond[place] > _MOST_BEYOND * most_hidden:
        return values
    return np.append(values[: len(values) - num_values], tail)
