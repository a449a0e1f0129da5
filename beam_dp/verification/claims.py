"""What a step of a mechanism is proved to reveal, and how steps add up: rational numbers only."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from fractions import Fraction
from typing import Self

from beam_dp.privacy.guarantee import MIN_DELTA
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.rounding import up
from beam_dp.verification.conversion import (
    gaussian_epsilon,
    range_mu_squared,
    rounded_up,
    zcdp_epsilon,
)

# What a delta must be left for the conversion of what has no pure epsilon.
_LEAST_DELTA = Fraction(MIN_DELTA)
# Between these a pure epsilon has a mu that doubles can tell.
_LEAST_PURE, _MOST_PURE = Fraction(1, 10**100), 10**6


@dataclasses.dataclass(frozen=True)
class Claims:
    """Bounds on the privacy loss, each of which holds: upper bounds, exact or rounded up.

    Args:
        rho: zero-concentrated; None where nothing of the kind is known.
        mu_squared: Gaussian, as the square of mu, on a grid; None where nothing is known.
        epsilon: pure; None where there is none.
        delta: the probability with which none of these holds.
    """

    rho: Fraction | None = None
    mu_squared: Fraction | None = None
    epsilon: Fraction | None = None
    delta: Fraction = Fraction(0)

    @classmethod
    def pure(cls, epsilon: Fraction) -> Self:
        """Returns the claims of pure privacy; see ``Loss.pure``, which derives its mu."""
        return cls(min(epsilon**2 / 2, epsilon), _mu_squared(epsilon), epsilon)

    @classmethod
    def range_bounded(cls, epsilon: Fraction) -> Self:
        """Returns the claims of an exponential mechanism (Dong, Durfee and Rogers, 2020).

        Its mu is that of its range, or of its pure epsilon if that is less.
        """
        squares = [range_mu_squared(epsilon), _mu_squared(epsilon)]
        mu_squared = min(square for square in squares if square is not None)
        return cls(min(epsilon**2 / 8, epsilon), mu_squared, epsilon)

    @classmethod
    def nothing(cls) -> Self:
        """Returns the claims of what reveals nothing."""
        return cls(Fraction(0), Fraction(0), Fraction(0))

    def repeated(self, times: int) -> Self:
        """Returns the claims of so many runs, on the same records."""
        rho, mu_squared, epsilon = (
            None if each is None else times * each for each in self._losses()
        )
        return type(self)(rho, mu_squared, epsilon, times * self.delta)

    def epsilons(self, delta: Fraction) -> dict[str, float]:
        """Returns the epsilons that follow at a delta, by the theorem that they follow from."""
        left = delta - self.delta
        found = {}
        if left >= 0 and self.epsilon is not None:
            found[BASIC] = up(self.epsilon)
        if left >= _LEAST_DELTA and self.mu_squared is not None:
            found[GAUSSIAN] = gaussian_epsilon(self.mu_squared, left)
        if left >= _LEAST_DELTA and self.rho is not None:
            found[ZCDP] = zcdp_epsilon(self.rho, left)
        return found

    def _losses(self) -> tuple[Fraction | None, Fraction | None, Fraction | None]:
        return self.rho, self.mu_squared, self.epsilon


def covers(loss: Loss, claims: Claims) -> bool:
    """Returns whether a declared loss is no less than what is proved.

    Each claim that it makes must follow: from the proved one of its kind, or from a pure epsilon
    that it declares and that is proved.
    """
    if (loss.slack is None and claims.delta) or claims.delta > Fraction(loss.slack or 0):
        return False
    proved = [claims]
    if loss.epsilon is not None:
        if claims.epsilon is None or claims.epsilon > Fraction(loss.epsilon):
            return False
        own = Loss.pure(loss.epsilon)
        proved.append(Claims(Fraction(own.rho), Fraction(own.mu or 0) ** 2))
    rhos = [each.rho for each in proved if each.rho is not None]
    squares = [each.mu_squared for each in proved if each.mu_squared is not None]
    if not rhos or min(rhos) > Fraction(loss.rho):
        return False
    return loss.mu is None or (bool(squares) and min(squares) <= Fraction(loss.mu) ** 2)


def _mu_squared(epsilon: Fraction) -> Fraction | None:
    """The square of a mu that a pure epsilon implies, rounded up; None where there is no double."""
    if epsilon == 0:
        return Fraction(0)
    if not _LEAST_PURE < epsilon < _MOST_PURE:
        return None
    mu = Loss.pure(up(epsilon)).mu
    return None if mu is None else Fraction(mu) ** 2


BASIC = "Dwork and Roth (2014), Theorem 3.16"
GAUSSIAN = "Balle and Wang (2018), Theorem 5; Dong, Roth and Su (2022), Corollary 3.3"
ZCDP = "Canonne, Kamath and Steinke (2020), Proposition 7"


def composed(parts: Iterable[Claims]) -> Claims:
    """Returns the claims of mechanisms that are run on the same records, adaptively.

    Epsilons, squares of mu and rhos add up, and so do the probabilities that nothing holds. What
    one of them does not claim is claimed of none (Dwork and Roth, 2014, Theorem 3.16; Dong, Roth
    and Su, 2022, Corollary 3.3; Bun and Steinke, 2016, Lemma 2.3).
    """
    total = Claims.nothing()
    for part in parts:
        rho, mu_squared, epsilon = (
            None if one is None or other is None else one + other
            for one, other in zip(total._losses(), part._losses(), strict=True)
        )
        # Pure epsilons are exact: what just keeps a promise must not seem to miss it.
        total = Claims(
            None if rho is None else rounded_up(rho),
            None if mu_squared is None else rounded_up(mu_squared),
            epsilon,
            total.delta + part.delta,
        )
    return total
