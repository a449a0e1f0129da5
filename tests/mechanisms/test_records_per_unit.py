"""Plans for choosing the records per unit, and the numbers that are chosen.

Statistical tests have fixed seeds.
"""

from __future__ import annotations

import dataclasses
import math
import pickle

import numpy as np
import pytest
from noise_sources import NoNoise, Scripted, Seeded

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.discovery.records_per_unit import (
    noise_per_record,
    plan_records_per_unit,
)
from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian, Laplace
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.queries.workload import marginals
from beam_dp.verification.records_per_unit import (
    chosen_records,
    count_errors,
    record_levels,
    records_step,
)

ADD, REPLACE = Neighboring.ADD_OR_REMOVE_ONE, Neighboring.REPLACE_ONE
MU = 0.027  # 2 % of mu^2 at epsilon 1, delta 1e-9
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


@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
def test_step_has_the_loss_that_was_asked_for(neighboring):
    gaussian = plan_records_per_unit(MOST, 9.0, neighboring, mu=MU).step()
    assert MU**2 * (1 - 1e-9) <= float(gaussian.loss.mu_squared) <= MU**2
    pure = plan_records_per_unit(MOST, 9.0, neighboring, epsilon=0.02).step()
    assert 0.02 * (1 - 1e-9) <= float(pure.loss.epsilon) <= 0.02


@pytest.mark.parametrize("loss", [{"mu": MU}, {"epsilon": 0.02}])
def test_card_states_the_noise_that_step_and_plan_use(loss):
    plan = plan_records_per_unit(MOST, 9.0, REPLACE, **loss)
    stated = plan.to_json()
    kept = {name: stated[name] for name in ("distribution", "scale", "sizes")}
    assert records_step(num_moved=2, **kept) == plan.step()
    assert stated["sizes"][-1] == len(LEVELS)
    assert pickle.loads(pickle.dumps(plan)) == plan


@pytest.mark.parametrize(
    ("most", "noise", "loss", "message"),
    [
        (1, 9.0, {"mu": 1.0}, "most_records_per_unit: 1 is not valid: must be an integer from 2"),
        (2**41, 9.0, {"mu": 1.0}, "most_records_per_unit: 2199023255552 is not valid"),
        (9, math.nan, {"mu": 1.0}, "noise_per_record: nan is not valid"),
        (9, 9.0, {"mu": 0.0}, "mu: 0.0 is not valid: must be a finite number > 0"),
        (9, 9.0, {"epsilon": math.nan}, "epsilon: nan is not valid"),
        (9, 9.0, {"mu": 1e-18}, "mu: 1e-18 is too small: noise must have a scale"),
        (9, 9.0, {}, "mu is required without epsilon"),
    ],
)
def test_refuses_invalid_plans(most, noise, loss, message):
    with pytest.raises(InputError, match=message):
        plan_records_per_unit(most, noise, ADD, **loss)


def test_refuses_counts_of_another_shape():
    with pytest.raises(InputError, match="counts: 'int64 of shape"):
        plan_records_per_unit(9, 9.0, ADD, mu=1.0).release(np.zeros(7, np.int64), NoNoise())


@pytest.mark.parametrize("noise", [3.0, 40.0, 500.0, 3000.0])
@pytest.mark.parametrize("shape", ["one or two", "all nine", "geometric"])
def test_exact_counts_choose_the_best_number_or_the_end_of_its_level(shape, noise):
    rng = np.random.default_rng(0)
    records = {
        "one or two": rng.integers(1, 3, 5000),
        "all nine": np.full(5000, 9),
        "geometric": rng.geometric(0.2, 5000),
    }[shape]
    at_least = [(records >= level).sum() for level in LEVELS]
    chosen = chosen_records(MOST, noise, at_least, [0.0] * len(LEVELS))
    best = min(range(1, MOST + 1), key=lambda k: predicted(records, k, noise))
    place = np.searchsorted(LEVELS, best, "right")
    assert LEVELS[place - 1] <= chosen < LEVELS[place]
    assert predicted(records, chosen, noise) <= 1.1 * predicted(records, best, noise)


@pytest.mark.parametrize(("records", "chosen"), [(10, 10), (11, 11), (20, 21), (100, 100)])
def test_all_records_of_equal_units_are_kept(records, chosen):
    # Levels begin at 10, 12, 14, 16, 19 and 22; the noise of one record more is cheap.
    counts = levels_of(np.full(50_000, records))
    plan = plan_records_per_unit(MOST, 26_000.0 if records == 10 else 2000.0, ADD, mu=MU)
    assert plan.release(counts, Seeded(1))[0] == chosen


@pytest.mark.parametrize("loss", [{"mu": MU}, {"epsilon": 0.02}])
@pytest.mark.parametrize("shape", ["one or two", "geometric", "long tail"])
def test_choice_is_near_the_best(shape, loss):
    rng = np.random.default_rng(2)
    records = {
        "one or two": rng.integers(1, 3, 20_000),
        "geometric": rng.geometric(0.2, 20_000),
        "long tail": np.floor(rng.pareto(1.1, 20_000) + 1).astype(np.int64),
    }[shape]
    noise = 2000.0
    plan = plan_records_per_unit(MOST, noise, ADD, **loss)
    found = [plan.release(levels_of(records), Seeded(seed))[0] for seed in range(20)]
    least = min(predicted(records, k, noise) for k in range(1, MOST + 1))
    assert max(predicted(records, k, noise) for k in found) <= 1.1 * least


@pytest.mark.parametrize("loss", [{"mu": MU}, {"epsilon": 0.02}])
@pytest.mark.parametrize("units", [0, 1000])
def test_noise_alone_does_not_choose_a_larger_number(units, loss):
    plan = plan_records_per_unit(1000, 1.0, ADD, **loss)
    counts = levels_of(np.ones(units, np.int64), 1000)
    found = [plan.release(counts, Seeded(seed))[0] for seed in range(200)]
    assert sum(k > 1 for k in found) <= 20  # 10 are expected at most; 21 have probability 1e-3


def test_errors_bound_the_noise_of_units_from_each_level_on():
    plan = plan_records_per_unit(MOST, 9.0, ADD, mu=MU)
    errors = count_errors(plan.distribution, plan.scale, plan.strategy.sizes[1:])
    noise = np.array(
        [plan.release(np.zeros(len(LEVELS), np.int64), Seeded(seed))[1] for seed in range(400)]
    )
    assert ((noise > errors).mean(axis=0) <= 0.05).all()
    deviations = noise.std(axis=0)
    assert errors / deviations == pytest.approx(math.sqrt(2 * math.log(40)), rel=0.25)


def test_choice_follows_from_the_noisy_sums_alone():
    plan = plan_records_per_unit(MOST, 9.0, ADD, mu=MU)
    noisy = np.random.default_rng(4).integers(-50, 900, sum(plan.strategy.sizes[1:]))
    data = (np.ones(9), np.full(10_000, 50), np.zeros(0))
    found = [plan.release(levels_of(each), Scripted(answer=lambda *_: noisy)) for each in data]
    assert len({chosen for chosen, _ in found}) == 1
    assert (found[0][1] == found[1][1]).all() and (found[0][1] == found[2][1]).all()


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
