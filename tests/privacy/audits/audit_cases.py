"""The registry: every mechanism under every relation, and the mutants that its audits must catch.

A new mechanism is one line in ``MECHANISMS``. A mutant names the audit and the check that must
catch it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import audit_views
import laplace_bugs
import numpy as np
import pytest
import selection_bugs
from audit_views import CHECKS, Case, Finding, promised
from tiny import ADD, PURE, REPLACE

from beam_dp.mechanisms import contract as contract_module, registry as registry_module
from beam_dp.mechanisms.marginals import (
    measure_all as measure_all_module,
    measurements,
    rounds as rounds_module,
    textbook_mwem as textbook_module,
)
from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian, Laplace
from beam_dp.mechanisms.marginals.measurements import Measurement
from beam_dp.mechanisms.marginals.rounds import RoundBudget, round_budget
from beam_dp.noise import source as noise_module
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.guarantee import Guarantee, Neighboring

Patch = pytest.MonkeyPatch


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A deliberate bug, and the check that must fail while it is in.

    One that ``blinds`` leaks too little instead of too much: the check must say that it is blind.
    """

    apply: Callable[[Patch], None]
    caught_by: str
    blinds: bool = False


@dataclasses.dataclass(frozen=True)
class Audit:
    """All checks of one mechanism under one relation."""

    mechanism: str
    guarantee: Guarantee
    checks: dict[str, Callable[[], Finding]]
    mutants: dict[str, Mutant]


UNITS = {ADD: ((3,), ()), REPLACE: ((3,), (0,))}
ONE_ATTRIBUTE: dict[str, Any] = {"sizes": (2,), "base": (6, 6), "num_records": 12}


def case(mechanism: Any, neighboring: str, delta: float, **named: Any) -> Case:
    # So that a few thousand runs see much of it, and would see more if it leaked more.
    epsilon = named.pop("epsilon", 12.0 if delta else 3.0)
    named.setdefault("pair", UNITS[neighboring])
    return Case(mechanism, promised(neighboring, delta, epsilon), **named)


def both(mechanism: Any, delta: float, **named: Any) -> list[Case]:
    if named.get("sizes") == (2,):
        return [
            case(mechanism, ADD, delta, **named, pair=((1,), ())),
            case(mechanism, REPLACE, delta, **named, pair=((1,), (0,))),
        ]
    return [case(mechanism, relation, delta, **named) for relation in (ADD, REPLACE)]


