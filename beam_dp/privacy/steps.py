"""The steps of a mechanism as shown to users, and the conversion of their losses to epsilon.

Each step has a formula, a theorem and numbers. All arithmetic of the conversion errs on the safe
side: sums and quotients are rational numbers; logarithms, exponentials and the normal distribution
are computed with at least 60 digits, and results are raised by far more than the largest error.
This module is independent of ``privacy.accounting``, which plans noise.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from typing import Any

from beam_dp.checks import check_choice
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import MIN_DELTA, Guarantee
from beam_dp.privacy.loss import Loss, composed
from beam_dp.privacy.noise.bound import DISTRIBUTIONS
from beam_dp.privacy.rounding import root_up, rounded_up, up

_DIGITS = 110
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")
# Assumed relative error of results with this number of digits; the true error is far smaller.
_ERROR = Decimal("1e-40")
# Discrete Gaussian noise on a grid: see ``gaussian_epsilon``.
DISCRETENESS = Fraction(1, 10**20)
# From this argument on, the continued fraction for Mills' ratio converges to 40 digits.
_LARGE = 12
_STEPS = 600
_NEWTON_STEPS = 60
_SPARSE_VECTOR = "Lyu, Su and Li (2017), Algorithm 7; Dwork and Roth (2014), Theorem 3.23"
# What parts of formulas mean, for a reader of these formulas.
SYMBOLS = {
    "sensitivity": "how much one unit can change the measured values: L1 is the sum of all"
    " changes, L2 the square root of the sum of their squares",
    "scale": "the scale of the noise, in the unit of the sensitivity",
    "rho": "the loss in zero-concentrated differential privacy",
    "mu^2": "the squared loss in Gaussian differential privacy; Phi is the standard normal"
    " distribution function",
    "k ": "the largest number of records of one unit that are used",
    "P(key": "the largest probability that the key of a single unit is released",
}
_FARTHEST = 100  # the tail beyond this point is below every delta
_TINY = 1e-300
_LARGEST_MU = 1e5  # a mu above this limit only implies an epsilon that is too large for a guarantee


@functools.lru_cache(maxsize=256)
def zcdp_epsilon(rho: Fraction, delta: Fraction) -> float:
    """Returns an epsilon that rho-zero-concentrated differential privacy implies at delta.

    For every alpha > 1: alpha rho + ln(1 / (alpha delta)) / (alpha - 1) + ln(1 - 1 / alpha). A good
    alpha is found in floating point, and the formula is then evaluated for this alpha.

    Reference: Canonne, Kamath and Steinke (2020), Proposition 7.
    """
    if rho == 0:
        return 0.0
    if rho > _LARGEST_MU**2:
        return math.inf
    # For a rho below the smallest double, any alpha is good enough.
    spent, log_delta = max(float(rho), _TINY), math.log(delta)

    def epsilon(log_excess: float) -> float:
        excess = math.exp(log_excess)  # this is alpha - 1
        loss = -(log_delta + math.log1p(excess)) / excess
        return spent * (1 + excess) + loss - math.log1p(1 / excess)

    centre = 0.5 * (math.log(-log_delta) - math.log(spent))
    excess = math.exp(_minimum(epsilon, centre - 12, centre + 12))
    with localcontext() as context:
        context.prec = _DIGITS
        more = Decimal(excess)
        terms = (
            _decimal(rho) * (1 + more),
            -(_decimal(delta).ln() + (1 + more).ln()) / more,
            -(1 + 1 / more).ln(),
        )
        return up(Fraction(max(sum(terms), Decimal(0)) + sum(map(abs, terms)) * _ERROR))


@functools.lru_cache(maxsize=256)
def gaussian_epsilon(mu_squared: Fraction, delta: Fraction) -> float:
    """Returns an epsilon that mu-Gaussian privacy implies at delta, even for noise on a grid.

    The vector of noisy integers may have up to 2^40 coordinates; mu^2 is the sum of d^2 / (s^2 - 4)
    over the coordinates. The probability of each outcome is then within a factor e^g, g < 1e-20, of
    its probability under a function of continuous noise (the proof is in
    ``privacy.accounting.discrete_gaussian_mu``). So delta is reduced, and epsilon is raised, by the
    corresponding amounts.

    Reference: Balle and Wang (2018), Theorem 5; Dong, Roth and Su (2022), Corollary 2.13.
    """
    if mu_squared == 0:
        return 0.0
    mu = root_up(mu_squared)
    if mu > _LARGEST_MU:
        return math.inf
    kept = delta * (1 - 2 * DISCRETENESS)
    near, margin = _near_epsilon(mu, kept), 2.0**-48
    # The epsilon was found in floating point; this loop proves that it is large enough.
    while math.isfinite(near) and gaussian_delta(mu, near) > kept:
        near, margin = near * (1 + margin) + margin * 2.0**-200, 2 * margin
    return up(Fraction(near) + 2 * DISCRETENESS) if math.isfinite(near) else near


def _near_epsilon(mu: float, delta: Fraction) -> float:
    """Returns approximately the epsilon of mu-Gaussian privacy at delta, by Newton's method."""
    with localcontext() as context:
        context.prec = _DIGITS
        step = Decimal(mu)
        epsilon = step * step / 2 + step * (-2 * _decimal(delta).ln()).sqrt()
        for _ in range(_NEWTON_STEPS):
            density, first, second = _parts(step, epsilon)
            reached = density * (first - second)
            change = (reached.ln() - _decimal(delta).ln()) * reached / (density * second)
            # A step that is too long must not make epsilon negative.
            epsilon = max(epsilon + change, epsilon / 4)
            if abs(change) < epsilon * Decimal(2) ** -50:
                break
        return float(epsilon)


