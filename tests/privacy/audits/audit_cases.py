"""The registry: every mechanism under every relation, and the mutants that its audits must catch.

A new mechanism is one line in ``MECHANISMS``. The usual mutants follow from it; the odd ones stand
here. A mutant names the audit and the check that must catch it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import selection_bugs
from auditing import (
    DELTA,
    DOUBLED,
    HALVED,
    Audit,
    Bug,
    around,
    audited,
    derived,
    draw_once_for_all,
    multiply,
    replaced,
    scale_selection,
    scaled_fields,
    share_one_draw,
    skip_empty_cells,
)
from run_views import Case, check
from tiny import ADD, PURE, REPLACE, WithPublicRecords, promise

from beam_dp.mechanisms.marginals import (
    measure_all as measure_all_module,
    measurements,
    rounds as rounds_module,
    selection as selection_module,
    textbook_mwem as textbook_module,
)
from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian, Laplace
from beam_dp.mechanisms.marginals.measurements import Measurement
from beam_dp.mechanisms.marginals.rounds import RoundBudget
from beam_dp.privacy.guarantee import Neighboring

UNITS = {ADD: ((3,), ()), REPLACE: ((3,), (0,))}
ONE_ATTRIBUTE: dict[str, Any] = {"sizes": (2,), "base": (6, 6), "num_records": 12}


def case(mechanism: Any, neighboring: str, delta: float, **named: Any) -> Case:
    # So that a few thousand runs see much of it, and would see more if it leaked more.
    epsilon, most = named.pop("epsilon", 12.0 if delta else 3.0), named.pop("most", 1)
    named.setdefault("pair", UNITS[neighboring])
    return Case(mechanism, promise(neighboring, delta, epsilon, most), **named)


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
TEXTBOOK = MWEM(num_rounds=2, calibration="textbook")
ONE_CELL = MWEM(num_rounds=1, calibration="textbook")
IN_ONE_ROUND: dict[str, Any] = {"single": MWEM(num_rounds=1)}
# Its hypothesis never learns there, so that it anneals as fast as it can; the price lets it learn.
ANNEALED: dict[str, Any] = {
    "single": MWEM(num_rounds="annealed"),
    "adaptive": True,
    "checks": NO_LAW,
    "runs": 1800,
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
    "is_dear": True,
    "runs": 1600,
}
PRICE_OF_A_TREE = {**OVER_A_TREE, "checks": ("price",)}
# All pairs are left out, and some are closer to the fit with a record that others are farther with.
CHECKED = {
    **PRICE_OF_A_TREE,
    "base": tuple(selection_bugs.EITHER_WAY.tolist()),
    "high": selection_bugs.LOW_SCORES,
}
TWO_EACH: dict[str, Any] = {"most": 2, "epsilon": 1.0, "checks": ("price",)}
TWO_OVER_A_TREE = {**PRICE_OF_A_TREE, **TWO_EACH, "sizes": (2, 2, 2), "tree_cells": 6}
TWO_OVER_A_TREE["base"] = (60, 1) + (0,) * 6
TRIPLES = {**CHECKED, "sizes": (2, 2, 2, 2), "ways": 3, "base": (3, 0, 1, 4, 0, 2, 5, 0) * 2}
MECHANISMS: dict[str, list[Case]] = {
    "laplace": both(Laplace(), PURE),
    "laplace, weights": both(
        Laplace(), PURE, weights=(1.0, 40.0), sizes=(4, 2), base=(12, 5) * 4, runs=8000
    ),
    "laplace textbook": both(Laplace("textbook"), PURE, runs=7500),
    "laplace, noisy total": [case(Laplace(), ADD, PURE, **NOISY)],
    "gaussian": both(Gaussian(), DELTA, checks=NO_LAW, runs=6000),
    "gaussian textbook": both(Gaussian("textbook"), DELTA, least_share=0.6, runs=8000),
    "gaussian, noisy total": [case(Gaussian(), ADD, DELTA, checks=NO_LAW, runs=6000, **NOISY)],
    "mwem": both(MWEM(), PURE),
    "mwem, delta": both(MWEM(), DELTA, checks=NO_LAW, epsilon=4.0),
    "mwem rounds": both(MWEM(num_rounds=2), PURE, runs=3000, **IN_ONE_ROUND),
    "mwem rounds, delta": both(MWEM(num_rounds=2), DELTA, epsilon=16.0, runs=4500, **IN_ONE_ROUND),
    "mwem rounds, noisy total": [
        case(
            MWEM(num_rounds=1),
            ADD,
            PURE,
            checks=NO_LAW,
            adaptive=True,
            runs=1000,
            **IN_ONE_ROUND,
            **NOISY,
        )
    ],
    "mwem annealed": both(MWEM(num_rounds="annealed"), PURE, ADD, **ANNEALED),
    "mwem annealed, delta": both(MWEM(num_rounds="annealed"), DELTA, REPLACE, **ANNEALED),
    "mwem selection": [
        case(MWEM(), ADD, DELTA, **{**OVER_A_TREE, "is_dear": False}),
        case(MWEM(), REPLACE, DELTA, **PRICE_OF_A_TREE),
    ],
    "mwem selection, noisy total": [case(MWEM(), ADD, DELTA, **OVER_A_TREE, **NOISY)],
    "mwem selection, public records": both(WithPublicRecords(), DELTA, REPLACE, **OVER_A_TREE),
    "mwem selection, checked": both(MWEM(), DELTA, **CHECKED),
    "mwem selection, triples": [case(MWEM(), ADD, DELTA, **TRIPLES)],
    "mwem rounds over a tree": both(MWEM(num_rounds=2), PURE, ADD, **IN_ONE_ROUND, **OVER_A_TREE),
    "mwem rounds over a tree, delta": both(MWEM(num_rounds=2), DELTA, **PRICE_OF_A_TREE),
    "mwem annealed over a tree": [case(MWEM("annealed"), ADD, PURE, **PRICE_OF_A_TREE)],
    "gaussian, pairs": [case(Gaussian(), ADD, DELTA, epsilon=8.0, ways=2, checks=("price",))],
    **{
        f"{name}, two records a unit": both(mechanism, DELTA, **TWO_EACH)
        for name, mechanism in (
            ("mwem", MWEM()),
            ("gaussian", Gaussian()),
            ("gaussian textbook", Gaussian("textbook")),
            ("laplace", Laplace()),
            ("mwem rounds", MWEM(num_rounds=2)),
            ("mwem textbook", TEXTBOOK),
        )
    },
    "mwem selection, two records a unit": both(MWEM(), DELTA, **TWO_OVER_A_TREE),
    "mwem rounds over a tree, two records a unit": both(
        MWEM(num_rounds=2), DELTA, **TWO_OVER_A_TREE
    ),
    "mwem textbook": both(
        TEXTBOOK, PURE, epsilon=4.0, single=ONE_CELL, least_law=0.4, base=EVEN, runs=3750
    ),
    "mwem textbook, delta": both(
        TEXTBOOK, DELTA, epsilon=16.0, single=ONE_CELL, base=EVEN, runs=4500
    ),
}


def change_budget(selection: str | None = None, /, **factors: float) -> Bug:
    """Another budget of a round: its scales multiplied, or another selection."""

    def mutant(original: Any, *given: Any) -> RoundBudget:
        budget = scaled_fields(original(*given), **factors)
        return dataclasses.replace(budget, selection=selection or budget.selection)

    return around(rounds_module, "round_budget", mutant)


HALF_FORGOTTEN = change_budget(selection_scale=1 / 2)
TOTAL_FOR_FREE = around(
    rounds_module,
    "round_budget",
    lambda original, *given: dataclasses.replace(original(*given), total_scale=1.0),
)
TEXTBOOK_HALF_FORGOTTEN = around(
    measure_all_module,
    "plan_textbook",
    lambda original, *given: scaled_fields(original(*given), selection_scale=1 / 2),
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


def _analytic(domain: Any, support: tuple[int, ...], deviation: float) -> Measurement:
    """Analytic sigma for discrete noise on the coarsest grid."""
    cells = math.prod(domain.shape[axis] for axis in support)
    names = tuple(domain.names[axis] for axis in support)
    return Measurement(names, "residual", "discrete_gaussian", deviation * cells, cells)


def _share_too_much(original: Any, tables: Any, guarantee: Any, shares: Any = None) -> Any:
    """Every Laplace table is given its share of what the one with the largest should get."""
    found = original(tables, guarantee, shares)
    least, equal = min(each.scale for each in found), original(tables, guarantee)[0].scale
    return tuple(dataclasses.replace(each, scale=each.scale * least / equal) for each in found)


def _total_beside(original: Any, workload: Any, supports: Any, guarantee: Any, mu: float) -> Any:
    """The noisy total is measured in addition to attributes that spend their whole share."""
    alone = [each for each in supports if each]
    found = original(workload, alone, guarantee, mu)
    return found + original(workload, [()], guarantee, mu) if () in supports else found


def of_selection(name: str, replaces: bool) -> dict[str, Bug]:
    """Bugs in the choice of pairs, which its price must see."""
    found = dict(selection_bugs.PRICED)
    if name == "mwem selection, noisy total":
        found["total of a selection for free"] = around(
            selection_module, "residual_measurements", _total_beside
        )
    if name == "mwem selection, public records":
        found |= selection_bugs.PRIOR
    if name == "mwem selection, checked":
        # A replacement that moves all that is measured the most moves what is added less.
        found |= {
            bug: apply
            for bug, apply in selection_bugs.CHECK.items()
            if not (replaces and bug.startswith("added"))
        }
    return found


def of_rounds(name: str, delta: float, replaces: bool) -> dict[str, Bug]:
    """Bugs in the budget of rounds, which its price must see."""
    found = {"factor 1/2 of the selection forgotten": HALF_FORGOTTEN}
    if "tree" in name:
        found["a round not charged"] = LEAVE_A_ROUND_OUT
    if "noisy" in name:
        found["total for free"] = TOTAL_FOR_FREE
    if delta and "tree" not in name:
        # sqrt(rho / 2) of the exponential mechanism, in place of the proved mu: 0.8 times it.
        found["mu of a selection taken from its rho"] = change_budget(selection_scale=4 / 5)
        flipped = change_budget("permute_and_flip")
        found["permute-and-flip priced as if its range were bounded"] = flipped
        if replaces:
            found["root 2 of a replacement forgotten"] = change_budget(
                measurement_scale=math.sqrt(1 / 2)
            )
            found["measurements off their grid"] = change_budget(grid=2)
    return found


def odd_bugs(name: str, delta: float, replaces: bool) -> dict[str, Bug]:
    """The bugs that only this mechanism could have, which its price must see."""
    found: dict[str, Bug] = {}
    if name == "laplace":
        found["counts without noise"] = replaced(
            Measurement, "draw", lambda self, marginals, _: marginals.marginal(self.names) / 1.0
        )
    if name == "laplace, weights":
        found["shares of tables that add up to more"] = around(
            measurements, "table_strategy", _share_too_much
        )
    if name.startswith("gaussian") and "textbook" not in name:
        found["mu a tenth too large"] = multiply(measurements, "discrete_gaussian_mu", 1.1)
        found["residual sensitivity halved"] = multiply(measurements, "residual_sensitivity", 0.5)
        if replaces:
            found["residuals of a replacement with add-remove norms"] = ADD_REMOVE_NORMS
    if name == "gaussian, pairs":
        found["residual norm of one attribute forgotten"] = multiply(
            measurements, "residual_norm", 0.8
        )
        found["noise not on the grid of the query"] = around(
            measurements, "residual_query", lambda query, table, grid: query(table, 2 * grid)
        )
        found["analytic sigma on the coarsest grid"] = replaced(
            measurements, "_residual_measurement", _analytic
        )
    if name.startswith("mwem selection"):
        found |= of_selection(name, replaces)
    if name.startswith("mwem rounds"):
        found |= of_rounds(name, delta, replaces)
    if name.startswith("mwem annealed"):
        found["rounds that cost less than they spend"] = CHEAPER_UNITS
    if name.startswith("mwem textbook"):
        found["factor 1/2 of the selection forgotten"] = TEXTBOOK_HALF_FORGOTTEN
        if delta:
            found["rho twice as large"] = multiply(textbook_module, "zcdp_rho", 2.0)
    return found


def bugs_of_runs(name: str, each: Case) -> dict[str, Bug]:
    """The bugs that whole runs must see."""
    if "black box" not in each.checks or name.startswith("mwem annealed"):
        return {}
    found = dict(HALVED)
    if name in ("laplace", "laplace textbook"):
        # A few thousand runs refute an epsilon of 3 outright; the 12 of Gaussian noise they cannot.
        found["one draw for all runs"] = draw_once_for_all
        found["empty cells skipped in the sampler"] = skip_empty_cells
        if each.guarantee.neighboring is Neighboring.REPLACE_ONE:
            found["one draw for all cells in the sampler"] = share_one_draw
    if name.startswith("mwem textbook") and not each.guarantee.delta:
        found["selection noise an eighth in the sampler"] = scale_selection(1 / 8)
    return found


ONE_TABLE = ("laplace", "mwem")  # which covers all others


def audits() -> list[Audit]:
    found = []
    for name, each in ((name, each) for name, cases in MECHANISMS.items() for each in cases):
        guarantee = each.guarantee
        given = name, guarantee.delta, guarantee.neighboring is Neighboring.REPLACE_ONE
        checks = {what: functools.partial(check, what) for what in each.checks}
        # The textbook's queries move by 1 either way, and are measured one at a time.
        single = "replace-one run with add-remove noise", "one draw for all cells"
        price = derived(
            guarantee,
            draws=1 if name.partition(",")[0] in ONE_TABLE and "weights" not in name else 2,
            least=each.least_share,
            without=single if "mwem textbook" in name else (),
        )
        bugs = {"price": price | odd_bugs(*given), "black box": bugs_of_runs(name, each)}
        blinding = DOUBLED if name in ("laplace", "gaussian textbook") else {}
        dear = ["black box"] + ["price"] * each.is_dear + ["law"] * ("weights" in name)
        found.append(audited(name, guarantee, checks, bugs, each, blinding=blinding, dear=dear))
    return found
