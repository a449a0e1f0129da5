"""Plans for choosing the records per unit, and the numbers that are chosen.

Statistical tests have fixed seeds.
"""

from __future__ import annotations

import dataclasses
import math
import pickle

import numpy as np
import pytest
from noise_sources import NoNoise, Seeded

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.discovery.records_per_unit import (
    RecordsPlan,
    later_epsilon,
    loss_with_records,
    noise_per_record,
    plan_records,
    records_of,
)
from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian, Laplace
from beam_dp.mechanisms.registry import ReleaseOptions, plan_release
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.entries import Token
from beam_dp.privacy.loss import Loss
from beam_dp.queries.workload import marginals
from beam_dp.releases.domain.verify import domain_steps
from beam_dp.releases.kinds import release_from_bytes, release_to_bytes, verify_release
from beam_dp.verification.records_per_unit import chosen_records, record_levels

ADD, REPLACE = "add_or_remove_one", "replace_one"
MOST = 100
LEVELS = record_levels(MOST)
DOMAIN = Domain((IntegerAttribute("a", 0, 2), IntegerAttribute("b", 0, 4)))


def levels_of(records: np.ndarray, most: int = MOST) -> np.ndarray:
    levels = record_levels(most)
    places = np.searchsorted(levels, np.minimum(records, most), "right") - 1
    return np.bincount(places, minlength=len(levels)).astype(np.int64)


def predicted(records: np.ndarray, k: int, noise: float) -> float:
    """Records that are dropped, and the noise for k records."""
    return float(np.maximum(records - k, 0).sum()) + k * noise


def test_levels_are_single_numbers_and_then_grow_by_a_fifth():
    assert record_levels(2) == (1, 2)
    assert LEVELS[:14] == (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 19)
    assert LEVELS[-1] == MOST and len(LEVELS) == 24
    assert len(record_levels(2**40)) < 170


def planned(
    noise: float = 2000.0, most: int = MOST, epsilon: float = 1.0, neighboring: str = ADD
) -> RecordsPlan:
    whole = Guarantee(epsilon, 1e-9, neighboring, "person", most)  # type: ignore[arg-type]
    return plan_records(DOMAIN, whole, noise)


def number(plan: RecordsPlan, counts: np.ndarray, source: NoNoise) -> int:
    return records_of(plan.release(counts, source)).main.max_records_per_unit


@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
def test_choice_and_later_releases_share_epsilon(neighboring):
    plan = planned(neighboring=neighboring)
    (step,) = plan.counts.steps
    chosen = plan.chosen(7)
    assert domain_steps(chosen.noise, chosen.main)[0].loss == step.loss
    assert chosen.main.epsilon == later_epsilon(plan.whole) == 0.98
    assert 0.02 * (1 - 1e-9) <= float(step.loss.epsilon) <= 1 - 0.98
    assert chosen.main.max_records_per_unit == 7
    assert plan.counts.scale == pytest.approx(50 if neighboring == ADD else 100)


def test_release_is_read_as_it_was_written_and_states_the_choice():
    plan = planned()
    release = plan.release(levels_of(np.full(50_000, 3)), Seeded(1))
    assert verify_release(release).holds
    again = release_from_bytes(release_to_bytes(release))
    assert records_of(again) == records_of(release)
    assert records_of(again).draw_id == release.draw_id
    assert release.guarantee.max_records_per_unit == 1  # one count of each unit
    assert pickle.loads(pickle.dumps(plan)).parameters == plan.parameters


@pytest.mark.parametrize("noise", [3.0, 40.0, 500.0, 3000.0])
@pytest.mark.parametrize("shape", ["one or two", "all nine", "geometric"])
def test_exact_counts_choose_the_best_number_or_the_end_of_its_level(shape, noise):
    rng = np.random.default_rng(0)
    records = {
        "one or two": rng.integers(1, 3, 5000),
        "all nine": np.full(5000, 9),
        "geometric": rng.geometric(0.2, 5000),
    }[shape]
    counts = levels_of(records).tolist()
    chosen = chosen_records(counts, scale=1e-9, most=MOST, noise_per_record=noise)
    best = min(range(1, MOST + 1), key=lambda k: predicted(records, k, noise))
    place = np.searchsorted(LEVELS, best, "right")
    assert LEVELS[place - 1] <= chosen < LEVELS[place]
    assert predicted(records, chosen, noise) <= 1.1 * predicted(records, best, noise)


@pytest.mark.parametrize(("records", "chosen"), [(10, 10), (11, 11), (20, 21), (100, 100)])
def test_all_records_of_equal_units_are_kept(records, chosen):
    # Levels begin at 10, 12, 14, 16, 19 and 22; the noise of one record more is cheap.
    counts = levels_of(np.full(50_000, records))
    plan = planned(26_000.0 if records == 10 else 2000.0)
    assert number(plan, counts, Seeded(1)) == chosen


