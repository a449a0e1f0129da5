"""The privacy loss of a release: exact numbers in three measures that add up over releases.

Epsilon and delta do not compose well: two mechanisms with the same (epsilon, delta) can have very
different costs when combined with other releases. So every plan states its privacy loss. The ledger
adds up these losses, and verification derives the same bounds again from the noise.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Literal, Self

from beam_dp.checks import checked_number
from beam_dp.errors import InputError
from beam_dp.privacy.accounting import discrete_gaussian_mu, zcdp_rho
from beam_dp.privacy.noise.bound import normal_quantile
from beam_dp.privacy.rounding import Real, root_up, rounded_up, up

Kind = Literal["pure", "gaussian", "zcdp"]
KINDS: tuple[Kind, ...] = ("pure", "gaussian", "zcdp")

# pi / 8, rounded up: pi is 3.14159265358979323846264338327950288419716...
_RANGE_MU_SQUARED = Fraction(314159265358979323846264338327950288419717, 8 * 10**41)
FIELDS = ("rho", "mu", "epsilon", "slack")  # in JSON


@dataclasses.dataclass(frozen=True)
class Loss:
    """Upper bounds on the privacy loss of one release: every bound that is not None is true.

    Create losses with ``pure``, ``gaussian`` or ``zcdp``, which derive all other bounds. Bounds are
    rational numbers; a double is converted exactly.

    ``rho``: a bound in zero-concentrated differential privacy; None if no rho is proved.
    ``mu_squared``: the square of a bound mu in Gaussian differential privacy, up to the margin of
    ``discrete_gaussian_mu``; None if no mu is proved.
    ``epsilon``: a bound in pure differential privacy; None if no epsilon is proved.
    ``slack``: the probability that these bounds do not apply; 0 if the bounds always apply. A
    mechanism of slack s has, for any two neighbours, laws (1 - s) P' + s P'' and (1 - s) Q' + s
    Q'', and the bounds are true for P' and Q'.
    """

    rho: Fraction | None = None
    mu_squared: Fraction | None = None
    epsilon: Fraction | None = None
    slack: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None or field.name == "slack":
                object.__setattr__(self, field.name, _exact(field.name, value))

    @classmethod
    def pure(cls, epsilon: Real) -> Self:
        """Returns the loss of a mechanism with pure differential privacy.

        Privacy: rho is epsilon^2 / 2 (Bun and Steinke, 2016, Proposition 1.4) or, if smaller,
        epsilon, which bounds every Renyi divergence. mu solves Phi(-mu/2) = 1/(1 + e^epsilon): the
        trade-off curve of pure privacy consists of the two chords from (0, 1) and (1, 0) to the
        corner (p, p), p = 1/(1 + e^epsilon); the convex curve of mu passes through the same three
        points, so it is nowhere above the two chords. mu is rounded up.
        """
        epsilon = _exact("epsilon", epsilon)
        return cls(min(epsilon**2 / 2, epsilon), _mu_squared(epsilon), epsilon)

    @classmethod
    def range_bounded(cls, epsilon: Fraction) -> Self:
        """Returns the loss of an exponential mechanism, whose ln(P / Q) has range epsilon.

        Privacy: rho is epsilon^2 / 8; mu is the mu of ``pure``, or sqrt(pi / 8) epsilon if that is
        smaller. From one neighbour to the other, the log-odds of an event grow by at most epsilon,
        and dz/dx of a normal quantile z by its log-odds x is Phi(z) Phi(-z) / phi(z), at most
        sqrt(2 pi) / 4, with equality at 0: 4 Phi(z) Phi(-z) is the mass of two normal variables
        outside the square of half side |z|, and exp(-z^2 / 2) the mass outside its inscribed disc.

        Reference: Dong, Durfee and Rogers (2020).
        """
        squares = (rounded_up(_RANGE_MU_SQUARED * epsilon**2), _mu_squared(epsilon))
        mu_squared = min(square for square in squares if square is not None)
        return cls(min(epsilon**2 / 8, epsilon), mu_squared, epsilon)

    @classmethod
    def gaussian(cls, mu: Real) -> Self:
        """Returns the loss of Gaussian noise on a vector, continuous or on a fine grid.

        Privacy: rho is mu^2 / 2. By mu-Gaussian privacy, a release is a function of one draw of a
        normal variable of mean 0 or mu (Blackwell), and no function raises a divergence. On a grid,
        a vector whose mu^2 is the sum of d^2 / (s^2 - 4) has the smaller rho of sum d^2 / (2 s^2)
        (Canonne, Kamath and Steinke, 2020, Theorem 4), and has this mu up to a factor e^g in all
        probabilities, g < 1e-25 for fewer than 2^28 coordinates (``discrete_gaussian_mu``).
        """
        mu_squared = _exact("mu", mu) ** 2
        return cls(mu_squared / 2, mu_squared)

    @classmethod
    def zcdp(cls, rho: Real) -> Self:
        """Returns the loss of a mechanism whose zero-concentrated privacy is known."""
        return cls(_exact("rho", rho))

    @classmethod
    def approximate(cls, epsilon: Real, delta: Real) -> Self:
        """Returns the loss of a mechanism that is known only to be (epsilon, delta)-private.

        Privacy: the mechanism is purely private except with probability delta (Kairouz, Oh and
        Viswanath, 2015). Let a and b be the sums of (P - e^epsilon Q)+ and (Q - e^epsilon P)+, both
        at most delta. min(P, e^epsilon Q) and min(Q, e^epsilon P) have masses 1 - a and 1 - b, and
        neither is anywhere more than e^epsilon times the other: if P > e^epsilon Q, for example,
        the two are e^epsilon Q and Q. Scale both until the smaller one, say the second, has mass 1
        - delta. Move the first one linearly towards e^-epsilon times the second: both inequalities
        remain true, and the mass falls below 1 - delta, so at some point it is exactly 1 - delta.
        The two results are (1 - delta) P' and (1 - delta) Q', with all bounds of ``pure``.
        """
        return dataclasses.replace(cls.pure(epsilon), slack=_exact("slack", delta))

    @classmethod
    def nothing(cls) -> Self:
        """Returns the loss of a mechanism that reveals nothing."""
        return cls(Fraction(0), Fraction(0), Fraction(0))

    def repeated(self, times: int) -> Self:
        """Returns the loss of N runs on the same records: ``composed``, without rounding."""
        rho, mu_squared, epsilon = (
            None if bound is None else times * bound
            for bound in (self.rho, self.mu_squared, self.epsilon)
        )
        return type(self)(rho, mu_squared, epsilon, times * self.slack)

    def covers(self, proved: Loss) -> bool:
        """Returns whether a stated loss is at least the proved loss.

        Each stated bound must follow either from the proved bound of the same kind, or from a pure
        epsilon that is both stated and proved.
        """
        if proved.slack > self.slack:
            return False
        losses = [proved]
        if self.epsilon is not None:
            if proved.epsilon is None or proved.epsilon > self.epsilon:
                return False
            losses.append(Loss.pure(self.epsilon))
        for name in ("rho", "mu_squared"):
            claim = getattr(self, name)
            bounds = [bound for loss in losses if (bound := getattr(loss, name)) is not None]
            if claim is not None and not any(bound <= claim for bound in bounds):
                return False
        return True

    @property
    def kind(self) -> Kind:
        """The strongest kind of privacy that is proved."""
        if self.epsilon is not None:
            return "pure"
        return "zcdp" if self.mu_squared is None else "gaussian"

    @property
    def mu(self) -> float | None:
        """The mu of Gaussian privacy, rounded up."""
        return None if self.mu_squared is None else root_up(self.mu_squared)

    def in_doubles(self) -> Self:
        """Returns the loss as ledgers and cards store it: every bound rounded up to a double."""
        return self.from_json(self.to_json())

    def to_json(self) -> dict[str, float]:
        """Returns the bounds as JSON values, rounded up."""
        bounds = (self.rho, self.mu, self.epsilon, self.slack or None)
        named = zip(FIELDS, bounds, strict=True)
        return {name: up(bound) for name, bound in named if bound is not None}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Returns the loss that ``to_json`` wrote."""
        if not isinstance(value, Mapping) or not {"rho"} <= set(value) <= set(FIELDS):
            raise InputError("loss", value, f"must have a rho, and else only fields of {FIELDS}")
        exact = {
            name: Fraction(checked_number(f"{name} of the loss", bound, above=0))
            for name, bound in value.items()
        }
        if "mu" in exact:
            exact["mu_squared"] = exact.pop("mu") ** 2
        return cls(**exact)


