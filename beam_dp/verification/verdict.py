"""What is found when a release is verified: its steps, their total, and the figures of the card."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

from beam_dp.checks import is_number
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss
from beam_dp.verification.fields import AGREEMENT
from beam_dp.verification.steps import Step, above, excess, more_than, total

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

    @contextlib.contextmanager
    def following(self, name: str) -> Iterator[None]:
        """Notes a fault where figures are infinite: the verdict on the noise is not withheld."""
        try:
            yield
        except ArithmeticError:
            self.number += 1
            self.faults.append(f"{name} cannot follow from the noise of the card")

    def same(self, name: str, stated: Any, found: float | None) -> None:
        """Compares what a card states with what follows: to 1e-9, relatively."""
        self.number += 1
        if stated is None or found is None:
            agrees = stated is found
        else:
            agrees = is_number(stated) and (
                stated == found or math.isclose(stated, found, rel_tol=AGREEMENT)
            )
        if not agrees:
            self.faults.append(f"{name} is {_shown(stated)}; must be {_shown(found)}")

    def near(self, name: str, stated: Any, found: float, error: float) -> None:
        """Compares what a card states with what follows but for a known error: to 1e-9 beside."""
        self.number += 1
        allowed = error + AGREEMENT * abs(found)
        if not (is_number(stated) and abs(stated - found) <= allowed):
            self.faults.append(f"{name} is {_shown(stated)}; must be {_shown(found)}")

    def equal(self, name: str, stated: Any, found: Any) -> None:
        """Compares what a card states at two places, or what must be some value."""
        self.number += 1
        if stated != found:
            self.faults.append(f"{name} is {stated!r}; must be {found!r}")

    def at_least(self, name: str, stated: Any, least: float, most: float = math.inf) -> None:
        """Compares what a card states with what it can't be less than, and perhaps not more."""
        self.number += 1
        fits = is_number(stated) and least * (1 - AGREEMENT) <= stated <= most * (1 + AGREEMENT)
        if not fits:
            bounds = f"at least {_shown(least)}" + f", and at most {_shown(most)}" * (
                most < math.inf
            )
            self.faults.append(f"{name} is {_shown(stated)}; must be {bounds}")

    def loss(self, name: str, stated: Any, proved: Loss, *, is_exact: bool = True) -> None:
        """Compares a loss that a card states for a ledger, as JSON values, with what is proved.

        Args:
            name: of the loss.
            stated: the loss, as JSON values.
            proved: the loss that follows from the noise.
            is_exact: whether it is no larger either than what its epsilon, or its mu, implies.

        Raises:
            InputError: if it is not a loss.
        """
        loss, found = Loss.from_json(stated).to_json(), proved.to_json()
        self.equal(f"{name}.slack", loss.get("slack"), None)
        implied = loss
        if "epsilon" in loss:
            implied = Loss.pure(loss["epsilon"]).to_json()
            self.same(f"{name}.epsilon", loss["epsilon"], found.get("epsilon"))
            self.equal(f"{name}.mu", "mu" in loss, "mu" in implied)
        elif "mu" in loss:
            implied = Loss.gaussian(loss["mu"]).to_json()
        for field in ("mu", "rho"):
            if field not in loss:
                continue
            least, most = found.get(field, math.inf), implied.get(field, math.inf)
            if "epsilon" not in loss and (field == "mu" or "mu" not in loss):
                most = least if is_exact else math.inf
            self.at_least(f"{name}.{field}", loss[field], min(least, most), most)


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
        faults.insert(0, _broken(epsilon, promise))
    elif epsilon < _WELL_SPENT * promise.epsilon:
        notes.append(
            f"The noise keeps epsilon {above(epsilon)}, less than was promised: either more was"
            " added than the promise needs, or the card states another unit or relation than it"
            " was made for."
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


def _broken(epsilon: float, promise: Guarantee) -> str:
    """What is to be known, and done, of a release whose promise its noise does not keep."""
    stated = f"The card promises epsilon {promise.epsilon:.6g} at delta {promise.delta:g}"
    if epsilon == math.inf:
        return f"{stated}, but of its noise no epsilon is proved. Treat it as unprotected."
    true = more_than(epsilon, promise.epsilon)
    return (
        f"{stated}, but the noise that it states keeps only epsilon {true},"
        f" {excess(epsilon, promise.epsilon)}. Noise can't be added to what is out: count the"
        f" release with epsilon {true} wherever its budget is counted, and tell who relies on it."
    )


def _shown(value: Any) -> str:
    return f"{value:.12g}" if is_number(value) else repr(value)
