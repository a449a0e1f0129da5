"""Steps of a mechanism as they are shown: what, by which formula, theorem and numbers."""

from __future__ import annotations

import dataclasses
import math
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from typing import Any

from beam_dp.checks import check_choice
from beam_dp.errors import InputError
from beam_dp.noise.bound import DISTRIBUTIONS
from beam_dp.privacy.rounding import root_up, up
from beam_dp.verification.claims import Claims
from beam_dp.verification.conversion import rounded_up

LAPLACE = "Dwork and Roth (2014), Theorem 3.6; Ghosh and others (2009)"
DISCRETE_GAUSSIAN = "Canonne, Kamath and Steinke (2020), Theorem 4; Dong and others (2022)"
_SHOWN_DIGITS = 6
_AGREEMENT = Fraction(1, 10**9)
PERMUTE_AND_FLIP = "McKenna and Sheldon (2020), Theorem 1"
EXPONENTIAL = "McSherry and Talwar (2007); Dong, Durfee and Rogers (2020)"


@dataclasses.dataclass(frozen=True)
class Unstated:
    """A figure of the noise that cards of earlier versions leave out, and what is taken for it.

    Args:
        field: its name on cards of this version.
        rule: by which every version that left it out chose it, as a sentence.
        worst: what the step reveals if the figure is the worst that the rest of the card allows.
    """

    field: str
    rule: str
    worst: Claims


