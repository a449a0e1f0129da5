"""The steps of a mechanism as shown to users, with the formula, theorem and numbers per step."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from typing import Any

from beam_dp.checks import check_choice
from beam_dp.errors import InputError
from beam_dp.noise.bound import DISTRIBUTIONS
from beam_dp.privacy.guarantee import MIN_DELTA, Guarantee
from beam_dp.privacy.loss import Loss, composed
from beam_dp.privacy.rounding import root_up, rounded_up, up
from beam_dp.verification.conversion import gaussian_epsilon, zcdp_epsilon

LAPLACE = "Dwork and Roth (2014), Theorem 3.6; Ghosh and others (2009)"
DISCRETE_GAUSSIAN = "Canonne, Kamath and Steinke (2020), Theorem 4; Dong and others (2022)"
BASIC = "Dwork and Roth (2014), Theorem 3.16"
GAUSSIAN = "Balle and Wang (2018), Theorem 5; Dong, Roth and Su (2022), Corollary 3.3"
ZCDP = "Canonne, Kamath and Steinke (2020), Proposition 7"
# Per theorem that converts losses: the field of ``Loss``, its symbol, and the formula.
_CONVERSIONS = {
    BASIC: ("epsilon", "epsilon", "epsilons add up"),
    GAUSSIAN: (
        "mu_squared",
        "mu^2",
        "mu^2 adds up; the epsilon at which"
        " Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu) = delta",
    ),
    ZCDP: (
        "rho",
        "rho",
        "rho adds up, epsilon^2 / 2 where there is only an epsilon; the least over alpha > 1 of"
        " alpha rho + ln(1 / (alpha delta)) / (alpha - 1) + ln(1 - 1 / alpha)",
    ),
}
_SHOWN_TERMS = 6
_SHOWN_STEPS = 3
# An epsilon, and the formula, theorem and numbers that prove it.
_Option = tuple[float, str, str, str]
_SHOWN_DIGITS = 6
_AGREEMENT = Fraction(1, 10**9)
PERMUTE_AND_FLIP = "McKenna and Sheldon (2020), Theorem 1"
EXPONENTIAL = "McSherry and Talwar (2007); Dong, Durfee and Rogers (2020)"


@dataclasses.dataclass(frozen=True)
class Step:
    """One step, and its privacy loss."""

    what: str
    formula: str
    theorem: str
    numbers: str
    loss: Loss

    def to_json(self) -> dict[str, Any]:
        """Returns the step as JSON values; losses are rounded up."""
        fields = {name: getattr(self, name) for name in ("what", "formula", "theorem", "numbers")}
        return {**fields, **loss_json(self.loss)}


def loss_json(loss: Loss) -> dict[str, float]:
    """Returns the proved bounds, rounded up to doubles."""
    names = ("epsilon", "mu_squared", "rho")
    found = {name: up(value) for name in names if (value := getattr(loss, name)) is not None}
    return found | ({"delta": up(loss.slack)} if loss.slack else {})


def laplace_step(what: str, l1_sensitivity: Fraction | int, scale: float) -> Step:
    """Returns the step of discrete Laplace noise on a vector, in units of the vector."""
    epsilon = Fraction(l1_sensitivity) / positive(scale)
    numbers = f"{number(l1_sensitivity)} / {number(scale)} = epsilon {above(epsilon)}"
    return Step(what, "epsilon = L1 sensitivity / scale", LAPLACE, numbers, Loss.pure(epsilon))


def gaussian_step(
    what: str, mu_squared: Fraction | None, rho: Fraction, numbers: str, of: str = ""
) -> Step:
    """Returns the step of discrete Gaussian noise on a vector of integers.

    ``mu_squared``: the sum of d^2 / (s^2 - 4); None if an s is 2 or less.
    ``rho``: the sum of d^2 / (2 s^2).
    ``of``: ``"sum of "`` if the step has several noises.
    """
    loss = Loss(rho=rounded_up(rho), mu_squared=mu_squared)
    formula, shown = f"rho = {of}(L2 sensitivity)^2 / (2 scale^2)", f"rho {above(rho)}"
    if mu_squared is not None:
        formula += f"; mu^2 = {of}(L2 sensitivity)^2 / (scale^2 - 4)"
        shown += f", mu^2 {above(mu_squared)}"
    return Step(what, formula, DISCRETE_GAUSSIAN, f"{numbers}: {shown}", loss)


def gaussian_vector(what: str, l2_squared: Fraction | int, scale: float) -> Step:
    """Returns the step of a vector whose numbers all get the same discrete Gaussian noise."""
    square = Fraction(l2_squared)
    mu_squared = rounded_up(square / (positive(scale) ** 2 - 4)) if scale > 2 else None
    rho = square / (2 * positive(scale) ** 2)
    numbers = f"L2 sensitivity {root(square)}, scale {number(scale)}"
    return gaussian_step(what, mu_squared, rho, numbers)


def selection_step(
    what: str, sensitivity: Fraction | int, scale: float, times: int = 1, *, ways: int = 2
) -> Step:
    """Returns the step of an exponential mechanism.

    ``sensitivity``: the sensitivity of a score, in units of the scale.
    ``ways``: 2 if scores may move in both directions, 1 if all scores move the same way.
    """
    epsilon, formula, numbers = _of_scores(sensitivity, scale, ways)
    loss = Loss.range_bounded(epsilon)
    assert loss.rho is not None and loss.mu_squared is not None
    one = Step(
        what,
        f"{formula}; rho = epsilon^2 / 8; mu^2 = pi epsilon^2 / 8",
        EXPONENTIAL,
        f"{numbers}, rho {above(loss.rho)}, mu^2 {above(loss.mu_squared)}",
        loss,
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
    """Returns the step of permute-and-flip or another selection with the same, pure loss."""
    epsilon, formula, numbers = _of_scores(sensitivity, scale, ways)
    return repeated(Step(what, formula, theorem, numbers, Loss.pure(epsilon)), times)


def _of_scores(sensitivity: Fraction | int, scale: float, ways: int) -> tuple[Fraction, str, str]:
    """Returns the epsilon of a selection by scores, the formula, and its numbers."""
    epsilon = ways * Fraction(sensitivity) / positive(scale)
    twice = "2 x " if ways == 2 else ""
    numbers = f"{twice}{number(sensitivity)} / {number(scale)}: epsilon {above(epsilon)}"
    return epsilon, f"epsilon = {twice}sensitivity / scale", numbers


def repeated(one: Step, times: int) -> Step:
    """Returns one step for repeated runs of a step on the same records."""
    if times == 1:
        return one
    return dataclasses.replace(
        one,
        what=f"{one.what}, {times:,} times",
        numbers=f"{times:,} x ({one.numbers})",
        loss=one.loss.repeated(times),
    )


def positive(scale: Any) -> Fraction:
    """Returns a scale as a rational number."""
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale < math.inf:
        raise InputError("scale", scale, "must be a finite number > 0")
    return Fraction(scale)


def noise_step(
    what: str, distribution: object, l1: Fraction | int, l2_squared: Fraction | int, scale: float
) -> Step:
    """Returns the step of Laplace or Gaussian noise, which needs its own norm's sensitivity."""
    check_choice("distribution", distribution, DISTRIBUTIONS)
    if distribution == "discrete_laplace":
        return laplace_step(what, l1, scale)
    return gaussian_vector(what, l2_squared, scale)


