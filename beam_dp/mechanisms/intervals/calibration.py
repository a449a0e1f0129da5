"""How much noise a strategy needs, from its sensitivities alone."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Protocol

from beam_dp.mechanisms.marginals.measurements import Distribution
from beam_dp.noise.bound import noise_variance
from beam_dp.privacy.accounting import discrete_gaussian_mu, discrete_parameter
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.rounding import down, root_down, root_up, up

# On a grid this fine the discreteness of Gaussian noise costs less than 1e-6 of it.
_GRID_DEVIATIONS = 4096


class Sensitivities(Protocol):
    """What a column of an integer matrix weighs at most; no two columns have a negative product."""

    @property
    def l1_sensitivity(self) -> int:
        """The largest L1 norm of a column."""
        ...

    @property
    def l2_sensitivity_squared(self) -> int:
        """The largest squared L2 norm of a column."""
        ...


@dataclasses.dataclass(frozen=True)
class Calibration:
    """The noise of every measurement of a strategy.

    Args:
        distribution: of the noise.
        scale: of the noise, in grid units.
        grid: grid units that make one unit of the strategy, an integer >= 1.
        loss: what the noisy measurements may reveal, for a ledger.
    """

    distribution: Distribution
    scale: float
    grid: int
    loss: Loss

    @property
    def variance(self) -> float:
        """The variance of the noise, in squared units of the strategy."""
        return noise_variance(self.distribution, self.scale) / self.grid**2


def calibrate(
    guarantee: Guarantee, distribution: Distribution, matrix: Sensitivities, share: float = 1.0
) -> Calibration:
    """Returns the noise with which a matrix may be measured.

    Privacy: one record changes what is measured by a column, a replacement by the difference of
    two, k records of a unit by at most k times as much, in either norm, since all may lie in one
    cell. Laplace noise has the scale (L1 norm) / epsilon on every measurement: pure privacy,
    whatever the delta. Gaussian noise has sigma = (L2 norm) / mu, with mu by
    ``discrete_gaussian_mu``. Epsilons add up over matrices that are measured of the same records,
    and so do the squares of mu: of these ``share`` is spent.

    Args:
        guarantee: of all that is measured together.
        distribution: of the noise; Gaussian only where the guarantee has a delta.
        matrix: what is measured.
        share: of epsilon, or of mu^2, in (0, 1].
    """
    num_moved = 1 if guarantee.neighboring is Neighboring.ADD_OR_REMOVE_ONE else 2
    num_records = guarantee.max_records_per_unit
    if distribution == "discrete_laplace":
        epsilon = down(Fraction(share) * Fraction(guarantee.epsilon))
        sensitivity = num_moved * num_records * matrix.l1_sensitivity
        scale = up(Fraction(sensitivity) / Fraction(epsilon))
        return Calibration(distribution, scale, 1, Loss.pure(epsilon))
    whole = discrete_gaussian_mu(guarantee.epsilon, guarantee.delta)
    mu = root_down(Fraction(share) * Fraction(whole) ** 2)
    squared_norm = num_records**2 * num_moved * matrix.l2_sensitivity_squared
    grid = max(1, math.ceil(_GRID_DEVIATIONS * mu / root_up(squared_norm)))
    scale = discrete_parameter(Fraction(squared_norm * grid**2) / Fraction(mu) ** 2)
    return Calibration(distribution, scale, grid, Loss.gaussian(mu))
