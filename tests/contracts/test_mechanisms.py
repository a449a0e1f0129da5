"""What every mechanism promises, tested with each case of ``mechanism_cases``."""

import copy
import dataclasses
import importlib
import inspect
import itertools
import pickle
import pkgutil
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from mechanism_cases import CASES, COUNTS, Case, draw_tables
from noise_sources import Draw, NoNoise, Scripted, Seeded
from sketch_laws import cell_by_cell
from tiny import (
    ADD,
    REPLACE,
    check_release,
    neighbours,
    promise,
    share_spent,
    summary,
    units,
    with_unit,
)

import beam_dp as dp
from beam_dp import mechanisms
from beam_dp.flags.shared import MAX_RECORDS
from beam_dp.mechanisms import registry
from beam_dp.mechanisms.contract import Plan, check_promise
from beam_dp.mechanisms.marginals import measure_all, rounds, selection
from beam_dp.mechanisms.online import plan as online, private_mw
from beam_dp.mechanisms.online.plan import OnlinePlan
from beam_dp.models import maximum_entropy
from beam_dp.privacy.budget import Budget
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.steps import total
from beam_dp.releases.kinds import release_from_bytes, release_to_bytes, verify_release
from beam_dp.releases.parts import KINDS
from beam_dp.releases.synthetic_database.strategies import MECHANISMS

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


UNUSED = 1.03  # an epsilon that no other test has: some noise is cached by the guarantee


def one_of(case: Case, epsilon: float = 1.0) -> Any:
    """A plan of a case: with delta and two records a unit."""
    return case.plan(promise(case.relations[0], case.deltas[-1], epsilon, 2))


def test_every_entry_of_the_registry_has_a_case():
    tables = ("SYNTHETIC", "SKETCHES", "ANSWERS")
    registered = {(table, name) for table in tables for name in getattr(registry, table)}
    assert {entry for case in CASES.values() for entry in case.entries} == registered
    assert {*MECHANISMS} == {*registry.SYNTHETIC}  # else cards without a strategy are believed


def concrete(kind: type[Any]) -> Iterator[type[Any]]:
    """The classes below one that can be made, in the package."""
    for each in kind.__subclasses__():
        yield from concrete(each)
        if not inspect.isabstract(each) and each.__module__.startswith("beam_dp."):
            yield each


def test_every_plan_has_a_case():
    for module in pkgutil.walk_packages(mechanisms.__path__, f"{mechanisms.__name__}."):
        importlib.import_module(module.name)
    plans = set()
    for case in CASES.values():
        with case.around():
            plans.add(type(one_of(case)))
    assert {*concrete(Plan)} - plans == set()


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


def scales_lowered(value: Any, factor: float) -> Iterator[Any]:
    """A plan with less of one of its scales, for each of them; 0 where nothing is drawn."""
    others = ("guarantee", "loss", "left_out", "workload")
    if isinstance(value, tuple):
        for place, each in enumerate(value):
            for halved in scales_lowered(each, factor):
                yield (*value[:place], halved, *value[place + 1 :])
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            held = getattr(value, field.name)
            if isinstance(held, float) and held and "scale" in field.name:
                yield dataclasses.replace(value, **{field.name: factor * held})
            elif field.name == "threshold":
                yield dataclasses.replace(value, threshold=int(factor * held))
            elif field.init and field.name not in others:
                for halved in scales_lowered(held, factor):
                    yield dataclasses.replace(value, **{field.name: halved})


@each_case
def test_less_noise_or_a_lower_price_is_refused(name):
    case = CASES[name]
    if case.priced is None:
        return
    with case.around():
        plan = case.priced(one_of(case))
        for wrong in scales_lowered(plan, 0.5):
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


@each_case
def test_plan_that_chose_too_little_noise_is_refused_and_its_release_fails_verification(name):
    """A mistake of a tenth in the arithmetic of a plan, where the plan spends what it may."""
    case, factor = CASES[name], 0.9 if CASES[name].least > 0.95 else 0.5
    if case.priced is None:
        return
    with case.around():
        plan = case.plan(promise(case.relations[0], case.deltas[-1], 1.0, 2))
        lowered = [*scales_lowered(plan, factor)]
        assert lowered or name in ONLINE
        for wrong in lowered:
            priced = case.priced(wrong)
            with pytest.raises(dp.InputError, match="mechanism"):
                check_promise(priced, priced.guarantee)
            release, honest = (
                found[0] if isinstance(found, tuple) else found
                for found in (case.run(each, COUNTS, Seeded(1)) for each in (wrong, plan))
            )
            # A window states no noise of blocks: the directory of its horizon does.
            if getattr(release, "KIND", None) in KINDS and release.card != honest.card:
                again = release_from_bytes(release_to_bytes(release))
                assert not verify_release(again).holds


@each_case
def test_noise_for_more_than_the_budget_is_refused(name, monkeypatch):
    """The check of a promise shares no arithmetic with the plan, which splits a tenth too much."""
    case, original = CASES[name], Budget.of

    def larger(guarantee: dp.Guarantee, kind: Any = None) -> Budget:
        return original(guarantee, kind).part(1.1)

    if case.priced is None:
        return
    with case.around():
        plan = case.priced(one_of(case, UNUSED))
        monkeypatch.setattr(Budget, "of", staticmethod(larger))
        try:
            wrong = case.priced(one_of(case, UNUSED))
            check_promise(wrong, plan.guarantee)
        except dp.InputError:
            return
    # No noise of these plans follows from a ``Budget``; one of a window tries several, and checks.
    assert loss_of(wrong) == loss_of(plan) or name.startswith("windows by ")


@pytest.mark.parametrize("name", ONLINE)
def test_run_that_chose_too_little_noise_is_refused_and_its_answers_fail_verification(
    name, monkeypatch
):
    """The noise of online answers follows from the plan when the number of records is known."""
    original = online.noise_candidates

    def too_little(*arguments: Any, **named: Any) -> Iterator[Any]:
        for noise in original(*arguments, **named):
            scales = ("threshold_scale", "question_scale", "answer_scale")
            lower = {scale: 0.9 * getattr(noise, scale) for scale in scales}
            yield dataclasses.replace(noise, **lower)

    monkeypatch.setattr(online, "noise_candidates", too_little)
    monkeypatch.setattr(private_mw, "pay", lambda plan, token: None)
    plan = CASES[name].plan(promise(REPLACE, 0.0, 0.9 * UNUSED, 1))
    with pytest.raises(dp.InputError, match="mechanism"):
        check_promise(plan, plan.guarantee)
    release, _ = CASES[name].run(plan, COUNTS, Seeded(1))
    assert not verify_release(release_from_bytes(release_to_bytes(release))).holds


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
            epsilon, few = 10 ** rng.uniform(-4, 2), delta and 10 ** rng.uniform(-12, -2)
            most = int(10 ** rng.uniform(0, 4))
            unit = "record" if most == 1 else "person"
            guarantee = dp.Guarantee(epsilon, few, relation, unit, most, allow_large_delta=True)
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
