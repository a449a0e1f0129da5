"""What verification of all kinds of releases shares: its result, steps and figures of the card."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from beam_dp.checks import is_number
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss, composed
from beam_dp.privacy.noise.bound import laplace_bound, noise_bound, noise_variance
from beam_dp.privacy.steps import Step, above, excess, laplace_step, more_than, total
from beam_dp.releases.earlier_stage import Discovered
from beam_dp.releases.release import LeftOut, Release, plain_json

# Relative tolerance for numbers that are computed from other numbers.
AGREEMENT = 1e-9
# Numbers of the mechanisms that verification repeats, because it imports no mechanism;
# ``test_check_promise.py`` compares them. First the copies, which a card must keep to:
MAX_RECORDS = 2**40  # of a release
MAX_ARRAY_CELLS = 2**26  # of a hypothesis that is one array, and then rounded
MAX_TREE_RECORDS = 2**19  # records of a selection that has a tree; more are copies of candidates
ROUNDING_SHARE = 0.1  # rounding to records stops at this share of the error of the fit
COUNT_FAILURE = 0.25  # the noisy count's share of the failure probability of online answers
START_SHARE = 0.001  # of the uniform distribution, if a hypothesis starts from a release
# Then upper bounds, for all versions:
MAX_CANDIDATES = 2**20  # that records are made from
MAX_SIZE = 2**20  # of a small database
MAX_LEAVES = 2**19  # of a column whose bins are found


def check_fields(
    name: str, fields: object, needed: Collection[str], optional: Collection[str] = ()
) -> None:
    """Refuses a JSON object with a missing field, or with a field that no check would read."""
    if not isinstance(fields, Mapping):
        raise InputError(name, fields, "must be a JSON object")
    for field in needed:
        if field not in fields:
            raise InputError(f"{name}.{field}", None, "must be stated")
    for field in fields:
        if field not in needed and field not in optional:
            condition = "is not a field that this version knows, so nothing is charged for it"
            raise InputError(f"{name}.{field}", fields[field], condition)


def differences(value: Any, expected: Any, place: str = "") -> Iterator[str]:
    """Yields the fields in which two values of a card differ; fractions may differ by 1e-9."""
    if isinstance(value, Mapping) and isinstance(expected, Mapping):
        for name in {**value, **expected}:
            below = f"{place}.{name}".lstrip(".")
            if name in value and name in expected:
                yield from differences(value[name], expected[name], below)
            else:
                yield f"{below} is {'unknown' if name in value else 'missing'}"
    elif isinstance(value, list) and isinstance(expected, list) and len(value) == len(expected):
        for number, pair in enumerate(zip(value, expected, strict=True)):
            yield from differences(*pair, f"{place}.{number}")
    elif is_number(value) and is_number(expected):
        is_whole = isinstance(value, int) and isinstance(expected, int)
        if value != expected and (is_whole or not math.isclose(value, expected, rel_tol=AGREEMENT)):
            yield f"{place} is {value!r}; must be {expected!r}"
    elif value != expected or isinstance(value, bool) != isinstance(expected, bool):
        yield f"{place} is {_short(value)}; must be {_short(expected)}"


def _short(value: Any) -> str:
    if isinstance(value, Mapping | list):
        return f"{len(value)} entries"
    return repr(value)


# If a mechanism spends less than this share of the promised epsilon, its noise may have been
# planned for another promise.
_WELL_SPENT = 0.9


class Figures:
    """Compares the figures of a card with recomputed figures, and collects the faults."""

    def __init__(self) -> None:
        self.number = 0
        self.faults: list[str] = []

    @contextlib.contextmanager
    def following(self, name: str) -> Iterator[None]:
        """Records a fault if figures are infinite, so that the noise can still be checked."""
        try:
            yield
        except ArithmeticError:
            self.number += 1
            self.faults.append(f"{name} cannot follow from the noise of the card")

    def _compare(self, agrees: bool, name: str, figure: str, expected: str) -> None:
        self.number += 1
        if not agrees:
            self.faults.append(f"{name}: the card says {figure}, the rest of it fits {expected}")

    def same(self, name: str, figure: Any, expected: float | None) -> None:
        """Compares a stated figure with the recomputed figure, to a relative 1e-9."""
        if figure is None or expected is None:
            agrees = figure is expected
        else:
            agrees = is_number(figure) and (
                figure == expected or math.isclose(figure, expected, rel_tol=AGREEMENT)
            )
        self._compare(agrees, name, _shown(figure), _shown(expected))

    def near(self, name: str, figure: Any, expected: float, error: float) -> None:
        """Compares a stated figure with the recomputed figure, up to a known error and 1e-9."""
        allowed = error + AGREEMENT * abs(expected)
        agrees = is_number(figure) and abs(figure - expected) <= allowed
        self._compare(agrees, name, _shown(figure), _shown(expected))

    def equal(self, name: str, figure: Any, expected: Any) -> None:
        """Compares two figures of a card, or a figure with its required value."""
        texts = (repr(getattr(value, "value", value)) for value in (figure, expected))
        self._compare(figure == expected, name, *texts)

    def at_least(self, name: str, figure: Any, least: float, largest: float = math.inf) -> None:
        """Compares a stated figure with its lower bound and optional upper bound."""
        fits = is_number(figure) and least * (1 - AGREEMENT) <= figure <= largest * (1 + AGREEMENT)
        bounds = f"at least {_shown(least)}"
        if largest < math.inf:
            bounds += f", and at most {_shown(largest)}"
        self._compare(fits, name, _shown(figure), bounds)

    def loss(self, name: str, figure: Any, proved: Loss, *, is_exact: bool = True) -> None:
        """Compares the loss that a card states, as JSON values, with the proved loss."""
        loss, proof = Loss.from_json(figure).to_json(), proved.to_json()
        self.equal(f"{name}.slack", loss.get("slack"), None)
        implied = loss
        if "epsilon" in loss:
            implied = Loss.pure(loss["epsilon"]).to_json()
            self.same(f"{name}.epsilon", loss["epsilon"], proof.get("epsilon"))
            self.equal(f"{name}.mu", "mu" in loss, "mu" in implied)
        elif "mu" in loss:
            implied = Loss.gaussian(loss["mu"]).to_json()
        for field in ("mu", "rho"):
            if field not in loss:
                continue
            least, largest = proof.get(field, math.inf), implied.get(field, math.inf)
            if "epsilon" not in loss and (field == "mu" or "mu" not in loss):
                largest = least if is_exact else math.inf
            self.at_least(f"{name}.{field}", loss[field], min(least, largest), largest)


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result of verifying one release.

    ``promise``: the guarantee that the release's card states.
    ``steps``: the mechanism's steps, with the privacy loss per step.
    ``together``: the total of the steps, and the resulting epsilon at the promised delta.
    ``epsilon``: the proved epsilon at the promised delta; infinite if no epsilon is proved.
    ``num_figures``: the number of recomputed figures of the card.
    ``faults``: descriptions of false or contradictory claims.
    ``notes``: descriptions of unusual figures, and of figures that could not be recomputed.
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
        """Whether the card's promise and figures are correct."""
        return not self.faults

    def to_json(self) -> dict[str, Any]:
        """Returns the result as JSON values."""
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
    """Compares the total loss of a release's steps with the promise, and returns the result."""
    together, epsilon = total(steps, promise, beside)
    faults, notes = list(figures.faults), list(notes)
    if not epsilon <= promise.epsilon:
        faults.insert(0, _broken(epsilon, promise))
    elif epsilon < _WELL_SPENT * promise.epsilon:
        notes.append(
            f"The noise keeps epsilon {above(epsilon)}, less than promised: either there is more"
            " noise than the promise needs, or the card states another unit or relation than the"
            " noise was made for."
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


def proved_losses(check: Verification) -> Iterator[Loss]:
    """Yields what the steps prove: their sum, and a loss that is pure except with delta."""
    yield check.together.loss
    pure = [step.loss for step in check.steps if step.loss.epsilon is not None]
    others = [step for step in check.steps if step.loss.epsilon is None]
    if others and check.epsilon < math.inf:
        _, epsilon = total(others, check.promise)
        yield composed([*pure, Loss.approximate(epsilon, check.promise.delta)])


def _broken(epsilon: float, promise: Guarantee) -> str:
    """Returns a message that noise does not keep the promise, with advice."""
    promised = f"The card promises epsilon {promise.epsilon:.6g} at delta {promise.delta:g}"
    if epsilon == math.inf:
        return f"{promised}, but its noise proves no epsilon. Treat it as unprotected."
    true = more_than(epsilon, promise.epsilon)
    return (
        f"{promised}, but the noise that it states keeps only epsilon {true},"
        f" {excess(epsilon, promise.epsilon)}. A published release cannot be made more private:"
        f" count it as epsilon {true} in every budget, and inform everyone who relies on it."
    )


def _shown(value: Any) -> str:
    return f"{value:.12g}" if is_number(value) else repr(value)


# Fields in every card that do not describe the noise.
_HEAD = ("schema_version", "kind", "draw_id", "files", "versions")


def misread(release: Release) -> list[str]:
    """Returns the differences between a release's card and the card written from the read release.

    Reading a release ignores or recomputes some fields of its card. Comparing the card with one
    written from the release that was read therefore reveals every wrong field.
    """
    if release.read_from is None:
        return []
    card, expected = (
        {name: value for name, value in fields.items() if name not in _HEAD}
        for fields in (release.read_from, release.card)
    )
    return [f"card: {difference}" for difference in differences(card, plain_json(expected))]


def of_release(
    promise: Guarantee, left_out: LeftOut | None, discovered: Discovered | None = None
) -> Guarantee:
    """Returns the guarantee of a release without its left-out counts and without its domain."""
    if discovered is not None:
        promise = discovered.main
    if left_out is None:
        return promise
    epsilon = left_out.budget["release"]["epsilon"]
    return promise.with_limits(epsilon=epsilon)


def left_out_steps(left_out: LeftOut, promise: Guarantee, domain: Domain) -> list[Step]:
    """Returns the step of the counts: a unit changes one count by k, a replacement two counts."""
    counts = len(domain.names) + bool(domain.impossible)
    moved = promise.neighboring.num_moved if counts > 1 else 1
    what = "count left-out records"
    return [laplace_step(what, moved * promise.max_records_per_unit, left_out.scale)]


def left_out_figures(
    left_out: LeftOut,
    promise: Guarantee,
    domain: Domain,
    of_steps: Sequence[Step],
    figures: Figures,
) -> None:
    """Compares the errors of the counts and the split of the budget."""
    counts = len(domain.names) + bool(domain.impossible)
    beta = left_out.failure_probability
    variance = noise_variance("discrete_laplace", left_out.scale)
    bound = laplace_bound(left_out.scale, counts, beta)
    of_sum = bound if counts == 1 else noise_bound(counts * variance, 1, variance, beta)
    for name, expected in (
        ("standard_error", math.sqrt(variance)),
        ("bound", bound),
        ("sum_standard_error", math.sqrt(counts * variance)),
        ("sum_bound", of_sum),
    ):
        figures.same(f"left_out.{name}", getattr(left_out, name), expected)
    (step,) = left_out_steps(left_out, promise, domain)
    assert step.loss.epsilon is not None
    spent = left_out.budget["left_out"]["epsilon"]
    figures.same("left_out.budget", spent, float(step.loss.epsilon))
    for name, delta in (("release", promise.delta), ("left_out", 0.0)):
        figures.same(f"left_out.budget.{name}.delta", left_out.budget[name]["delta"], delta)
    main = of_release(promise, left_out)
    _, epsilon = total(of_steps, main)
    figures.at_least("left_out.budget.release.epsilon", main.epsilon, epsilon)
    both = spent + left_out.budget["release"]["epsilon"]
    figures.at_least("left_out.budget, the sum", both, 0.0, promise.epsilon)