def gaussian_delta(mu: float, epsilon: float) -> Fraction:
    """Returns an upper bound on the delta of mu-Gaussian privacy at an epsilon.

    With a = epsilon / mu - mu / 2, b = epsilon / mu + mu / 2 and Mills' ratio R, the delta is
    phi(a) (R(a) - R(b)).
    """
    with localcontext() as context:
        context.prec = _DIGITS
        density, first, second = _parts(Decimal(mu), Decimal(epsilon))
        bound = density * (first - second + (first + second) * _ERROR)
        return min(Fraction(bound) * (1 + Fraction(_ERROR)), Fraction(1))


def _parts(mu: Decimal, epsilon: Decimal) -> tuple[Decimal, Decimal, Decimal]:
    """Returns phi(a), R(a) and R(b) as defined in ``gaussian_delta``."""
    shift, half = epsilon / mu, mu / 2
    lower, upper = shift - half, shift + half
    return _density(lower), _mills(lower), _mills(upper)


def normal_tail(value: Fraction) -> Fraction:
    """Returns an upper bound on the probability that a standard normal variable is >= a value."""
    with localcontext() as context:
        context.prec = _DIGITS
        point = _decimal(min(value, Fraction(_FARTHEST)))
        return Fraction(_density(point) * _mills(point) * (1 + _ERROR))


def _mills(value: Decimal) -> Decimal:
    """Returns Mills' ratio (1 - Phi(x)) / phi(x) to more than 40 digits."""
    size = abs(value)
    if size > _LARGE:
        # 1 / (x + 1 / (x + 2 / (x + ...))): convergents alternate between both sides.
        ratio = Decimal(0)
        for number in range(_STEPS, 0, -1):
            ratio = number / (size + ratio)
        ratio = 1 / (size + ratio)
        return ratio if value > 0 else 1 / _density(size) - ratio
    # Phi(x) = 1/2 + phi(x) (x + x^3 / 3 + x^5 / (3 5) + ...), all terms of one sign.
    term = total = size
    odd = 1
    while term > total * Decimal(f"1e-{_DIGITS}"):
        odd += 2
        term = term * size * size / odd
        total += term
    inside = 1 / (2 * _density(size))
    return inside - total if value > 0 else inside + total


def _density(value: Decimal) -> Decimal:
    return (-value * value / 2).exp() / (2 * _PI).sqrt()


def _minimum(function: Callable[[float], float], low: float, high: float) -> float:
    """Returns the minimizer of a unimodal function, by golden-section search."""
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(80):
        first, second = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, second) if function(first) <= function(second) else (first, high)
    return (low + high) / 2


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


LAPLACE = "Dwork and Roth (2014), Theorem 3.6; Ghosh and others (2009)"
DISCRETE_GAUSSIAN = "Canonne, Kamath and Steinke (2020), Theorem 4; Dong and others (2022)"
BASIC = "Dwork and Roth (2014), Theorem 3.16"
GAUSSIAN = "Balle and Wang (2018), Theorem 5; Dong, Roth and Su (2022), Corollary 3.3"
ZCDP = "Canonne, Kamath and Steinke (2020), Proposition 7"
# For each theorem that converts losses: the field of ``Loss``, its symbol, and the formula.
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
        "rho adds up (epsilon^2 / 2 for a step with only an epsilon); the least over alpha > 1 of"
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
    """One step of a mechanism, and the step's privacy loss."""

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
    bounds = {name: up(value) for name in names if (value := getattr(loss, name)) is not None}
    return bounds | ({"delta": up(loss.slack)} if loss.slack else {})


