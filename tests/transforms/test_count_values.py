"""The pass that counts the values of open columns gives the counts of memory, in any bundles."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import fakes
import numpy as np
import pyarrow as pa
import pytest

from beam_dp.domain.attributes import CategoricalAttribute
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.domain.universe import Domain
from beam_dp.encoding.open_values import OpenColumns
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.summaries.value_counts import ValueCounts, counted_values
from beam_dp.transforms.counting.count_values import CountValues, counts_of_values

COLUMNS = OpenColumns(
    Domain((IntegerAttribute("age", 0, 99),)),
    (
        CategoricalAttribute("city", ("city 1",), other=True, nullable=True),
        CategoricalAttribute("town", ("x",), other=True, case="ignore"),
    ),
    (NumericAttribute("income", tuple(map(float, range(401))), clip=True),),
)
FOUND: list[ValueCounts] = []  # of this process, in which FnApiRunner runs everything


def promise(k: int) -> Guarantee:
    return Guarantee(1.0, 1e-9, "add_or_remove_one", "person" if k else "record", k or 1)


def table(size: int = 900) -> pa.Table:
    generator = np.random.default_rng(3)
    cities: list[Any] = [f"city {n}" * (1 + n % 3) for n in generator.zipf(1.4, size) % 50]
    cities[::11] = [None] * len(cities[::11])
    return pa.table(
        {
            "person": generator.integers(0, size // 5, size),
            "age": generator.integers(0, 110, size),
            "city": cities,
            "town": [f"{'T' if n % 2 else 't'}own" for n in generator.integers(0, 9, size)],
            "income": generator.exponential(90.0, size),
        }
    )


def counted(records: Any, k: int, **options: Any) -> dict[str, Any]:
    FOUND.clear()
    with fakes.pipeline(**options) as pipeline:
        shards = pipeline | beam.Create(records) | CountValues(COLUMNS, promise(k))
        _ = shards | beam.combiners.ToList() | beam.Map(_keep)
    first, *others = map(plain, FOUND)  # more than one only if bundles are repeated
    assert all(each == first for each in others)
    return first


def _keep(shards: list[bytes]) -> None:
    FOUND.append(counts_of_values(COLUMNS, shards))


def plain(found: ValueCounts) -> dict[str, Any]:
    texts = {
        name: dict(zip(texts.to_pylist(), sums.tolist(), strict=True))
        for name, (texts, sums) in found.texts.items()
    }
    return texts | {name: sums.tolist() for name, sums in found.leaves.items()}


def in_memory(k: int) -> dict[str, Any]:
    return plain(counted_values(COLUMNS, promise(k), table().to_batches()))


@pytest.mark.job
@pytest.mark.parametrize("size", [900, 64])
@pytest.mark.parametrize("k", [0, 2])
def test_job_counts_as_in_memory_for_any_batches(k, size):
    batches = [table().slice(start, size) for start in range(0, 900, size)]
    found = counted(batches, k)
    assert len(found["city"]) > 20 and found == in_memory(k)


@pytest.mark.job
@pytest.mark.parametrize("k", [0, 2])
def test_retried_bundles_and_single_rows_are_counted_once(k):
    assert counted(table().to_pylist(), k, bundle_repeat=2) == in_memory(k)
