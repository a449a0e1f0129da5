"""Deliberate privacy bugs; the audit over all neighbours must detect each of them.

The same audits pass on the code as it is: what distinguishes the two is the bug alone.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import early_stop_laws
import laplace_bugs
import numpy as np
import pytest
import selection_bugs
from noise_sources import Scripted
from tiny import (
    ADD,
    APPROXIMATE,
    REPLACE,
    WithPublicRecords,
    domain_of,
    largest_share,
    on_trees,
    plan_of,
    promise,
    scripted,
    summary,
    workload_of,
)

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
from beam_dp.mechanisms.marginals.rounds import RoundBudget, round_budget
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.summaries.histogram import Marginals
from beam_dp.testing.audit import audit_law

ROUNDS = MWEM(num_rounds=2)
PAIRS = MWEM()
TEXTBOOK = MWEM(num_rounds=2, calibration="textbook")


@pytest.fixture(autouse=True)
def without_the_final_fit(monkeypatch):
    for module in (rounds_module, selection_module, measure_all_module):
        monkeypatch.setattr(module, "synthesise", lambda *arguments, **named: None)
    monkeypatch.setattr(textbook_module, "SyntheticDatabase", lambda *arguments, **named: None)


def audit(
    mechanism: Mechanism,
    promised: Guarantee,
    planned: Guarantee | None = None,
    num_records: Any = 20,
    ways: int = 1,
    weights: tuple[float, ...] = (),
) -> float:
    """The share of the promise that is spent, where the plan may have been made for another."""
    domain = domain_of(2, 2)
    workload = workload_of(domain, ways, weights)
    plan = plan_of(mechanism, workload, planned or promised, num_records)

    bases = [np.array(each) for each in ([12, 5, 0, 0], [0, 0, 0, 0])]
    scripts = [scripted(seed, len(workload)) for seed in range(2)]
    return largest_share(plan, promised, mechanism.release, bases, scripts)


def audit_trees(
    mechanism: Mechanism,
    promised: Guarantee,
    planned: Guarantee | None = None,
    num_records: Any = 20,
) -> float:
    """The same where a selection must leave a pair out."""
    # Of pairs of one record, two of three fit; what two records may hold is more to try.
    is_one = promised.max_records_per_unit == 1
    sizes, selected_cells = ((3, 2, 2), 10) if is_one else ((2, 2, 2), 6)
    domain = domain_of(*sizes)
    workload = workload_of(domain, 2)
    base = np.array([60, 1] + [0] * (domain.num_cells - 2))
    with on_trees(selected_cells):
        plan = plan_of(mechanism, workload, planned or promised, num_records)
        # Residuals and scores lie on fine grids: answers are some records at most.
        scripts = [scripted(seed, 20, 2**16) for seed in range(1 + is_one)]
        return largest_share(plan, promised, mechanism.release, [base], scripts)


def audit_check(promised: Guarantee) -> float:
    """The same where a selection leaves all pairs out, and checks which of them it needs."""
    domain = domain_of(3, 2, 2)
    with on_trees(10):
        plan = plan_of(PAIRS, workload_of(domain, 2), promised, 20)
        scripts = [scripted(seed, 3, selection_bugs.LOW_SCORES) for seed in range(2)]
        return largest_share(plan, promised, PAIRS.release, [selection_bugs.EITHER_WAY], scripts)


def audit_stop(promised: Guarantee) -> float:
    """The same where comparisons may end the rounds: from the exact law, over all neighbours."""
    with early_stop_laws.whole_records():
        plan = early_stop_laws.plan(promised, num_rounds=2)
        law = functools.partial(early_stop_laws.law_of, plan, reach=3)
        found = audit_law(law, range(early_stop_laws.SIZE), promised, num_others=2)
    return found.epsilon / promised.epsilon


AUDITS: dict[str, Callable[[], float]] = {
    "selection": lambda: audit_trees(PAIRS, promise(ADD, APPROXIMATE)),
    "selection, noisy total": lambda: audit_trees(
        PAIRS, promise(ADD, APPROXIMATE), num_records="noisy"
    ),
    "selection, replace one": lambda: audit_trees(PAIRS, promise(REPLACE, APPROXIMATE)),
    **{
        f"selection, public records, {relation}": lambda relation=relation: audit_trees(
            WithPublicRecords(), promise(relation, APPROXIMATE)
        )
        for relation in (ADD, REPLACE)
    },
    "selection, checked": lambda: audit_check(promise(ADD, APPROXIMATE)),
    "selection, checked, replace one": lambda: audit_check(promise(REPLACE, APPROXIMATE)),
    "rounds over a tree": lambda: audit_trees(ROUNDS, promise()),
    "rounds over a tree, replace one": lambda: audit_trees(ROUNDS, promise(REPLACE, APPROXIMATE)),
    "annealed over a tree": lambda: audit_trees(MWEM(num_rounds="annealed"), promise()),
    "residuals": lambda: audit(Gaussian(), promise(ADD, APPROXIMATE), ways=2),
    "residuals, replace one": lambda: audit(Gaussian(), promise(REPLACE, APPROXIMATE), ways=2),
    "gaussian tables": lambda: audit(Gaussian("textbook"), promise(REPLACE, APPROXIMATE)),
    "laplace tables": lambda: audit(Laplace("textbook"), promise(REPLACE)),
    "laplace shares": lambda: audit(Laplace(), promise(), weights=(1.0, 1000.0)),
    "rounds": lambda: audit(ROUNDS, promise()),
    "rounds, noisy total": lambda: audit(ROUNDS, promise(ADD, APPROXIMATE), num_records="noisy"),
    "rounds, replace one": lambda: audit(ROUNDS, promise(REPLACE, APPROXIMATE)),
    "annealed": lambda: audit(MWEM(num_rounds="annealed"), promise(ADD, APPROXIMATE)),
    "textbook": lambda: audit(TEXTBOOK, promise(ADD)),
    "textbook, approximate": lambda: audit(TEXTBOOK, promise(REPLACE, APPROXIMATE)),
    "textbook, early stop": lambda: audit_stop(promise()),
    "textbook, early stop, replace one": lambda: audit_stop(promise(REPLACE)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", AUDITS)
def test_audits_pass_on_unchanged_code(name):
    assert 0.5 < AUDITS[name]() <= 1


Mutant = Callable[[pytest.MonkeyPatch], None]


def scaled_calls(kind: str, factor: float) -> Mutant:
    """Lets every call of one kind of noise use another scale than planned."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        original = getattr(Scripted, kind)
        patch.setattr(
            Scripted, kind, lambda self, values, scale: original(self, values, scale * factor)
        )

    return apply


