"""Values within bins lie in their bins, in memory and on disk."""

import datetime
import io
import json
import struct

import fastavro
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from release_examples import DRAW, records_bytes, release_of

from beam_dp.domain.dates import DateAttribute, DatetimeAttribute
from beam_dp.domain.files import domain_from_json
from beam_dp.domain.ordered import NumericAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.releases.files.avro import encode, write_blocks
from beam_dp.releases.files.card import ReleaseError
from beam_dp.releases.kinds import read_release, write_release
from beam_dp.releases.synthetic_database import records_avro as avro, shards as shards_module
from beam_dp.storage.store import DamagedFileError

BINNED = (
    NumericAttribute("x", (-1.5, 0.0, 0.1, 7.25), other=True, nullable=True),
    NumericAttribute("age", (17, 25, 35.5, 91), whole=True),
    NumericAttribute("ends", (-1e308, 0.0, 1e308)),
    NumericAttribute("near", (1.0, np.nextafter(1.0, 2.0), 2.0)),
    DateAttribute("visit", ("0001-01-01", "1969-12-30", "9999-12-31"), nullable=True),
    DatetimeAttribute("local", ("1969-12-31T23:59:59.999999", "1970-01-01", "9999-12-31")),
    DatetimeAttribute("moment", ("1969-12-31T00:00Z", "2020-01-01T00:00:00.000001Z"), other=True),
)


def drawn(domain, seed=0, **fields):
    return release_of(domain, seed=seed, potentials=[], within_bins="uniform", **fields)


@given(st.sampled_from(BINNED), st.lists(st.floats(0, 1, exclude_max=True), min_size=1))
def test_drawn_values_lie_in_their_bins(attribute, uniforms):
    for code in range(attribute.num_levels):
        codes = np.full(len(uniforms), code)
        values = attribute.values_within(codes, np.array(uniforms))
        assert attribute.bins_of(values).tolist() == codes.tolist()


@pytest.mark.parametrize("attribute", BINNED, ids=lambda attribute: attribute.name)
def test_bins_are_left_closed_and_the_last_is_closed_on_both_sides(attribute):
    first, last = attribute.bin_ends
    places = np.arange(attribute.num_levels)
    assert np.array_equal(attribute.bins_of(first), places)
    assert np.array_equal(attribute.bins_of(last), places)
    read = attribute._read_edge
    edges = [attribute.released(value) for value in first] + [attribute.released(last[-1])]
    if attribute.name != "age":
        assert [read(edge) for edge in edges] == list(attribute.edges)
        below = attribute.values_within([0], np.array([1 - 2.0**-53]))
        assert attribute.released(below[0]) < attribute.edges[1] or attribute.num_levels == 1
    else:
        assert [edges, last.tolist()] == [[17, 25, 36, 91], [24, 35, 91]]


@settings(max_examples=20)
@given(st.lists(st.sampled_from(BINNED), min_size=1, max_size=3, unique_by=lambda a: a.name),
       st.integers(0, 40), st.integers(0, 5))  # fmt: skip
def test_bin_values_round_trip_through_files(attributes, num_records, seed):
    domain = Domain((*attributes, *domain_from_json({"code": 3})))
    release = drawn(domain, seed, num_records=num_records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro, "_CHUNK_RECORDS", 7)
        patch.setattr(shards_module, "_BLOCK_ROWS", 9)
        data = records_bytes(release)
        (columns,) = list(release.records()) or [{name: [] for name in domain.names}]
    found = avro.read_records(data, domain, num_records, is_drawn=True)
    assert all(map(np.array_equal, found.codes, release.codes))
    assert np.array_equal(found.counts, release.counts)
    rows = list(fastavro.reader(io.BytesIO(data)))
    for name, values in columns.items():
        assert [row[name] for row in rows] == values


def test_whole_number_attribute_is_written_as_integers():
    (attribute,) = domain = Domain((BINNED[1],))
    assert attribute.avro_type() == {"type": "long", "edges": [17.0, 25.0, 35.5, 91.0]}
    for release in (drawn(domain), release_of(domain, potentials=[])):
        rows = fastavro.reader(io.BytesIO(records_bytes(release)))
        assert all(type(row["age"]) is int and 17 <= row["age"] <= 91 for row in rows)
    assert attribute.midpoints == (20, 30, 63)
    assert domain_from_json(domain.to_json()) == domain


