"""Bounds of sums of noisy tables, also where noise decided which tables were measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from beam_dp.domain.universe import Domain
from beam_dp.models.residual_basis import Support
from beam_dp.noise.bound import chosen_noise_bound
from beam_dp.releases.synthetic_database.measured_tables import MeasuredTable, laplace_variance

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

    Args:
        domain: the universe.
        measured: what was measured, in its order.
        choice: when it was decided what is measured: ``beforehand``, of all that is measured;
            ``once``, of all from where a set of attributes comes again, but for sets that a last
            check adds; ``in_turn``, each after the one before it.
        total_is_public: whether the number of records is known without noise.
    """

    domain: Domain
    measured: Sequence[MeasuredTable]
    choice: Choice
    total_is_public: bool

    def of(
        self, axes: Support, variance: float, num_answers: int, failure_probability: float
    ) -> float:
        """Returns what no error of several answers exceeds, in records, except with a probability.

        Args:
            axes: that an answer is about, ascending.
            variance: of the answer, were it all of noise that nothing depends on.
            num_answers: that are bounded together: of all that might be asked.
            failure_probability: in (0, 1).
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
