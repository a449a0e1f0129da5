"""What is found when a release is verified: its steps, their total, and the figures of the card."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from beam_dp.checks import is_number
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.rounding import up
from beam_dp.verification.claims import BASIC, Claims, composed
from beam_dp.verification.steps import Step, above, root

# Figures that follow from others agree to so many digits.
_AGREEMENT = 1e-9
# A mechanism that spends less than this share of its promise was perhaps made for another one.
_WELL_SPENT = 0.9


class Figures:
    """The figures of a card that follow from others, as they are compared.

    Attributes:
        number: how many were compared.
        faults: in words, of those that differ.
    """

    def __init__(self) -> None:
        self.number = 0
        self.faults: list[str] = []

    def same(self, name: str, stated: Any, found: float | None) -> None:
        """Compares what a card states with what follows: to 1e-9, relatively."""
        self.number += 1
        if stated is None or found is None:
            agrees = stated is found
        else:
            agrees = is_number(stated) and (
                stated == found or math.isclose(stated, found, rel_tol=_AGREEMENT)
            )
        if not agrees:
            self.faults.append(f"{name} is {_shown(stated)}; must be {_shown(found)}")

    def near(self, name: str, stated: Any, found: float, error: float) -> None:
        """Compares what a card states with what follows but for a known error: to 1e-9 beside."""
        self.number += 1
        allowed = error + _AGREEMENT * abs(found)
        if not (is_number(stated) and abs(stated - found) <= allowed):
            self.faults.append(f"{name} is {_shown(stated)}; must be {_shown(found)}")

    def equal(self, name: str, stated: Any, found: Any) -> None:
        """Compares what a card states at two places, or what must be some value."""
        self.number += 1
        if stated != found:
            self.faults.append(f"{name} is {stated!r}; must be {found!r}")

    def at_least(self, name: str, stated: Any, least: float) -> None:
        """Compares what a card states with what it can't be less than."""
        self.number += 1
        if not (is_number(stated) and stated >= least * (1 - _AGREEMENT)):
            self.faults.append(f"{name} is {_shown(stated)}; must be at least {_shown(least)}")


@dataclasses.dataclass(frozen=True)
class Verification:
    """What was found of one release.

    Args:
        kind: of the release.
        mechanism: its name.
        promise: that its card states.
        steps: of the mechanism, with what each reveals.
        together: how they add up, and what follows at the delta of the promise.
        epsilon: what the steps reveal together is at most this, at that delta; infinite where
            nothing follows.
        num_figures: how many figures of the card were recomputed.
        faults: in words: what does not hold, or is not as it follows from the rest.
        notes: in words: what could not be recomputed, or is unusual.
    """

    kind: str
    mechanism: str
    promise: Guarantee
    steps: tuple[Step, ...]
    together: Step
    epsilon: float
    num_figures: int = 0
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the card's promise and its figures hold."""
        return not self.faults

    def to_json(self) -> dict[str, Any]:
        """Returns what was found as JSON values."""
        finite = math.isfinite(self.epsilon)
        return {
            "kind": self.kind,
            "mechanism": self.mechanism,
            "promise": self.promise.to_json(),
            "steps": [step.to_json() for step in self.steps],
            "together": self.together.to_json(),
            "epsilon": self.epsilon if finite else None,
            "delta": self.promise.delta,
            "num_figures": self.num_figures,
            "faults": list(self.faults),
            "notes": list(self.notes),
            "holds": self.holds,
        }


def judged(
    kind: str,
    mechanism: str,
    promise: Guarantee,
    steps: Sequence[Step],
    figures: Figures,
    beside: Sequence[Step] = (),
    notes: Sequence[str] = (),
) -> Verification:
    """Returns what the steps of a release come to, and whether that keeps its promise.

    Args:
        kind: of the release.
        mechanism: its name.
        promise: of its card.
        steps: of the mechanism.
        figures: of the card, compared.
        beside: pure steps on the same records whose epsilons may be added to that of the others.
        notes: what else is to be told.
    """
    together, epsilon = total(steps, promise, beside)
    faults, notes = list(figures.faults), list(notes)
    if not epsilon <= promise.epsilon:
        faults.insert(
            0,
            f"the promise is epsilon {promise.epsilon!r} at delta {promise.delta:g}; what follows"
            f" is {epsilon!r}",
        )
    elif epsilon < _WELL_SPENT * promise.epsilon:
        notes.append(
            f"the noise would keep epsilon {above(epsilon)}: either more was added than the"
            " promise needs, or the card states another unit or relation than it was made for"
        )
    return Verification(
        kind,
        mechanism,
        promise,
        (*steps, *beside),
        together,
        epsilon,
        figures.number,
        tuple(faults),
        tuple(notes),
    )


def total(
    steps: Sequence[Step], promise: Guarantee, beside: Sequence[Step] = ()
) -> tuple[Step, float]:
    """Returns the least epsilon that is proved of some steps together, and how it was found."""
    delta = Fraction(promise.delta)
    everything = composed(step.claims for step in (*steps, *beside))
    options = everything.epsilons(delta)
    if beside:
        added = composed(step.claims for step in beside).epsilon
        assert added is not None
        for theorem, each in composed(step.claims for step in steps).epsilons(delta).items():
            sum_of_both = up(Fraction(each) + added) if math.isfinite(each) else each
            options.setdefault(
                f"{theorem}; then {BASIC}" if theorem != BASIC else BASIC, sum_of_both
            )
    if not options:
        words = f"delta {above(everything.delta)} of {promise.delta:g}"
        step = Step("together", "no theorem applies", "none", words, everything)
        return step, math.inf
    theorem, epsilon = min(options.items(), key=lambda each: each[1])
    formula, numbers = _told(theorem, everything)
    numbers += f"epsilon {above(epsilon)} at delta {promise.delta:g}"
    if everything.delta:
        numbers += f", of which {above(everything.delta)} is used up"
    return Step("together", formula, theorem, numbers, everything), epsilon


def _told(theorem: str, claims: Claims) -> tuple[str, str]:
    """The formula of a conversion, and the beginning of its numbers."""
    if theorem.startswith("Canonne"):
        found = "" if claims.rho is None else f"rho {above(claims.rho)}: "
        return "rhos add up; least over alpha of alpha rho + tail", found
    if theorem.startswith("Balle"):
        mu = "" if claims.mu_squared is None else f"mu {root(claims.mu_squared)}: "
        return "mu^2 add up; Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu) = delta", mu
    return "epsilons add up", ""


def _shown(value: Any) -> str:
    return f"{value:.12g}" if is_number(value) else repr(value)
