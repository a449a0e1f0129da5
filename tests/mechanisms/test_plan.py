"""Which domains and workloads marginals are planned for; what is refused is listed elsewhere."""

from __future__ import annotations

import pytest
from tiny import ADD, APPROXIMATE, domain_of, plan_of, promise, workload_of

from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian, Laplace
from beam_dp.queries.workload import Workload

MECHANISMS = [MWEM(), MWEM(num_rounds=2), Gaussian(), Laplace()]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_huge_domains_and_workloads_that_fit_a_tree_need_no_selection(mechanism):
    chain = Workload(domain_of(*[30] * 15), tuple((f"a{i}", f"a{i + 1}") for i in range(14)))
    large = (workload_of(domain_of(*sizes), 1) for sizes in ((2**13, 2**14), (10,) * 400))
    for workload in (chain, *large):
        plan = plan_of(mechanism, workload, promise(ADD, APPROXIMATE), 10)
        assert plan.public["strategy"] != "selection"
        for measurement in plan.measurements:
            assert any(set(measurement.names) <= set(table) for table in plan.summary_tables)


def test_larger_weight_gets_less_noise():
    domain = domain_of(4, 4)
    even, skewed = (
        plan_of(Gaussian(), Workload(domain, (("a0",), ("a1",)), w), promise(ADD, 1e-9), 10)
        for w in ((1.0, 1.0), (100.0, 1.0))
    )
    assert even.measurements[0].variance == pytest.approx(even.measurements[1].variance)
    assert skewed.measurements[0].variance < skewed.measurements[1].variance
