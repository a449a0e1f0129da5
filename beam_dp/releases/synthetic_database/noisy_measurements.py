"""The noisy tables and scores that a release was made from, and bounds of their noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer, checked_number
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.models.basis import Support
from beam_dp.models.potentials import marginal_weights
from beam_dp.noise.bound import chosen_noise_bound, noise_bound
from beam_dp.releases.synthetic_database.measured_tables import (
    MAX_GRID,
    MeasuredTable,
    Names,
    laplace_variance,
)

# Scores saturate here: a clipped score has the same sensitivity, one that wraps has none.
MAX_SCORE = 2**61
_FIELDS = ("num_records", "grid")


@dataclass(frozen=True, eq=False)
class IndependentTables:
    """A public distribution of independent attributes, given that no cell is impossible.

    ``num_records``: the number that the tables are scaled to. ``grid``: units of a score that make
    one record; tables were rounded to them. ``potentials``: for each attribute a table of
    logarithms, shape (its size,), finite.
    """

    num_records: float
    grid: int
    potentials: tuple[tuple[Names, NDArray[np.float64]], ...]

    def answers(
        self, domain: Domain, pairs: Sequence[Support]
    ) -> dict[Support, NDArray[np.float64]]:
        """Returns the tables of some pairs, in records."""
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
        """Returns what the card states in addition to the file of potentials."""
        return {"num_records": self.num_records, "grid": self.grid}

    @classmethod
    def from_json(
        cls, parsed: Any, potentials: Sequence[tuple[Names, NDArray[np.float64]]], domain: Domain
    ) -> Self:
        """Returns the tables that a card and a file state."""
        if not isinstance(parsed, dict) or set(parsed) != set(_FIELDS):
            condition = f"must have exactly the fields {', '.join(_FIELDS)}"
            raise InputError("independent", type(parsed).__name__, condition)
        if [names for names, _ in potentials] != [(name,) for name in domain.names]:
            raise InputError("independent", len(potentials), "must have a table of each attribute")
        if not all(np.isfinite(table).all() for _, table in potentials):
            raise InputError("independent", "potentials", "must be finite")
        number = checked_number("num_records", parsed["num_records"], above=0)
        return cls(number, checked_integer("grid", parsed["grid"], 1, MAX_GRID), tuple(potentials))


@dataclass(frozen=True)
class PairDistances:
    """Noisy L1 distances of pairs of attributes from independence: public, at no further cost.

    ``deviation``: standard deviation of the noise of each, in records, > 0.
    ``pairs``: for two names in domain order the sum, over the cells of their table, of how far
    the count is from that of independent attributes, in records. The noise may make it < 0.
    ``independent``: the tables that they are distances from; None where they were not kept.
    """

    deviation: float
    pairs: Mapping[Names, float]
    independent: IndependentTables | None = field(default=None, compare=False)

    def noise_bound(self, failure_probability: float) -> float:
        """Returns what the noise of no score exceeds, in records, except with a probability.

        It holds for all scored pairs, measured afterwards or not, so for every choice made by it.
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
        """Returns the distances that a card states."""
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


Choice = Literal["beforehand", "once", "in_turn"]