def laplace_step(what: str, l1_sensitivity: Fraction | int, scale: float) -> Step:
    """Returns the step of discrete Laplace noise on a vector, in units of the vector."""
    epsilon = Fraction(l1_sensitivity) / positive(scale)
    numbers = f"{number(l1_sensitivity)} / {number(scale)} = epsilon {above(epsilon)}"
    return Step(what, "epsilon = L1 sensitivity / scale", LAPLACE, numbers, Loss.pure(epsilon))


def gaussian_step(
    what: str, mu_squared: Fraction | None, rho: Fraction, numbers: str, of: str = ""
) -> Step:
    """Returns the step of discrete Gaussian noise on a vector of integers."""
    # ``mu_squared``: the sum of d^2 / (s^2 - 4); None if an s is 2 or less. ``rho``: the sum of
    # d^2 / (2 s^2). ``of``: ``"sum of "`` if the step has several noises.
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
    """Returns the step of an exponential mechanism, of a sensitivity in units of the scale."""
    # ``ways``: 2 if scores may move in both directions, 1 if all scores move the same way.
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


def comparisons_step(
    *, threshold_scale: float, question_scale: float, redraws: bool, k: int, most: int
) -> Step:
    """Returns the step that compares questions with a noisy threshold."""
    threshold, question = k / positive(threshold_scale), 2 * k / positive(question_scale)
    ends = number(threshold_scale), number(question_scale)
    if not isinstance(redraws, bool):
        raise InputError("redraws_threshold", redraws, "must be true or false")
    if redraws:
        loss = Loss.pure(threshold + question).repeated(most)
        numbers = f"{most:,} x ({k} / {ends[0]} + 2 x {k} / {ends[1]})"
        formula = "epsilon = c (k / threshold scale + 2 k / question scale)"
    else:
        loss = Loss.pure(threshold + most * question)
        numbers = f"{k} / {ends[0]} + 2 x {most:,} x {k} / {ends[1]}"
        formula = "epsilon = k / threshold scale + 2 c k / question scale"
    assert loss.epsilon is not None
    numbers += f" = epsilon {above(loss.epsilon)}"
    what = f"compare questions with a threshold, of which c = {most:,} may be above it"
    return Step(what, formula, _SPARSE_VECTOR, numbers, loss)


def positive(scale: Any) -> Fraction:
    """Returns a scale as a rational number."""
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale < math.inf:
        raise InputError("scale", scale, "must be a finite number > 0")
    return Fraction(scale)


def noise_step(
    what: str, distribution: object, l1: Fraction | int, l2_squared: Fraction | int, scale: float
) -> Step:
    """Returns the step for Laplace noise, by its L1 sensitivity, or Gaussian noise, by its L2."""
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
    """Returns, per theorem, the epsilon that is proved at a delta."""
    left = delta - loss.slack
    proved = {}
    if left >= 0 and loss.epsilon is not None:
        proved[BASIC] = up(loss.epsilon)
    # Losses without a pure epsilon need at least the smallest delta of a guarantee.
    if left >= Fraction(MIN_DELTA) and loss.mu_squared is not None:
        proved[GAUSSIAN] = gaussian_epsilon(loss.mu_squared, left)
    if left >= Fraction(MIN_DELTA) and loss.rho is not None:
        proved[ZCDP] = zcdp_epsilon(loss.rho, left)
    return proved


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
    epsilon, formula, theorem, numbers = min(options, key=lambda option: option[0])
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
    """Returns a conversion after adding an epsilon to the conversion's epsilon."""
    epsilon, formula, theorem, numbers = option
    both = up(Fraction(epsilon) + more) if math.isfinite(epsilon) else epsilon
    numbers = f"{numbers}; {above(epsilon)} + {above(more)} = epsilon {above(both)}"
    return both, f"{formula}; epsilons add up", f"{theorem}; {BASIC}", numbers


def more_than(epsilon: float, promised: float) -> str:
    """Returns an epsilon with enough digits to show that it exceeds the promised epsilon."""
    if epsilon == math.inf:
        return "infinite"
    digits = 6
    while digits < 17 and not float(shown := above(epsilon, digits)) > promised:
        digits += 1
    return shown if digits < 17 else repr(epsilon)


def excess(epsilon: float, promised: float) -> str:
    """Returns how much an epsilon exceeds the smaller promised epsilon, in words."""
    ratio = Fraction(epsilon) / Fraction(promised)
    if ratio >= 2:
        return f"{above(ratio, 3)} times as much"
    return f"{above(100 * (ratio - 1), 2)}% more"


def told_steps(steps: Sequence[Step]) -> str:
    """Returns the description and the numbers of the first steps in one line."""
    texts = [f"{step.what}: {step.numbers}" for step in steps[:_SHOWN_STEPS]]
    if len(steps) > _SHOWN_STEPS:
        texts.append(f"and {len(steps) - _SHOWN_STEPS:,} more")
    return "; ".join(texts) or "it has no steps"
