"""A budget: an exact amount of epsilon, mu^2 or rho, which a mechanism splits among its steps."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Self

from beam_dp.checks import check_is
from beam_dp.privacy.accounting import discrete_parameter, range_mu
from beam_dp.privacy.guarantee import MIN_EPSILON, Guarantee
from beam_dp.privacy.ledger.filters import cost, gaussian_epsilon
from beam_dp.privacy.loss import Kind, Loss, loss_of
from beam_dp.privacy.rounding import Real, down, root_down, root_up, up

# With this number of grid steps per deviation, discreteness enlarges the noise by less than 1e-6.
GRID_DEVIATIONS = 4096


@dataclasses.dataclass(frozen=True)
class Budget:
    """A part of a guarantee, as an amount that adds up over steps, even adaptive (``composed``).

    ``kind``: ``pure`` for an amount of epsilon, ``gaussian`` of mu^2, ``zcdp`` of rho. Amounts are
    exact: parts whose shares add up to 1 are the whole. Only noise is rounded, upwards.
    """

    guarantee: Guarantee
    kind: Kind
    amount: Fraction

    @classmethod
    def of(cls, guarantee: Guarantee, kind: Kind | None = None) -> Self:
        """Returns the budget of a guarantee: by default a mu^2, or an epsilon if delta is 0."""
        check_is("guarantee", guarantee, Guarantee)
        kind = kind or ("gaussian" if guarantee.delta > 0 else "pure")
        amount = cost(kind, loss_of(kind, guarantee.epsilon, guarantee.delta))
        assert amount is not None
        return cls(guarantee, kind, amount)

    def part(self, share: Real) -> Self:
        """Returns a share of this budget."""
        return dataclasses.replace(self, amount=self.amount * Fraction(share))

    def __sub__(self, other: Budget) -> Self:
        return dataclasses.replace(self, amount=self.amount - other.amount)

    def split(self, share: float) -> tuple[Guarantee, Self]:
        """Returns a guarantee for all but a share, and the budget that this guarantee leaves."""
        # Cards state its epsilon as a double, so the rest is what this double leaves.
        if self.kind == "pure":
            epsilon = float(self.part(1 - share).amount)
        else:
            kept = self.part(1 - Fraction(share))
            epsilon = gaussian_epsilon(kept.level, self.guarantee.delta)
        main = self.guarantee.with_limits(epsilon=max(epsilon, MIN_EPSILON))
        return main, self - self.of(main, self.kind)

    @property
    def level(self) -> float:
        """The epsilon, mu or rho, rounded down."""
        return root_down(self.amount) if self.kind == "gaussian" else down(self.amount)

    @property
    def loss(self) -> Loss:
        """The loss of steps that spend this budget."""
        if self.kind == "gaussian":
            return Loss(self.amount / 2, self.amount)
        return Loss.pure(self.amount) if self.kind == "pure" else Loss.zcdp(self.amount)

    def scale(self, norm: Real, grid: int = 1) -> float:
        """Returns the scale of noise that spends this budget, in units of 1 / ``grid`` records.

        ``norm``: the most that a unit changes, in L1 norm for an epsilon, else in squared L2 norm.
        """
        if self.kind == "pure":
            return up(norm * grid / self.amount)
        variance = norm * grid**2 / self.amount
        return discrete_parameter(variance) if self.kind == "gaussian" else root_up(variance / 2)

    def selection_scale(self, sensitivity: int) -> float:
        """Returns the scale of a selection by scores that a unit changes by at most this much."""
        if self.kind == "pure":
            return self.scale(2 * sensitivity)
        return up(range_mu(2 * sensitivity) / Fraction(self.level))

    def fine_grid(self, squared_norm: Real) -> int:
        """Returns the grid units in a record that make Gaussian noise almost continuous, or 1."""
        if self.kind == "pure":
            return 1
        return max(1, math.ceil(GRID_DEVIATIONS / root_up(squared_norm / self.amount)))
