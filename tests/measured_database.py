"""A measured synthetic database, its true counts, and new draws of its noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cache

import numpy as np
from noise_sources import Seeded
from numpy.typing import NDArray

from beam_dp.domain.attributes import BooleanAttribute, CategoricalAttribute
from beam_dp.domain.ordered import NumericAttribute
from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.marginals.measure_all import Gaussian, Laplace
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import marginals
from beam_dp.releases.synthetic_database.measured_tables import NoisyMeasurements
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.summaries.histogram import Histogram

DOMAIN = Domain(
    (
        NumericAttribute("age", (0, 20, 40, 100), nullable=True),
        CategoricalAttribute("sex", ("F", "M")),
        BooleanAttribute("in/out"),
        CategoricalAttribute("town", ("a", "b", "c"), other=True),
    )
)


@cache
def counts() -> NDArray[np.int64]:
    """The true number of records in each cell: 20,000 records of three kinds of people."""
    rng = np.random.default_rng(7)
    table = np.zeros(DOMAIN.num_cells, np.int64)
    for number in (9_000, 7_000, 4_000):
        columns = [rng.choice(size, number, p=rng.dirichlet([2.0] * size)) for size in DOMAIN.shape]
        np.add.at(table, DOMAIN.cell_index(columns), 1)
    return table


@cache
def plan_of(delta: float = 1e-9, num_records: str = "noisy", ways: int = 2) -> MarginalsPlan:
    guarantee = Guarantee(1.0, delta, "add_or_remove_one", "person", 1)
    number = 20_000 if num_records == "public" else "noisy"
    mechanism = Gaussian() if delta else Laplace()
    return mechanism.plan(DOMAIN, marginals(DOMAIN, ways=ways), guarantee, number)


@cache
def database(delta: float = 1e-9, num_records: str = "noisy", ways: int = 2) -> SyntheticDatabase:
    plan = plan_of(delta, num_records, ways)
    exact = Histogram(DOMAIN, counts()).marginals(plan.summary_tables)
    return plan.release(exact, Seeded(5))


def drawn_again(
    number: int, delta: float = 1e-9, num_records: str = "noisy"
) -> Iterator[SyntheticDatabase]:
    """Yields the release with new draws of its noisy tables, and the fit of the first draw."""
    plan = plan_of(delta, num_records)
    exact = Histogram(DOMAIN, counts()).marginals(plan.summary_tables)
    release = database(delta, num_records)
    for seed in range(number):
        noise = Seeded(seed + 100)
        tables = tuple(each.draw(exact, noise) for each in plan.measurements)
        measured = NoisyMeasurements(plan.measurements, tables, True)
        yield dataclasses.replace(release, measurements=measured)