@dataclass(frozen=True, eq=False)
class NoiseBounds:
    """Bounds of the errors of unbiased estimates.

    What is measured after a choice gets fresh noise: given the choice it has the stated variance,
    and its bound holds, by whatever data and noise the choice was made. What was measured before
    is combined with it, by weights that follow from the choice: that part is bounded for all
    weights at once (``chosen_noise_bound``). A bound holds for an answer that somebody would ask
    for whatever is chosen; of several, these are to be counted, not those that were chosen.

    A selection may choose once more: its last check adds sets of attributes that were left out, by
    all the noise so far. It is no further part, because it decides neither a weight nor a variance:
    how many sets it adds, which the noise of the chosen tables rests on, is known with the first
    choice, the noise of a set that it adds has a variance that follows from the set alone, and
    nothing is measured again. So draw in thought, right after the first choice, the noise of the
    chosen tables and of all sets that were left out. What an answer adds up of these, were its set
    added, and the variance of that, were known before. Its bound then fails with the stated
    probability at most, and with no more for a set that must be added as well to have an answer;
    given that it was added, nothing is said.

    ``choice``: when it was decided what is measured: ``beforehand``, of all that is measured;
    ``once``, of all from where a set of attributes comes again, but for sets that a last check
    adds; ``in_turn``, each after the one before it.
    """

    domain: Domain
    measured: Sequence[MeasuredTable]
    choice: Choice
    total_is_public: bool

    def of(
        self, axes: Support, variance: float, num_answers: int, failure_probability: float
    ) -> float:
        """Returns what no error of several answers exceeds, in records, except with a probability.

        ``axes``: attributes of an answer, ascending.
        ``variance``: of the answer, if nothing depended on its noise.
        """
        if not variance:
            return 0.0
        parts = [1] if self.choice == "beforehand" else self._parts(axes)
        return chosen_noise_bound(
            variance,
            num_answers,
            self._laplace_variance,
            failure_probability,
            sum(parts),
            num_together=max(parts),
            is_number_fixed=self.choice != "in_turn",
        )

    @cached_property
    def _laplace_variance(self) -> float | None:
        return laplace_variance(self.measured)

    @cached_property
    def _num_first(self) -> int:
        """How many measurements have weights that a later choice decides."""
        seen: set[tuple[str, ...]] = set()
        for number, each in enumerate(self.measured):
            if self.choice == "once" and each.names in seen:
                return number
            seen.add(each.names)
        return len(self.measured)

    def _parts(self, axes: Support) -> list[int]:
        """In how many parts noise came into an answer before their weights were known.

        Of each measurement; those after the choice, whose weights it decided, are one together.
        """
        inside = set(axes)
        first = [self._num_seen(each, inside) for each in self.measured[: self._num_first]]
        later = any(self._num_seen(each, inside) for each in self.measured[self._num_first :])
        return [*first, int(later)]

    def _num_seen(self, measured: MeasuredTable, inside: set[int]) -> int:
        """Of how many sets of attributes inside an answer a measurement tells."""
        axes = self.domain.axes(measured.names)
        if measured.kind == "residual":
            number = int(inside.issuperset(axes))
            return number if axes else number * (not self.total_is_public)
        return (1 << len(inside.intersection(axes))) - self.total_is_public


PROVED = "of_any_choice"  # bounds hold for whatever noise chose to measure


@dataclass(frozen=True, eq=False)
class NoisyMeasurements:
    """Noisy tables as they were drawn: public, at no further cost.

    ``tables``: one for each description, with one axis an attribute, float64, records.
    ``distances``: the noisy scores of pairs that decided what was measured, if any did.
    """

    described: tuple[MeasuredTable, ...]
    tables: tuple[NDArray[np.float64], ...]
    are_fixed: bool
    distances: PairDistances | None = None

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
        proved = {} if self.are_fixed else {"bounds": PROVED}
        return {"fixed": self.are_fixed, **proved, **scored}

    def bounds(self, domain: Domain, total_is_public: bool) -> NoiseBounds:
        """Returns what errors of unbiased estimates from these tables are bounded by."""
        choice: Choice = "in_turn" if self.distances is None else "once"
        if self.are_fixed:
            choice = "beforehand"
        return NoiseBounds(domain, self.described, choice, total_is_public)

    def check(self, domain: Domain) -> None:
        """Refuses tables that are not of a domain."""
        for described, table in zip(self.described, self.tables, strict=True):
            shape = domain.restrict(described.names).shape
            if table.shape != shape or not np.isfinite(table).all():
                condition = f"must be of shape {shape} and finite"
                raise InputError("measurements", ",".join(described.names), condition)
