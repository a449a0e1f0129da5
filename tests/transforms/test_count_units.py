"""Units are counted by their records as in memory, in any bundles, and each unit once."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import fakes
import numpy as np
import pyarrow as pa
import pytest

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.summaries.records_per_unit import counted_levels
from beam_dp.transforms.counting.count_units import CountUnits, levels_of_shards
from beam_dp.verification.records_per_unit import record_levels

DECLARED = Domain((IntegerAttribute("age", 0, 99),))
NOTHING = Domain(())
MOST = 20
FOUND: list[list[int]] = []  # of this process, in which FnApiRunner runs everything


def table(size: int = 900) -> pa.Table:
    generator = np.random.default_rng(3)
    persons: list[Any] = [int(each) for each in generator.zipf(1.5, size) % 200]
    persons[:100] = ["heavy"] * 100
    persons[100:110] = [None] * 10
    return pa.table(
        {"person": list(map(str, persons)), "age": generator.integers(0, 150, size)}
    ).set_column(0, "person", pa.array([p if p is None else str(p) for p in persons]))


def expected(declared: Domain) -> list[int]:
    """By definition: the records of each unit, and the last level that begins there or before."""
    records: dict[str, int] = {}
    for row in table().to_pylist():
        if row["person"] is not None and (declared is NOTHING or row["age"] <= 99):
            records[row["person"]] = records.get(row["person"], 0) + 1
    counts = [0] * len(record_levels(MOST))
    for number in records.values():
        counts[max(n for n, start in enumerate(record_levels(MOST)) if start <= number)] += 1
    return counts


def counted(records: Any, declared: Domain = DECLARED, **options: Any) -> list[int]:
    FOUND.clear()
    with fakes.pipeline(**options) as pipeline:
        shards = pipeline | beam.Create(records) | CountUnits(declared, "person", MOST)
        _ = shards | beam.combiners.ToList() | beam.Map(_keep)
    first, *others = FOUND  # more than one only if bundles are repeated
    assert all(each == first for each in others)
    return first


def _keep(shards: list[tuple[int, bytes]]) -> None:
    FOUND.append(levels_of_shards(MOST, shards).tolist())


@pytest.mark.parametrize("declared", [DECLARED, NOTHING])
def test_memory_counts_units_by_definition(declared):
    found = counted_levels(declared, "person", MOST, table().to_batches(max_chunksize=70))
    assert found.tolist() == expected(declared) and found[-1] >= 1


@pytest.mark.job
@pytest.mark.parametrize(("size", "declared"), [(64, DECLARED), (900, DECLARED), (300, NOTHING)])
def test_job_counts_as_in_memory_for_any_batches(size, declared):
    batches = [table().slice(start, size) for start in range(0, 900, size)]
    assert counted(batches, declared) == expected(declared)


@pytest.mark.job
def test_retried_bundles_and_single_rows_are_counted_once():
    assert counted(table().to_pylist(), bundle_repeat=2) == expected(DECLARED)


@pytest.mark.job
def test_job_without_records_counts_no_units():
    assert counted([table().slice(0, 0)]) == [0] * len(record_levels(MOST))