NO_LAW = ("price", "black box")
DELTA = 1e-6
TEXTBOOK = MWEM(num_rounds=2, calibration="textbook")
ONE_CELL = MWEM(num_rounds=1, calibration="textbook")
IN_ONE_ROUND: dict[str, Any] = {"single": MWEM(num_rounds=1)}
# Its hypothesis never learns there, so that it anneals as fast as it can; the price lets it learn.
ANNEALED: dict[str, Any] = {
    "single": MWEM(num_rounds="annealed"),
    "adaptive": True,
    "checks": NO_LAW,
    "runs": 1200,
    "least_share": 0.8,
    **ONE_ATTRIBUTE,
}
# All cells are equally wrong, so that one record decides which of them a selection prefers.
EVEN = (3, 4, 4, 3)
NOISY: dict[str, Any] = {"num_records": "noisy"}
# Of three pairs two fit.
OVER_A_TREE: dict[str, Any] = {
    "sizes": (3, 2, 2),
    "ways": 2,
    "tree_cells": 10,
    "base": (60, 1) + (0,) * 10,
    "checks": NO_LAW,
    "runs": 800,
}
PRICE_OF_A_TREE = {**OVER_A_TREE, "checks": ("price",)}
# All pairs are left out, and some are closer to the fit with a record that others are farther with.
CHECKED = {
    **PRICE_OF_A_TREE,
    "base": tuple(selection_bugs.EITHER_WAY.tolist()),
    "high": selection_bugs.LOW_SCORES,
}
MECHANISMS: dict[str, list[Case]] = {
    "laplace": both(Laplace(), PURE),
    "laplace, weights": both(Laplace(), PURE, weights=(1.0, 40.0), sizes=(4, 2), base=(12, 5) * 4),
    "laplace textbook": both(Laplace("textbook"), PURE, runs=5000),
    "laplace, noisy total": [case(Laplace(), ADD, PURE, **NOISY)],
    "gaussian": both(Gaussian(), DELTA, checks=NO_LAW, runs=4000),
    "gaussian textbook": both(Gaussian("textbook"), DELTA, least_share=0.6, runs=4000),
    "gaussian, noisy total": [case(Gaussian(), ADD, DELTA, checks=NO_LAW, runs=4000, **NOISY)],
    "mwem": both(MWEM(), PURE),
    "mwem, delta": both(MWEM(), DELTA, checks=NO_LAW, epsilon=4.0),
    "mwem rounds": both(MWEM(num_rounds=2), PURE, **IN_ONE_ROUND),
    "mwem rounds, delta": both(MWEM(num_rounds=2), DELTA, epsilon=16.0, runs=3000, **IN_ONE_ROUND),
    "mwem rounds, noisy total": [
        case(
            MWEM(num_rounds=1),
            ADD,
            PURE,
            checks=NO_LAW,
            adaptive=True,
            runs=800,
            **IN_ONE_ROUND,
            **NOISY,
        )
    ],
    "mwem annealed": both(MWEM(num_rounds="annealed"), PURE, **ANNEALED),
    "mwem annealed, delta": both(MWEM(num_rounds="annealed"), DELTA, **ANNEALED),
    "mwem selection": both(MWEM(), DELTA, **OVER_A_TREE),
    "mwem selection, noisy total": [case(MWEM(), ADD, DELTA, **OVER_A_TREE, **NOISY)],
    "mwem selection, checked": both(MWEM(), DELTA, **CHECKED),
    "mwem rounds over a tree": both(
        MWEM(num_rounds=2), PURE, **IN_ONE_ROUND, **{**OVER_A_TREE, "runs": 1600}
    ),
    "mwem rounds over a tree, delta": both(MWEM(num_rounds=2), DELTA, **PRICE_OF_A_TREE),
    "mwem textbook": both(
        TEXTBOOK, PURE, epsilon=4.0, single=ONE_CELL, least_law=0.4, base=EVEN, runs=2500
    ),
    "mwem textbook, delta": both(
        TEXTBOOK, DELTA, epsilon=16.0, single=ONE_CELL, base=EVEN, runs=3000
    ),
}


def unchecked(apply: Callable[[Patch], None]) -> Callable[[Patch], None]:
    """The same bug in a plan that nobody checks: the audit must see it on its own."""

    def mutate(patch: Patch) -> None:
        for module in (contract_module, registry_module):
            patch.setattr(module, "check_promise", lambda plan, guarantee: None)
        apply(patch)

    return mutate


def plan_with(change: Callable[[Guarantee], Guarantee]) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(audit_views, "planned_for", change)


def scale_noise(factor: float) -> Callable[[Patch], None]:
    def mutate(patch: Patch) -> None:
        original = noise_module._draw
        patch.setattr(
            noise_module,
            "_draw",
            lambda kind, values, scale: original(kind, values, scale * factor),
        )

    return mutate


halve_scales, double_scales = scale_noise(0.5), scale_noise(2.0)


def share_one_draw(patch: Patch) -> None:
    original = noise_module._draw

    def mutant(kind: str, values: np.ndarray, scale: float) -> np.ndarray:
        return values + original(kind, np.zeros(1, np.int64), scale)[0]

    patch.setattr(noise_module, "_draw", mutant)


def draw_once_for_all(patch: Patch) -> None:
    original, drawn = noise_module._draw, {}

    def mutant(kind: str, values: np.ndarray, scale: float) -> np.ndarray:
        key = (values.shape, scale)
        if key not in drawn:
            drawn[key] = original(kind, np.zeros_like(values), scale)
        return values + drawn[key]

    patch.setattr(noise_module, "_draw", mutant)


