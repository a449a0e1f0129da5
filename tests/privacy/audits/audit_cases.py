"""The registry: every mechanism under every relation, and the mutants that its audits must catch.

A new mechanism is one line in ``MECHANISMS``. The usual mutants follow from it; the odd ones stand
here. A mutant names the audit and the check that must catch it.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import auditing
import numpy as np
import pytest
import selection_bugs
from auditing import (
    DELTA,
    Audit,
    Bug,
    Finding,
    around,
    audited,
    derived,
    multiply,
    replaced,
    scaled_fields,
)
from tiny import (
    ADD,
    PURE,
    REPLACE,
    WithCheck,
    WithPublicRecords,
    domain_of,
    largest_share,
    on_trees,
    promise,
    scripted,
    with_triples,
    with_unit,
    workload_of,
)  # fmt: skip

from beam_dp.mechanisms.checks import NumRecords
from beam_dp.mechanisms.marginals import (
    measure_all as measure_all_module,
    measurements,
    rounds as rounds_module,
    selection as selection_module,
    textbook_mwem as textbook_module,
)
from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian, Laplace
from beam_dp.mechanisms.marginals.measurements import Measurement
from beam_dp.mechanisms.marginals.plan import Mechanism
from beam_dp.models import residual_basis
from beam_dp.models.residual_basis import ResidualBasis
from beam_dp.privacy.budget import Budget
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.releases.synthetic_database import measured_tables as unbiased_tables_module
from beam_dp.releases.synthetic_database.strategies import Rounds


@dataclasses.dataclass(frozen=True)
class Case:
    """One mechanism under one relation.

    Args:
        mechanism: as shipped.
        guarantee: what it promises.
        num_records: public, or noisy.
        sizes: of the domain's attributes; the workload is each of them alone.
        ways: the same with all sets of so many attributes.
        weights: of the workload's marginals; by default 1.
        tree_cells: of a selected tree, for the path that wide domains take.
        base: everybody else's records.
        has_triples: whether pairs of three attributes measure their triple.
        high: limit of scripted noisy values of a selection over a tree.
        is_dear: whether a landing runs only some of its prices.
        least_share: of the guarantee, that the worst neighbours must spend.
    """

    mechanism: Mechanism
    guarantee: Guarantee
    num_records: NumRecords = 20
    sizes: tuple[int, ...] = (2, 2)
    ways: int = 1
    weights: tuple[float, ...] = ()
    tree_cells: int | None = None
    base: tuple[int, ...] = (12, 5, 0, 0)
    has_triples: bool = False
    high: int = 2**16
    is_dear: bool = False
    least_share: float = 0.9


_basis_of = functools.cache(ResidualBasis)


def known_basis(shape: tuple[int, ...], sets: Iterable[tuple[int, ...]]) -> ResidualBasis:
    return _basis_of(shape, tuple(sets))


@contextmanager
def without_the_final_fit() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (rounds_module, selection_module, measure_all_module):
            patch.setattr(module, "synthesise", lambda *arguments, **named: None)
        # The same for every run: what takes the longest of a round on tiny data.
        for module in (residual_basis, unbiased_tables_module):
            patch.setattr(module, "ResidualBasis", known_basis)
        # Of few sets that may be selected. Not longer than for this audit: a mutant plans others.
        plan_once = functools.cache(selection_module.residual_measurements)
        patch.setattr(
            selection_module,
            "residual_measurements",
            lambda workload, supports, *others, **named: plan_once(
                workload, tuple(supports), *others, **named
            ),
        )
        patch.setattr(textbook_module, "importance_of", lambda *arguments: None)
        patch.setattr(textbook_module, "array_release", lambda *arguments: (None, None))
        patch.setattr(textbook_module, "SyntheticDatabase", lambda **named: None)
        yield


def price(case: Case) -> Finding:
    """The exact price over all neighbours: from what is handed to the noise, and its scales."""
    domain, guarantee = domain_of(*case.sizes), auditing.planned_for(case.guarantee)
    workload = workload_of(domain, case.ways)
    workload = dataclasses.replace(workload, weights=case.weights[: len(workload)])
    # In the last one a record may be one too many for one cell and one too few for another.
    nobody = np.zeros(len(case.base), np.int64)
    bases = [np.array(case.base), nobody, with_unit(nobody, (0,) * 12 + (1,) * 5)]
    path = nullcontext() if case.tree_cells is None else on_trees(case.tree_cells)
    with with_triples() if case.has_triples else path:
        plan = case.mechanism.plan(domain, workload, guarantee, case.num_records)
        scripts = [scripted(seed, len(plan.workload)) for seed in range(2)]
        if case.tree_cells is not None:
            # Whatever is inside a marginal may be selected; residuals lie on fine grids.
            scripts = [scripted(seed, 20, case.high) for seed in range(2)]
        with without_the_final_fit():
            share = largest_share(
                plan, case.guarantee, case.mechanism.release, bases, scripts, enough=1
            )
    return Finding(bool(case.least_share < share <= 1))


def case(mechanism: Any, neighboring: str, delta: float, **named: Any) -> Case:
    epsilon, most = named.pop("epsilon", 12.0 if delta else 3.0), named.pop("most", 1)
    return Case(mechanism, promise(neighboring, delta, epsilon, most), **named)


def both(mechanism: Any, delta: float, **named: Any) -> list[Case]:
    """A mechanism under both relations."""
    return [case(mechanism, relation, delta, **named) for relation in (ADD, REPLACE)]


TEXTBOOK = MWEM(num_rounds=2, calibration="textbook")
# Its hypothesis never learns there, so that it anneals as fast as it can; the price lets it learn.
ANNEALED: dict[str, Any] = {"least_share": 0.8, "sizes": (2,), "base": (6, 6), "num_records": 12}
# All cells are equally wrong, so that one record decides which of them a selection prefers.
EVEN = (3, 4, 4, 3)
NOISY: dict[str, Any] = {"num_records": "noisy"}
# Of three pairs two fit.
OVER_A_TREE: dict[str, Any] = {
    "sizes": (3, 2, 2),
    "ways": 2,
    "tree_cells": 10,
    "base": (60, 1) + (0,) * 10,
    "is_dear": True,
}
# Some pairs are closer to the fit with a record that others are farther with.
CHECKED = {
    **OVER_A_TREE,
    "base": tuple(selection_bugs.EITHER_WAY.tolist()),
    "high": selection_bugs.LOW_SCORES,
}
TWO_EACH: dict[str, Any] = {"most": 2, "epsilon": 1.0}
TWO_OVER_A_TREE = {**OVER_A_TREE, **TWO_EACH, "sizes": (2, 2, 2), "tree_cells": 6}
TWO_OVER_A_TREE["base"] = (60, 1) + (0,) * 6
TRIPLES = {**CHECKED, "sizes": (2, 2, 2, 2), "ways": 3, "base": (3, 0, 1, 4, 0, 2, 5, 0) * 2}
ROUNDS, SLOWLY = MWEM(num_rounds=2), MWEM(num_rounds="annealed")
MECHANISMS: dict[str, list[Case]] = {
    "laplace": both(Laplace(), PURE),
    "laplace, weights": both(Laplace(), PURE, weights=(1.0, 40.0), sizes=(4, 2), base=(12, 5) * 4),
    "laplace textbook": both(Laplace("textbook"), PURE),
    "laplace, noisy total": [case(Laplace(), ADD, PURE, **NOISY)],
    "gaussian": both(Gaussian(), DELTA),
    "gaussian textbook": both(Gaussian("textbook"), DELTA, least_share=0.6),
    "gaussian, noisy total": [case(Gaussian(), ADD, DELTA, **NOISY)],
    "mwem": both(MWEM(), PURE),
    "mwem, delta": both(MWEM(), DELTA, epsilon=4.0),
    "mwem rounds": both(ROUNDS, PURE),
    "mwem rounds, delta": both(ROUNDS, DELTA, epsilon=16.0),
    "mwem rounds, noisy total": [case(MWEM(num_rounds=1), ADD, PURE, **NOISY)],
    "mwem annealed": both(SLOWLY, PURE, **ANNEALED),
    "mwem annealed, delta": both(SLOWLY, DELTA, **ANNEALED),
    "mwem selection": [
        case(MWEM(), ADD, DELTA, **{**OVER_A_TREE, "is_dear": False}),
        case(MWEM(), REPLACE, DELTA, **OVER_A_TREE),
    ],
    "mwem selection, noisy total": [case(MWEM(), ADD, DELTA, **OVER_A_TREE, **NOISY)],
    "mwem selection, public records": both(WithPublicRecords(), DELTA, **OVER_A_TREE),
    "mwem selection, checked": both(WithCheck(), DELTA, **CHECKED),
    "mwem selection, triples": [case(MWEM(), ADD, DELTA, **TRIPLES)],
    "mwem rounds over a tree": both(ROUNDS, PURE, **OVER_A_TREE),
    "mwem rounds over a tree, delta": both(ROUNDS, DELTA, **OVER_A_TREE),
    "mwem annealed over a tree": [case(MWEM("annealed"), ADD, PURE, **OVER_A_TREE)],
    "gaussian, a triple": both(
        Gaussian(), DELTA, ways=2, sizes=(2, 2, 2), base=(12, 5) * 4, has_triples=True
    ),
    "gaussian, pairs": [case(Gaussian(), ADD, DELTA, epsilon=8.0, ways=2)],
    **{
        f"{name}, two records a unit": both(mechanism, DELTA, **TWO_EACH)
        for name, mechanism in (
            ("mwem", MWEM()),
            ("gaussian", Gaussian()),
            ("gaussian textbook", Gaussian("textbook")),
            ("laplace", Laplace()),
            ("mwem rounds", ROUNDS),
            ("mwem textbook", TEXTBOOK),
        )
    },
    "mwem selection, two records a unit": both(MWEM(), DELTA, **TWO_OVER_A_TREE),
    "mwem rounds over a tree, two records a unit": both(ROUNDS, DELTA, **TWO_OVER_A_TREE),
    "mwem textbook": both(TEXTBOOK, PURE, epsilon=4.0, base=EVEN),
    "mwem textbook, delta": both(TEXTBOOK, DELTA, epsilon=16.0, base=EVEN),
}


def change_budget(selection: str | None = None, /, **factors: float) -> Bug:
    """Another budget of a round: its scales multiplied, or another selection."""

    def mutant(original: Any, *given: Any) -> Rounds:
        budget = scaled_fields(original(*given), **factors)
        return dataclasses.replace(budget, selection=selection or budget.selection)

    return around(rounds_module, "round_budget", mutant)


def _with_parameters(plan: Any, **factors: float) -> Any:
    return dataclasses.replace(plan, parameters=scaled_fields(plan.parameters, **factors))


HALF_FORGOTTEN = change_budget(selection_scale=1 / 2)
TOTAL_FOR_FREE = around(
    rounds_module,
    "round_budget",
    lambda original, *given: dataclasses.replace(original(*given), total_scale=1.0),
)
TEXTBOOK_HALF_FORGOTTEN = around(
    measure_all_module,
    "plan_textbook",
    lambda original, *given: _with_parameters(original(*given), selection_scale=1 / 2),
)
ADD_REMOVE_NORMS = around(
    measurements,
    "residual_sensitivity",
    lambda original, *given: original(*given[:3], Neighboring.ADD_OR_REMOVE_ONE),
)
LEAVE_A_ROUND_OUT = around(
    rounds_module,
    "round_budget",
    lambda original, guarantee, number, num_units, public: dataclasses.replace(
        original(guarantee, number, max(1, num_units - 1), public), num_units=num_units
    ),
)
CHEAPER_UNITS = around(
    rounds_module, "scales_of_round", lambda original, unit, units: original(unit, 2 * units)
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


def _total_beside(
    original: Any, workload: Any, supports: Any, guarantee: Any, mu: float, **named: Any
) -> Any:
    """The noisy total is measured in addition to attributes that spend their whole share."""
    alone = [each for each in supports if each]
    found = original(workload, alone, guarantee, mu, **named)
    total = original(workload, [()], guarantee, mu, **named)
    return found + total if () in supports else found


def _only_pairs(original: Any, domain: Any, supports: Any, precisions: Any, *given: Any) -> float:
    few = [place for place, axes in enumerate(supports) if len(axes) < 3]
    return float(original(domain, [supports[place] for place in few], precisions[few], *given))


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
        found["mu a tenth too large"] = around(
            Budget, "of", lambda original, *given: original(*given).part(1.1**2)
        )
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
    # Two records that differ in two of three codes agree in the triple.
    if name == "gaussian, a triple" and not replaces:
        found["a triple for free"] = around(measurements, "residual_sensitivity", _only_pairs)
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


ONE_TABLE = ("laplace", "mwem")  # which covers all others


def audits() -> list[Audit]:
    found = []
    for name, each in ((name, each) for name, cases in MECHANISMS.items() for each in cases):
        guarantee = each.guarantee
        given = name, guarantee.delta, guarantee.neighboring is Neighboring.REPLACE_ONE
        # The textbook's queries move by 1 either way, and are measured one at a time.
        single = "replace-one run with add-remove noise", "one draw for all cells"
        bugs = derived(
            guarantee,
            draws=1 if name.partition(",")[0] in ONE_TABLE and "weights" not in name else 2,
            least=each.least_share,
            without=single if "mwem textbook" in name else (),
        )
        bugs |= odd_bugs(*given)
        dear = ["price"] * each.is_dear
        found.append(audited(name, guarantee, {"price": price}, {"price": bugs}, each, dear=dear))
    return found
