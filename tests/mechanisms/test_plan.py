"""What no mechanism can do is refused from public numbers, in one line, quickly."""

from __future__ import annotations

import pickle

import pytest
from tiny import ADD, APPROXIMATE, PURE, REPLACE, domain_of, plan_of, promise, workload_of

from beam_dp.errors import InputError
from beam_dp.mechanisms import MWEM, Gaussian, Laplace
from beam_dp.queries.workload import Workload

ALL = [MWEM(), MWEM(num_rounds=2), MWEM(calibration="textbook"), Gaussian(), Laplace()]
MANY = [MWEM(), MWEM(num_rounds=2), Laplace()]


@pytest.mark.parametrize("mechanism", ALL)
@pytest.mark.parametrize("num_records", [0, -1, 2**41, 1.0, True, None, "many"])
def test_numbers_of_records_out_of_range_are_refused(mechanism, num_records):
    workload = workload_of(domain_of(3), 1)
    with pytest.raises(InputError, match="num_records"):
        plan_of(mechanism, workload, promise(ADD, APPROXIMATE), num_records)


@pytest.mark.parametrize("mechanism", ALL)
def test_a_noisy_number_of_records_contradicts_replace_one(mechanism):
    with pytest.raises(InputError, match="num_records"):
        plan_of(mechanism, workload_of(domain_of(3), 1), promise(REPLACE, APPROXIMATE), "noisy")


@pytest.mark.parametrize("mechanism", ALL)
@pytest.mark.parametrize("sizes", [(2**13, 2**14), (2**40, 2**40), (10,) * 400])
def test_domains_that_are_too_large_are_refused_with_advice(mechanism, sizes):
    workload = workload_of(domain_of(*sizes), 1)
    with pytest.raises(InputError, match="domain") as raised:
        plan_of(mechanism, workload, promise(ADD, APPROXIMATE), 10)
    assert "2^26" in str(raised.value) and "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("mechanism", MANY)
def test_marginals_with_too_many_smaller_ones_are_refused_at_once(mechanism):
    """All 3^26 cells of all subsets of 26 attributes are never listed."""
    workload = workload_of(domain_of(*[2] * 26), 26)
    with pytest.raises(InputError, match="workload"):
        plan_of(mechanism, workload, promise(), 10)


@pytest.mark.parametrize("mechanism", ALL)
def test_a_workload_of_another_domain_is_refused(mechanism):
    workload = workload_of(domain_of(3), 1)
    with pytest.raises(InputError, match="workload"):
        mechanism.plan(domain_of(4), workload, promise(ADD, APPROXIMATE), 10)


@pytest.mark.parametrize("mechanism", ALL)
@pytest.mark.parametrize("delta", [PURE, APPROXIMATE])
def test_noise_that_would_not_fit_is_refused_before_any_data_are_read(mechanism, delta):
    if isinstance(mechanism, Gaussian) and delta == PURE:
        pytest.skip("needs a delta")
    workload = workload_of(domain_of(3, 2), 1)
    with pytest.raises(InputError, match="epsilon"):
        plan_of(mechanism, workload, promise(ADD, delta, 1e-14, 10**9), 10)


@pytest.mark.parametrize("mechanism", ALL)
def test_plans_pickle_and_need_only_the_tables_they_name(mechanism):
    workload = workload_of(domain_of(3, 2, 2), 2)
    plan = plan_of(mechanism, workload, promise(ADD, APPROXIMATE), 10)
    assert pickle.loads(pickle.dumps(plan)) == plan
    for measurement in plan.measurements:
        assert any(set(measurement.names) <= set(table) for table in plan.summary_tables)


def test_weights_steer_the_measurements():
    domain = domain_of(4, 4)
    even, skewed = (
        plan_of(Gaussian(), Workload(domain, (("a0",), ("a1",)), w), promise(ADD, 1e-9), 10)
        for w in ((1.0, 1.0), (100.0, 1.0))
    )
    assert even.measurements[0].variance == pytest.approx(even.measurements[1].variance)
    assert skewed.measurements[0].variance < skewed.measurements[1].variance
