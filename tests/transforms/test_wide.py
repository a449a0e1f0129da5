"""From files and dicts to exact marginals, over 35 columns: a domain of 10^24 cells, no index."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from fakes import COLLECTED, NoPrivacy, NoPrivacyPlan, collect, guarantee, pipeline
from jobs import write_table

import beam_dp.summaries.histogram as marginals_module
from beam_dp.domain.attributes import BooleanAttribute, CategoricalAttribute
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.queries.workload import Workload, marginals
from beam_dp.releases.kinds import read_release
from beam_dp.releases.synthetic_database.records import distinct_records
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.summaries.histogram import MarginalsAccumulator, choose_accumulator
from beam_dp.transforms import (
    EncodeRecords,
    LimitContributions,
    ReadRecords,
    ReleaseSyntheticDatabase,
    Summarise,
    WriteRelease,
)

LEVELS = ("HS", "BA", "MA", "PhD")
DOMAIN = Domain(
    tuple(
        (
            IntegerAttribute(f"c{i}", 0, 8),
            CategoricalAttribute(f"c{i}", LEVELS, other=True),
            NumericAttribute(f"c{i}", (0, 1.5, 2, 7), nullable=True),
            BooleanAttribute(f"c{i}", nullable=True),
        )[i % 4]
        for i in range(35)
    )
).with_impossible([{"c0": [[0, 1]], "c1": ["HS", "other"]}, {"c2": [None], "c3": [True]}])
TABLES = list(itertools.combinations(DOMAIN.names[:7] + DOMAIN.names[33:], 3))


def table(num_records: int = 400) -> tuple[pa.Table, list[np.ndarray]]:
    """Records of units of five equal records each, and the codes of those in the domain."""
    rng = np.random.default_rng(3)
    codes = [np.repeat(rng.integers(0, size, num_records // 5), 5) for size in DOMAIN.shape]
    columns = {
        attribute.name: pa.array(attribute.decode(column))
        for attribute, column in zip(DOMAIN, codes, strict=True)
    }
    columns["unit"] = pa.array([f"u{i // 5}" for i in range(num_records)])
    bad = (codes[0] <= 1) & ((codes[1] == 0) | (codes[1] == 4))
    bad |= (codes[2] == 3) & (codes[3] == 1)
    assert 0 < bad.sum() < num_records // 2
    return pa.table(columns), [column[~bad] for column in codes]


def summarised(source: Any, unit: str, k: int, name: str) -> MarginalsAccumulator:
    accumulator = choose_accumulator(DOMAIN, TABLES)
    assert isinstance(accumulator, MarginalsAccumulator)
    with pipeline() as p:
        encoded = p | source | EncodeRecords(DOMAIN, unit, as_cells=False)
        if unit != "record":
            encoded = encoded | LimitContributions(DOMAIN, k, cost_limit=None)
        _ = encoded | Summarise(accumulator) | collect(name)
    return accumulator


@pytest.mark.slow
@pytest.mark.parametrize("file_format", ["csv", "avro", "parquet", "dicts"])
@pytest.mark.parametrize(("unit", "k"), [("record", 1), ("unit", 2), ("unit", 5)])
def test_every_source_counts_every_record_inside_the_domain(tmp_path, file_format, unit, k):
    assert not DOMAIN.has_index
    people, codes = table()
    if file_format == "dicts":
        source: Any = beam.Create(people.to_pylist())
    else:
        source = ReadRecords(write_table(tmp_path, people, file_format))
    name = f"wide {file_format} {unit} {k}"
    found = summarised(source, unit, k, name).from_shards(COLLECTED[name])
    # The five records of a unit are equal: k of them stay.
    weight = 1 if unit == "record" else k / 5
    for names in TABLES:
        expected = np.zeros(DOMAIN.restrict(names).shape)
        np.add.at(expected, tuple(codes[axis] for axis in DOMAIN.axes(names)), weight)
        np.testing.assert_allclose(found.tables[names], expected, atol=1e-9)


@dataclasses.dataclass(frozen=True)
class Independent(NoPrivacy):
    """Releases records with the exact marginals of one attribute each."""

    max_cells: int = 10**40
    name: str = "independent"

    def plan(
        self, domain: Domain, workload: Workload, guarantee: Any, num_records: Any
    ) -> NoPrivacyPlan:
        tables = tuple((name,) for name in domain.names)
        return dataclasses.replace(
            super().plan(domain, workload, guarantee, num_records), summary_tables=tables
        )

    def release(
        self, plan: NoPrivacyPlan, marginals: Any, noise: Any, progress: Any = None
    ) -> SyntheticDatabase:
        tables = [marginals.tables[name,] for name in plan.domain.names]
        codes, counts = distinct_records(
            plan.domain, [np.repeat(np.arange(len(table)), table) for table in tables]
        )
        return SyntheticDatabase(
            domain=plan.domain, workload=plan.workload, guarantee=plan.guarantee,
            mechanism=self.name, num_records=int(counts.sum()), num_records_is_public=True,
            codes=codes, counts=counts, potentials=[], draw_id=noise.draw_id(),
        )  # fmt: skip


@pytest.mark.slow
def test_writes_and_reads_release_of_a_wide_domain(tmp_path):
    people, codes = table()
    workload = marginals(DOMAIN, ways=1)
    with pipeline() as p:
        _ = (
            p
            | beam.Create(people.to_pylist())
            | ReleaseSyntheticDatabase(DOMAIN, workload, guarantee("unit", 5), Independent())
            | WriteRelease(tmp_path / "out")
        )
    release = read_release(tmp_path / "out")
    assert release.domain == DOMAIN
    for axis, attribute in enumerate(DOMAIN):
        expected = np.bincount(codes[axis], minlength=attribute.size)
        assert release.record_marginal((attribute.name,)).tolist() == expected.tolist()
    (pair,) = release.answer(Workload(DOMAIN, (("c0", "c1"),)))
    assert not pair.values[:2, [0, 4]].any() and pair.values[2:].all()


def test_rejects_tables_that_do_not_fit_and_names_the_largest():
    with pytest.raises(InputError) as caught:
        choose_accumulator(DOMAIN, [("c0", "c1"), DOMAIN.names[:14], DOMAIN.names[:2]])
    assert str(caught.value) == (
        "workload: 'c0,c1,c2,c3,c4,c5,c6,c7,c8,c9,c10,c11,c12,c13' is refused; with 7,085,880,000"
        " cells is the largest of tables of 7,085,880,000 cells, and together they must have at"
        " most 2^28 = 268,435,456"
    )


@pytest.mark.slow
def test_many_small_tables_stay_within_the_limit(monkeypatch):
    """Merged up to 2^16 cells these pass the limit, apart or merged less they do not."""
    domain = Domain(tuple(BooleanAttribute(f"a{i}") for i in range(60)))
    tables = list(itertools.islice(itertools.combinations(domain.names, 3), 0, None, 5))
    assert choose_accumulator(domain, tables).num_cells > 2**22  # type: ignore[union-attr]
    monkeypatch.setattr(marginals_module, "MAX_CELLS", 2**20)
    accumulator = choose_accumulator(domain, tables)
    assert isinstance(accumulator, MarginalsAccumulator)
    assert accumulator.num_cells <= 2**20
