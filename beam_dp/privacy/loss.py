"""The privacy loss of a release, in three forms that add up over releases.

Epsilon and delta of one release do not compose well: two mechanisms with the same pair can cost
very different amounts together with others. So every plan states its privacy loss, from which the
ledger computes what a sequence of releases reveals.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Literal, Self

from beam_dp.checks import as_float, checked_number
from beam_dp.errors import InputError
from beam_dp.noise.normal import normal_quantile
from beam_dp.privacy.rounding import root_up, up

Kind = Literal["pure", "gaussian", "zcdp"]
KINDS: tuple[Kind, ...] = ("pure", "gaussian", "zcdp")

_FIELDS = ("epsilon", "mu", "rho", "slack")


@dataclasses.dataclass(frozen=True)
class Loss:
    """The privacy loss of one release: every claim that is given holds.

    Use ``pure``, ``gaussian`` or ``zcdp``: they state all that follows from what is known.

    Args:
        rho: rho-zero-concentrated differential privacy.
        mu: mu-Gaussian differential privacy, up to the margin of ``discrete_gaussian_mu``; None
            where nothing of the kind is proved.
        epsilon: pure differential privacy; None where the release has none.
        slack: the probability with which none of these claims holds; None where they always do.
            A mechanism of slack s has, for any two neighbours, laws (1 - s) P' + s P'' and
            (1 - s) Q' + s Q'', and the claims hold of P' and Q'.

    Raises:
        InputError: if a number is not finite and > 0.

    Example:
        >>> Loss.pure(0.5).rho
        0.125
    """

    rho: float
    mu: float | None = None
    epsilon: float | None = None
    slack: float | None = None

    def __post_init__(self) -> None:
        for name in _FIELDS:
            value = getattr(self, name)
            if value is None and name != "rho":
                continue
            object.__setattr__(self, name, checked_number(f"{name} of the loss", value, above=0))

    @classmethod
    def pure(cls, epsilon: float) -> Self:
        """Returns the loss of a mechanism with pure differential privacy.

        Privacy: rho = epsilon^2 / 2 (Bun and Steinke, 2016, Proposition 1.4), or epsilon, which
        bounds every Renyi divergence, if that is less. mu solves Phi(-mu/2) = 1/(1 + e^epsilon):
        the trade-off curve of pure privacy is the two chords from (0, 1) and (1, 0) to the corner
        (p, p), p = 1/(1 + e^epsilon); the convex curve of mu passes through the same three
        points, so it lies nowhere above them. All are rounded up.
        """
        epsilon = as_float("loss", epsilon)
        rho = min(_half_square(epsilon), epsilon)
        mu = -2 * normal_quantile(-epsilon - math.log1p(math.exp(-epsilon)))
        return cls(rho=rho, mu=mu * (1 + 1e-12) + 1e-15, epsilon=epsilon)

    @classmethod
    def gaussian(cls, mu: float) -> Self:
        """Returns the loss of Gaussian noise on a vector, continuous or on a fine grid.

        Privacy: mu^2 / 2 is its rho: mu-Gaussian privacy makes a release a function of one draw
        of a normal variable of mean 0 or mu (Blackwell), and no function raises a divergence. On
        a grid, a vector whose mu^2 is the sum of d^2 / (s^2 - 4) has the smaller rho of sum
        d^2 / (2 s^2) (Canonne, Kamath and Steinke, 2020, Theorem 4) and mu up to a factor e^g of
        all probabilities, g < 1e-25 for fewer than 2^28 coordinates (``discrete_gaussian_mu``).
        """
        mu = as_float("loss", mu)
        return cls(rho=_half_square(mu), mu=mu)

    @classmethod
    def zcdp(cls, rho: float) -> Self:
        """Returns the loss of a mechanism of which zero-concentrated privacy is known."""
        return cls(rho=rho)

    @classmethod
    def approximate(cls, epsilon: float, delta: float) -> Self:
        """Returns the loss of a mechanism of which (epsilon, delta)-privacy alone is known.

        Privacy: it is purely private but with probability delta (Kairouz, Oh and Viswanath, 2015).
        Let a and b be the sums of (P - e^epsilon Q)+ and (Q - e^epsilon P)+, both at most delta.
        min(P, e^epsilon Q) and min(Q, e^epsilon P) have masses 1 - a and 1 - b, and nowhere is one
        of them more than e^epsilon times the other: where P > e^epsilon Q, say, they are
        e^epsilon Q and Q. Scale both until the smaller one, say the second, has mass 1 - delta.
        Move the first one from its place towards e^-epsilon times the second: both inequalities
        keep holding, and the mass falls to less than 1 - delta, so somewhere it is just that.
        These are (1 - delta) P' and (1 - delta) Q', with all claims of ``pure``.

        Args:
            epsilon: of the promise.
            delta: of the promise, in (0, 1).
        """
        return dataclasses.replace(cls.pure(epsilon), slack=delta)

    def composed(self, other: Loss) -> Self:
        """Returns the loss of two mechanisms that are run on the same records.

        Privacy: epsilons add up, rhos add up, and so do the squares of mu, also where the second
        mechanism depends on what the first one released (Dwork and Roth, 2014, Theorem 3.14; Bun
        and Steinke, 2016, Lemma 2.3; Dong, Roth and Su, 2022, Corollary 3.3). Their claims hold of
        both at once but with the sum of their slacks, the union bound. A claim that one of the two
        does not make is made of neither. All are rounded up.
        """
        epsilon = mu = slack = None
        if self.epsilon is not None and other.epsilon is not None:
            epsilon = up(Fraction(self.epsilon) + Fraction(other.epsilon))
        if self.mu is not None and other.mu is not None:
            squared = Fraction(self.mu) ** 2 + Fraction(other.mu) ** 2
            mu = math.nextafter(math.sqrt(up(squared)), math.inf)
        if self.slack is not None or other.slack is not None:
            slack = up(Fraction(self.slack or 0) + Fraction(other.slack or 0))
        rho = up(Fraction(self.rho) + Fraction(other.rho))
        return type(self)(rho=rho, mu=mu, epsilon=epsilon, slack=slack)

    def repeated(self, times: int) -> Self:
        """Returns the loss of a mechanism that is run so often on the same records.

        Privacy: as of ``composed``, of so many, and rounded up once.

        Example:
            >>> Loss.pure(0.25).repeated(4).epsilon, Loss.gaussian(0.5).repeated(4).mu
            (1.0, 1.0)
        """
        return type(self)(
            rho=up(times * Fraction(self.rho)),
            mu=None if self.mu is None else root_up(times * Fraction(self.mu) ** 2),
            epsilon=None if self.epsilon is None else up(times * Fraction(self.epsilon)),
            slack=None if self.slack is None else up(times * Fraction(self.slack)),
        )

    @property
    def kind(self) -> Kind:
        """The strongest claim."""
        if self.epsilon is not None:
            return "pure"
        return "zcdp" if self.mu is None else "gaussian"

    def to_json(self) -> dict[str, float]:
        """Returns the claims as JSON values."""
        return {name: value for name in _FIELDS if (value := getattr(self, name)) is not None}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Returns the loss that ``to_json`` wrote.

        Raises:
            InputError: if a field is missing, unknown or out of range.
        """
        if not isinstance(value, Mapping) or not {"rho"} <= set(value) <= set(_FIELDS):
            raise InputError("loss", value, f"must have a rho, and else only fields of {_FIELDS}")
        return cls(**value)


def _half_square(value: float) -> float:
    """Half the square of a number, rounded up; what is not finite stays so, to be refused."""
    return up(Fraction(value) ** 2 / 2) if math.isfinite(value) else value