@pytest.mark.parametrize("edges", [(0.1, 0.2), (0, 0.5, 1, 1.5, 1.75), (0, 1e17)])
def test_rejects_bins_without_whole_numbers_for_whole_number_attribute(edges):
    with pytest.raises(InputError, match="whole number"):
        NumericAttribute("w", edges, whole=True)


def test_drawn_values_round_trip_and_old_releases_read_as_midpoints(tmp_path):
    domain = Domain(BINNED[:2])
    release = drawn(domain, num_records=30)
    write_release(release, tmp_path / "new")
    again = read_release(tmp_path / "new")
    assert list(again.records()) == list(release.records())
    assert again.within_bins == "uniform"
    assert records_bytes(again) == records_bytes(release)

    write_release(release_of(domain), tmp_path / "old")
    card = json.loads((tmp_path / "old" / "card.json").read_text())
    assert "within_bins" not in card
    (records,) = read_release(tmp_path / "old").records()
    assert set(records["age"]) <= set(BINNED[1].midpoints)

    text = (tmp_path / "new" / "card.json").read_text()
    for other in ('"median"', "1", '"midpoint"'):
        damaged = text.replace('"within_bins": "uniform"', f'"within_bins": {other}')
        (tmp_path / "new" / "card.json").write_text(damaged)
        with pytest.raises(ReleaseError, match=r"within_bins|outside its domain|fit its card"):
            read_release(tmp_path / "new")


DOMAIN = Domain((NumericAttribute("a", (0, 1, 2)), NumericAttribute("b", (0, 5, 9), whole=True)))


def record(a, b):
    return struct.pack("<d", a) + encode("long", b)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([record(0.25, 3), record(2.5, 3)], "outside its domain"),
        ([record(0.25, 3), record(-0.5, 3)], "outside its domain"),
        ([record(0.25, 3), record(np.nan, 3)], "outside its domain"),
        ([record(0.25, 3), record(0.25, 10)], "outside its domain"),
        ([record(0.25, 3)], "fewer records"),
        ([record(0.25, 3)] * 3, "more records"),
    ],
)
def test_rejects_value_outside_all_bins(records, message):
    def read(rows):
        blocks = [(1, row) for row in rows]
        data = write_blocks(avro.records_schema(DOMAIN), DRAW, "records", blocks)
        return avro.read_records(data, DOMAIN, 2, is_drawn=True)

    found = read([record(0.75, 3), record(0.25, 3)])  # values of one bin are in no order
    assert [column.tolist() for column in found.codes] == [[0], [0]]
    assert found.counts.tolist() == [2]
    found = read([record(1.5, 3), record(0.25, 7)])
    assert found.codes[0].tolist() == [0, 1]
    with pytest.raises(DamagedFileError, match=message):
        read(records)


def test_values_are_uniform_in_bins_and_null_without_a_bin():
    domain = Domain((*BINNED[:2], BINNED[4]))
    release = drawn(domain, num_records=20_000)
    (columns,) = release.records(batch_size=20_000)
    ages = np.bincount(columns["age"], minlength=92)
    for first, last in zip(*domain["age"].bin_ends, strict=True):
        held = ages[first : last + 1]
        # Chi-squared with a false-alarm probability of at most 1e-6, and a fixed seed.
        assert held.min() > 0
        assert ((held - held.mean()) ** 2 / held.mean()).sum() < len(held) + 6 * len(held) ** 0.5
    middle = np.array([value for value in columns["x"] if isinstance(value, float) and value > 0.1])
    assert abs(middle.mean() - 3.675) < 5 * 7.15 / 12**0.5 / len(middle) ** 0.5
    codes = np.concatenate([release.codes[0][block.records] for block in release.rows()])
    values = np.concatenate([block.values["x"] for block in release.rows()])
    for code, value in ((3, "other"), (4, None)):
        assert {columns["x"][place] for place in np.flatnonzero(codes == code)} == {value}
        assert not values[codes == code].any()
    assert {type(value) for value in columns["visit"]} == {datetime.date, type(None)}
