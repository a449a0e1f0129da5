"""What an observer sees of a run, and the three audits that every mechanism for marginals gets.

The view of a run is all output of its noise source. The final fit is left out, because it is
post-processing (``test_release_depends_on_data_only_through_noisy_values``).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import auditing
import numpy as np
import pytest
from auditing import Finding, repeated, told_apart
from noise_sources import Draw, Scripted, Seeded
from tiny import Unit, domain_of, largest_share, on_trees, scripted, summary, with_unit, workload_of

from beam_dp.mechanisms.checks import NumRecords
from beam_dp.mechanisms.marginals import (
    measure_all as measure_all_module,
    measurements as strategies_module,
    pair_scores as scores_module,
    public_prior as prior_module,
    rounds as rounds_module,
    selection as selection_module,
    textbook_mwem as textbook_module,
)
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism
from beam_dp.models import maximum_entropy, residual_basis
from beam_dp.models.residual_basis import ResidualBasis
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases.synthetic_database import measured_tables as unbiased_tables_module
from beam_dp.testing import audit

# Log-likelihood ratios are rounded to this.
_BIN = 1e-2


@dataclasses.dataclass(frozen=True)
class Case:
    """One mechanism under one relation, and two neighbours to run it on.

    Args:
        mechanism: as shipped.
        guarantee: what it promises.
        pair: the cells of one unit's records in either of the neighbours.
        num_records: public, or noisy.
        sizes: of the domain's attributes; the workload is each of them alone.
        ways: the same with all sets of so many attributes.
        weights: of the workload's marginals; by default 1.
        tree_cells: of a selected tree, for the path that wide domains take.
        base: everybody else's records.
        high: limit of scripted noisy values of a selection over a tree.
        runs: of the black-box audit, on each neighbour.
        single: the same mechanism with one round, where the black-box audit runs that: its law is
            then a closed form. Its hypothesis is left as it is.
        adaptive: whether later steps depend on earlier measurements: the prediction then comes
            from as many runs of a reference sampler, numpy's.
        is_dear: whether a landing runs only some of its prices.
        least_share: of the guarantee, that the worst neighbours must spend.
        least_law: the same for the exact law of one table, where privacy is pure.
        checks: which of them apply; residuals lie on too fine a grid to enumerate their law.
    """

    mechanism: Mechanism
    guarantee: Guarantee
    pair: tuple[Unit, Unit]
    num_records: NumRecords = 20
    sizes: tuple[int, ...] = (2, 2)
    ways: int = 1
    weights: tuple[float, ...] = ()
    tree_cells: int | None = None
    base: tuple[int, ...] = (12, 5, 0, 0)
    high: int = 2**16
    runs: int = 2000
    single: Mechanism | None = None
    adaptive: bool = False
    is_dear: bool = False
    least_share: float = 0.9
    least_law: float = 0.8
    checks: tuple[str, ...] = ("price", "law", "black box")


def case_plan(case: Case, mechanism: Mechanism, sizes: tuple[int, ...]) -> MarginalsPlan:
    domain = domain_of(*sizes)
    guarantee = auditing.planned_for(case.guarantee)
    workload = workload_of(domain, case.ways)
    workload = dataclasses.replace(workload, weights=case.weights[: len(workload)])
    return mechanism.plan(domain, workload, guarantee, case.num_records)


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
            lambda workload, supports, *others: plan_once(workload, tuple(supports), *others),
        )
        patch.setattr(textbook_module, "importance_of", lambda *arguments: None)
        patch.setattr(textbook_module, "array_release", lambda *arguments: (None, None))
        patch.setattr(textbook_module, "SyntheticDatabase", lambda **named: None)
        yield


def price(case: Case) -> Finding:
    """The exact price over all neighbours: from what is handed to the noise, and its scales."""
    plan = case_plan(case, case.mechanism, case.sizes)
    bases = [np.array(case.base), np.zeros(len(case.base), np.int64)]
    # Here a record may be one too many for one cell and one too few for another.
    bases.append(np.array([12, 5] + [0] * (len(case.base) - 2)))
    scripts = [scripted(seed, len(plan.workload)) for seed in range(2)]
    if case.tree_cells is not None:
        # Whatever is inside a marginal may be selected; residuals lie on fine grids.
        scripts = [scripted(seed, 20, case.high) for seed in range(2)]

    with without_the_final_fit():
        share = largest_share(
            plan, case.guarantee, case.mechanism.release, bases, scripts, enough=1
        )
    return Finding(bool(case.least_share < share <= 1))


def exact_law(case: Case) -> Finding:
    """The exact law of selection and noisy tables, clipped, over all neighbours."""
    mechanism = case.single or case.mechanism
    sizes = case.sizes[:1]
    with pytest.MonkeyPatch.context() as patch:
        # Few enough outcomes to enumerate, and as private: the price of a grid is that of its s.
        patch.setattr(strategies_module, "_GRID_DEVIATIONS", 4)
        plan = case_plan(case, mechanism, sizes)

    def law(data: tuple[int, ...]) -> dict[Any, float]:
        counts = with_unit(np.zeros(math.prod(sizes), np.int64), data)
        found: dict[Any, float] = {}
        for selected, probability, draws in branches(plan, mechanism, counts):
            cells = [clipped(draw, int(value)) for draw in draws for value in np.ravel(draw.exact)]
            for outcome, share in audit.product_law(cells).items():
                found[selected, outcome] = probability * share
        return found

    audited = audit.audit_law(law, range(math.prod(sizes)), case.guarantee, num_others=1)
    tight = case.guarantee.delta > 0 or audited.epsilon > case.least_law * case.guarantee.epsilon
    return Finding(audited.is_private and tight)


def clipped(draw: Draw, value: int) -> dict[int, float]:
    reach = math.ceil(5 * draw.scale) + 1
    of = audit.discrete_laplace if draw.kind == "laplace" else audit.discrete_gaussian
    return of(draw.scale, value, -reach, reach + 3)


def branches(
    plan: MarginalsPlan, mechanism: Mechanism, counts: np.ndarray
) -> Iterator[tuple[int, float, list[Draw]]]:
    """For each selection of at most one: its probability, and the noisy draws that follow it."""
    held = summary(plan, counts)
    draws = replay(plan, mechanism, held, [0], [])
    selections = [draw for draw in draws if draw.is_selection]
    if not selections:
        yield 0, 1.0, draws
        return
    assert len(selections) == 1
    for index, probability in selection_law(selections[0]).items():
        draws = replay(plan, mechanism, held, [index], [])
        yield index, probability, [draw for draw in draws if not draw.is_selection]


def selection_law(draw: Draw) -> dict[int, float]:
    of = audit.exponential_mechanism if draw.kind == "select" else audit.permute_and_flip
    return of(draw.exact.tolist(), draw.scale)


def replay(
    plan: MarginalsPlan,
    mechanism: Mechanism,
    held: Any,
    selections: list[int],
    tables: list[np.ndarray],
) -> list[Draw]:
    """What is handed to the noise when it answers as it is told; zeros where it is told nothing."""
    told = iter(tables)
    source = Scripted(
        list(selections) or [0],
        lambda _, shape: np.reshape(next(told), shape) if tables else np.zeros(shape, np.int64),
    )
    with without_the_final_fit():
        mechanism.release(plan, held, source)
    return source.draws


class Recording(NoiseSource):
    """Draws from another source; keeps what came out, and what was handed in."""

    def __init__(self, source: NoiseSource) -> None:
        self._source = source
        self.selections: list[int] = []
        self.tables: list[np.ndarray] = []
        self.draws: list[Draw] = []

    def laplace(self, values: np.ndarray, scale: float) -> np.ndarray:
        return self._noisy("laplace", values, scale)

    def gaussian(self, values: np.ndarray, sigma: float) -> np.ndarray:
        return self._noisy("gaussian", values, sigma)

    def select(self, scores: np.ndarray, scale: float) -> int:
        return self._select("select", scores, scale)

    def permute_and_flip(self, scores: np.ndarray, scale: float) -> int:
        return self._select("permute_and_flip", scores, scale)

    def _select(self, kind: str, scores: np.ndarray, scale: float) -> int:
        self.draws.append(Draw(kind, np.array(scores), scale))
        self.selections.append(getattr(self._source, kind)(scores, scale))
        return self.selections[-1]

    def _noisy(self, kind: str, values: np.ndarray, scale: float) -> np.ndarray:
        self.draws.append(Draw(kind, np.array(values), scale))
        self.tables.append(getattr(self._source, kind)(values, scale))
        return self.tables[-1]


def black_box(case: Case) -> Finding:
    """Whole runs with the production sampler; thresholds of the log-likelihood ratio."""
    mechanism = case.single or case.mechanism
    plan = case_plan(case, mechanism, case.sizes)
    held = [summary(plan, with_unit(np.array(case.base), unit)) for unit in case.pair]
    cache: dict[tuple[Any, ...], list[list[Draw]]] = {}

    def ratio(record: Recording, side: int) -> int:
        selections, tables = record.selections, record.tables
        if case.adaptive:
            # What the other side would have handed in, had the same come out.
            draws = [record.draws, replay(plan, mechanism, held[1 - side], selections, tables)]
            draws = draws[::-1] if side else draws
        else:
            # What was chosen shows in the shapes of what was measured.
            key = (*selections, *(table.shape for table in tables))
            if key not in cache:
                told = tables if plan.public["strategy"] == "selection" else []
                cache[key] = [replay(plan, mechanism, each, selections, told) for each in held]
            draws = cache[key]
        return log_ratio(*draws, selections, tables)

    def sampler(side: int, source: NoiseSource) -> Callable[[int], list[int]]:
        def outcome() -> int:
            record = Recording(source)
            mechanism.release(plan, held[side], record)
            return ratio(record, side)

        return repeated(outcome)

    with without_the_final_fit(), pytest.MonkeyPatch.context() as patch:
        if plan.public["strategy"] == "selection":
            # What is learnt before the end is post-processing, and only steers choices.
            patch.setattr(maximum_entropy, "independent_log_weights", uniform)
            patch.setattr(scores_module, "refit", lambda *given: given[3])
            patch.setattr(prior_module, "independent_log_weights", uniform)
            patch.setattr(prior_module.PublicPrior, "fitted", unfitted)
        if case.single is not None:
            # What is learnt is post-processing, and after the only measurement nothing follows.
            patch.setattr(rounds_module, "refit", lambda *given: given[3])

        def foresee() -> dict[str, Any]:
            reference = [sampler(side, Seeded(side))(case.runs) for side in range(2)]
            event = foreseen_event(reference, case.guarantee.delta)
            return {"laws": tuple(map(frequencies, reference)), "foreseen": event}

        if case.adaptive or plan.public["strategy"] == "selection":
            options = {"foresee": foresee}
        else:
            options = {"laws": ratio_laws(plan, mechanism, case)}
        sides = [sampler(side, NoiseSource()) for side in range(2)]
        return told_apart(sides, case.guarantee, runs=case.runs, score=float, **options)


def foreseen_event(reference: Sequence[Sequence[int]], delta: float) -> audit.ForeseenEvent:
    """An event to expect by a reference sampler; what it predicts allows for sampling errors.

    Half of the runs choose the event; the other half says how often it happens, and the prediction
    is for two standard errors in the direction that promises less.
    """
    runs = len(reference[0])
    half = runs // 2
    event = audit.choose_event(*(side[:half] for side in reference), delta, score=float)
    first, second = (event.count(side[half:]) / (runs - half) for side in reference)
    likelier, other = (second, first) if event.is_reversed else (first, second)
    least = max(0.0, likelier - 2 * math.sqrt(likelier / half))
    most = min(1.0, other + 2 * math.sqrt(max(other, 1 / half) / half))
    predicted = audit.epsilon_lower_bound(
        runs * least, runs * most, runs, delta, auditing.FALSE_ALARM / 2
    )
    return audit.ForeseenEvent(event, likelier, max(other, 1 / half), float(predicted))


def unfitted(
    prior: Any, workload: Any, layout: Any, observed: Any, total: float
) -> tuple[Any, Any]:
    """The public records as they are."""
    basis, log_weights = prior.basis(layout.supports, total)
    return basis, maximum_entropy.Fit(log_weights, 0, math.inf, 0.0, 0.0)


def uniform(basis: Any, observed: Any, total: float) -> np.ndarray:
    return np.zeros(basis.num_coefficients)


def frequencies(outcomes: list[int]) -> dict[int, float]:
    values, counts = np.unique(outcomes, return_counts=True)
    return dict(zip(values.tolist(), (counts / len(outcomes)).tolist(), strict=True))


def log_ratio(
    first: list[Draw], second: list[Draw], selections: list[int], tables: list[np.ndarray]
) -> int:
    """The log-likelihood ratio of a view, in bins: a sum of rounded parts, as in its law."""
    total, selected, noisy = 0, iter(selections), iter(tables)
    for one, other in zip(first, second, strict=True):
        if one.is_selection:
            index = next(selected)
            p, q = (selection_law(each)[index] for each in (one, other))
            total += round(math.log(p / q) / _BIN)
        else:
            seen = np.ravel(next(noisy))
            logs = [log_weights(each, seen, np.ravel(each.exact)) for each in (one, other)]
            total += int(np.rint((logs[0] - logs[1]) / _BIN).sum())
    return total


def log_weights(draw: Draw, noisy: np.ndarray, exact: np.ndarray) -> np.ndarray:
    distance = (noisy - exact).astype(np.float64)
    if draw.kind == "laplace":
        return -np.abs(distance) / draw.scale
    return -(distance**2) / (2 * draw.scale**2)


def ratio_laws(
    plan: MarginalsPlan, mechanism: Mechanism, case: Case
) -> tuple[Mapping[int, float], Mapping[int, float]]:
    """The exact laws of the log-likelihood ratio on both neighbours."""
    sides = [
        list(branches(plan, mechanism, with_unit(np.array(case.base), unit))) for unit in case.pair
    ]
    laws: tuple[dict[int, float], dict[int, float]] = ({}, {})
    for (_, p, first), (_, q, second) in zip(*sides, strict=True):
        start = round(math.log(p / q) / _BIN)
        low, (one, other) = convolved(first, second)
        for position in range(len(one)):
            key = start + low + position
            for law, share in zip(laws, (p * one[position], q * other[position]), strict=True):
                if share:
                    law[key] = law.get(key, 0.0) + share
    return laws


def convolved(first: list[Draw], second: list[Draw]) -> tuple[int, list[np.ndarray]]:
    """The laws of the sum of the independent coordinates' ratios, from its least value on."""
    low, laws = 0, [np.ones(1), np.ones(1)]
    for one, other in zip(first, second, strict=True):
        for x, y in zip(np.ravel(one.exact), np.ravel(other.exact), strict=True):
            if x == y:
                continue
            reach = math.ceil(30 * one.scale if one.kind == "laplace" else 9 * one.scale)
            z = np.arange(min(x, y) - reach, max(x, y) + reach + 1)
            logs = [log_weights(one, z, value) for value in (x, y)]
            bins = np.rint((logs[0] - logs[1]) / _BIN).astype(np.int64)
            for side, log in enumerate(logs):
                weights = np.exp(log) / np.exp(log).sum()
                laws[side] = np.convolve(laws[side], np.bincount(bins - bins.min(), weights))
            low += int(bins.min())
    return low, laws


def check(name: str, case: Case) -> Finding:
    """Runs a check of a case, on the path that its domain takes."""
    run = {"price": price, "law": exact_law, "black box": black_box}[name]
    with nullcontext() if case.tree_cells is None else on_trees(case.tree_cells):
        return run(case)
