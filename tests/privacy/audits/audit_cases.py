"""The registry: every mechanism under every relation, and the mutants that its audits must catch.

A new mechanism is one line in ``MECHANISMS``. A mutant names the audit and the check that must
catch it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import laplace_bugs
import numpy as np
import run_views
import selection_bugs
from auditing import Audit, Bug, Patch, around, audited, replaced
from run_views import Case, check
from tiny import ADD, PURE, REPLACE, WithPublicRecords, promise

from beam_dp.mechanisms import contract as contract_module, registry as registry_module
from beam_dp.mechanisms.marginals import (
    measure_all as measure_all_module,
    measurements,
    rounds as rounds_module,
    textbook_mwem as textbook_module,
)
from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian, Laplace
from beam_dp.mechanisms.marginals.measurements import Measurement
from beam_dp.mechanisms.marginals.rounds import RoundBudget
from beam_dp.noise import source as noise_module
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.guarantee import Guarantee, Neighboring

UNITS = {ADD: ((3,), ()), REPLACE: ((3,), (0,))}
ONE_ATTRIBUTE: dict[str, Any] = {"sizes": (2,), "base": (6, 6), "num_records": 12}


def case(mechanism: Any, neighboring: str, delta: float, **named: Any) -> Case:
    # So that a few thousand runs see much of it, and would see more if it leaked more.
    epsilon = named.pop("epsilon", 12.0 if delta else 3.0)
    named.setdefault("pair", UNITS[neighboring])
    return Case(mechanism, promise(neighboring, delta, epsilon), **named)


def both(mechanism: Any, delta: float, run_under: str | None = None, **named: Any) -> list[Case]:
    """A mechanism under both relations; ``run_under``: the only one under which it is run.

    No code that draws asks for the relation: it sets scales of a plan, priced exactly under both.
    """
    cases = []
    for relation in (ADD, REPLACE):
        told = dict(named)
        if named.get("sizes") == (2,):
            told["pair"] = ((1,), ()) if relation == ADD else ((1,), (0,))
        if run_under not in (None, relation):
            told["checks"] = tuple(each for each in told["checks"] if each != "black box")
        cases.append(case(mechanism, relation, delta, **told))
    return cases


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
TRIPLES = {**CHECKED, "sizes": (2, 2, 2, 2), "ways": 3, "base": (3, 0, 1, 4, 0, 2, 5, 0) * 2}
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
    "mwem annealed": both(MWEM(num_rounds="annealed"), PURE, ADD, **ANNEALED),
    "mwem annealed, delta": both(MWEM(num_rounds="annealed"), DELTA, REPLACE, **ANNEALED),
    "mwem selection": both(MWEM(), DELTA, ADD, **OVER_A_TREE),
    "mwem selection, noisy total": [case(MWEM(), ADD, DELTA, **OVER_A_TREE, **NOISY)],
    "mwem selection, public records": both(WithPublicRecords(), DELTA, REPLACE, **OVER_A_TREE),
    "mwem selection, checked": both(MWEM(), DELTA, **CHECKED),
    "mwem selection, triples": [case(MWEM(), ADD, DELTA, **TRIPLES)],
    "mwem rounds over a tree": both(
        MWEM(num_rounds=2), PURE, ADD, **IN_ONE_ROUND, **{**OVER_A_TREE, "runs": 1600}
    ),
    "mwem rounds over a tree, delta": both(MWEM(num_rounds=2), DELTA, **PRICE_OF_A_TREE),
    "mwem textbook": both(
        TEXTBOOK, PURE, epsilon=4.0, single=ONE_CELL, least_law=0.4, base=EVEN, runs=2500
    ),
    "mwem textbook, delta": both(
        TEXTBOOK, DELTA, epsilon=16.0, single=ONE_CELL, base=EVEN, runs=3000
    ),
}


def unchecked(apply: Bug) -> Bug:
    """The same bug in a plan that is not checked: the audit must see it on its own."""

    def mutate(patch: Patch) -> None:
        for module in (contract_module, registry_module):
            patch.setattr(module, "check_promise", lambda plan, guarantee: None)
        apply(patch)

    return mutate


def plan_with(**changes: Callable[[Any], Any]) -> Bug:
    """Plans are made for another guarantee, whose changed values follow from the true ones."""

    def planned(guarantee: Guarantee) -> Guarantee:
        changed = {name: change(getattr(guarantee, name)) for name, change in changes.items()}
        return dataclasses.replace(guarantee, **changed)

    return replaced(run_views, "planned_for", planned)


def scale_noise(factor: float) -> Bug:
    return around(
        noise_module, "_draw", lambda draw, kind, values, scale: draw(kind, values, scale * factor)
    )


halve_scales, double_scales = scale_noise(0.5), scale_noise(2.0)
share_one_draw = around(
    noise_module,
    "_draw",
    lambda draw, kind, values, scale: values + draw(kind, np.zeros(1, np.int64), scale)[0],
)


def draw_once_for_all(patch: Patch) -> None:
    drawn: dict[Any, np.ndarray] = {}

    def mutant(draw: Any, kind: str, values: np.ndarray, scale: float) -> np.ndarray:
        key = (values.shape, scale)
        if key not in drawn:
            drawn[key] = draw(kind, np.zeros_like(values), scale)
        return values + drawn[key]

    around(noise_module, "_draw", mutant)(patch)


def skip_empty_cells(patch: Patch) -> None:
    for kind in ("laplace", "gaussian"):
        around(
            NoiseSource,
            kind,
            lambda draw, self, values, scale: np.where(values == 0, 0, draw(self, values, scale)),
        )(patch)


def _scaled_by_size(draw: Any, self: Measurement, marginals: Any, noise: NoiseSource) -> Any:
    number = int(marginals.marginal(self.names).sum())
    scaled = dataclasses.replace(self, scale=self.scale * 20 / max(number, 1))
    return draw(scaled, marginals, noise)


scale_by_size = around(Measurement, "draw", _scaled_by_size)


def scaled_fields(found: Any, factors: dict[str, float]) -> Any:
    """Returns a dataclass with some of its numbers multiplied."""
    scaled = {name: getattr(found, name) * factor for name, factor in factors.items()}
    return dataclasses.replace(found, **scaled)


def change_budget(selection: str | None = None, /, **factors: float) -> Bug:
    """Another budget of a round: its scales multiplied, or another selection."""

    def mutant(original: Any, *given: Any) -> RoundBudget:
        budget = scaled_fields(original(*given), factors)
        return dataclasses.replace(budget, selection=selection or budget.selection)

    return around(rounds_module, "round_budget", mutant)


def scale_selection(factor: float) -> Bug:
    return around(
        NoiseSource,
        "select",
        lambda select, self, scores, scale: select(self, scores, scale * factor),
    )


sharpen_selection, blur_selection = scale_selection(1 / 8), scale_selection(2.0)


def multiply(place: Any, name: str, factor: float | Fraction) -> Bug:
    return around(place, name, lambda original, *given: factor * original(*given))


SENSITIVITY_HALVED = plan_with(epsilon=lambda epsilon: 2 * epsilon)
ADD_REMOVE = plan_with(neighboring=lambda _: Neighboring.ADD_OR_REMOVE_ONE)
HALF_FORGOTTEN = change_budget(selection_scale=1 / 2)
TOTAL_FOR_FREE = around(
    rounds_module,
    "round_budget",
    lambda original, *given: dataclasses.replace(original(*given), total_scale=1.0),
)
TEXTBOOK_HALF_FORGOTTEN = around(
    measure_all_module,
    "plan_textbook",
    lambda original, *given: scaled_fields(original(*given), {"selection_scale": 1 / 2}),
)
ADD_REMOVE_NORMS = around(
    measurements,
    "residual_sensitivity",
    lambda original, *given: original(*given[:3], Neighboring.ADD_OR_REMOVE_ONE),
)
LEAVE_A_ROUND_OUT = around(
    rounds_module,
    "round_budget",
    lambda original, guarantee, num_units, public: original(
        guarantee, max(1, num_units - 1), public
    ),
)
CHEAPER_UNITS = around(
    RoundBudget, "of_round", lambda original, self, units: original(self, 2 * units)
)


def bugs_of(name: str, each: Case) -> tuple[dict[str, dict[str, Bug]], dict[str, Bug]]:
    """The bugs that this mechanism could have, by check, and those that blind its audit."""
    delta = each.guarantee.delta
    replaces = each.guarantee.neighboring is Neighboring.REPLACE_ONE
    price, runs, blinding = {"sensitivity halved": SENSITIVITY_HALVED}, dict[str, Bug](), {}
    if replaces and not name.startswith("mwem textbook"):  # whose queries move by 1 either way
        price["replace-one run with add-remove noise"] = ADD_REMOVE
    if "black box" in each.checks and not name.startswith("mwem annealed"):
        runs["noise scale halved in the sampler"] = halve_scales
    if name in ("laplace", "gaussian textbook"):
        blinding["noise doubled in the sampler"] = double_scales
    if name in ("laplace", "laplace textbook", "gaussian", "gaussian textbook"):
        price["n used as a scale"] = scale_by_size
    if name == "laplace, weights":
        price["shares of tables that add up to more"] = laplace_bugs.share_too_much
    if name in ("laplace", "laplace textbook"):
        # A few thousand runs refute an epsilon of 3 outright; the 12 of Gaussian noise they cannot.
        runs["one draw for all runs"] = draw_once_for_all
        runs["empty cells skipped"] = skip_empty_cells
        if replaces:
            runs["one draw for all cells"] = share_one_draw
    if name.startswith("gaussian") and "textbook" not in name:
        price["mu a tenth too large"] = multiply(measurements, "discrete_gaussian_mu", 1.1)
        if replaces:
            price["residuals of a replacement with add-remove norms"] = ADD_REMOVE_NORMS
    if name.startswith("mwem selection"):
        price |= selection_bugs.PRICED
    if name == "mwem selection, public records":
        price |= selection_bugs.PRIOR
    if name == "mwem selection, checked":
        for bug, apply in selection_bugs.CHECK.items():
            # A replacement that moves all that is measured the most moves what is added less.
            if not (replaces and bug.startswith("added")):
                price[bug] = apply
    if name.startswith("mwem rounds over a tree"):
        price["monotone factor assumed"] = HALF_FORGOTTEN
        price["a round not charged"] = LEAVE_A_ROUND_OUT
    elif name.startswith("mwem rounds"):
        price["factor 1/2 of the selection forgotten"] = HALF_FORGOTTEN
    if name.startswith("mwem rounds"):
        if "noisy" in name:
            price["total for free"] = TOTAL_FOR_FREE
        else:
            price["rounds that do not share the budget"] = change_budget(
                selection_scale=1 / 2, measurement_scale=1 / 2
            )
        if delta:
            # sqrt(rho / 2) of the exponential mechanism, in place of the proved mu: 0.8 times it.
            price["mu of a selection taken from its rho"] = change_budget(selection_scale=4 / 5)
            flipped = change_budget("permute_and_flip")
            price["permute-and-flip priced as if its range were bounded"] = flipped
        if replaces and delta:
            forgotten = change_budget(measurement_scale=1 / math.sqrt(2))
            price["root 2 of a replacement forgotten"] = forgotten
    if name.startswith("mwem annealed"):
        price["rounds that cost less than they spend"] = CHEAPER_UNITS
    if name.startswith("mwem textbook"):
        price["factor 1/2 of the selection forgotten"] = TEXTBOOK_HALF_FORGOTTEN
        if delta:
            price["rho twice as large"] = multiply(textbook_module, "zcdp_rho", 2.0)
        else:
            runs["selection noise an eighth in the sampler"] = sharpen_selection
    return {"price": price, "black box": runs}, blinding


def audits() -> list[Audit]:
    found = []
    for name, each in ((name, each) for name, cases in MECHANISMS.items() for each in cases):
        checks = {what: functools.partial(check, what) for what in each.checks}
        bugs, blinding = bugs_of(name, each)
        found.append(audited(name, each.guarantee, checks, bugs, each, blinding=blinding))
    return found