def skip_empty_cells(patch: Patch) -> None:
    for kind in ("laplace", "gaussian"):
        original = getattr(NoiseSource, kind)

        def mutant(self: Any, values: Any, scale: float, original: Any = original) -> Any:
            return np.where(values == 0, 0, original(self, values, scale))

        patch.setattr(NoiseSource, kind, mutant)


def scale_by_size(patch: Patch) -> None:
    original = Measurement.draw

    def mutant(self: Measurement, marginals: Any, noise: NoiseSource) -> Any:
        number = int(marginals.marginal(self.names).sum())
        return original(
            dataclasses.replace(self, scale=self.scale * 20 / max(number, 1)), marginals, noise
        )

    patch.setattr(Measurement, "draw", mutant)


def change_budget(change: Callable[[RoundBudget], dict[str, Any]]) -> Callable[[Patch], None]:
    def mutant(*arguments: Any) -> RoundBudget:
        budget = round_budget(*arguments)
        return dataclasses.replace(budget, **change(budget))

    return lambda patch: patch.setattr(rounds_module, "round_budget", mutant)


def forget_half_in_textbook(patch: Patch) -> None:
    original = measure_all_module.plan_textbook

    def mutant(*arguments: Any) -> Any:
        plan = original(*arguments)
        return dataclasses.replace(plan, selection_scale=plan.selection_scale / 2)

    patch.setattr(measure_all_module, "plan_textbook", mutant)


def scale_selection(factor: float) -> Callable[[Patch], None]:
    def mutate(patch: Patch) -> None:
        original = NoiseSource.select
        patch.setattr(
            NoiseSource,
            "select",
            lambda self, scores, scale: original(self, scores, scale * factor),
        )

    return mutate


sharpen_selection, blur_selection = scale_selection(1 / 8), scale_selection(2.0)


def multiply(place: Any, name: str, factor: float | Fraction) -> Callable[[Patch], None]:
    original = getattr(place, name)
    return lambda patch: patch.setattr(place, name, lambda *given: factor * original(*given))


def add_remove_norms(patch: Patch) -> None:
    original = measurements.residual_sensitivity
    patch.setattr(
        measurements,
        "residual_sensitivity",
        lambda domain, supports, precisions, _: original(
            domain, supports, precisions, Neighboring.ADD_OR_REMOVE_ONE
        ),
    )


def leave_a_round_out(patch: Patch) -> None:
    patch.setattr(
        rounds_module,
        "round_budget",
        lambda guarantee, num_units, public: round_budget(guarantee, max(1, num_units - 1), public),
    )


def cheaper_units(patch: Patch) -> None:
    original = RoundBudget.of_round
    patch.setattr(RoundBudget, "of_round", lambda self, units: original(self, 2 * units))


SENSITIVITY_HALVED = plan_with(lambda each: dataclasses.replace(each, epsilon=2 * each.epsilon))
ADD_REMOVE = plan_with(
    lambda each: dataclasses.replace(each, neighboring=Neighboring.ADD_OR_REMOVE_ONE)
)
ROUNDS_SHARE_NOTHING = change_budget(
    lambda budget: {
        "selection_scale": budget.selection_scale / 2,
        "measurement_scale": budget.measurement_scale / 2,
    }
)
HALF_FORGOTTEN = change_budget(lambda budget: {"selection_scale": budget.selection_scale / 2})
FLIPPED = change_budget(lambda budget: {"selection": "permute_and_flip"})
ROOT_FORGOTTEN = change_budget(
    lambda budget: {"measurement_scale": budget.measurement_scale / math.sqrt(2)}
)
# sqrt(rho / 2) of the exponential mechanism, in place of the mu that is proved: 0.8 times as much.
MU_FROM_RHO = change_budget(lambda budget: {"selection_scale": budget.selection_scale * 4 / 5})
TOTAL_FOR_FREE = change_budget(lambda budget: {"total_scale": 1.0})


