from __future__ import annotations

from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from fakes import COLLECTED, collect, pipeline

import beam_dp.transforms.counting.limit_contributions as limit_module
from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.summaries.histogram import HistogramAccumulator, MarginalsAccumulator
from beam_dp.summaries.shards import BLOCK_CELLS
from beam_dp.transforms import EncodeRecords, LimitContributions, Summarise

LARGE = Domain(
    tuple(IntegerAttribute(f"a{i}", 0, s - 1) for i, s in enumerate((2**40, 5, 3, 2**40)))
)
TWO_BLOCKS = Domain((IntegerAttribute("a0", 0, 2**13 - 1), IntegerAttribute("a1", 0, 49)))


def batches(domain: Domain, num_batches: int) -> list[pa.RecordBatch]:
    rng = np.random.default_rng(3)
    return [
        pa.record_batch(
            {a.name: rng.integers(0, min(a.size, 2**62), 40) for a in domain}
            | {"unit": rng.integers(0, 30, 40)}
        )
        for _ in range(num_batches)
    ]


def summarise(
    domain: Domain, accumulator: Any, unit: str, num_batches: int, bundle_repeat: int = 0
) -> Any:
    with pipeline(bundle_repeat) as p:
        encoded = (
            p
            | beam.Create(batches(domain, num_batches))
            | beam.Reshuffle()
            | EncodeRecords(domain, unit, as_cells=domain.has_index)
        )
        if unit != "record":
            encoded = encoded | LimitContributions(domain, 7, cost_limit=None)
        _ = encoded | Summarise(accumulator) | collect("shards")
    shards = set(COLLECTED["shards"])
    assert len({block for block, _ in shards}) == len(shards)
    return accumulator.from_shards(shards)


@pytest.mark.parametrize("bundle_repeat", [0, 2])
def test_histogram_of_several_blocks_equals_numpys(bundle_repeat):
    accumulator = HistogramAccumulator(TWO_BLOCKS)
    assert TWO_BLOCKS.num_cells > 3 * BLOCK_CELLS
    histogram = summarise(TWO_BLOCKS, accumulator, "record", 5, bundle_repeat)
    table = pa.Table.from_batches(batches(TWO_BLOCKS, 5))
    index = table["a0"].to_numpy() * 50 + table["a1"].to_numpy()
    np.testing.assert_array_equal(
        histogram.counts, np.bincount(index, minlength=TWO_BLOCKS.num_cells)
    )


@pytest.mark.parametrize("unit", ["record", "unit"])
def test_marginals_of_a_domain_without_index(unit, monkeypatch):
    monkeypatch.setattr(limit_module, "_BUFFERED_RECORDS", 16)
    accumulator = MarginalsAccumulator(LARGE, [("a1", "a2"), ("a2",)])
    summary = summarise(LARGE, accumulator, unit, 5)
    records = pa.Table.from_batches(batches(LARGE, 5))
    expected = np.zeros((5, 3), np.int64)
    np.add.at(expected, (records["a1"].to_numpy(), records["a2"].to_numpy()), 1)
    table = summary.tables[("a1", "a2")]
    np.testing.assert_array_equal(summary.tables[("a2",)], table.sum(axis=0))
    if unit == "record":
        np.testing.assert_array_equal(table, expected)
    else:
        of_unit = np.bincount(records["unit"].to_numpy())
        assert table.sum() == np.minimum(of_unit, 7).sum()
        assert (table <= expected).all()


@pytest.mark.slow
def test_empty_input_has_no_shards():
    accumulator = HistogramAccumulator(TWO_BLOCKS)
    for unit in ("record", "unit"):
        assert not summarise(TWO_BLOCKS, accumulator, unit, 0).counts.any()
        assert COLLECTED["shards"] == []
