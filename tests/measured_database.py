"""A measured synthetic database, its true counts, and new draws of its noise."""

import dataclasses
from collections.abc import Iterator
from functools import cache

import numpy as np
from noise_sources import Seeded
from numpy.typing import NDArray

import beam_dp as dp
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.releases.synthetic_database.measured_tables import NoisyMeasurements
from beam_dp.secret.summaries.histogram import Histogram

DOMAIN = dp.Domain(
    (
        dp.NumericAttribute("age", (0, 20, 40, 100), nullable=True),
        dp.CategoricalAttribute("sex", ("F", "M")),
        dp.BooleanAttribute("in/out"),
        dp.CategoricalAttribute("town", ("a", "b", "c"), other=True),
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
    guarantee = dp.Guarantee(1.0, delta, "add_or_remove_one", "person", 1)
    number = 20_000 if num_records == "public" else "noisy"
    mechanism = dp.Gaussian() if delta else dp.Laplace()
    return mechanism.plan(DOMAIN, dp.marginals(DOMAIN, ways=ways), guarantee, number)


@cache
def database(
    delta: float = 1e-9, num_records: str = "noisy", ways: int = 2
) -> dp.SyntheticDatabase:
    plan = plan_of(delta, num_records, ways)
    exact = Histogram(DOMAIN, counts()).marginals(plan.summary_tables)
    return plan.release(exact, Seeded(5))


def drawn_again(
    number: int, delta: float = 1e-9, num_records: str = "noisy"
) -> Iterator[dp.SyntheticDatabase]:
    """Yields the release with new draws of its noisy tables, and the fit of the first draw."""
    plan = plan_of(delta, num_records)
    exact = Histogram(DOMAIN, counts()).marginals(plan.summary_tables)
    release = database(delta, num_records)
    for seed in range(number):
        noise = Seeded(seed + 100)
        tables = tuple(each.draw(exact, noise) for each in plan.measurements)
        measured = NoisyMeasurements(plan.measurements, tables, True)
        yield dataclasses.replace(release, measurements=measured)
