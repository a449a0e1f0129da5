"""Rows of a release have one random order, which is fixed by the draw."""

from __future__ import annotations

import io
import math
from collections import Counter
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from release_examples import DRAW, records_bytes, release_of

import beam_dp as dp
from beam_dp.domain.attributes import CategoricalAttribute
from beam_dp.domain.ordered import NumericAttribute
from beam_dp.domain.universe import Domain
from beam_dp.releases.kinds import read_release, write_release
from beam_dp.releases.synthetic_database import shards as shards_module
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.synthetic_database.shards import parts_of, row_blocks

DOMAIN = Domain(
    (
        CategoricalAttribute("Survived", ("no", "yes")),
        CategoricalAttribute("Pclass", ("1", "2", "3")),
        NumericAttribute("Fare", (0, 8, 15, 31, 248, 512)),
    )
)


def titanic(records_format: str = "avro", draw_id: str = DRAW) -> SyntheticDatabase:
    """900 records; the first 540 by code have died."""
    codes = [each.ravel() for each in np.indices(DOMAIN.shape)]
    counts = np.where(codes[0] == 0, 36, 24)
    return release_of(
        DOMAIN, num_records=900, codes=codes, counts=counts, potentials=[],
        records_format=records_format, draw_id=draw_id, within_bins="uniform",
    )  # fmt: skip


@pytest.mark.parametrize("records_format", ["avro", "parquet", "csv"])
def test_every_format_has_the_same_random_row_order(tmp_path, records_format):
    release = titanic(records_format)
    table = release.to_arrow()
    # A false alarm has a chance below 1e-6, and the id of the draw is fixed.
    first = table["Survived"].to_pylist()[:300]
    assert abs(first.count("yes") - 120) < 5 * math.sqrt(300 * 0.4 * 0.6)
    write_release(release, tmp_path / "out")
    again = read_release(tmp_path / "out")
    assert again.to_arrow().equals(table)
    assert again.to_pandas()["Survived"].tolist()[:300] == first
    (records,) = again.records()
    assert pa.table(records, schema=table.schema).equals(table)
    (file,) = (tmp_path / "out").glob("records-*")
    if records_format == "avro":
        assert list(fastavro.reader(io.BytesIO(file.read_bytes()))) == table.to_pylist()
    elif records_format == "parquet":
        assert pa.parquet.read_table(file).replace_schema_metadata(None).equals(table)
    else:
        rows = [line.split(",")[0].strip('"') for line in file.read_text().splitlines()[1:]]
        assert rows == table["Survived"].to_pylist()


def test_different_draws_have_different_row_orders():
    tables = [titanic(draw_id=draw_id).to_arrow() for draw_id in (DRAW, "f" * 32)]
    assert not tables[0].equals(tables[1])
    assert records_bytes(titanic()) == records_bytes(titanic())


def test_row_order_is_independent_of_the_input_order():
    """The input is sorted; the first rows of its copy must not be."""
    table = pa.table({"Survived": ["no"] * 540 + ["yes"] * 360, "Pclass": ["1", "2", "3"] * 300})
    domain = DOMAIN.restrict(("Survived", "Pclass"))
    promise = dp.Guarantee(20.0, 1e-9, "replace_one", "record", 1)
    workload = dp.marginals(domain, ways=2)
    release = dp.release(table, domain, workload, promise, mechanism=dp.Gaussian(), num_records=900)
    first = release.to_arrow()["Survived"].to_pylist()[:300]
    # Seven standard deviations: a false alarm has a chance below 1e-10.
    assert abs(first.count("yes") - 120) < 7 * math.sqrt(300 * 0.4 * 0.6)


def blocks_of(counts: Any, draw_id: str, num_parts: int = 1) -> list[Any]:
    parts = parts_of(counts, draw_id, num_parts)
    return [block for part in parts for block in row_blocks(part, draw_id, {})]


@pytest.mark.parametrize("block_rows", [pytest.param(1, marks=pytest.mark.part), 2, 100])
def test_all_row_orders_are_equally_likely(monkeypatch, block_rows):
    """Each of 12 orders of four rows occurs 500 times, within five standard deviations."""
    monkeypatch.setattr(shards_module, "_BLOCK_ROWS", block_rows)
    counts = np.array([2, 1, 1])
    seen = Counter(
        tuple(np.concatenate([block.records for block in blocks_of(counts, f"{draw:032x}")]))
        for draw in range(6000)
    )
    assert len(seen) == 12 and all(abs(each - 500) < 5 * math.sqrt(500) for each in seen.values())


@pytest.mark.parametrize("block_rows", [10, 1000])
def test_blocks_are_small_and_together_contain_all_rows(monkeypatch, block_rows):
    monkeypatch.setattr(shards_module, "_BLOCK_ROWS", block_rows)
    counts = np.array([1, 5000, 2, 17, 800])
    blocks = blocks_of(counts, DRAW)
    assert all(len(block.which) <= block_rows for block in blocks)
    records = np.concatenate([block.records for block in blocks])
    assert np.bincount(records).tolist() == counts.tolist()
    for num_parts in (2, 8):
        inside = [block.records for block in blocks_of(counts, DRAW, num_parts)]
        assert np.array_equal(np.concatenate(inside)[: len(records)], records) or block_rows == 1000
        assert np.bincount(np.concatenate(inside)).tolist() == counts.tolist()
