"""Every mechanism from exact tables to a release, on tiny domains and at the limits."""

import numpy as np
import pytest
from noise_sources import Seeded
from tiny import (
    ADD,
    APPROXIMATE,
    PURE,
    REPLACE,
    check_release,
    domain_of,
    plan_of,
    promise,
    summary,
    workload_of,
)

import beam_dp as dp
from beam_dp.mechanisms.checks import NumRecords
from beam_dp.mechanisms.marginals.plan import Mechanism

# A warning of numpy's is a line of log that depends on what was measured.
# Fits are dear: they run with the jobs.
pytestmark = [pytest.mark.job, pytest.mark.filterwarnings("error::RuntimeWarning")]

MECHANISMS: dict[str, Mechanism] = {
    "mwem": dp.MWEM(),
    "mwem rounds": dp.MWEM(num_rounds=3),
    "mwem textbook": dp.MWEM(num_rounds=3, calibration="textbook"),
    "gaussian": dp.Gaussian(),
    "gaussian textbook": dp.Gaussian("textbook"),
    "laplace": dp.Laplace(),
    "laplace textbook": dp.Laplace("textbook"),
}
RELATIONS: list[tuple[str, NumRecords]] = [(ADD, 12), (ADD, "noisy"), (REPLACE, 12)]
SHAPES = [(1,), (4,), (3, 2, 2), (1, 3, 1), (1, 1), (70, 2)]


def supports(name: str, delta: float, num_records: NumRecords) -> bool:
    if name.startswith("gaussian") and delta == 0:
        return False
    return not (name == "mwem textbook" and num_records == "noisy")


@pytest.mark.parametrize("name", MECHANISMS)
def test_releases_of_any_shape_size_and_budget_are_well_formed(name):
    """Each shape with a relation, a delta, and empty or full data in turn; then extreme numbers."""
    for turn, sizes in enumerate(SHAPES):
        domain, (neighboring, num_records) = domain_of(*sizes), RELATIONS[turn % 3]
        kinds = [d for d in (PURE, APPROXIMATE) if supports(name, d, num_records)]
        if kinds:
            workload = workload_of(domain, min(1 + turn % 2, domain.num_attributes))
            guarantee = promise(neighboring, kinds[turn // 3 % len(kinds)], 1.0, 2)
            counts = np.full(domain.num_cells, (0, 12)[turn % 2])
            check(name, workload, guarantee, num_records, counts)
    domain = domain_of(100, 3, 1)
    pairs = dp.marginals(domain, attributes=[["a0", "a1"], ["a1", "a2"]])
    workload = dp.Workload(domain, pairs.marginals, (1e-6, 1e6))
    delta = APPROXIMATE if name.startswith("gaussian") else PURE
    for num_records, epsilon in ((1, 1e-3), (10**9, 1e3)):
        counts = np.random.default_rng(1).multinomial(num_records, np.ones(300) / 300)
        check(name, workload, promise(ADD, delta, epsilon), num_records, counts)


def check(name, workload, guarantee, num_records, counts) -> None:
    plan = plan_of(MECHANISMS[name], workload, guarantee, num_records)
    check_release(MECHANISMS[name].release(plan, summary(plan, counts), Seeded(1)), plan)
