"""Records limited by what their unit costs, in a pipeline and in memory."""

from __future__ import annotations

import apache_beam as beam
import numpy as np
import pandas as pd
from fakes import COLLECTED, collect, pipeline

from beam_dp.domain import Domain, IntegerAttribute
from beam_dp.in_memory import release_table
from beam_dp.mechanisms import MWEM
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import marginals
from beam_dp.transforms.counting.limited_records import limited_records

DOMAIN = Domain((IntegerAttribute("a", 0, 2), IntegerAttribute("b", 0, 3)))


def test_a_pipeline_keeps_what_memory_keeps_and_more_than_a_number_would() -> None:
    rng = np.random.default_rng(2)
    person = np.repeat(np.arange(60), rng.integers(1, 40, 60))
    table = pd.DataFrame(
        {
            "a": rng.integers(0, 3, person.size),
            "b": rng.integers(0, 4, person.size),
            "person": person,
        }
    )
    guarantee = Guarantee(1.0, 1e-9, "add_or_remove_one", "person", 30)
    plan = MWEM(max_unit_cost=8.0).plan(DOMAIN, marginals(DOMAIN, ways=2), guarantee, "noisy")
    with pipeline() as running:
        records = running | beam.Create([table.iloc[300:], table.iloc[:300]])
        inside, _ = limited_records(
            records, DOMAIN, guarantee, as_cells=True, unit_costs=plan.unit_costs
        )
        _ = inside | collect("kept")
    cells = np.concatenate([each.cell_index(DOMAIN) for each in COLLECTED["kept"]])
    exact, _ = release_table._count(plan, release_table.Table(table), ["a", "b", "person"])
    assert np.bincount(cells, minlength=12).tolist() == exact.marginal(("a", "b")).ravel().tolist()
    by_number = np.minimum(table.groupby("person").size(), 8).sum()
    assert by_number < cells.size < len(table)
