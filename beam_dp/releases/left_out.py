"""Released noisy counts of the records outside the domain."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any, Self

from beam_dp.checks import is_integer, is_number
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError

_ERRORS = ("standard_error", "bound", "sum_standard_error", "sum_bound", "failure_probability")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Noisy counts of the records outside the domain; each record counts once.

    The counts are unbiased and may be negative. A unit contributes at most as many records to the
    counts as the guarantee allows. ``impossible`` counts records that are left out only because
    their values form an impossible combination; None if the domain declares none.
    """

    counts: Mapping[str, int]
    impossible: int | None
    scale: float  # the scale of the discrete Laplace noise of each count, in records
    standard_error: float  # of each count, from the noise alone, in records
    bound: float
    sum_standard_error: float
    sum_bound: float
    failure_probability: float
    budget: Mapping[str, Mapping[str, float]]

    def __post_init__(self) -> None:
        given = [*self.counts.values(), *([] if self.impossible is None else [self.impossible])]
        if not all(is_integer(value) and -(2**63) <= value < 2**63 for value in given):
            raise InputError("left_out", "counts", "must be integers of 64 bits")
        for name in ("scale", *_ERRORS):
            if not _is_number(getattr(self, name)):
                raise InputError("left_out", name, "must be a finite number >= 0")
        parts = self.budget.values() if isinstance(self.budget, Mapping) else ()
        fits = set(self.budget) == {"release", "left_out"} and all(
            isinstance(part, Mapping)
            and set(part) == {"epsilon", "delta"}
            and all(map(_is_number, part.values()))
            for part in parts
        )
        if not fits:
            condition = "must have an epsilon and a delta of the release and of left_out"
            raise InputError("left_out", "budget", condition)

    @property
    def total(self) -> int:
        """The sum of all counts."""
        return sum(self.counts.values()) + (self.impossible or 0)

    def check(self, domain: Domain) -> None:
        """Raises InputError if the counts belong to another domain."""
        if tuple(self.counts) != domain.names:
            condition = "must be one count per attribute, in the order of the domain"
            raise InputError("left_out", "counts", condition)
        if (self.impossible is None) == bool(domain.impossible):
            condition = "must be a count if and only if the domain declares impossible combinations"
            raise InputError("left_out", "impossible", condition)

    def to_json(self) -> dict[str, Any]:
        """Returns the counts and their errors as JSON values for a card."""
        impossible = {} if self.impossible is None else {"impossible": self.impossible}
        return {
            "sum": self.total,
            "counts": dict(self.counts),
            **impossible,
            "noise": {"distribution": "discrete_laplace", "scale": self.scale},
            **{name: getattr(self, name) for name in _ERRORS},
            "budget": {name: dict(part) for name, part in self.budget.items()},
        }

    @classmethod
    def from_json(cls, parsed: Any) -> Self:
        """Returns the counts in the JSON values of a card; raises InputError for other values."""
        fields = {"counts": dict, "noise": dict, "budget": dict}
        for name, kind in fields.items():
            if not isinstance(parsed, dict) or not isinstance(parsed.get(name), kind):
                raise InputError("left_out", name, "must be present and be a JSON object")
        if parsed["noise"].get("distribution") != "discrete_laplace":
            raise InputError("left_out", "noise", "must be discrete_laplace")
        found = cls(
            counts=parsed["counts"],
            impossible=parsed.get("impossible"),
            scale=parsed["noise"].get("scale"),
            budget=parsed["budget"],
            **{name: parsed.get(name) for name in _ERRORS},
        )
        if parsed.get("sum") != found.total:
            raise InputError("left_out", "sum", f"must be that of the counts, {found.total}")
        return found


def _is_number(value: object) -> bool:
    return is_number(value) and 0 <= value <= sys.float_info.max
