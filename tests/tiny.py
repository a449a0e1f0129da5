"""Tiny domains, all their neighbours, and an audit of what a mechanism spends on them.

The audit runs a mechanism on neighbouring data with the same scripted noise. All outputs are then
equal, so whatever differs in what was handed to the noise source is what the noise must hide: each
call's cost follows from that difference and its scale, and adaptively chosen calls add up.
"""

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations, combinations_with_replacement
from typing import Any
from unittest import mock

import numpy as np
import pytest
from noise_sources import Draw, Scripted

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.checks import NumRecords
from beam_dp.mechanisms.marginals import (
    measurements as measurements_module,
    plan as plan_module,
    scores as scores_module,
    selection as selection_module,
)
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism, StartingRecords
from beam_dp.mechanisms.marginals.selection import SelectionPlan
from beam_dp.privacy.accounting import discrete_gaussian_mu, zcdp_rho
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import Workload, marginals
from beam_dp.releases.kinds import release_from_bytes, release_to_bytes
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.secret.summaries.histogram import Histogram, Marginals

ADD = "add_or_remove_one"
REPLACE = "replace_one"
PURE = 0.0
APPROXIMATE = 1e-9

Unit = tuple[int, ...]  # the cells of one unit's records


def domain_of(*sizes: int) -> Domain:
    return Domain(tuple(IntegerAttribute(f"a{i}", 0, size - 1) for i, size in enumerate(sizes)))


def workload_of(domain: Domain, ways: int, weights: Sequence[float] = ()) -> Workload:
    return dataclasses.replace(marginals(domain, ways=ways), weights=tuple(weights))


def promise(
    neighboring: str = ADD, delta: float = PURE, epsilon: float = 1.0, most: int = 1
) -> Guarantee:
    unit = "record" if most == 1 else "person"
    return Guarantee(epsilon, delta, neighboring, unit, most)  # type: ignore[arg-type]


@contextmanager
def on_trees(selected_cells: int | None = None) -> Iterator[None]:
    """Lets tiny domains take the path of domains that no array holds.

    Args:
        selected_cells: that a selected tree may have; without it everything may be joined.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MAX_ARRAY_CELLS", "MAX_CELLS"):
            patch.setattr(plan_module, name, 0)
        # Their selections are checked, though choices are blind.
        for size in scores_module.LARGEST_MISS:
            patch.setitem(scores_module.LARGEST_MISS, size, math.inf)
        patch.setattr(scores_module, "_NUM_RECORDS", 2**10)
        if selected_cells is not None:
            patch.setattr(plan_module, "MAX_TREE_CELLS", 0)
            patch.setattr(plan_module, "MAX_SELECTED_CELLS", selected_cells)
        yield


def selects_only(plan: MarginalsPlan, held: Marginals, noise: Any) -> None:
    """Draws everything that a selection draws, without the final fit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection_module, "synthesise", lambda *arguments, **named: None)
        plan.release(held, noise)


def correlated(domain: Domain, num_records: int) -> np.ndarray:
    """Records whose attributes all follow one hidden number."""
    rng = np.random.default_rng(5)
    hidden = rng.random(num_records)
    codes = [
        np.minimum((0.7 * hidden + 0.3 * rng.random(num_records)) * size, size - 1).astype(np.int64)
        for size in domain.shape
    ]
    cells = np.ravel_multi_index(codes, domain.shape)
    return np.bincount(cells, minlength=domain.num_cells)


# Files hold every record, which takes about 0.1 microseconds each.
MAX_WRITTEN = 10**6


def check_release(release: SyntheticDatabase, plan: MarginalsPlan) -> None:
    """What holds for every release, whatever the data and the noise."""
    assert release.domain == plan.domain and release.guarantee == plan.guarantee
    if plan.total_is_public:
        assert release.num_records == plan.num_records
    assert release.num_records_is_public == plan.total_is_public
    assert release.num_records >= 1 and int(release.counts.sum()) == release.num_records
    assert (release.counts >= 1).all()
    for _, table in release.potentials:
        assert np.isfinite(table).all()
    for answer in release.answer(plan.workload):
        assert (answer.values >= 0).all()
        assert answer.values.sum() == pytest.approx(release.num_records)
        assert (answer.bound is None) == (answer.standard_error is None)
        if answer.bound is not None and answer.standard_error is not None:
            assert 0 <= answer.standard_error < math.inf and 0 <= answer.bound < math.inf
            assert answer.failure_probability == 0.05
    json.dumps([release.noise, release.plan, release.fit])
    if release.num_records <= MAX_WRITTEN:
        again = release_from_bytes(release_to_bytes(release))
        assert (again.counts == release.counts).all()


