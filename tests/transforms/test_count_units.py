"""Units by their records, and values of open columns: as in memory, in any bundles, each once."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from fakes import outputs

from beam_dp.domain.attributes import CategoricalAttribute
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.domain.universe import Domain
from beam_dp.encoding.open_values import OpenColumns
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.summaries.value_counts import ValueCounts, counted_values
from beam_dp.transforms.counting.count_units import CountUnits, levels_of_shards
from beam_dp.transforms.counting.count_values import CountValues, counts_of_values
from beam_dp.verification.records_per_unit import record_levels

DECLARED = Domain((IntegerAttribute("age", 0, 99),))
NOTHING = Domain(())
COLUMNS = OpenColumns(
    DECLARED,
    (
        CategoricalAttribute("city", ("city 1",), other=True, nullable=True),
        CategoricalAttribute("town", ("x",), other=True, case="ignore"),
    ),
    (NumericAttribute("income", tuple(map(float, range(401))), clip=True),),
)
MOST = 20
SIZE = 300
BY_RECORD = Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
BY_PERSON = Guarantee(1.0, 1e-9, "add_or_remove_one", "person", 2)


def table() -> pa.Table:
    generator = np.random.default_rng(3)
    persons: list[Any] = [str(each % 200) for each in generator.zipf(1.5, SIZE)]
    persons[:100] = ["heavy"] * 100
    persons[100:110] = [None] * 10
    cities: list[Any] = [f"city {n}" * (1 + n % 3) for n in generator.zipf(1.4, SIZE) % 50]
    cities[::11] = [None] * len(cities[::11])
    return pa.table(
        {
            "person": persons,
            "age": generator.integers(0, 150, SIZE),
            "city": cities,
            "town": [f"{'T' if n % 2 else 't'}own" for n in generator.integers(0, 9, SIZE)],
            "income": generator.exponential(90.0, SIZE),
        }
    )


def levels_by_hand(declared: Domain) -> list[int]:
    """The records of each unit, and the last level that begins there or before."""
    records: dict[str, int] = {}
    for row in table().to_pylist():
        if row["person"] is not None and (declared is NOTHING or row["age"] <= 99):
            records[row["person"]] = records.get(row["person"], 0) + 1
    counts = [0] * len(record_levels(MOST))
    for number in records.values():
        counts[max(n for n, start in enumerate(record_levels(MOST)) if start <= number)] += 1
    return counts


def plain(found: ValueCounts) -> dict[str, Any]:
    texts = {
        name: dict(zip(texts.to_pylist(), sums.tolist(), strict=True))
        for name, (texts, sums) in found.texts.items()
    }
    return texts | {name: sums.tolist() for name, sums in found.leaves.items()}


STEPS: dict[str, Any] = {
    "units": lambda: CountUnits(DECLARED, "person", MOST),
    "units of any record": lambda: CountUnits(NOTHING, "person", MOST),
    "values": lambda: CountValues(COLUMNS, BY_RECORD),
    "values of persons": lambda: CountValues(COLUMNS, BY_PERSON),
}


def in_memory(step: str) -> Any:
    batches = table().to_batches(max_chunksize=70)
    if step.startswith("units"):
        declared = DECLARED if step == "units" else NOTHING
        return levels_by_hand(declared)
    promise = BY_RECORD if step == "values" else BY_PERSON
    return plain(counted_values(COLUMNS, promise, batches))


def read(step: str, shards: list[Any]) -> Any:
    if step.startswith("units"):
        return levels_of_shards(MOST, shards).tolist()
    return plain(counts_of_values(COLUMNS, shards))


def test_table_has_heavy_units_and_many_values():
    assert in_memory("units")[-1] >= 1 and len(in_memory("values")["city"]) > 20


def counted(batches: dict[str, list[Any]], bundle_repeat: int = 0) -> dict[str, list[Any]]:
    """What each step counts of each list of batches, each time that it is read."""
    found = outputs(
        {
            f"{step}, {name}": lambda p, step=step, given=given: (
                p | beam.Create(given) | STEPS[step]() | beam.combiners.ToList()
            )
            for step in STEPS
            for name, given in batches.items()
        },
        bundle_repeat,
    )
    return {
        f"{step}, {name}": [read(step, shards) for shards in found[f"{step}, {name}"]]
        for step in STEPS
        for name in batches
    }


@pytest.mark.job
def test_job_counts_as_in_memory_in_any_batches():
    small = [table().slice(start, 21) for start in range(0, SIZE, 21)]
    found = counted({"batches": small, "nothing": [table().slice(0, 0)]})
    for step in STEPS:
        assert found[f"{step}, batches"] == [in_memory(step)], step
    assert found["units, nothing"] == [[0] * len(record_levels(MOST))]


@pytest.mark.job
def test_retried_bundles_and_single_rows_are_counted_once():
    found = counted({"rows": table().to_pylist()}, bundle_repeat=2)
    for step in STEPS:
        results = found[f"{step}, rows"]
        assert results == [in_memory(step)] * len(results), step