def composed(parts: Iterable[Loss]) -> Loss:
    """Returns the total loss of mechanisms that run on the same records.

    Privacy: epsilons, rhos and the squares of mu add up, even if a mechanism depends on earlier
    releases (Dwork and Roth, 2014, Theorem 3.16; Bun and Steinke, 2016, Lemma 2.3; Dong, Roth and
    Su, 2022, Corollary 3.3). By the union bound, the slack of the total is the sum of the slacks.
    If a part lacks a bound, the total lacks this bound, too.
    """
    total = Loss.nothing()
    for part in parts:
        rho, mu_squared, epsilon = (
            None if one is None or other is None else one + other
            for one, other in (
                (total.rho, part.rho),
                (total.mu_squared, part.mu_squared),
                (total.epsilon, part.epsilon),
            )
        )
        # Pure epsilons are exact: a sum that equals the promised epsilon must not seem to exceed
        # it.
        total = Loss(
            None if rho is None else rounded_up(rho),
            None if mu_squared is None else rounded_up(mu_squared),
            epsilon,
            total.slack + part.slack,
        )
    return total


def _exact(name: str, value: Any) -> Fraction:
    if isinstance(value, Fraction) and value >= 0:
        return value
    return Fraction(checked_number(f"{name} of the loss", value, above=0))


def _mu_squared(epsilon: Fraction) -> Fraction | None:
    """Returns the square of the mu of ``pure``, rounded up; None if it exceeds all doubles."""
    if epsilon == 0:
        return epsilon
    nearest = up(epsilon)
    mu = -2 * normal_quantile(-nearest - math.log1p(math.exp(-nearest)))
    return Fraction(mu * (1 + 1e-12) + 1e-15) ** 2 if math.isfinite(mu) else None


def loss_of(kind: Kind, epsilon: float, delta: float) -> Loss:
    """Returns the loss of a release of one kind that is calibrated to (epsilon, delta)."""
    if kind == "pure":
        return Loss.pure(epsilon)
    if kind == "gaussian":
        return Loss.gaussian(discrete_gaussian_mu(epsilon, delta))
    return Loss.zcdp(zcdp_rho(epsilon, delta))