@contextmanager
def with_triples() -> Iterator[None]:
    """Lets pairs of three attributes measure their triple, as pairs of many attributes do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measurements_module, "_TRIPLE_ATTRIBUTES", range(3, 65))
        yield


def summary(plan: MarginalsPlan, counts: np.ndarray) -> Marginals:
    return Histogram(plan.domain, np.asarray(counts, np.int64)).marginals(plan.summary_tables)


def exact_table(domain: Domain, counts: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """The true marginal of exact counts."""
    others = tuple(each for each in range(domain.num_attributes) if domain.names[each] not in names)
    return np.asarray(counts.reshape(domain.shape).sum(others))


def released_faces(
    plan: MarginalsPlan, bases: Sequence[np.ndarray], script: Callable[[], Any]
) -> set[bytes]:
    """The different bytes of releases from some data, where noise has the same outputs."""
    released = (plan.release(summary(plan, counts), script()) for counts in bases)
    return {release_to_bytes(each) for each in released}


def units(num_cells: int, most: int) -> list[Unit]:
    """Everything that one unit may hold: up to ``most`` records, none among them."""
    sizes = range(most + 1)
    return [u for size in sizes for u in combinations_with_replacement(range(num_cells), size)]


def neighbours(held: Sequence[Unit], neighboring: str) -> Iterator[tuple[Unit, Unit]]:
    """All unordered pairs of what one unit may hold in neighbouring data.

    A replaced record may come from outside the domain or go there: it may be absent.
    """
    if neighboring == ADD:
        yield from ((unit, ()) for unit in held)
    else:
        yield from combinations(held, 2)


def with_unit(counts: np.ndarray, unit: Unit) -> np.ndarray:
    result = np.array(counts, np.int64)
    np.add.at(result, list(unit), 1)
    return result


class UnequalDrawsError(AssertionError):
    """The kind, number, shape or scale of the noise tells neighbours apart, before any is drawn."""


def handed_on(draws: Sequence[Draw]) -> Sequence[Draw]:
    """What a run hands to the noise: something else in some mutants."""
    return draws


def share_spent(guarantee: Guarantee, first: Sequence[Draw], second: Sequence[Draw]) -> float:
    """The share of the guarantee that hides the difference, by the cheapest proof that applies."""
    first, second = handed_on(first), handed_on(second)
    forms = [
        [(draw.kind, draw.scale, np.shape(draw.exact)) for draw in side] for side in (first, second)
    ]
    if forms[0] != forms[1]:
        raise UnequalDrawsError(f"{first} and {second}")
    epsilon = rho = mu_squared = 0.0
    for one, other in zip(first, second, strict=True):
        change = (one.exact - other.exact).astype(np.float64).ravel()
        squared = float(change @ change)
        if one.kind == "laplace":
            cost = np.abs(change).sum() / one.scale
            epsilon, rho, mu_squared = epsilon + cost, rho + cost**2 / 2, math.inf
        elif one.kind == "select":
            # The exponential mechanism: its log-ratios have at most this range.
            cost = float(np.ptp(change)) / one.scale
            epsilon, rho = epsilon + cost, rho + cost**2 / 8
            mu_squared += math.pi / 8 * cost**2
        elif one.kind == "permute_and_flip":
            cost = float(np.ptp(change)) / one.scale
            epsilon, rho, mu_squared = epsilon + cost, rho + cost**2 / 2, math.inf
        else:
            epsilon, rho = math.inf if squared else epsilon, rho + squared / (2 * one.scale**2)
            known = one.scale > 2 or not squared
            margin = max(one.scale**2 - 4, 1e-300)
            mu_squared += squared / margin if known else math.inf
    shares = [epsilon / guarantee.epsilon]
    if guarantee.delta > 0:
        allowed_rho, allowed_mu = budgets(guarantee)
        shares += [rho / allowed_rho, math.sqrt(mu_squared) / allowed_mu]
    return min(shares)


@functools.cache
def budgets(guarantee: Guarantee) -> tuple[float, float]:
    """What zero-concentrated and what Gaussian privacy allow."""
    return (
        zcdp_rho(guarantee.epsilon, guarantee.delta),
        discrete_gaussian_mu(guarantee.epsilon, guarantee.delta),
    )


def largest_share(
    plan: MarginalsPlan,
    guarantee: Guarantee,
    run: Callable[[MarginalsPlan, Marginals, Any], object],
    bases: Sequence[np.ndarray],
    scripts: Sequence[Callable[[], Scripted]],
    enough: float = math.inf,
) -> float:
    """The most that any neighbours spend, over all of them, or the first share above ``enough``."""

    def draws_of(script: Callable[[], Scripted], counts: np.ndarray) -> list[Draw]:
        source = script()
        run(plan, summary(plan, counts), source)
        return source.draws

    worst = 0.0
    for script in scripts:
        draws = functools.partial(draws_of, script)
        worst = max(worst, worst_share(guarantee, bases, draws, enough))
        if worst > enough:
            break
    return worst


def worst_share(
    guarantee: Guarantee,
    bases: Sequence[Any],
    draws_of: Callable[[np.ndarray], list[Draw]],
    enough: float = math.inf,
) -> float:
    """The most that any neighbours spend, from what is handed to the noise for given counts.

    The first share above ``enough`` ends the search.
    """
    worst = 0.0
    for base in bases:
        held = units(len(base), guarantee.max_records_per_unit)
        draws = functools.cache(lambda unit, base=base: draws_of(with_unit(base, unit)))
        for one, other in neighbours(held, guarantee.neighboring):
            worst = max(worst, share_spent(guarantee, draws(one), draws(other)))
            if worst > enough:
                return worst
    return worst


def scripted(seed: int, num_selections: int = 1, high: int = 40) -> Callable[[], Scripted]:
    """Noise sources that all answer alike, at random."""

    def answer(number: int, shape: tuple[int, ...]) -> np.ndarray:
        return np.random.default_rng([seed, number]).integers(-3, high, shape)

    def make() -> Scripted:
        chosen = np.random.default_rng(seed).integers(0, num_selections, 50)
        return Scripted([int(each) for each in chosen], answer)

    return make


class WithPublicRecords(MWEM):
    """A selection with public records, one of every possible record."""

    def plan(
        self, domain: Domain, workload: Workload, guarantee: Guarantee, num_records: NumRecords
    ) -> MarginalsPlan:
        codes = domain.codes(np.arange(domain.num_cells))
        counts = np.arange(1, domain.num_cells + 1)
        plan = super().plan(domain, workload, guarantee, num_records)
        return plan.starting_from(StartingRecords(domain, "public", codes, counts))


class CheckedPlan(SelectionPlan):
    """A selection whose scores choose no pair, and whose check chooses by noise all the same."""

    def _numbers(self, chosen: Sequence[Any], *others: Any) -> list[int]:
        return super()._numbers(chosen or self.pairs[:1], *others)

    def release(self, *arguments: Any) -> SyntheticDatabase:
        with mock.patch.object(selection_module, "choose_pairs", lambda *others: ([], [])):
            return super().release(*arguments)


class WithCheck(MWEM):
    """The mechanism of ``CheckedPlan``."""

    def plan(self, *arguments: Any) -> MarginalsPlan:
        checks = scores_module.CHECKS
        by_noise = {2: dataclasses.replace(checks[2], most_by_scores=0)}
        with mock.patch.dict(checks, by_noise):
            plan = super().plan(*arguments)
        fields = dataclasses.fields(plan)
        return CheckedPlan(**{field.name: getattr(plan, field.name) for field in fields})


def plan_of(
    mechanism: Mechanism, workload: Workload, guarantee: Guarantee, num_records: NumRecords
) -> MarginalsPlan:
    return mechanism.plan(workload.domain, workload, guarantee, num_records)