def mutants_of(name: str, each: Case) -> dict[str, Mutant]:
    """The bugs that this mechanism could have."""
    replaces = each.guarantee.neighboring is Neighboring.REPLACE_ONE
    found = {"sensitivity halved": Mutant(SENSITIVITY_HALVED, "price")}
    if replaces and not name.startswith("mwem textbook"):  # whose queries move by 1 either way
        found["replace-one run with add-remove noise"] = Mutant(ADD_REMOVE, "price")
    if "black box" in each.checks and not name.startswith("mwem annealed"):
        found["noise scale halved in the sampler"] = Mutant(halve_scales, "black box")
    if name in ("laplace", "gaussian textbook"):
        found["noise doubled in the sampler"] = Mutant(double_scales, "black box", blinds=True)
    if name in ("laplace", "laplace textbook", "gaussian", "gaussian textbook"):
        found["n used as a scale"] = Mutant(scale_by_size, "price")
    if name == "laplace, weights":
        found["shares of tables that add up to more"] = Mutant(laplace_bugs.share_too_much, "price")
    if name in ("laplace", "laplace textbook"):
        # A few thousand runs refute an epsilon of 3 outright; the 12 of Gaussian noise they cannot.
        found["one draw for all runs"] = Mutant(draw_once_for_all, "black box")
        found["empty cells skipped"] = Mutant(skip_empty_cells, "black box")
        if replaces:
            found["one draw for all cells"] = Mutant(share_one_draw, "black box")
    if name.startswith("gaussian") and "textbook" not in name:
        found["mu a tenth too large"] = Mutant(
            multiply(measurements, "discrete_gaussian_mu", 1.1), "price"
        )
        if replaces:
            found["residuals of a replacement with add-remove norms"] = Mutant(
                add_remove_norms, "price"
            )
    if name.startswith("mwem selection"):
        for bug, apply in selection_bugs.PRICED.items():
            found[bug] = Mutant(apply, "price")
    if name == "mwem selection, checked":
        for bug, apply in selection_bugs.CHECK.items():
            # A replacement that moves all that is measured the most moves what is added less.
            if not (replaces and bug.startswith("added")):
                found[bug] = Mutant(apply, "price")
    if name.startswith("mwem rounds over a tree"):
        found["monotone factor assumed"] = Mutant(HALF_FORGOTTEN, "price")
        found["a round not charged"] = Mutant(leave_a_round_out, "price")
    elif name.startswith("mwem rounds"):
        found["factor 1/2 of the selection forgotten"] = Mutant(HALF_FORGOTTEN, "price")
    if name.startswith("mwem rounds"):
        if "noisy" in name:
            found["total for free"] = Mutant(TOTAL_FOR_FREE, "price")
        else:
            found["rounds that do not share the budget"] = Mutant(ROUNDS_SHARE_NOTHING, "price")
        if each.guarantee.delta:
            found["mu of a selection taken from its rho"] = Mutant(MU_FROM_RHO, "price")
            found["permute-and-flip priced as if its range were bounded"] = Mutant(FLIPPED, "price")
        if replaces and each.guarantee.delta:
            found["root 2 of a replacement forgotten"] = Mutant(ROOT_FORGOTTEN, "price")
    if name.startswith("mwem annealed"):
        found["rounds that cost less than they spend"] = Mutant(cheaper_units, "price")
    if name.startswith("mwem textbook"):
        found["factor 1/2 of the selection forgotten"] = Mutant(forget_half_in_textbook, "price")
        if each.guarantee.delta:
            found["rho twice as large"] = Mutant(
                multiply(textbook_module, "zcdp_rho", 2.0), "price"
            )
        else:
            found["selection noise an eighth in the sampler"] = Mutant(
                sharpen_selection, "black box"
            )
    return found


def mechanism_audits() -> list[Audit]:
    return [
        Audit(
            name,
            each.guarantee,
            {check: lambda each=each, check=check: CHECKS[check](each) for check in each.checks},
            mutants_of(name, each),
        )
        for name, cases in MECHANISMS.items()
        for each in cases
    ]
