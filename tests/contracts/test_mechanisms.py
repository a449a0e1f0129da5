"""What every mechanism promises, tested with each case of ``mechanism_cases``."""

import copy
import dataclasses
import itertools
import math
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from mechanism_cases import CASES, COUNTS, Case, draw_tables
from noise_sources import Draw, NoNoise, Scripted, Seeded
from sketch_laws import cell_by_cell, seeded_key
from tiny import (
    ADD,
    REPLACE,
    check_release,
    domain_of,
    neighbours,
    promise,
    share_spent,
    summary,
    units,
    with_unit,
    workload_of,
)
from window_plans import HORIZON_ID, RECORD, marginals_of, plan_of as plan_windows, whole

import beam_dp as dp
from beam_dp.encoding.open_values import GRID
from beam_dp.mechanisms import registry
from beam_dp.mechanisms.checks import MAX_RECORDS
from beam_dp.mechanisms.contract import Plan, check_promise
from beam_dp.mechanisms.discovery.records_per_unit import plan_records
from beam_dp.mechanisms.discovery.values import plan_values
from beam_dp.mechanisms.intervals.plan import planned, release_intervals
from beam_dp.mechanisms.left_out import plan_left_out, share_guarantee
from beam_dp.mechanisms.marginals import measure_all, rounds, selection
from beam_dp.mechanisms.online.plan import OnlinePlan
from beam_dp.mechanisms.sketches.plan import SparseSummary
from beam_dp.models import maximum_entropy
from beam_dp.noise.bound import noise_variance
from beam_dp.privacy.loss import Loss
from beam_dp.releases.kinds import KINDS, release_from_bytes, release_to_bytes, verify_release
from beam_dp.summaries.element_counts import ElementCounts
from beam_dp.summaries.projection import Projection
from beam_dp.verification.steps import total

# A warning of numpy's is a line of log that depends on what was measured.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

EMPTY = np.zeros(6, np.int64)
DATA = (EMPTY, np.eye(6, dtype=np.int64)[3], COUNTS, np.full(6, 10**9))
ONLINE = ("private_mw", "sparse_mw")  # whose plans take long
each_case = pytest.mark.parametrize("name", CASES)
each_database = pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if case.run is draw_tables]
)


@pytest.fixture(autouse=True)
def short_fits(monkeypatch):
    """Most of these tests look at what is drawn, or compare two fits of the same tables."""
    monkeypatch.setattr(maximum_entropy, "_MAX_STEPS", 5)


def promises(case: Case, epsilon: float = 1.0) -> Iterator[dp.Guarantee]:
    """Either relation: with two records a unit, or a record replaced, and every delta."""
    for relation, delta in itertools.product(case.relations, case.deltas):
        yield promise(relation, delta, epsilon, 2 if relation == ADD else 1)


def one_of(case: Case, epsilon: float = 1.0) -> Any:
    """A plan of a case: with delta and two records a unit."""
    return case.plan(promise(case.relations[0], case.deltas[-1], epsilon, 2))


def test_every_entry_of_the_registry_has_a_case():
    tables = ("SYNTHETIC", "SKETCHES", "ANSWERS")
    registered = {(table, name) for table in tables for name in getattr(registry, table)}
    assert {entry for case in CASES.values() for entry in case.entries} == registered


def loss_of(plan: Plan) -> tuple[Loss, float]:
    """The loss of all steps together, and the epsilon that it keeps."""
    together, epsilon = total(plan.steps, plan.guarantee)
    return together.loss, epsilon


@each_case
def test_steps_add_up_to_the_promise_and_to_the_loss_that_is_paid(name):
    case = CASES[name]
    for guarantee in promises(case) if case.priced else ():
        with case.around():
            plan = case.priced(case.plan(guarantee))
            plan.paid_by(None)
            check_promise(plan, plan.guarantee)
            spent, epsilon = loss_of(plan)
            if not isinstance(plan, OnlinePlan):  # whose noise follows from its guarantee
                more = dataclasses.replace(plan.guarantee, epsilon=0.2 * plan.guarantee.epsilon)
                with pytest.raises(dp.InputError, match="must keep epsilon"):
                    check_promise(dataclasses.replace(plan, guarantee=more), more)
        assert case.least * plan.guarantee.epsilon <= epsilon <= plan.guarantee.epsilon
        assert plan.loss.covers(spent)
        measures = ("epsilon", "mu_squared", "rho")
        measure = next(each for each in measures if getattr(plan.loss, each) is not None)
        assert getattr(plan.loss, measure) <= getattr(spent, measure) * (1 + 1e-5)


