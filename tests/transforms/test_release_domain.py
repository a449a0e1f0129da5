"""Domains released by pipelines of one's own, and in memory."""

from __future__ import annotations

import apache_beam as beam
import pyarrow as pa
import pytest
from noise_sources import NoNoise
from open_domains import CITY, FREQUENT, INCOME, SEX, guarantee, open_domain, residents

import beam_dp as dp
import beam_dp.in_memory as in_memory
import beam_dp.transforms.drawing.one_worker as one_worker

TABLE = residents()


def workload(domain: dp.Domain | dp.OpenDomain) -> dp.Workload:
    return dp.marginals(domain, ways=2)


def run(table: pa.Table, release: beam.PTransform, folder: str, beside: str | None = None) -> None:
    with beam.Pipeline() as pipeline:
        batches = pipeline | beam.Create(table.to_batches(max_chunksize=200))
        _ = batches | release | dp.WriteRelease(folder, beside)


def released(noise: NoNoise, table: pa.Table = TABLE) -> dp.DomainRelease:
    plan = dp.plan_domain(open_domain(), guarantee(100.0))
    batches = table.to_batches()
    return plan.release(in_memory.counted_values(plan.columns, plan.whole, batches), noise)


@pytest.mark.job
def test_a_pipeline_finds_what_is_found_in_memory(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(one_worker, "NoiseSource", NoNoise)
    plan = dp.plan_domain(open_domain(), guarantee(100.0))
    run(TABLE, dp.ReleaseDomain(plan), str(tmp_path / "out"))
    found = dp.read_release(tmp_path / "out", kind=dp.DomainRelease)
    expected = released(NoNoise())
    assert found.domain == expected.domain
    for one, other in zip(found.found, expected.found, strict=True):
        assert one.counts.tolist() == other.counts.tolist()


def test_records_outside_the_declared_columns_do_not_count(monkeypatch) -> None:
    sex = ["F"] * 1499 + ["other"]
    rome = ["Atlantis"] * 1499 + ["Rome"]
    table = TABLE.set_column(1, "city", [rome]).set_column(2, "sex", [sex])
    draws = NoNoise()
    found = released(draws, table)
    assert found.found[0].values == ()
    # Neither the city of a record outside nor the public value is counted.
    assert sum(draw.exact.size for draw in draws.draws[:1]) == 0


def test_a_table_in_memory_is_released_with_an_open_domain(tmp_path) -> None:
    ledger = dp.Ledger(str(tmp_path / "ledger"))
    ledger.declare("people", 1.0, 1e-9, "person", "add_or_remove_one")
    domain = open_domain()
    release = dp.release(
        TABLE,
        domain,
        workload(domain),
        guarantee(),
        output=tmp_path / "out",
        ledger=ledger,
        dataset_id="people",
    )
    found = dp.read_release(tmp_path / "out/domain", kind=dp.DomainRelease)
    assert dp.read_release(tmp_path / "out").draw_id == release.draw_id
    assert release.domain == found.domain
    assert set(found.found[0].values) == set(FREQUENT)
    assert release.discovered == found.discovered
    (entry,) = ledger.entries("people")
    assert entry.draw_id == found.draw_id
    assert dp.verify_release(release).holds


def test_streams_and_pure_bins_are_released_in_memory():
    domain = open_domain(CITY, SEX)
    reader = pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches(100))
    release = dp.release(reader, domain, workload(domain), guarantee(5.0), count_left_out=True)
    assert abs(release.num_records - 1500) < 150
    assert release.left_out is not None
    assert dp.verify_release(release).holds
    domain = open_domain(INCOME, SEX)
    release = dp.release(TABLE, domain, workload(domain), guarantee(2.0, 0.0), domain_share=0.3)
    assert release.guarantee.delta == 0
    verified = dp.verify_release(release)
    assert verified.holds
    assert 1.99 < verified.epsilon <= 2.0
