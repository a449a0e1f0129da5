"""How the steps of a release add up, and which epsilon follows: by formula and numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.rounding import up
from beam_dp.verification.claims import BASIC, GAUSSIAN, ZCDP, composed
from beam_dp.verification.steps import Step, above

# How losses add up, by theorem: the claim, its symbol, and the formula.
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
        "rho adds up, epsilon^2 / 2 where there is but an epsilon; the least over alpha > 1 of"
        " alpha rho + ln(1 / (alpha delta)) / (alpha - 1) + ln(1 - 1 / alpha)",
    ),
}
_SHOWN_TERMS = 6
_SHOWN_STEPS = 3
# An epsilon, its formula, theorem and numbers.
_Option = tuple[float, str, str, str]


def total(
    steps: Sequence[Step], promise: Guarantee, beside: Sequence[Step] = ()
) -> tuple[Step, float]:
    """Returns the least epsilon that is proved of some steps together, and how it was found."""
    delta = Fraction(promise.delta)
    everything = composed(step.claims for step in (*steps, *beside))
    options = [
        _told(theorem, epsilon, [*steps, *beside])
        for theorem, epsilon in everything.epsilons(delta).items()
    ]
    if beside:
        more = composed(step.claims for step in beside).epsilon
        assert more is not None
        for theorem, epsilon in composed(step.claims for step in steps).epsilons(delta).items():
            if theorem != BASIC:
                options.append(_with_more(_told(theorem, epsilon, steps), more))
    if not options:
        words = f"delta {above(everything.delta)} of {promise.delta:g} is used up"
        step = Step("together", "no theorem applies", "none", words, everything)
        return step, math.inf
    epsilon, formula, theorem, numbers = min(options, key=lambda each: each[0])
    numbers += f" at delta {promise.delta:g}"
    if everything.delta:
        numbers += f", of which {above(everything.delta)} is used up"
    return Step("together", formula, theorem, numbers, everything), epsilon


def _told(theorem: str, epsilon: float, steps: Sequence[Step]) -> _Option:
    """The formula of a conversion, and the numbers that are put into it."""
    name, symbol, formula = _CONVERSIONS[theorem]
    terms = [getattr(step.claims, name) for step in steps]
    numbers = ""
    if 1 < len(terms) <= _SHOWN_TERMS:
        numbers = f"{' + '.join(map(above, terms))} = "
    if theorem != BASIC:
        numbers += f"{symbol} {above(getattr(composed(step.claims for step in steps), name))}: "
    return epsilon, formula, theorem, f"{numbers}epsilon {above(epsilon)}"


def _with_more(option: _Option, more: Fraction) -> _Option:
    """A conversion to whose epsilon another is added."""
    epsilon, formula, theorem, numbers = option
    both = up(Fraction(epsilon) + more) if math.isfinite(epsilon) else epsilon
    numbers = f"{numbers}; {above(epsilon)} + {above(more)} = epsilon {above(both)}"
    return both, f"{formula}; epsilons add up", f"{theorem}; {BASIC}", numbers


def more_than(epsilon: float, promised: float) -> str:
    """Returns an epsilon in as many digits as tell it from a smaller one that was promised.

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
    """Returns by how much an epsilon is more than a smaller one that was promised.

    Example:
        >>> excess(13.8, 1.0), excess(1.0000144, 1.0)
        ('13.8 times as much', '0.0015% more')
    """
    ratio = Fraction(epsilon) / Fraction(promised)
    if ratio >= 2:
        return f"{above(ratio, 3)} times as much"
    return f"{above(100 * (ratio - 1), 2)}% more"


def told_steps(steps: Sequence[Step]) -> str:
    """Returns the first steps in one line: what each does, with its numbers."""
    told = [f"{step.what}: {step.numbers}" for step in steps[:_SHOWN_STEPS]]
    if len(steps) > _SHOWN_STEPS:
        told.append(f"and {len(steps) - _SHOWN_STEPS:,} more")
    return "; ".join(told) or "it has no step"
