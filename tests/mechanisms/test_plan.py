"""Which domains marginals are planned for, and what is asked of a runner."""

import dataclasses
from collections.abc import Callable

import pytest
from tiny import ADD, APPROXIMATE, domain_of, plan_of, promise, workload_of

import beam_dp as dp
from beam_dp import Guarantee
from beam_dp.mechanisms.contract import Plan
from beam_dp.mechanisms.intervals import plan_intervals
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.mechanisms.registry import plan_release
from beam_dp.mechanisms.resources import worker_bytes

MECHANISMS = [dp.MWEM(), dp.MWEM(num_rounds=2), dp.Gaussian(), dp.Laplace()]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_huge_domains_and_workloads_that_fit_a_tree_need_no_selection(mechanism):
    chain = dp.Workload(domain_of(*[30] * 15), tuple((f"a{i}", f"a{i + 1}") for i in range(14)))
    large = (workload_of(domain_of(*sizes), 1) for sizes in ((2**13, 2**14), (10,) * 400))
    for workload in (chain, *large):
        plan = plan_of(mechanism, workload, promise(ADD, APPROXIMATE), 10**8)
        assert plan.public["strategy"] != "selection"
        for measurement in plan.measurements:
            assert any(set(measurement.names) <= set(table) for table in plan.summary_tables)


def test_larger_weight_gets_less_noise():
    domain = domain_of(4, 4)
    even, skewed = (
        plan_of(dp.Gaussian(), dp.Workload(domain, (("a0",), ("a1",)), w), promise(ADD, 1e-9), 10)
        for w in ((1.0, 1.0), (100.0, 1.0))
    )
    assert even.measurements[0].variance == pytest.approx(even.measurements[1].variance)
    assert skewed.measurements[0].variance < skewed.measurements[1].variance


# What is asked of a runner: from public sizes, enough, and in coarse steps.


GUARANTEE = Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)


def synthetic(*sizes: int) -> MarginalsPlan:
    universe = domain_of(*sizes)
    return plan_release(dp.MWEM(), universe, dp.marginals(universe, ways=2), GUARANTEE)


# For each kind of plan, one whose memory grows with the size given, and two sizes.
GROWING: dict[str, tuple[Callable[[int], Plan], int, int]] = {
    "synthetic database": (lambda size: synthetic(size, size), 4, 2**12),
    "intervals": (lambda size: plan_intervals(size, GUARANTEE), 2**8, 2**20),
    "private_mw": (
        lambda size: dp.plan_private_mw(domain_of(size, 2), GUARANTEE, "noisy", num_questions=10),
        2**4,
        2**24,
    ),
    "projection": (
        lambda size: dp.SparseProject(projection_width=size).plan(GUARANTEE, max_sparsity=10),
        2**6,
        2**23,
    ),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.part if n == "intervals" else ()) for n in GROWING],
)
def test_larger_plans_request_more_memory(name):
    plan, small, large = GROWING[name]
    assert 2**28 <= worker_bytes(plan(small), 2**8) <= 2**29
    assert worker_bytes(plan(large), 2**8) >= 2**30


@pytest.mark.parametrize("name", GROWING)
def test_memory_includes_the_exact_summary(name):
    plan, small, _ = GROWING[name]
    # The array alone takes 8 bytes a cell, the shards that it is read from as many.
    assert worker_bytes(plan(small), 2**26) - worker_bytes(plan(small), 0) >= 16 * 2**26


@pytest.mark.parametrize("delta", [0.0, pytest.param(1e-9, marks=pytest.mark.part)])
def test_memory_of_selection_over_many_pairs_is_below_two_gibibytes(delta):
    universe = domain_of(*[10] * 30)
    promise = dataclasses.replace(GUARANTEE, delta=delta)
    plan = plan_release(dp.MWEM(), universe, dp.marginals(universe, ways=2), promise)
    assert 2**28 < worker_bytes(plan, 2**16) < 2**31
