"""What counting records outside the domain costs, and a limit on what a unit's records cost."""

import dataclasses
import itertools
import math
import pickle
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from noise_sources import NoNoise
from tiny import ADD, APPROXIMATE, PURE, REPLACE, domain_of, promise, workload_of

import beam_dp as dp
from beam_dp.mechanisms.contract import check_promise
from beam_dp.mechanisms.intervals import plan_intervals
from beam_dp.mechanisms.left_out import LEFT_OUT_SHARE, LeftOutPlan, plan_left_out
from beam_dp.mechanisms.marginals.measurements import Measurement
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.mechanisms.registry import ReleaseOptions, plan_release
from beam_dp.privacy.budget import Budget
from beam_dp.privacy.ledger.filters import Account
from beam_dp.privacy.loss import Loss, composed
from beam_dp.privacy.noise.bound import laplace_bound, noise_variance
from beam_dp.privacy.unit_costs import PARTS

DOMAIN = domain_of(2, 2).with_impossible([{"a0": [0], "a1": [0]}])
MECHANISMS = [dp.MWEM(), dp.MWEM(num_rounds=3), dp.Gaussian(), dp.Laplace(), dp.SmallDB(size=2)]


def planned(guarantee: dp.Guarantee, domain: dp.Domain = DOMAIN) -> LeftOutPlan:
    main, _ = Budget.of(guarantee, "pure").split(LEFT_OUT_SHARE)
    return plan_left_out(domain, guarantee, Loss.pure(main.epsilon))


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda each: repr(each)[:40])
def test_release_with_counts_costs_no_more_than_a_release_alone(mechanism):
    """Every two of delta, epsilon and relation meet in some case, but for the largest epsilon."""
    for delta, relation, epsilon in (
        *((PURE, ADD, 0.1), (PURE, REPLACE, 1.0), (APPROXIMATE, ADD, 1.0), (1e-5, ADD, 0.1)),
        *((APPROXIMATE, REPLACE, 0.1), (1e-5, REPLACE, 1.0), (1e-300, ADD, 1.0)),
        *((1e-300, REPLACE, 0.1), (APPROXIMATE, REPLACE, 30.0)),
    ):
        if not (isinstance(mechanism, dp.Gaussian) and delta == PURE):
            check_costs(mechanism, delta, relation, epsilon)


def check_costs(mechanism, delta, relation, epsilon) -> None:
    guarantee = promise(relation, delta, epsilon, 2)
    domain = domain_of(2, 3)
    plan, without = (
        plan_release(
            *(mechanism, domain, workload_of(domain, 1), guarantee),
            ReleaseOptions(num_records=100, count_left_out=is_counted),
        )
        for is_counted in (True, False)
    )
    left_out = plan.left_out
    assert left_out is not None and without.left_out is None
    assert plan.promised == guarantee == without.promised
    # Basic composition, exactly.
    assert plan.guarantee == left_out.main
    assert Fraction(plan.guarantee.epsilon) + Fraction(left_out.epsilon) <= Fraction(epsilon)
    assert plan.guarantee.epsilon == pytest.approx(0.95 * epsilon)
    assert plan.guarantee.delta == delta
    if epsilon <= 1 and delta != 1e-300:  # else 5 % of epsilon is far more of a mu or a rho
        assert left_out.epsilon > 0.04 * epsilon
    # One payment of the guarantee covers both, whatever adds it up.
    if plan.loss.kind == without.loss.kind:
        claimed = plan.loss.to_json()
        assert all(claimed[name] <= value for name, value in without.loss.to_json().items())
    for composition in ("auto", plan.loss.kind if plan.loss.kind != "pure" else "zcdp"):
        assert Account(epsilon, delta, composition).fits(plan.loss)  # type: ignore[arg-type]


def test_loss_is_that_of_the_release_plus_the_counts():
    plan = planned(promise(ADD, epsilon=2.0, most=3))
    assert plan.loss.epsilon == 2.0
    assert plan.scale >= 3 / plan.epsilon
    assert composed([Loss.pure(1.9), Loss.pure(plan.epsilon)]) == plan.loss


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Loss.pure(0.3), Loss.pure(0.1)),
        (Loss.gaussian(0.2), Loss.pure(0.1)),
        (Loss.zcdp(0.02), Loss.gaussian(0.1)),
        (Loss.approximate(0.5, 1e-9), Loss.approximate(0.25, 1e-12)),
        (Loss.approximate(0.5, 1e-9), Loss.zcdp(0.1)),
    ],
)
def test_composed_losses_add_up_and_are_rounded_up(one, other):
    both = composed([one, other])
    assert both == composed([other, one])
    assert Fraction(both.rho) >= Fraction(one.rho) + Fraction(other.rho)
    for name, square in (("epsilon", 1), ("mu", 2), ("slack", 1), ("rho", 1)):
        parts = [getattr(each, name) for each in (one, other)]
        value = getattr(both, name)
        if None in parts:
            assert value is None
            continue
        exact = sum(Fraction(each) ** square for each in parts)
        assert Fraction(value) ** square >= exact
        assert float(value) == pytest.approx(float(exact) ** (1 / square), rel=1e-15)