def scales_halved(value: Any, unstated: tuple[str, ...]) -> Iterator[Any]:
    """A plan with half of one of its scales, for each of them."""
    others = ("guarantee", "loss", "left_out", "workload", *unstated)
    if isinstance(value, tuple):
        for place, each in enumerate(value):
            for halved in scales_halved(each, unstated):
                yield (*value[:place], halved, *value[place + 1 :])
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            held = getattr(value, field.name)
            if isinstance(held, float) and "scale" in field.name:
                yield dataclasses.replace(value, **{field.name: held / 2})
            elif field.init and field.name not in others:
                for halved in scales_halved(held, unstated):
                    yield dataclasses.replace(value, **{field.name: halved})


@each_case
def test_less_noise_or_a_lower_price_is_refused(name):
    case = CASES[name]
    if case.priced is None:
        return
    with case.around():
        plan = case.priced(one_of(case))
        for wrong in scales_halved(plan, case.unstated):
            with pytest.raises(dp.InputError, match="mechanism"):
                check_promise(wrong, plan.guarantee)
        claims = {name: value / 2 for name, value in vars(plan.loss).items() if value}
        less = Loss(**{**claims, "slack": plan.loss.slack})
        cheaper = dataclasses.replace(plan, loss=less)
        for check in (
            lambda: check_promise(cheaper, plan.guarantee),
            lambda: cheaper.paid_by(None),
        ):
            with pytest.raises(dp.InputError, match="loss"):
                check()