def budget_of_rounds(times: dict[str, float] | None = None, **given: Any) -> Mutant:
    """Multiplies fields of the budget of rounds, or replaces them."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        def mutant(*arguments: Any) -> RoundBudget:
            budget = round_budget(*arguments)
            scaled = {name: getattr(budget, name) * by for name, by in (times or {}).items()}
            return dataclasses.replace(budget, **scaled, **given)

        patch.setattr(rounds_module, "round_budget", mutant)

    return apply


def cheaper_rounds(patch: pytest.MonkeyPatch) -> None:
    original = RoundBudget.of_round
    patch.setattr(RoundBudget, "of_round", lambda self, units: original(self, 2 * units))


def leave_a_round_out(patch: pytest.MonkeyPatch) -> None:
    """One round more than the budget is shared by."""
    original = round_budget
    patch.setattr(
        rounds_module,
        "round_budget",
        lambda guarantee, num_units, public: original(guarantee, num_units - 1, public),
    )


def scaled_result(place: Any, name: str, factor: float | Fraction) -> Mutant:
    def apply(patch: pytest.MonkeyPatch) -> None:
        original = getattr(place, name)
        patch.setattr(place, name, lambda *arguments: factor * original(*arguments))

    return apply


def forget_smoothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Analytic sigma for discrete noise on the coarsest grid."""

    def mutant(domain: Any, support: tuple[int, ...], deviation: float) -> Measurement:
        cells = math.prod(domain.shape[axis] for axis in support)
        names = tuple(domain.names[axis] for axis in support)
        return Measurement(names, "residual", "discrete_gaussian", deviation * cells, cells)

    monkeypatch.setattr(measurements, "_residual_measurement", mutant)


