"""A delta above 1e-5 that is allowed is allowed for every release and all of its parts."""

import pyarrow as pa
import pytest

import beam_dp as dp

DOMAIN = dp.parse_domain('{"age": 6, "sex": 2}')
OPEN = dp.read_open_domain(
    '{"attributes": [{"name": "sex", "type": "categorical", "discover": {"max_values": 3}},'
    ' {"name": "age", "type": "numeric", "discover": {"bins": 2}}]}'
)
TABLE = pa.table({"age": [1, 2, 3] * 50, "sex": ["F", "M", "M"] * 50})
WORKLOAD = dp.marginals(DOMAIN, ways=1)
UNIT = dp.WindowUnit("record", max_records_per_unit=1, max_windows_per_unit=1, protected_windows=1)
HORIZON = dp.Horizon(start="2026-11-23T00:00Z", window="1h", num_windows=24, grace="0s")


def found(promise, **options):
    return dp.release(TABLE, OPEN, dp.marginals(OPEN, ways=1), promise, **options).guarantee


PLANNED = {
    "mwem": lambda promise: dp.MWEM().plan(DOMAIN, WORKLOAD, promise, "noisy").guarantee,
    "rounds": lambda promise: dp.MWEM(num_rounds=2).plan(DOMAIN, WORKLOAD, promise, 9).guarantee,
    "gaussian": lambda promise: dp.Gaussian().plan(DOMAIN, WORKLOAD, promise, "noisy").guarantee,
    "count_sketch": lambda promise: dp.CountSketch().plan(promise, max_sparsity=9).guarantee,
    "stability": lambda promise: dp.StabilityHistogram().plan(promise, max_sparsity=9).guarantee,
    "hybrid": lambda promise: dp.HybridSketch().plan(promise, max_sparsity=9).guarantee,
    "found": found,
    "found, left out counted": lambda promise: found(promise, count_left_out=True),
}


@pytest.mark.parametrize("delta", [1.5e-5, 2e-5, 2.1e-5, 1e-3])
@pytest.mark.parametrize("name", PLANNED)
def test_allowed_large_delta_is_allowed_throughout(name, delta):
    parts = (20.0, delta, "add_or_remove_one", "record", 1)
    with pytest.raises(dp.InputError, match=r"delta: .* unless allow_large_delta"):
        dp.Guarantee(*parts)
    promise = dp.Guarantee(*parts, allow_large_delta=True)
    assert PLANNED[name](promise) == promise


@pytest.mark.parametrize("delta", [1.5e-5, 1e-3])
def test_windows_allow_a_large_delta(delta):
    plan = dp.plan_window_tables(WORKLOAD, HORIZON, UNIT, 1.0, delta, allow_large_delta=True)
    assert plan.guarantee.delta == delta