def number(value: Fraction | float) -> str:
    """Returns a short decimal form of a number, rounded to the nearest."""
    return f"{float(value):.{_SHOWN_DIGITS}g}"


def above(value: Fraction | float, digits: int = _SHOWN_DIGITS) -> str:
    """Returns a short decimal form of a number >= 0, rounded up, so a loss never looks too small.

    A number within 1e-9 of a shorter number is shown as the shorter number: 2 / 39.99999999999
    becomes 0.05, not 0.0500001. Verdicts use the number itself, not its short form.
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
    """Returns a short decimal form of a square root, rounded up."""
    return above(root_up(square))


def epsilons(loss: Loss, delta: Fraction) -> dict[str, float]:
    """Returns the proved epsilon at a delta, per theorem."""
    left = delta - loss.slack
    found = {}
    if left >= 0 and loss.epsilon is not None:
        found[BASIC] = up(loss.epsilon)
    # Losses without a pure epsilon need at least the smallest delta of a guarantee.
    if left >= Fraction(MIN_DELTA) and loss.mu_squared is not None:
        found[GAUSSIAN] = gaussian_epsilon(loss.mu_squared, left)
    if left >= Fraction(MIN_DELTA) and loss.rho is not None:
        found[ZCDP] = zcdp_epsilon(loss.rho, left)
    return found


def total(
    steps: Sequence[Step], promise: Guarantee, beside: Sequence[Step] = ()
) -> tuple[Step, float]:
    """Returns the total of steps, and the smallest epsilon that is proved for the total."""
    delta = Fraction(promise.delta)
    everything = composed(step.loss for step in (*steps, *beside))
    options = [
        _told(theorem, epsilon, [*steps, *beside])
        for theorem, epsilon in epsilons(everything, delta).items()
    ]
    if beside:
        more = composed(step.loss for step in beside).epsilon
        assert more is not None
        for theorem, epsilon in epsilons(composed(step.loss for step in steps), delta).items():
            if theorem != BASIC:
                options.append(_with_more(_told(theorem, epsilon, steps), more))
    if not options:
        words = f"delta {above(everything.slack)} of {promise.delta:g} is used up"
        step = Step("together", "no theorem applies", "none", words, everything)
        return step, math.inf
    epsilon, formula, theorem, numbers = min(options, key=lambda each: each[0])
    numbers += f" at delta {promise.delta:g}"
    if everything.slack:
        numbers += f", of which {above(everything.slack)} is used up"
    return Step("together", formula, theorem, numbers, everything), epsilon


def _told(theorem: str, epsilon: float, steps: Sequence[Step]) -> _Option:
    """Returns an epsilon with the formula, theorem and numbers of its conversion."""
    name, symbol, formula = _CONVERSIONS[theorem]
    terms = [getattr(step.loss, name) for step in steps]
    numbers = ""
    if 1 < len(terms) <= _SHOWN_TERMS:
        numbers = f"{' + '.join(map(above, terms))} = "
    if theorem != BASIC:
        numbers += f"{symbol} {above(getattr(composed(step.loss for step in steps), name))}: "
    return epsilon, formula, theorem, f"{numbers}epsilon {above(epsilon)}"


def _with_more(option: _Option, more: Fraction) -> _Option:
    """Returns a conversion with another epsilon added to its epsilon."""
    epsilon, formula, theorem, numbers = option
    both = up(Fraction(epsilon) + more) if math.isfinite(epsilon) else epsilon
    numbers = f"{numbers}; {above(epsilon)} + {above(more)} = epsilon {above(both)}"
    return both, f"{formula}; epsilons add up", f"{theorem}; {BASIC}", numbers


def more_than(epsilon: float, promised: float) -> str:
    """Returns an epsilon with enough digits to show that it exceeds the promised epsilon.

    Example:
        >>> more_than(13.819077, 1.0), more_than(1.00000000002, 1.0)
        ('13.8191', '1.00000000002')
    """
    if epsilon == math.inf:
        return "infinite"
    digits = 6
    while digits < 17 and not float(shown := above(epsilon, digits)) > promised:
        digits += 1
    return shown if digits < 17 else repr(epsilon)


def excess(epsilon: float, promised: float) -> str:
    """Returns how much an epsilon exceeds the smaller promised epsilon, in words.

    Example:
        >>> excess(13.8, 1.0), excess(1.0000144, 1.0)
        ('13.8 times as much', '0.0015% more')
    """
    ratio = Fraction(epsilon) / Fraction(promised)
    if ratio >= 2:
        return f"{above(ratio, 3)} times as much"
    return f"{above(100 * (ratio - 1), 2)}% more"


def told_steps(steps: Sequence[Step]) -> str:
    """Returns one line with the description and the numbers of the first steps."""
    told = [f"{step.what}: {step.numbers}" for step in steps[:_SHOWN_STEPS]]
    if len(steps) > _SHOWN_STEPS:
        told.append(f"and {len(steps) - _SHOWN_STEPS:,} more")
    return "; ".join(told) or "it has no step"
