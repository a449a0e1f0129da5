"""The rows of a large release are in several files, which together are the rows of the release."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from damaged_files import edited_card
from release_examples import DRAW, release_of, same_release
from test_records_formats import TYPES

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.domain.files import domain_from_json
from beam_dp.releases.files.card import fingerprint
from beam_dp.releases.kinds import commit_release, release_from_bytes, release_to_bytes, write_shard
from beam_dp.releases.synthetic_database import shards
from beam_dp.releases.synthetic_database.files import distinct_records, shard_bytes
from beam_dp.releases.synthetic_database.shards import RecordShard

FORMATS = ("avro", "parquet", "csv")


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
    monkeypatch.setattr(shards, "SHARD_BYTES", 1500)


def large(records_format="avro", within_bins="density", **fields):
    made = release_of(
        TYPES,
        num_records=200,
        potentials=[],
        records_format=records_format,
        within_bins=within_bins,
        **fields,
    )
    assert made.num_shards >= 4
    return made


@pytest.mark.parametrize(
    ("records_format", "within_bins"),
    [
        *(("avro", "uniform"), ("parquet", "midpoint"), ("csv", "density")),
        *(
            pytest.param(*each, marks=pytest.mark.part)
            for each in (("avro", "midpoint"), ("parquet", "uniform"), ("csv", "midpoint"))
        ),
    ],
)
def test_files_together_are_the_rows_of_the_release(tmp_path, records_format, within_bins):
    release = large(records_format, within_bins)
    dp.write_release(release, tmp_path / "out")
    for check_rows in (False, True):
        again = dp.read_release(tmp_path / "out", check_rows=check_rows)
        assert same_release(again, release)
        assert again.to_arrow().equals(release.to_arrow())
    files = sorted((tmp_path / "out").glob("records-*"))
    assert [path.name for path in files] == [
        f"records-{DRAW}-{n:05d}-of-{len(files):05d}.{records_format}" for n in range(len(files))
    ]
    if records_format == "parquet":
        table = pa.concat_tables([pa.parquet.read_table(path) for path in files])
        assert table.replace_schema_metadata(None).equals(release.to_arrow())


@pytest.mark.parametrize("records_format", FORMATS)
def test_another_worker_writes_the_same_bytes(records_format):
    release = large(records_format)
    for shard in release.shards():
        json.loads(shard.to_plain()[0])
        assert shard_bytes(RecordShard.from_plain(shard.to_plain())) == shard_bytes(shard)
    again = release_from_bytes(release_to_bytes(release))
    assert list(map(shard_bytes, again.shards())) == list(map(shard_bytes, release.shards()))


def test_bytes_between_steps_contain_no_rows():
    few, many = (
        release_of(domain_from_json({"a": 2}), codes=[[0, 1]], counts=[n, n], num_records=2 * n)
        for n in (10, 100_000)
    )
    assert len(release_to_bytes(many)) - len(release_to_bytes(few)) < 100


def test_distinct_records_that_compress_well_are_read_again(tmp_path, monkeypatch):
    """Files that expand too far are refused, so the file of distinct records is not compressed."""
    monkeypatch.setattr(shards, "SHARD_BYTES", 2**20)
    domain = domain_from_json({f"c{n}": 2 for n in range(17)})
    codes, counts = [each.ravel() for each in np.indices(domain.shape)], np.ones(2**17, int)
    release = release_of(domain, codes=codes, counts=counts, num_records=2**17, potentials=[])
    assert release.num_shards > 1
    dp.write_release(release, tmp_path)
    assert same_release(dp.read_release(tmp_path), release)


def test_rejects_rows_that_differ_from_the_distinct_records_if_asked_to(tmp_path, capfd):
    dp.write_release(large(), tmp_path)
    other = large(seed=1)
    with edited_card(tmp_path) as card:
        card["not_described"] = other.not_described
        for name, data in distinct_records(other).items():
            (tmp_path / name).write_bytes(data)
            stated = fingerprint(data)
            card["files"][name] = {"sha256": stated.sha256, "bytes": stated.num_bytes}
    assert same_release(dp.read_release(tmp_path), other)
    with pytest.raises(dp.ReleaseError, match="files of records with other rows"):
        dp.read_release(tmp_path, check_rows=True)
    assert main(["verify", str(tmp_path)]) == 2
    assert "files of records with other rows" in capfd.readouterr().err


@pytest.mark.parametrize("missing", [0, 1, -1])
def test_rejects_a_release_without_one_of_its_files(tmp_path, missing):
    dp.write_release(large(), tmp_path)
    path = sorted(tmp_path.glob("records-*"))[missing]
    with edited_card(tmp_path) as card:
        del card["files"][path.name]
    with pytest.raises(dp.ReleaseError, match="payload of the card's draw"):
        dp.read_release(tmp_path)
    with edited_card(tmp_path) as card:
        for name in [name for name in card["files"] if name.startswith("records-")]:
            del card["files"][name]
    with pytest.raises(dp.ReleaseError, match="payload of the card's draw"):
        dp.read_release(tmp_path)


def test_a_file_that_came_after_another_commit_is_not_written(tmp_path):
    ours, others = large(), large(draw_id="f" * 32)
    first, *rest = ours.shards()
    written = {first.name: write_shard(first, tmp_path)}
    assert commit_release(others, tmp_path)
    written |= {shard.name: write_shard(shard, tmp_path) for shard in rest}
    assert [file is None for file in written.values()] == [False, *(True for _ in rest)]
    assert commit_release(ours, tmp_path, written) is False
    assert dp.read_release(tmp_path).draw_id == others.draw_id
    assert not list(tmp_path.glob(".draft-*"))