def test_intervals_with_counts_fit_the_budget_and_survive_pickling():
    guarantee = promise(REPLACE, APPROXIMATE, 1.0, 2)
    main, _ = Budget.of(guarantee, "pure").split(LEFT_OUT_SHARE)
    plan = plan_intervals(16, main, "sine")
    left_out = plan_left_out(domain_of(16), guarantee, plan.loss)
    assert plan.loss.kind == left_out.loss.kind == "gaussian"
    assert Account(1.0, APPROXIMATE, "gaussian").fits(left_out.loss)
    whole = dataclasses.replace(plan, loss=left_out.loss, left_out=left_out)
    copied = pickle.loads(pickle.dumps(whole))
    assert (copied.loss, copied.left_out, copied.guarantee) == (
        left_out.loss,
        left_out,
        plan.guarantee,
    )


def test_counts_are_stated_with_their_standard_errors():
    plan = planned(promise(ADD, epsilon=1.0))
    source = NoNoise()
    found = plan.release(np.array([5, 0, 7]), source)
    (draw,) = source.draws
    assert (draw.kind, draw.scale) == ("laplace", plan.scale)
    assert draw.exact.tolist() == [5, 0, 7]
    assert (dict(found.counts), found.impossible, found.total) == ({"a0": 5, "a1": 0}, 7, 12)
    variance = noise_variance("discrete_laplace", plan.scale)
    assert found.standard_error**2 == pytest.approx(variance)
    assert found.sum_standard_error**2 == pytest.approx(3 * variance)
    stated = plan.to_json()
    assert {name: value for name, value in found.to_json().items() if name in stated} == stated
    assert set(found.to_json()) - set(stated) == {"sum", "counts", "impossible"}


@pytest.mark.parametrize("scale", [0.3, 1.0, 20.0, 1e6])
@pytest.mark.parametrize("num_values", [1, 3, 200])
def test_laplace_bound_is_the_smallest_that_keeps_its_failure_probability(scale, num_values):
    bound = laplace_bound(scale, num_values, 0.05)

    def exceeded(limit: float) -> float:
        return 2 * math.exp(-(limit + 1) / scale) / (1 + math.exp(-1 / scale))

    assert num_values * exceeded(bound) <= 0.05 * (1 + 1e-9)
    assert bound == 0 or num_values * exceeded(bound - 1) > 0.05 * (1 - 1e-9)


# The limit that a plan sets to what a unit's records cost, against exact arithmetic.


DELTA = 1e-9


def limited_plan(sizes: tuple[int, ...], ways: int, most: float = 3.0) -> MarginalsPlan:
    domain = domain_of(*sizes)
    return dp.MWEM(max_unit_cost=most).plan(
        domain, workload_of(domain, ways), promise(ADD, DELTA, 1.0, 12), "noisy"
    )


def precision(measurement: Measurement) -> Fraction:
    return Fraction(measurement.grid**2) / (Fraction(measurement.scale) ** 2 - 4)


def overlap(domain: dp.Domain, plan: MarginalsPlan, agree: tuple[bool, ...]) -> Fraction:
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
    plan = limited_plan(sizes, min(ways, len(sizes)))
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


@pytest.mark.parametrize("mechanism", [dp.MWEM(max_unit_cost=3.0), dp.Gaussian(max_unit_cost=3.0)])
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
    plan = dp.MWEM(max_unit_cost="planned").plan(domain, workload_of(domain, 2), guarantee, "noisy")
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
    guarantee = dp.Guarantee(1.0, DELTA, ADD, "person", 30)
    release = dp.release(
        frame(), domain, workload_of(domain, 2), guarantee, mechanism=dp.MWEM(max_unit_cost=8.0)
    )
    assert release.plan["max_unit_cost"] == 8.0
    found = dp.verify_release(release)
    assert not found.faults
    assert 0.999 < found.epsilon <= 1.0
    assert "cost of a unit 8" in found.steps[0].numbers
    # Who takes the field away, or lowers it, is told what the noise hides in truth.
    wrong = dict(release.plan)
    del wrong["max_unit_cost"]
    assert dp.verify_release(dataclasses.replace(release, plan=wrong)).epsilon > 3
    larger = {**release.plan, "max_unit_cost": 9.0}
    assert dp.verify_release(dataclasses.replace(release, plan=larger)).epsilon > 1.1


@pytest.mark.parametrize(
    "kept_by", ["nothing", "another limit", "costs of other measurements", "a smaller limit"]
)
def test_records_limited_differently_from_the_plan_are_refused(kept_by, monkeypatch):
    """What a mechanism of somebody's own states of costs is no proof that it limits them."""
    plan = limited_plan((3, 4), 2, 3.0)
    check_promise(plan, plan.guarantee)
    own = plan.unit_costs
    assert own is not None
    held = {
        "nothing": None,
        "another limit": dataclasses.replace(own, limit=own.limit + 1),
        "costs of other measurements": limited_plan((3, 4), 1, 3.0).unit_costs,
        "a smaller limit": dataclasses.replace(own, limit=own.limit - 1),
    }[kept_by]
    monkeypatch.setattr(type(plan), "unit_costs", held)
    if kept_by == "a smaller limit":
        check_promise(plan, plan.guarantee)
        return
    with pytest.raises(dp.InputError, match="must keep epsilon 1 at"):
        check_promise(plan, plan.guarantee)
