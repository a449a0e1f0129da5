"""A table and a domain whose values and edges are not declared, for tests of their discovery."""

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
from noise_sources import NoNoise

import beam_dp as dp
from beam_dp.mechanisms.registry import ReleaseOptions
from beam_dp.mechanisms.stages import Stages
from beam_dp.secret.summaries.sparse_counts import ValueCounts

CITY = {
    "name": "city",
    "type": "categorical",
    "discover": {"max_values": 20, "include": ["Atlantis"]},
}
INCOME = {"name": "income", "type": "numeric", "discover": {"bins": 4, "min": 0, "max": 4096}}
SEX = {"name": "sex", "type": "categorical", "values": ["F", "M"]}
DOMAIN: dict[str, Any] = {"attributes": [CITY, SEX, INCOME]}
# Of the same table, whose types are not declared either.
CITY_TYPE, INCOME_TYPE = ({"name": name, "type": "discover"} for name in ("city", "income"))
UNTYPED: dict[str, Any] = {"attributes": [CITY_TYPE, SEX, INCOME_TYPE]}
FREQUENT = ("Bonn", "Oslo", "Rome")


def open_domain(*entries: dict[str, Any]) -> dp.OpenDomain:
    """Returns the domain of some attributes; of all three by default."""
    domain = dp.read_open_domain({"attributes": list(entries)} if entries else DOMAIN)
    assert isinstance(domain, dp.OpenDomain)
    return domain


def plans_of(
    mechanism: Any,
    domain: dp.OpenDomain,
    workload: dp.Workload,
    promise: dp.Guarantee,
    options: ReleaseOptions | None = None,
) -> tuple[Any, Any]:
    """Returns the plan for a domain, and that of the database for the largest domain."""
    options = ReleaseOptions() if options is None else options
    stages = Stages(
        mechanism=mechanism,
        domain=domain,
        guarantee=promise,
        request=lambda _: (workload, options),
        records_per_unit=options.records_per_unit,
    )
    return stages.first, stages.last


def residents(num_records: int = 1500) -> pa.Table:
    """Returns a table, the same in every test: three frequent cities, and one that is unique."""
    generator = np.random.default_rng(5)
    cities = [FREQUENT[place % 3] for place in range(num_records - 1)]
    return pa.table(
        {
            "person": np.arange(num_records),
            "city": [*cities, "Nowhere"],
            "sex": np.array(["F", "M"])[generator.integers(0, 2, num_records)],
            "income": generator.integers(0, 4096, num_records).astype(float),
        }
    )


def guarantee(epsilon: float = 1.0, delta: float = 1e-9, **changes: Any) -> dp.Guarantee:
    """Returns a guarantee for the people of ``residents``."""
    fields = {
        "neighboring": "add_or_remove_one",
        "privacy_unit": "person",
        "max_records_per_unit": 1,
    }
    return dp.Guarantee(epsilon, delta, **(fields | changes))


def domain_release(texts: tuple[str, ...] = ("Bonn", "Oslo"), **plan: Any) -> dp.DomainRelease:
    """Returns the release of a domain in which these texts and some bins were found."""
    planned = dp.plan_domain(open_domain(CITY, SEX, INCOME), guarantee(100.0))
    sums = np.arange(len(texts), 0, -1) * 100 * 2**20
    leaves = np.zeros(planned.columns.leaves[0].num_levels, np.int64)
    leaves[:200] = 10 * 2**20
    listed = pa.array([text.encode() for text in texts], pa.large_binary())
    drawn = planned.release(ValueCounts({"city": (listed, sums)}, {"income": leaves}), NoNoise())
    return dataclasses.replace(drawn, plan={**drawn.plan, **plan})
