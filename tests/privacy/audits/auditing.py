"""What all audits share: findings, mutants, and whole runs that tell two neighbours apart.

The mutants that any mechanism could have are derived here: of what is handed to the noise
(``derived``) and of what the sampler draws (``of_runs``). A mechanism's own file has the odd ones.
"""

import dataclasses
import functools
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tiny
from noise_sources import Draw

from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.privacy.noise import source as noise_module
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.testing import audit

Patch = pytest.MonkeyPatch
Bug = Callable[[Patch], None]
Laws = tuple[audit.Law, audit.Law]

# The chance that one check of correct code fails, at most: also that it is called blind.
FALSE_ALARM = 1e-9
DELTA = 1e-6
# Checks that are dear, unless an audit says otherwise: a landing runs some of their cases.
DEAR = ("black box", "sampler", "delta", "sum")


@dataclasses.dataclass(frozen=True)
class Finding:
    """The result of one check: whether the mechanism passes, and the numbers of the table."""

    passes: bool
    lower_bound: float | None = None
    predicted: float | None = None
    is_blind: bool = False
    is_refuted: bool = False
    blind_by_chance: float | None = None


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A deliberate bug, and the check that must fail while it is in.

    One that ``blinds`` leaks too little instead of too much: the check must say that it is blind.
    """

    apply: Bug
    caught_by: str
    blinds: bool = False


@dataclasses.dataclass(frozen=True)
class Audit:
    """All checks of one mechanism under one relation; ``tiers`` are the markers of some checks."""

    mechanism: str
    guarantee: Guarantee
    checks: Mapping[str, Callable[[], Finding]]
    mutants: Mapping[str, Mutant]
    tiers: Mapping[str, str]


def audited(
    mechanism: str,
    guarantee: Guarantee,
    checks: Mapping[str, Callable[..., Finding]],
    bugs: Mapping[str, Mapping[str, Bug]],
    *case: Any,
    blinding: Mapping[str, Bug] | None = None,
    dear: Iterable[str] = DEAR,
    jobs: Iterable[str] = (),
) -> Audit:
    """Returns the audit of a mechanism.

    Args:
        mechanism: its name in the table.
        guarantee: the promise.
        checks: by name; each is called with ``case``.
        bugs: by the check that must catch them.
        case: what the checks are called with.
        blinding: bugs that add noise, so that "black box" must say that it is blind.
        dear: checks of which a landing runs some.
        jobs: cheap checks that start Beam.
    """
    mutants = {
        name: Mutant(apply, check) for check, found in bugs.items() for name, apply in found.items()
    }
    mutants |= {
        name: Mutant(apply, "black box", blinds=True) for name, apply in (blinding or {}).items()
    }
    held = {name: functools.partial(check, *case) for name, check in checks.items()}
    tiers = dict.fromkeys(dear, "part") | dict.fromkeys(jobs, "job")
    return Audit(mechanism, guarantee, held, mutants, tiers)


def replaced(place: Any, name: str, by: Any) -> Bug:
    """Returns the bug of another value in the place of an attribute."""
    return _of(place, lambda patch: patch.setattr(place, name, by))


def around(place: Any, name: str, by: Callable[..., Any]) -> Bug:
    """Returns the bug of another function, which is called with the original one first."""

    def mutate(patch: Patch) -> None:
        original = getattr(place, name)
        patch.setattr(place, name, lambda *given, **named: by(original, *given, **named))

    return _of(place, mutate)


def _of(place: Any, bug: Bug) -> Bug:
    """Says which module a bug changes."""
    name = getattr(place, "__module__", None) or place.__name__
    bug.module = name if name.startswith("beam_dp") else None  # type: ignore[attr-defined]
    return bug


def both(*bugs: Bug) -> Bug:
    def mutate(patch: Patch) -> None:
        for bug in bugs:
            bug(patch)

    return mutate


def multiply(place: Any, name: str, factor: Any) -> Bug:
    return around(place, name, lambda original, *given: factor * original(*given))


def scaled_fields(found: Any, **factors: float) -> Any:
    """Returns a dataclass with some of its numbers multiplied."""
    scaled = {name: getattr(found, name) * factor for name, factor in factors.items()}
    return dataclasses.replace(found, **scaled)


# What is planned, and what is handed to the noise.


def planned_for(guarantee: Guarantee) -> Guarantee:
    """The guarantee that noise is planned for: the promised one, but in some mutants."""
    return guarantee


def plan_with(**changes: Callable[[Any], Any]) -> Bug:
    """Plans are made for another guarantee, whose changed values follow from the true ones."""

    def planned(guarantee: Guarantee) -> Guarantee:
        changed = {name: change(getattr(guarantee, name)) for name, change in changes.items()}
        return dataclasses.replace(guarantee, **changed, allow_large_delta=True)

    return replaced(sys.modules[__name__], "planned_for", planned)


SENSITIVITY_HALVED = plan_with(epsilon=lambda epsilon: 2 * epsilon)
ADD_REMOVE = plan_with(neighboring=lambda _: Neighboring.ADD_OR_REMOVE_ONE)


def change_draws(change: Callable[[Sequence[Draw]], list[Draw]]) -> Bug:
    """Every run hands something else to the noise: as a mechanism with the bug would."""
    return replaced(tiny, "handed_on", change)


def change_each(change: Callable[[Draw], Iterable[Draw]], *, selections: bool = False) -> Bug:
    """Changes the draws one by one: those of values, or all."""
    return change_draws(
        lambda draws: [
            changed
            for draw in draws
            for changed in (change(draw) if selections or not draw.is_selection else [draw])
        ]
    )


def with_scale(draw: Draw, scale: float) -> Draw:
    return dataclasses.replace(draw, scale=scale)


def scale_draws(factor: float) -> Bug:
    return change_each(lambda draw: [with_scale(draw, draw.scale * factor)], selections=True)


def _one_for_all(draw: Draw) -> list[Draw]:
    """Values that share their noise tell their differences without any."""
    first, others = np.ravel(draw.exact)[:1], np.ravel(draw.exact)[1:]
    return [Draw(draw.kind, first, draw.scale), Draw(draw.kind, others - first, 1e-9)]


DERIVED: dict[str, Bug] = {
    "scale halved": scale_draws(0.5),
    "noise 10 % too small": scale_draws(0.9),
    "cost not composed": change_draws(
        lambda draws: [with_scale(draw, draw.scale / len(draws)) for draw in draws]
    ),
    "sensitivity halved": SENSITIVITY_HALVED,
    "k ignored": plan_with(max_records_per_unit=lambda _: 1),
    "replace-one run with add-remove noise": ADD_REMOVE,
    "empty cells skipped": change_each(
        lambda draw: [Draw(draw.kind, draw.exact[draw.exact != 0], draw.scale)]
    ),
    "one draw for all cells": change_each(_one_for_all),
    "n used as a scale": change_each(
        lambda draw: [with_scale(draw, draw.scale * 20 / max(1, abs(int(draw.exact.sum()))))]
    ),
}


def derived(
    guarantee: Guarantee, *, draws: int, least: float = 0.9, without: Iterable[str] = ()
) -> dict[str, Bug]:
    """The mutants that the price of any mechanism must see.

    Args:
        guarantee: the promise.
        draws: how many there are.
        least: share of the promise that the worst neighbours spend: what wastes more of it can
            lose a tenth of its noise, and keeps its promise.
        without: those that change nothing here.
    """
    left_out, slack = set(without), {}
    if draws == 1:
        left_out.add("cost not composed")
    if least < 0.5:
        left_out |= {"scale halved", "sensitivity halved", "k ignored"}
        left_out.add("replace-one run with add-remove noise")
    if least < 0.9:
        left_out.add("noise 10 % too small")
        slack = {"noise too small by more than its slack": scale_draws(0.95 * least)}
    if guarantee.max_records_per_unit == 1:
        left_out.add("k ignored")
    if guarantee.neighboring is not Neighboring.REPLACE_ONE:
        left_out.add("replace-one run with add-remove noise")
    return {name: bug for name, bug in DERIVED.items() if name not in left_out} | slack


# What the sampler draws.


def scale_noise(factor: float) -> Bug:
    return around(
        noise_module, "_draw", lambda draw, kind, values, scale: draw(kind, values, scale * factor)
    )


def shrink_noise_of(method: str, divisor: int = 2) -> Bug:
    return around(
        NoiseSource, method, lambda draw, self, given, scale: draw(self, given, scale / divisor)
    )


halve_scales, double_scales = scale_noise(0.5), scale_noise(2.0)
share_one_draw = around(
    noise_module,
    "_draw",
    lambda draw, kind, values, scale: values + draw(kind, np.zeros(1, np.int64), scale)[0],
)
skip_empty_cells = both(
    *(
        around(
            NoiseSource,
            kind,
            lambda draw, self, values, scale: np.where(values == 0, 0, draw(self, values, scale)),
        )
        for kind in ("laplace", "gaussian")
    )
)


def draw_once_for_all(patch: Patch) -> None:
    drawn: dict[Any, np.ndarray] = {}

    def mutant(draw: Any, kind: str, values: np.ndarray, scale: float) -> np.ndarray:
        key = (values.shape, scale)
        if key not in drawn:
            drawn[key] = draw(kind, np.zeros_like(values), scale)
        return values + drawn[key]

    around(noise_module, "_draw", mutant)(patch)


# Checks that draw.


def ratio_of(laws: Laws) -> Callable[[Any], float]:
    """Returns the log-likelihood ratio of an outcome under two laws."""
    first, second = laws
    return lambda outcome: round(math.log(first[outcome] / second[outcome]), 6)


def follows(outcomes: Iterable[Any], law: audit.Law) -> Finding:
    """Whether outcomes follow a law: by their relative entropy, for any number of them.

    Of n outcomes of k kinds, P(n D >= x) <= exp(-x) (e x / (k - 1))^(k - 1) for x > k - 1.

    Reference: Agrawal (2020), Finite-sample concentration of the multinomial in relative entropy.
    """
    counts = Counter(outcomes)
    number = sum(counts.values())
    frequent = [each for each, share in law.items() if share * number >= 10]
    expected = [law[each] for each in frequent]
    observed = [counts[each] for each in frequent]
    if len(frequent) < len(law):
        expected.append(sum(share for each, share in law.items() if law[each] * number < 10))
        observed.append(sum(counts[each] for each in law if law[each] * number < 10))
    if any(not law.get(each) for each in counts):
        return Finding(False)
    entropy = sum(
        count * math.log(count / (share * number))
        for count, share in zip(observed, expected, strict=True)
        if count
    )
    freedoms = len(expected) - 1
    assert freedoms >= 1, "there is nothing to compare"
    if entropy <= freedoms:
        return Finding(True)
    exponent = freedoms - entropy + freedoms * math.log(entropy / freedoms)
    return Finding(exponent > math.log(FALSE_ALARM))


def told_apart(sides: Iterable[Any], guarantee: Guarantee, **options: Any) -> Finding:
    """Returns what runs on two neighbours show, by ``audit_black_box`` with its options."""
    limits = guarantee.epsilon, guarantee.delta
    found = audit.audit_black_box(*sides, *limits, false_alarm=FALSE_ALARM, **options)
    numbers = (field.name for field in dataclasses.fields(Finding))
    return Finding(**{name: getattr(found, name) for name in numbers})
