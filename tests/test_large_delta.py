"""A delta above 1e-5 that is allowed is allowed for all parts of a release.

Each mechanism alone is tried in ``contracts/test_mechanisms.py``.
"""

import pyarrow as pa
import pytest

import beam_dp as dp

OPEN = dp.read_open_domain(
    '{"attributes": [{"name": "sex", "type": "categorical", "discover": {"max_values": 3}},'
    ' {"name": "age", "type": "numeric", "discover": {"bins": 2}}]}'
)
TABLE = pa.table({"age": [1, 2, 3] * 50, "sex": ["F", "M", "M"] * 50})


@pytest.mark.parametrize("delta", [1.5e-5, 2e-5, 2.1e-5, 1e-3])
@pytest.mark.parametrize("is_counted", [False, True])
def test_large_delta_is_allowed_for_all_parts(delta, is_counted):
    promise = dp.Guarantee(20.0, delta, "add_or_remove_one", "record", 1, allow_large_delta=True)
    workload = dp.marginals(OPEN, ways=1)
    release = dp.release(TABLE, OPEN, workload, promise, count_left_out=is_counted)
    assert release.guarantee == promise
