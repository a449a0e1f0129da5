"""The limit that a plan sets to what a unit's records cost, against exact arithmetic."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from tiny import ADD, domain_of, promise, workload_of

import beam_dp as dp
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.contract import check_promise
from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian
from beam_dp.mechanisms.marginals.measurements import Measurement
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.unit_costs import PARTS
from beam_dp.releases.kinds import verify_release

DELTA = 1e-9


def planned(sizes: tuple[int, ...], ways: int, most: float = 3.0) -> MarginalsPlan:
    domain = domain_of(*sizes)
    return MWEM(max_unit_cost=most).plan(
        domain, workload_of(domain, ways), promise(ADD, DELTA, 1.0, 12), "noisy"
    )


def precision(measurement: Measurement) -> Fraction:
    return Fraction(measurement.grid**2) / (Fraction(measurement.scale) ** 2 - 4)


def overlap(domain: Domain, plan: MarginalsPlan, agree: tuple[bool, ...]) -> Fraction:
    """What two records that agree there have in common, by the residuals' inner products."""
    return sum(
        (
            precision(each)
            * math.prod(
                (int(agree[axis]) - Fraction(1, domain.shape[axis]) for axis in axes),
                start=Fraction(1),
            )
            for each in plan.measurements
            for axes in [domain.axes(each.names)]
        ),
        Fraction(0),
    )


@pytest.mark.parametrize("sizes", [(2, 3), (2, 2, 2), (7, 1, 4), (16, 3, 2, 5), (300, 2)])
@pytest.mark.parametrize("ways", [1, 2, 3])
def test_costs_are_exact_up_to_upward_rounding(sizes, ways):
    plan = planned(sizes, min(ways, len(sizes)))
    costs = plan.unit_costs
    assert costs is not None
    assert costs.limit == 9 * PARTS
    one = overlap(plan.domain, plan, (True,) * len(sizes))
    for agree in itertools.product((False, True), repeat=len(sizes)):
        pattern = sum(int(agree[axis]) << bit for bit, axis in enumerate(costs.axes))
        exact = overlap(plan.domain, plan, agree) / one
        if not all(agree[axis] for axis in range(len(sizes)) if sizes[axis] == 1):
            continue
        assert exact <= Fraction(int(costs.pairs[pattern]), PARTS) <= exact + Fraction(2, PARTS)
    assert costs.pairs[-1] == PARTS == costs.pairs.max()


@pytest.mark.parametrize("mechanism", [MWEM(max_unit_cost=3.0), Gaussian(max_unit_cost=3.0)])
def test_noise_is_that_for_a_unit_of_three_equal_records(mechanism):
    domain = domain_of(3, 4)
    workload = workload_of(domain, 2)
    plan = mechanism.plan(domain, workload, promise(ADD, DELTA, 1.0, 50), "noisy")
    one = overlap(domain, plan, (True, True))
    mu = plan.loss.mu
    assert mu is not None
    assert 9 * one <= Fraction(mu) ** 2 <= 9 * one * Fraction(1 + 1e-9)
    assert plan.public["max_unit_cost"] == 3.0
    plain = dataclasses.replace(mechanism, max_unit_cost=None).plan(
        domain, workload, promise(ADD, DELTA, 1.0, 50), "noisy"
    )
    assert "max_unit_cost" not in plain.public
    assert plain.unit_costs is None


@pytest.mark.parametrize("most", [2, 12, 1000])
def test_planned_limit_is_the_expected_cost_of_records_that_agree_by_chance(most):
    domain = domain_of(3, 4, 2)
    guarantee = promise(ADD, DELTA, 1.0, most)
    plan = MWEM(max_unit_cost="planned").plan(domain, workload_of(domain, 2), guarantee, "noisy")
    limit, costs = plan.public["max_unit_cost"], plan.unit_costs
    assert costs is not None and limit == int(limit) and 1 <= limit <= most
    # Each record with itself, and with others that agree as uniform codes do.
    chances = np.ones(1)
    for axis in costs.axes:
        chances = np.r_[chances * (1 - 1 / domain.shape[axis]), chances / domain.shape[axis]]
    expected = most + most * (most - 1) * float(chances @ costs.pairs) / PARTS
    assert (limit - 1) ** 2 < expected * (1 + 1e-6) and limit**2 > expected * (1 - 1e-6)


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(2)
    person = np.repeat(np.arange(60), rng.integers(1, 40, 60))
    columns = {f"a{axis}": rng.integers(0, size, person.size) for axis, size in enumerate((3, 4))}
    return pd.DataFrame({**columns, "person": person})


def test_card_states_the_limit_and_is_verified():
    domain = domain_of(3, 4)
    guarantee = Guarantee(1.0, DELTA, ADD, "person", 30)
    release = dp.release(
        frame(), domain, workload_of(domain, 2), guarantee, mechanism=MWEM(max_unit_cost=8.0)
    )
    assert release.plan["max_unit_cost"] == 8.0
    found = verify_release(release)
    assert not found.faults
    assert 0.999 < found.epsilon <= 1.0
    assert "cost of a unit 8" in found.steps[0].numbers
    # Who takes the field away, or lowers it, is told what the noise hides in truth.
    wrong = dict(release.plan)
    del wrong["max_unit_cost"]
    assert verify_release(dataclasses.replace(release, plan=wrong)).epsilon > 3
    larger = {**release.plan, "max_unit_cost": 9.0}
    assert verify_release(dataclasses.replace(release, plan=larger)).epsilon > 1.1


@pytest.mark.parametrize(
    "kept_by", ["nothing", "another limit", "costs of other measurements", "a smaller limit"]
)
def test_records_limited_differently_from_the_plan_are_refused(kept_by, monkeypatch):
    """What a mechanism of somebody's own states of costs is no proof that it limits them."""
    plan = planned((3, 4), 2, 3.0)
    check_promise(plan, plan.guarantee)
    own = plan.unit_costs
    assert own is not None
    held = {
        "nothing": None,
        "another limit": dataclasses.replace(own, limit=own.limit + 1),
        "costs of other measurements": planned((3, 4), 1, 3.0).unit_costs,
        "a smaller limit": dataclasses.replace(own, limit=own.limit - 1),
    }[kept_by]
    monkeypatch.setattr(type(plan), "unit_costs", held)
    if kept_by == "a smaller limit":
        check_promise(plan, plan.guarantee)
        return
    with pytest.raises(InputError, match="must keep epsilon 1 at"):
        check_promise(plan, plan.guarantee)