@dataclasses.dataclass(frozen=True)
class Step:
    """One step, and what it reveals.

    Args:
        what: it does.
        formula: of what it reveals.
        theorem: that the formula is of.
        numbers: put into the formula, and what comes out.
        claims: what it reveals.
        unstated: what the card leaves out of its noise, if it is of an earlier version.
    """

    what: str
    formula: str
    theorem: str
    numbers: str
    claims: Claims
    unstated: Unstated | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the step as JSON values; what it reveals rounded up."""
        fields = {name: getattr(self, name) for name in ("what", "formula", "theorem", "numbers")}
        return {**fields, **claims_json(self.claims)}


def claims_json(claims: Claims) -> dict[str, float]:
    """Returns the claims that are made, as doubles that are not smaller."""
    names = ("epsilon", "mu_squared", "rho", "delta")
    found = {name: getattr(claims, name) for name in names}
    if not claims.delta:
        del found["delta"]
    return {name: up(value) for name, value in found.items() if value is not None}


def laplace_step(what: str, l1_sensitivity: Fraction | int, scale: float) -> Step:
    """Returns the step of discrete Laplace noise on a vector of integers.

    Args:
        what: gets the noise.
        l1_sensitivity: of the vector, in the units of the scale.
        scale: of the noise of each number.
    """
    epsilon = Fraction(l1_sensitivity) / positive(scale)
    numbers = f"{number(l1_sensitivity)} / {number(scale)} = epsilon {above(epsilon)}"
    return Step(what, "epsilon = L1 sensitivity / scale", LAPLACE, numbers, Claims.pure(epsilon))


def gaussian_step(
    what: str, mu_squared: Fraction | None, rho: Fraction, numbers: str, of: str = ""
) -> Step:
    """Returns the step of discrete Gaussian noise on a vector of integers.

    Args:
        what: gets the noise.
        mu_squared: the sum of d^2 / (s^2 - 4); None where some s is 2 or less.
        rho: the sum of d^2 / (2 s^2).
        numbers: that both follow from.
        of: ``"sum of "`` where there are several such noises.
    """
    claims = Claims(rho=rounded_up(rho), mu_squared=mu_squared)
    formula, shown = f"rho = {of}(L2 sensitivity)^2 / (2 scale^2)", f"rho {above(rho)}"
    if mu_squared is not None:
        formula += f"; mu^2 = {of}(L2 sensitivity)^2 / (scale^2 - 4)"
        shown += f", mu^2 {above(mu_squared)}"
    return Step(what, formula, DISCRETE_GAUSSIAN, f"{numbers}: {shown}", claims)


def gaussian_vector(what: str, l2_squared: Fraction | int, scale: float) -> Step:
    """Returns the step of a vector whose numbers all get the same discrete Gaussian noise.

    Args:
        what: gets the noise.
        l2_squared: square of the L2 sensitivity, in units of the scale.
        scale: of the noise of each number.
    """
    square = Fraction(l2_squared)
    mu_squared = rounded_up(square / (positive(scale) ** 2 - 4)) if scale > 2 else None
    rho = square / (2 * positive(scale) ** 2)
    numbers = f"L2 sensitivity {root(square)}, scale {number(scale)}"
    return gaussian_step(what, mu_squared, rho, numbers)


def selection_step(
    what: str, sensitivity: Fraction | int, scale: float, times: int = 1, *, ways: int = 2
) -> Step:
    """Returns the step of an exponential mechanism.

    Args:
        what: is selected.
        sensitivity: of a score, in units of the scale.
        scale: by which scores are divided in the exponent.
        times: how often.
        ways: in which scores may move: 2, or 1 where all of them move the same way.
    """
    epsilon, formula, numbers = _of_scores(sensitivity, scale, ways)
    claims = Claims.range_bounded(epsilon)
    assert claims.rho is not None and claims.mu_squared is not None
    one = Step(
        what,
        f"{formula}; rho = epsilon^2 / 8; mu^2 = pi epsilon^2 / 8",
        EXPONENTIAL,
        f"{numbers}, rho {above(claims.rho)}, mu^2 {above(claims.mu_squared)}",
        claims,
    )
    return repeated(one, times)


def flip_step(
    what: str,
    sensitivity: Fraction | int,
    scale: float,
    times: int = 1,
    *,
    ways: int = 2,
    theorem: str = PERMUTE_AND_FLIP,
) -> Step:
    """Returns the step of permute-and-flip, or of what costs as much: no bounded range.

    Args: as of ``selection_step``, and
        theorem: that this is by.
    """
    epsilon, formula, numbers = _of_scores(sensitivity, scale, ways)
    return repeated(Step(what, formula, theorem, numbers, Claims.pure(epsilon)), times)


def _of_scores(sensitivity: Fraction | int, scale: float, ways: int) -> tuple[Fraction, str, str]:
    """The epsilon of a selection by scores, its formula, and the numbers put into that."""
    epsilon = ways * Fraction(sensitivity) / positive(scale)
    twice = "2 x " if ways == 2 else ""
    numbers = f"{twice}{number(sensitivity)} / {number(scale)}: epsilon {above(epsilon)}"
    return epsilon, f"epsilon = {twice}sensitivity / scale", numbers


def repeated(one: Step, times: int) -> Step:
    """Returns so many runs of a step as one, on the same records."""
    if times == 1:
        return one
    return dataclasses.replace(
        one,
        what=f"{one.what}, {times:,} times",
        numbers=f"{times:,} x ({one.numbers})",
        claims=one.claims.repeated(times),
    )


def positive(scale: Any) -> Fraction:
    """Returns a scale as a rational number.

    Raises:
        InputError: unless it is finite and > 0.
    """
    if isinstance(scale, bool) or not isinstance(scale, int | float):
        raise InputError("scale", scale, "must be a finite number > 0")
    if not 0 < scale < math.inf:
        raise InputError("scale", scale, "must be a finite number > 0")
    return Fraction(scale)


def noise_step(
    what: str,
    distribution: object,
    l1: Fraction | int,
    l2_squared: Fraction | int,
    scale: float,
) -> Step:
    """Returns the step of either noise on a vector; each needs one of the sensitivities.

    Raises:
        InputError: if the noise is of another distribution.
    """
    check_choice("distribution", distribution, DISTRIBUTIONS)
    if distribution == "discrete_laplace":
        return laplace_step(what, l1, scale)
    return gaussian_vector(what, l2_squared, scale)


def number(value: Fraction | float) -> str:
    """Returns a number in a few characters, rounded to the nearest."""
    return f"{float(value):.{_SHOWN_DIGITS}g}"


def above(value: Fraction | float, digits: int = _SHOWN_DIGITS) -> str:
    """Returns a number >= 0 in a few characters, rounded up: no loss is told for less than it is.

    What is within 1e-9 of a shorter number is told as that: 2 / 39.99999999999 is 0.05, and not
    0.0500001. Whether a promise is kept is decided by the number itself.

    Example:
        >>> above(1.0000001), above(0.25), above(0.25 + 1e-15), number(1.0000001)
        ('1.00001', '0.25', '0.25', '1')
    """
    if value == math.inf or up(exact := Fraction(value)) == math.inf:
        return "infinite"
    nearest = f"{float(exact):.{digits}g}"
    if exact <= Fraction(nearest) * (1 + _AGREEMENT):
        return nearest
    with localcontext() as context:
        context.prec, context.rounding = digits, ROUND_CEILING
        return f"{float(Decimal(exact.numerator) / Decimal(exact.denominator)):.{digits}g}"


def root(square: Fraction) -> str:
    """Returns a root in a few characters, rounded up."""
    return above(root_up(square))