def forget_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """The query is scaled to the grid, the noise is not."""
    original = measurements.residual_query
    monkeypatch.setattr(measurements, "residual_query", lambda t, grid: original(t, 2 * grid))


def forget_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace-one residuals used as those of one record."""
    original = measurements.residual_sensitivity
    monkeypatch.setattr(
        measurements,
        "residual_sensitivity",
        lambda domain, supports, precisions, _: original(
            domain, supports, precisions, Neighboring.ADD_OR_REMOVE_ONE
        ),
    )


def spend_all_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every round is given the whole budget."""
    original = round_budget
    monkeypatch.setattr(
        rounds_module, "round_budget", lambda guarantee, _, public: original(guarantee, 1, public)
    )


def forget_total(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noisy total is measured in addition to attributes that spend their whole share."""
    original = selection_module.residual_measurements

    def mutant(workload: Any, supports: Any, guarantee: Any, mu: float) -> Any:
        supports = list(supports)
        alone = [each for each in supports if each]
        found = original(workload, alone, guarantee, mu)
        return found + original(workload, [()], guarantee, mu) if () in supports else found

    monkeypatch.setattr(selection_module, "residual_measurements", mutant)


MUTANTS: dict[str, tuple[str, Mutant]] = {
    "halved residual sensitivity": (
        "residuals",
        scaled_result(measurements, "residual_sensitivity", 0.5),
    ),
    "residual norm of one attribute forgotten": (
        "residuals",
        scaled_result(measurements, "residual_norm", 0.8),
    ),
    "replace-one residuals with add-remove norms": ("residuals, replace one", forget_pattern),
    "noise not on the grid of the query": ("residuals", forget_the_grid),
    "mu taken from rho": ("residuals", scaled_result(measurements, "discrete_gaussian_mu", 1.1)),
    "gaussian noise halved": ("gaussian tables", scaled_calls("gaussian", 0.5)),
    "laplace noise halved": ("laplace tables", scaled_calls("laplace", 0.5)),
    "shares of laplace tables that add up to more": ("laplace shares", laplace_bugs.share_too_much),
    "factor 2 of the selection forgotten": ("rounds", budget_of_rounds({"selection_scale": 0.5})),
    "permute-and-flip where the range of a selection is priced": (
        "rounds, noisy total",
        budget_of_rounds(selection="permute_and_flip"),
    ),
    "mu of a selection taken from its rho": (
        "rounds, replace one",
        budget_of_rounds({"selection_scale": 0.8}),
    ),
    "measurements of rounds off their grid": ("rounds, replace one", budget_of_rounds({"grid": 2})),
    # Scores are in finer units than their noise.
    "weights of the scores forgotten": ("rounds", scaled_calls("permute_and_flip", 1 / 256)),
    "rounds that do not share the budget": ("rounds", spend_all_twice),
    "total for free": ("rounds, noisy total", budget_of_rounds(total_scale=1.0)),
    "root 2 of a replacement forgotten": (
        "rounds, replace one",
        budget_of_rounds({"measurement_scale": math.sqrt(0.5)}),
    ),
    "annealed rounds that cost less than they spend": ("annealed", cheaper_rounds),
    "rounds over a tree, one not charged": ("rounds over a tree", leave_a_round_out),
    "annealed over a tree, cheaper rounds": ("annealed over a tree", cheaper_rounds),
    "monotone factor assumed over a tree": (
        "rounds over a tree",
        budget_of_rounds({"selection_scale": 0.5}),
    ),
    **{
        f"{name}, {relation}": (relation, apply)
        for name, apply in selection_bugs.PRICED.items()
        for relation in ("selection", "selection, noisy total", "selection, replace one")
    },
    **{
        f"{name}, {relation}": (f"selection, public records, {relation}", apply)
        for name, apply in selection_bugs.PRIOR.items()
        for relation in (ADD, REPLACE)
    },
    **{
        f"{name}, check": ("selection, checked", apply)
        for name, apply in {**selection_bugs.PRICED, **selection_bugs.CHECK}.items()
    },
    "sums of cells in a check, replace one": (
        "selection, checked, replace one",
        selection_bugs.sums_of_cells,
    ),
    "total of a selection for free": ("selection, noisy total", forget_total),
    "textbook answers for half": ("textbook", scaled_calls("laplace", 0.5)),
    "textbook selection for a quarter": ("textbook, approximate", scaled_calls("select", 0.25)),
    "free stop": ("textbook, early stop", early_stop_laws.free_comparison),
    "free stop, replace one": (
        "textbook, early stop, replace one",
        early_stop_laws.free_comparison,
    ),
    "stop with a twentieth of its noise": ("textbook, early stop", early_stop_laws.little_noise),
    "rho twice as large": (
        "textbook, approximate",
        scaled_result(textbook_module, "zcdp_rho", 2.0),
    ),
}


@pytest.mark.mostly_slow(one_in=5, start=1)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_audit_measures_excess_loss_of_mutant(mutant, monkeypatch):
    name, apply = MUTANTS[mutant]
    apply(monkeypatch)
    assert AUDITS[name]() > 1.005


@pytest.mark.parametrize(
    "name, mechanism, promised, planned",
    [
        ("residuals", Gaussian(), promise(REPLACE, APPROXIMATE), promise(ADD, APPROXIMATE)),
        ("gaussian", Gaussian("textbook"), promise(REPLACE, 1e-9), promise(ADD, 1e-9)),
        ("laplace", Laplace(), promise(REPLACE), promise(ADD)),
        ("rounds", ROUNDS, promise(REPLACE), promise(ADD)),
        ("rounds, approximate", ROUNDS, promise(REPLACE, 1e-9), promise(ADD, 1e-9)),
    ],
)
def test_audit_catches_add_remove_noise_for_replace_one(name, mechanism, promised, planned):
    assert audit(mechanism, promised, planned) > 1.05


@pytest.mark.mostly_slow(one_in=2, start=1)
@pytest.mark.parametrize(
    "mechanism", [MWEM(), Gaussian(), Gaussian("textbook"), Laplace(), ROUNDS, TEXTBOOK], ids=repr
)
@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
def test_audit_catches_one_record_noise_for_two_records(mechanism, neighboring):
    promised = promise(neighboring, APPROXIMATE, 1.0, 2)
    planned = promise(neighboring, APPROXIMATE, 1.0, 1)
    assert audit(mechanism, promised) <= 1
    assert audit(mechanism, promised, planned) > 1.2


@pytest.mark.mostly_slow(one_in=4)
@pytest.mark.parametrize("mechanism", [PAIRS, ROUNDS], ids=repr)
@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
def test_audit_detects_selection_noise_planned_for_a_weaker_guarantee(mechanism, neighboring):
    one, two = (promise(neighboring, APPROXIMATE, 1.0, most) for most in (1, 2))
    assert audit_trees(mechanism, two, one) > 1.2
    if neighboring == REPLACE:
        assert audit_trees(mechanism, one, promise(ADD, APPROXIMATE)) > 1.05


def test_audit_detects_analytic_sigma_on_a_coarse_grid(monkeypatch):
    forget_smoothing(monkeypatch)
    promised = promise(ADD, APPROXIMATE, 8.0)
    assert audit(Gaussian(), promised, ways=2) > 1.02


def test_audit_detects_counts_without_noise(monkeypatch):
    """What is released then differs under noise that ignores the data."""
    seen = []
    monkeypatch.setattr(
        measure_all_module, "synthesise", lambda *arguments: seen.append(arguments[2])
    )
    mechanism = Laplace()
    workload = workload_of(domain_of(2, 2), 1)
    plan = plan_of(mechanism, workload, promise(), 20)

    def leak(self: Measurement, held: Marginals, noise: Any) -> np.ndarray:
        return held.marginal(self.names) / 1.0

    def outputs() -> set[bytes]:
        seen.clear()
        for counts in (np.zeros(4), np.ones(4)):
            mechanism.release(plan, summary(plan, counts), scripted(0)())
        return {b"".join(table.tobytes() for table in tables) for tables in seen}

    assert len(outputs()) == 1
    monkeypatch.setattr(Measurement, "draw", leak)
    assert len(outputs()) == 2