@pytest.mark.parametrize("shape", ["one or two", "geometric", "long tail"])
def test_choice_is_near_the_best(shape):
    rng = np.random.default_rng(2)
    records = {
        "one or two": rng.integers(1, 3, 20_000),
        "geometric": rng.geometric(0.2, 20_000),
        "long tail": np.floor(rng.pareto(1.1, 20_000) + 1).astype(np.int64),
    }[shape]
    noise = 2000.0
    found = [number(planned(noise), levels_of(records), Seeded(seed)) for seed in range(20)]
    least = min(predicted(records, k, noise) for k in range(1, MOST + 1))
    assert max(predicted(records, k, noise) for k in found) <= 1.1 * least


@pytest.mark.parametrize("units", [0, pytest.param(1000, marks=pytest.mark.part)])
def test_noise_alone_does_not_choose_a_larger_number(units):
    plan = planned(1.0, 1000)
    counts = levels_of(np.ones(units, np.int64), 1000)
    found = [number(plan, counts, Seeded(seed)) for seed in range(200)]
    assert sum(k > 1 for k in found) <= 20  # 10 are expected at most; 21 have probability 1e-3


@pytest.mark.parametrize("delta", [0.0, 1e-9])
@pytest.mark.parametrize("mechanism", [MWEM(), Gaussian(), Laplace(), Gaussian("textbook")])
def test_plans_for_any_chosen_number_are_within_the_paid_loss(mechanism, delta):
    if delta == 0 and isinstance(mechanism, Gaussian):
        return
    whole = Guarantee(1.0, delta, ADD, "person", MOST)
    records, workload = plan_records(DOMAIN, whole, 9.0), marginals(DOMAIN, ways=2)
    most = ReleaseOptions(records_per_unit=records.chosen(MOST))
    paid = plan_release(mechanism, DOMAIN, workload, whole, most).loss
    for k in (1, 2, 17, MOST):
        options = ReleaseOptions(records_per_unit=records.chosen(k), paid=paid)
        plan = plan_release(mechanism, DOMAIN, workload, whole, options)
        assert (plan.promised, plan.loss) == (whole, paid)
        assert plan.guarantee.max_records_per_unit == k
        token = Token("people", 1, plan.mechanism, whole, paid)
        assert plan.paid_by(token).ledger_token == token
        assert dataclasses.replace(records, paid=paid).paid_by(token).counts.ledger_token == token
        assert plan.entry()["records_per_unit"]["noise"][0]["scale"] == records.counts.scale


def test_a_later_release_with_the_whole_budget_breaks_the_guarantee():
    """The mutant that forgets what the choice costs."""
    whole = Guarantee(1.0, 1e-9, ADD, "person", MOST)
    chosen = plan_records(DOMAIN, whole, 9.0).chosen(3)
    workload = marginals(DOMAIN, ways=2)
    greedy = dataclasses.replace(chosen.main, epsilon=1.0)
    plan = plan_release(Gaussian(), DOMAIN, workload, greedy)
    with pytest.raises(InputError, match="must keep the whole guarantee, epsilon 1"):
        loss_with_records(plan, chosen)
    options = ReleaseOptions(records_per_unit=chosen)
    with pytest.raises(InputError, match="must be that of the choice"):
        plan_release(Gaussian(), DOMAIN, workload, chosen.main, options)
    with pytest.raises(InputError, match="within the one that was paid"):
        small = dataclasses.replace(options, paid=Loss.gaussian(0.1))
        plan_release(Gaussian(), DOMAIN, workload, whole, small)


@pytest.mark.parametrize("mechanism", [MWEM(), Gaussian(), Laplace()])
@pytest.mark.parametrize("num_records", ["noisy", 1000])
def test_noise_of_tables_is_proportional_to_the_records_of_a_unit(mechanism, num_records):
    if num_records != "noisy" and mechanism != Laplace():
        pytest.skip("one kind of measurement is enough")
    promise = Guarantee(0.05, 1e-9, "add_or_remove_one", "person", 1)
    noise = [
        noise_per_record(
            mechanism.plan(
                DOMAIN,
                marginals(DOMAIN, ways=2),
                dataclasses.replace(promise, max_records_per_unit=k),
                num_records,
            )
        )
        for k in (1, 7)
    ]
    assert noise[1] == pytest.approx(7 * noise[0], rel=1e-2)


def test_noise_of_a_table_is_that_of_all_its_cells():
    promise = Guarantee(1.0, 0.0, "add_or_remove_one", "person", 1)
    plan = Laplace(calibration="textbook").plan(DOMAIN, marginals(DOMAIN, ways=2), promise, "noisy")
    (table,) = plan.measurements
    deviation = math.sqrt(2) * table.scale
    assert noise_per_record(plan) == pytest.approx(
        15 * deviation * math.sqrt(2 / math.pi), rel=0.05
    )


@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_mechanism_that_selects_counts_as_one_that_measures_all(delta):
    promise = Guarantee(1.0, delta, "add_or_remove_one", "person", 1)
    workload = marginals(DOMAIN, ways=1)
    selects = MWEM(num_rounds=2).plan(DOMAIN, workload, promise, "noisy")
    measures = (Gaussian() if delta else Laplace("textbook")).plan(
        DOMAIN, workload, promise, "noisy"
    )
    assert noise_per_record(selects) == pytest.approx(noise_per_record(measures), rel=1e-6)