def tamper(value: Any) -> None:
    """Makes every number a thousandth of what it was, as far as that is possible."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in list(entries):
        if isinstance(each, dict | list):
            tamper(each)
        elif isinstance(each, int | float) and not isinstance(each, bool):
            value[key] = type(each)(each / 1000)
        elif isinstance(each, str):
            value[key] = "tampered"


class Recording(NoNoise):
    """Adds nothing, and answers what only integers of a draw need."""

    def below(self, bound: int) -> int:
        self.draws.append(Draw("below", np.array(bound), 0.0))
        return 0


@each_case
def test_plans_for_any_guarantee_keep_it_and_run_on_any_counts_or_are_refused(name):
    """Steps are added up in rational numbers: a scale that is a bit too small breaks a promise."""
    case, rng, number = CASES[name], random.Random(name), 0
    if case.priced is None:
        return
    for relation, delta in itertools.product(case.relations, case.deltas):
        for is_run in [True, False, False] if name in ONLINE else [True, *[False] * 14]:
            epsilon, few = 10 ** rng.uniform(-4, 2), delta and 10 ** rng.uniform(-12, -5)
            guarantee = promise(relation, few, epsilon, int(10 ** rng.uniform(0, 4)))
            with case.around():
                try:
                    plan = case.plan(guarantee)
                except dp.InputError as too_noisy:
                    assert too_noisy.name == "epsilon"
                    continue
                check_promise(case.priced(plan), case.priced(plan).guarantee)
                for counts in (EMPTY, DATA[-1]) if is_run else ():
                    case.run(plan, counts, Seeded(1))
                number += 1
    assert number > 5


def drawn(case: Case, plan: Any, counts: Any = COUNTS) -> list[Draw]:
    noise = Recording()
    case.run(plan, counts, noise)
    return noise.draws


def same_draws(first: list[Draw], second: list[Draw]) -> bool:
    return [(d.kind, d.exact.tolist(), d.scale) for d in first] == [
        (d.kind, d.exact.tolist(), d.scale) for d in second
    ]


@each_case
def test_plans_survive_pickling_and_what_they_state_is_never_read_back(name):
    case = CASES[name]
    with case.around():
        plan = one_of(case)
        copied, before = pickle.loads(pickle.dumps(plan)), drawn(case, plan)
        assert same_draws(drawn(case, copied), before)
        stated = (case.priced or (lambda each: each))(plan)
        if isinstance(stated, Plan):
            again = (case.priced or (lambda each: each))(copied)
            public = copy.deepcopy(stated.public)
            assert again.public == public and again.loss == stated.loss
            tamper(stated.public)
            assert stated.public == public
            assert same_draws(drawn(case, plan), before)


def scripted(case: Case, plan: Any, counts: Any) -> Any:
    """What a run releases if noise has the same outputs for all data."""

    def answer(number: int, shape: tuple[int, ...]) -> Any:
        return np.random.default_rng([5, number]).integers(0, 2**20, shape)

    script = Scripted([2, 0, 1], answer)
    script.bits = Seeded(1).bits  # type: ignore[method-assign]
    return case.face(case.run(plan, counts, script))


@each_case
def test_releases_depend_on_data_only_through_noisy_values(name):
    case = CASES[name]
    for guarantee in promises(case):
        with case.around():
            plan = case.plan(guarantee)
            first, *others = (scripted(case, plan, counts) for counts in DATA)
        assert all(other == first for other in others)


@each_case
def test_releases_are_well_formed_for_any_data(name):
    """Read as written, verified to hold and to spend what was planned; and data are unchanged."""
    case = CASES[name]
    with case.around():
        plan, drawn_ids = one_of(case), set()
        for seed, counts in enumerate(DATA):
            held = counts.copy()
            found = case.run(plan, held, Seeded(seed))
            assert np.array_equal(held, counts)
            release = found[0] if isinstance(found, tuple) else found
            if getattr(release, "KIND", None) not in KINDS:
                continue
            drawn_ids.add(release.draw_id)
            if hasattr(release, "hash_key"):
                assert release.hash_key.to_bytes() == plan.hash_key.to_bytes()
            again = release_from_bytes(release_to_bytes(release))
            assert release_to_bytes(again) == release_to_bytes(release)
            verified = verify_release(again)
            assert verified.holds and not verified.faults
            own = again.guarantee.epsilon
            assert case.least * own <= verified.epsilon <= own
        assert len(drawn_ids) in (0, len(DATA))


def huge() -> Scripted:
    """Noise of whatever is drawn, far above any number of records."""
    rng = np.random.default_rng(1)
    noise = Scripted(answer=lambda _, shape: rng.integers(2**58, 2**62, shape))
    noise.bits = Seeded(1).bits  # type: ignore[method-assign]
    return noise


@each_database
def test_noise_far_above_any_number_of_records_gives_a_valid_release(name):
    """No such number is ever written out, and what is told of progress is the same for all data."""
    case = CASES[name]
    for guarantee in promises(case):
        with case.around():
            plan, told = case.plan(guarantee), []
            for counts in (EMPTY, DATA[-1]):
                told.append([])
                release = plan.release(
                    summary(plan, counts), huge(), lambda *step, to=told[-1]: to.append(step)
                )
                assert 1 <= release.num_records <= release.represented <= MAX_RECORDS
                if name != "small_db":
                    check_release(release, plan)
        assert told[0] == told[1] and all(1 <= done <= total for _, done, total in told[0])


@each_case
def test_huge_epsilon_gives_exact_answers(name, monkeypatch):
    case = CASES[name]
    if case.errors is None:
        return
    monkeypatch.setattr(maximum_entropy, "_MAX_STEPS", 100)
    for guarantee in promises(case, 1e5):
        with case.around():
            found = case.run(case.plan(guarantee), COUNTS, Seeded(1))
            assert np.abs(case.errors(found, COUNTS)).max() < 1


@each_case
def test_draws_on_all_neighbours_together_spend_the_promise_and_no_more(name, monkeypatch):
    """What is handed to the noise: of a unit of up to two records, or of one that is replaced."""
    case = CASES[name]
    if case.least_on_data is None:
        return
    for module in (measure_all, rounds, selection):
        # The last fit draws nothing.
        monkeypatch.setattr(module, "synthesise", lambda *arguments, **named: None)
    replaced = [
        promise(REPLACE, each, 1.0, 2)
        for each in case.deltas * ("intervals" in name or "answers" in name)
    ]
    for guarantee in (*promises(case), *replaced):
        with case.around():
            plan = case.plan(guarantee)
            held = units(6, guarantee.max_records_per_unit)
            noises = {unit: scripted_draws(case, plan, with_unit(COUNTS, unit)) for unit in held}
        assert case.least_on_data < worst_share(guarantee, noises) <= 1 + 1e-9
        less = {unit: [with_scale(each, 0.9) for each in found] for unit, found in noises.items()}
        assert case.least_on_data < 0.95 or worst_share(guarantee, less) > 1  # it is not blind


def with_scale(draw: Draw, factor: float) -> Draw:
    return dataclasses.replace(draw, scale=factor * draw.scale)


def worst_share(guarantee: dp.Guarantee, noises: dict[Any, list[Draw]]) -> float:
    return max(
        share_spent(guarantee, noises[one], noises[other])
        for one, other in neighbours([*noises], guarantee.neighboring)
    )


def scripted_draws(case: Case, plan: Any, counts: Any) -> list[Draw]:
    noise = Scripted([1, 0], lambda number, shape: np.full(shape, 3 * number))
    case.run(plan, counts, noise)
    return cell_by_cell(noise.draws)


# Noise of 4,096 values, with the standard deviation that their plan states.
VALUES = 4096
ZEROS = np.zeros(VALUES, np.int64)
Drawn = tuple[Any, Any]


def of_tables(mechanism: Any, delta: float) -> Drawn:
    domain = domain_of(64, 64)
    plan = mechanism.plan(domain, workload_of(domain, 2), promise(ADD, delta), 10)
    found = plan.release(summary(plan, ZEROS), Seeded(1)).measurements
    measured, table = found.described[-1], np.asarray(found.tables[-1])
    return table.ravel(), math.sqrt(measured.variance)


def of_sketch(mechanism: Any, part: str) -> Drawn:
    plan = mechanism.plan(promise(ADD, 1e-9), max_sparsity=9, hash_key=seeded_key(0))
    elements, exact = np.arange(VALUES, dtype=np.uint64), np.full(VALUES, 10**6)
    sums = None
    if plan.sketch is not None:
        width = plan.sketch.signs(plan.hash_key).projection_width
        sums = Projection(np.zeros(width, np.int64))
    listed = ElementCounts(elements, exact) if plan.histogram is not None else None
    release = dp.release_sparse(plan, SparseSummary(sums, listed), Seeded(1))
    if part == "histogram":
        variance = noise_variance("discrete_laplace", plan.histogram.scale)
        return release.histogram.counts - exact, math.sqrt(variance)
    sketch = plan.sketch
    variance = noise_variance(sketch.distribution, sketch.scale * sketch.grid) / sketch.grid**2
    return release.sketch.cells / sketch.grid, math.sqrt(variance)


def of_intervals(distribution: str) -> Drawn:
    plan = planned(VALUES, promise(ADD, 1e-9), ("histogram", distribution))  # type: ignore[arg-type]
    found = release_intervals(plan, ZEROS, Seeded(1)).histogram()
    return found, math.sqrt(plan.noise_variance)


def of_answers(top: bool, distribution: str) -> Drawn:
    workload = dp.parse_linear_workload("marginals:1", domain_of(VALUES))
    plan: Any
    promised = promise(ADD, 1e-9)
    if top:
        promised = promise(ADD, 1e-9, 100.0)
        plan = dp.plan_top_queries(workload, promised, "noisy", VALUES, "exponential")
    else:
        plan = dp.plan_workload_answers(workload, promised, "noisy", distribution)  # type: ignore[arg-type]
    return [*plan.answered(ZEROS, Seeded(1)).values()], plan.standard_error


def of_windows(distribution: str, level: str) -> Drawn:
    options = {"strategy": "levels", "block": 2, "distribution": distribution}
    plan = plan_windows(4, RECORD, whole(domain_of(VALUES)), **options)
    draw, measured = {
        "window": (plan.draw, plan.measurements),
        "block": (plan.draw_block, plan.block_measurements),
    }[level]
    found = draw(1, marginals_of(plan, 0), Seeded(1), HORIZON_ID)
    return found.tables["a0",], math.sqrt(measured[0].variance)


def of_texts() -> Drawn:
    plan = plan_values("city", promise(ADD, 1e-9), 0.5, 1e-10, VALUES)
    texts = pa.array([b"%04d" % place for place in range(VALUES)], pa.large_binary())
    found = plan.release(texts, np.full(VALUES, 10**4 * GRID), Seeded(1))
    variance = noise_variance("discrete_gaussian", plan.scale)
    return [units - 10**4 for _, units in found], math.sqrt(variance) / plan.grid


def of_left_out() -> Drawn:
    guarantee = promise()
    domain = domain_of(*[2] * VALUES)
    plan = plan_left_out(domain, guarantee, Loss.pure(share_guarantee(guarantee).epsilon))
    found = plan.release(ZEROS, Seeded(1))
    return [*found.counts.values()], found.standard_error


def of_records() -> Drawn:
    plan = plan_records(domain_of(2), promise(ADD, 0.0, 1.0, 2**40), 9.0)
    variance, counts = plan.counts.noise_variance, np.zeros(plan.counts.num_leaves, np.int64)
    source = Seeded(1)
    found = [plan.release(counts, source).histogram() for _ in range(VALUES // counts.size)]
    return np.concatenate(found), math.sqrt(variance)


NOISES: dict[str, Callable[[], Drawn]] = {
    "mwem": lambda: of_tables(dp.MWEM(), 0.0),
    "mwem in rounds, laplace": lambda: of_tables(dp.MWEM(num_rounds=1), 0.0),
    "mwem in rounds, gaussian": lambda: of_tables(dp.MWEM(num_rounds=1), 1e-9),
    "laplace": lambda: of_tables(dp.Laplace(), 0.0),
    "gaussian": lambda: of_tables(dp.Gaussian(), 1e-9),
    "gaussian textbook": lambda: of_tables(dp.Gaussian("textbook"), 1e-9),
    "sparse_project": lambda: of_sketch(dp.SparseProject(VALUES), "sketch"),
    "count_sketch": lambda: of_sketch(dp.CountSketch(VALUES - 1, 3), "sketch"),
    "count_sketch gaussian": lambda: of_sketch(
        dp.CountSketch(VALUES - 1, 3, noise="gaussian"), "sketch"
    ),
    "stability_histogram": lambda: of_sketch(dp.StabilityHistogram(), "histogram"),
    "hybrid, sketch": lambda: of_sketch(dp.HybridSketch(VALUES - 1, 3), "sketch"),
    "hybrid, histogram": lambda: of_sketch(dp.HybridSketch(VALUES - 1, 3), "histogram"),
    "intervals, laplace": lambda: of_intervals("discrete_laplace"),
    "intervals, gaussian": lambda: of_intervals("discrete_gaussian"),
    "laplace answers": lambda: of_answers(False, "discrete_laplace"),
    "gaussian answers": lambda: of_answers(False, "discrete_gaussian"),
    "top_queries": lambda: of_answers(True, "discrete_gaussian"),
    "windows, laplace": lambda: of_windows("discrete_laplace", "window"),
    "windows, gaussian": lambda: of_windows("discrete_gaussian", "window"),
    "blocks of windows": lambda: of_windows("discrete_laplace", "block"),
    "texts": of_texts,
    "records outside the domain": of_left_out,
    "records per unit": of_records,
}


@pytest.mark.parametrize("name", NOISES)
def test_noise_has_the_variance_of_the_planned_scale(name):
    """The seed is fixed; a scale 5 % off is 10 % of the variance, or two to four deviations.

    A scale that is 10 % too small is 19 % of it.
    """
    noise, deviation = NOISES[name]()
    assert len(noise) > 0.95 * VALUES
    ratio = np.mean(np.square(noise)) / deviation**2
    assert ratio == pytest.approx(1, abs=0.1)
