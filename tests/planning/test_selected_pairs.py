"""Predictions of jobs that select pairs, against stored figures of `benchmarks/results`."""

import itertools

import pytest
from tiny import domain_of, promise

import beam_dp as dp
from beam_dp.domain.files import read_open_domain
from beam_dp.mechanisms.marginals.selection import SelectionPlan
from beam_dp.planning.job import Option
from beam_dp.planning.ranking import rank_discovering_mechanisms
from beam_dp.planning.selected_pairs import RANGE_RATIO, selection_errors

SHAPES = {
    "adult": (16, 32, 9, 32, 16, 7, 15, 6, 5, 2, 32, 32, 32, 42, 2),
    "nist": (100, 2, 7, 9, 3, 3, 13, 11, 7, 2),
    "people1": (74, 2, 16, 9, 7, 15, 6, 40, 5, 24, 32, 4, 12, 2),
}
# Total variation of the released records, and processor seconds, as `accuracy.json` states them.
MEASURED = [
    ("adult", 48_842, 2, 1.0, dp.Neighboring.ADD_OR_REMOVE_ONE, 0.0204, 7.2),
    ("adult", 48_842, 2, 1.0, dp.Neighboring.REPLACE_ONE, 0.0247, 6.7),
    ("adult", 48_842, 2, 0.1, dp.Neighboring.ADD_OR_REMOVE_ONE, 0.0669, 4.3),
    ("adult", 48_842, 3, 1.0, dp.Neighboring.ADD_OR_REMOVE_ONE, 0.0491, 8.7),
    ("nist", 27_253, 2, 1.0, dp.Neighboring.ADD_OR_REMOVE_ONE, 0.0226, 3.6),
    ("people1", 38_000, 2, 1.0, dp.Neighboring.ADD_OR_REMOVE_ONE, 0.0274, None),
]


def option_of(
    shape: tuple[int, ...], ways: int, epsilon: float, number: int, neighboring: str
) -> Option:
    workload = dp.marginals(domain_of(*shape), ways=ways)
    guarantee = promise(neighboring, 1e-9, epsilon)
    return dp.rank_mechanisms(dp.PlanningJob(workload, guarantee, number, True)).options[0]


@pytest.mark.parametrize("name, number, ways, epsilon, neighboring, error, seconds", MEASURED)
def test_ranges_hold_measured_errors(name, number, ways, epsilon, neighboring, error, seconds):
    option = option_of(SHAPES[name], ways, epsilon, number, neighboring)
    assert option.mechanism == "mwem" and "\n" not in option.note
    low, high = option.total_variation_range
    assert low < error < high <= RANGE_RATIO * low * (1 + 1e-9)
    assert f"{low:.2g} to {high:.2g}" in option.note
    assert option.error_range[0] < option.expected_error < option.error_range[1]
    assert seconds is None or seconds / 1.5 < option.resources.seconds < 1.5 * seconds


def test_error_falls_with_epsilon_and_with_records():
    workload = dp.marginals(domain_of(*SHAPES["nist"]), ways=2)
    for grid, is_epsilon in (((0.01, 0.1, 1.0, 10.0), True), ((1, 300, 10_000, 10**7), False)):
        found = []
        for value in grid:
            epsilon, number = (value, 3000) if is_epsilon else (1.0, value)
            plan = dp.MWEM().plan(
                workload.domain, workload, promise(delta=1e-9, epsilon=epsilon), number
            )
            assert isinstance(plan, SelectionPlan)
            found.append(selection_errors(plan, number))
        for worse, better in itertools.pairwise(found):
            assert 1 >= worse[1] > better[1] > 0
            assert worse[0] > better[0] or not is_epsilon


def test_predicts_attributes_of_one_level_and_found_domains():
    alone, beside = (
        option_of(shape, 2, 1.0, 5000, dp.Neighboring.REPLACE_ONE)
        for shape in ((40,) * 7, (40,) * 7 + (1,))
    )
    # Pairs with the attribute of one level are the other attribute alone.
    assert beside.total_variation_range < alone.total_variation_range
    columns = ", ".join(
        f'{{"name": "c{i}", "type": "categorical", "discover": {{"max_values": 60}}}}'
        for i in range(7)
    )
    domain = read_open_domain(f'{{"attributes": [{columns}]}}')
    workload = dp.marginals(domain.bounded(), ways=2)
    job = dp.PlanningJob(workload, promise(delta=1e-9), 5000, False)
    (best, *_) = rank_discovering_mechanisms(job, domain).options
    assert best.mechanism == "mwem" and best.error_range is not None
