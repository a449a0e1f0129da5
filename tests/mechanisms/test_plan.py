"""What no mechanism can do is refused from public numbers, in one line, quickly."""

from __future__ import annotations

import dataclasses
import pickle
import re
from itertools import combinations

import pytest
from tiny import ADD, APPROXIMATE, PURE, REPLACE, domain_of, plan_of, promise, workload_of

from beam_dp.domain.impossible import Impossible
from beam_dp.errors import InputError
from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian, Laplace
from beam_dp.queries.workload import Workload

TEXTBOOK = MWEM(calibration="textbook")
TEXTBOOKS = [TEXTBOOK, MWEM(num_rounds=2, calibration="textbook")]
ALL = [MWEM(), MWEM(num_rounds=2), TEXTBOOK, Gaussian(), Laplace()]
MANY = [MWEM(), MWEM(num_rounds=2), Laplace()]


def refusal(mechanism, workload, guarantee=None, num_records=10) -> str:
    with pytest.raises(InputError) as raised:
        plan_of(mechanism, workload, guarantee or promise(ADD, APPROXIMATE), num_records)
    line = str(raised.value)
    assert "\n" not in line and len(line) < 400
    return line


OUT_OF_RANGE = [0, -1, 2**41, 1.0, True, None, "many"]
ONE, HUGE = workload_of(domain_of(3), 1), workload_of(domain_of(2, 2**40), 1)
TOO_MANY_CODES = "domain: 'a1 of 1,099,511,627,776 codes' .* fewer"


@pytest.mark.parametrize("mechanism", ALL)
@pytest.mark.parametrize(
    ("workload", "relation", "num_records", "message"),
    [
        *((ONE, ADD, number, "num_records") for number in OUT_OF_RANGE),
        (ONE, REPLACE, "noisy", "num_records"),
        (HUGE, ADD, 10, TOO_MANY_CODES),
    ],
)
def test_invalid_requests_are_refused_by_every_mechanism(
    mechanism, workload, relation, num_records, message
):
    line = refusal(mechanism, workload, promise(relation, APPROXIMATE), num_records)
    assert re.match(message, line)


@pytest.mark.parametrize("mechanism", ALL)
def test_workload_of_another_domain_is_refused(mechanism):
    with pytest.raises(InputError, match="workload"):
        mechanism.plan(domain_of(4), ONE, promise(ADD, APPROXIMATE), 10)


@pytest.mark.mostly_slow(one_in=2)
@pytest.mark.parametrize("sizes", [(2**13, 2**14), (10,) * 400])
def test_all_mechanisms_except_textbook_mwem_accept_huge_domains(sizes):
    workload = workload_of(domain_of(*sizes), 1)
    for mechanism in ALL:
        if mechanism == TEXTBOOK:
            line = refusal(mechanism, workload)
            assert line.startswith("domain: ") and "2^26" in line and "attributes" in line
        else:
            plan_of(mechanism, workload, promise(ADD, APPROXIMATE), 10)


WIDE = domain_of(*[30] * 15)
CHAIN = Workload(WIDE, tuple((f"a{i}", f"a{i + 1}") for i in range(14)))


@pytest.mark.parametrize("mechanism", [Gaussian(), Gaussian("textbook"), Laplace(), *TEXTBOOKS])
def test_error_for_an_infeasible_workload_gives_advice(mechanism):
    line = refusal(mechanism, workload_of(WIDE, 2))
    if isinstance(mechanism, MWEM):
        assert line.startswith("domain: '10^22.2 cells' is not valid: must have at most 2^26")
    else:
        assert line.startswith(
            "workload: 'a junction tree of 10^22.2 cells' is not valid: must have"
        )
        assert "fewer or smaller marginals" in line and "mwem" in line


@pytest.mark.parametrize("mechanism", [MWEM(), MWEM(num_rounds=2), Gaussian(), Laplace()])
def test_workload_that_fits_a_tree_needs_no_selection(mechanism):
    plan = plan_of(mechanism, CHAIN, promise(ADD, APPROXIMATE), 10)
    assert plan.public["strategy"] != "selection"


@pytest.mark.parametrize("ways", [1, 2])
@pytest.mark.parametrize("mechanism", ALL)
def test_impossible_combinations_that_do_not_fit_a_tree_are_refused(mechanism, ways):
    first = ((0, 1),)
    pairs = tuple(Impossible(pair, (first, first)) for pair in combinations(range(15), 2))
    domain = dataclasses.replace(WIDE, impossible=pairs)
    assert refusal(mechanism, workload_of(domain, ways)).startswith("impossible: ")


@pytest.mark.parametrize("delta", [PURE, APPROXIMATE])
def test_attributes_too_large_for_a_junction_tree_are_refused(delta):
    workload = workload_of(domain_of(2**23, 2**23, 2**23), 1)
    for mechanism in (MWEM(), MWEM(num_rounds=2)):
        line = refusal(mechanism, workload, promise(ADD, delta))
        assert line.startswith("domain: 'a junction tree of 25,165,824 cells' is not valid")


@pytest.mark.parametrize("mechanism", MANY)
def test_marginal_with_too_many_subsets_is_refused_without_listing_them(mechanism):
    """All 3^26 cells of all subsets of 26 attributes are never listed."""
    workload = workload_of(domain_of(*[2] * 26), 26)
    with pytest.raises(InputError, match="workload"):
        plan_of(mechanism, workload, promise(), 10)


@pytest.mark.parametrize("mechanism", ALL)
@pytest.mark.parametrize("delta", [PURE, APPROXIMATE])
def test_plan_refuses_noise_too_large_for_64_bits(mechanism, delta):
    if isinstance(mechanism, Gaussian) and delta == PURE:
        pytest.skip("needs a delta")
    workload = workload_of(domain_of(3, 2), 1)
    with pytest.raises(InputError, match="epsilon"):
        plan_of(mechanism, workload, promise(ADD, delta, 1e-14, 10**9), 10)


@pytest.mark.parametrize("mechanism", ALL)
def test_plan_survives_pickling_and_names_every_table_it_measures(mechanism):
    workload = workload_of(domain_of(3, 2, 2), 2)
    plan = plan_of(mechanism, workload, promise(ADD, APPROXIMATE), 10)
    assert pickle.loads(pickle.dumps(plan)) == plan
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
