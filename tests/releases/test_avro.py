"""Tests."""

import datetime
import io
import struct
import tracemalloc
import zlib
from functools import partial

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from executed_lines import lines_below
from hypothesis import given, settings, strategies as st
from kind_examples import ONE, TWO, TWO_RECORDS, potential, records_of, tables_of
from release_examples import DRAW, records_bytes, release_of

import beam_dp as dp
from beam_dp.domain.files import domain_from_json
from beam_dp.releases.synthetic_database import (
    records,
    records_avro as avro,
    shards as shards_module,
)
from beam_dp.releases.synthetic_database.files import read_tables
from beam_dp.secret.encoding.records import encode_batch
from beam_dp.secret.encoding.units import arrow_column
from beam_dp.storage import avro as avro_files
from beam_dp.storage.avro import decode_longs, encode, encode_longs, write_blocks
from beam_dp.storage.store import DamagedFileError


def read_records(data, release):
    is_drawn = bool(release.drawn)
    return avro.read_records(data, release.domain, release.num_records, is_drawn=is_drawn)


ATTRIBUTES = [
    dp.IntegerAttribute("i", -(2**62), -2),
    dp.IntegerAttribute("j", 5, 5, other=True, nullable=True),
    dp.NumericAttribute("n", tuple(np.linspace(-1, 1, 200)), other=True, nullable=True),
    dp.NumericAttribute("m", (-1e308, 0.0, 1e308)),
    dp.BooleanAttribute("b", other=True, nullable=True),
    dp.CategoricalAttribute("c", ("", "x" * 5000, "null", "\0")),
    dp.CategoricalAttribute("d", (3, "4", -1), nullable=True),
    dp.CategoricalAttribute("e", tuple(range(300))),
    dp.BooleanAttribute("f", true_values=("yes", 1), false_values=(0, "no"), nullable=True),
    dp.DateAttribute("g", ("0001-01-01", "1969-12-30", "9999-12-31"), other=True, nullable=True),
    dp.DatetimeAttribute("h", ("1969-12-31T23:59:59.999999", "1970-01-01", "9999-12-31")),
    # Numbers of two and of three bytes that begin alike.
    dp.IntegerAttribute("l", 4160, 8255),
    dp.DatetimeAttribute("k", ("1969-12-31T00:00Z", "2020-01-01T00:00:00.000001Z"), nullable=True),
]


def test_rereading_a_released_record_gives_its_codes():
    domain = dp.Domain(tuple(ATTRIBUTES[8:]))
    release = release_of(domain)
    for batch in release.records():
        table = pa.record_batch([arrow_column(list(batch[name])) for name in domain.names],
                                names=list(domain.names))  # fmt: skip
        codes, keep = encode_batch(domain, table)
        assert keep is None
        again = [attribute.decode(column) for attribute, column in zip(domain, codes, strict=True)]
        assert again == [list(batch[name]) for name in domain.names]


def test_names_and_words_that_Avro_lacks_are_read_by_other_readers():
    names = ("a b", "a_b", "a.b", "a_b_2", "7", "é", "_7", "名前", "Überall", "a-b")
    mapped = avro.avro_names(names)
    assert len(set(mapped)) == len(names)
    assert mapped[1] == "a_b" and mapped[3] == "a_b_2"
    schema = avro.records_schema(domain_from_json(dict.fromkeys(names, 2)))
    fastavro.parse_schema(schema)
    assert tuple(f.get("original_name", f["name"]) for f in schema["fields"]) == names
    domain = dp.Domain(
        (
            dp.BooleanAttribute("smoker", true_values=("yes", "Y"), false_values=("no",)),
            dp.DateAttribute("visit", ("2020-01-01", "2020-01-03")),
            dp.DatetimeAttribute("local", ("2020-01-01T08:00", "2020-01-01T08:00:01")),
            dp.DatetimeAttribute("moment", ("2020-01-01T08:00+01:00", "2020-01-01T09:00Z")),
        )
    )
    (row,) = fastavro.reader(io.BytesIO(records_bytes(release_of(domain, num_records=1))))
    half_past_seven = datetime.datetime(2020, 1, 1, 7, 30)
    assert row == {
        "smoker": row["smoker"],
        "visit": datetime.date(2020, 1, 2),
        "local": half_past_seven.replace(hour=8, minute=0, microsecond=500_000),
        "moment": half_past_seven.replace(hour=8, minute=0, tzinfo=datetime.UTC),
    }
    assert row["smoker"] in ("yes", "no")


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.integers(1, 4))
def test_many_longs_are_written_and_read_like_single_ones(values, at_once):
    data = b"".join(encode("long", value) for value in values)
    assert encode_longs(np.array(values, np.int64)) == data
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro_files, "_LONGS_AT_ONCE", at_once)
        file = io.BytesIO(data + b"x")
        assert decode_longs(file, len(values)).tolist() == values and file.read() == b"x"


def read_blocks(*blocks, num_records=2, **options):
    return read_records(
        records_of(*blocks, **options), release_of(TWO_RECORDS, num_records=num_records)
    )


def test_handmade_files_are_read():
    codes, counts = read_blocks((1, ONE), (0, b""), (1, TWO))
    assert TWO_RECORDS.cell_index(codes).tolist() == [8, 16] and counts.tolist() == [1, 1]
    assert read_blocks((1, ONE), (1, ONE))[1].tolist() == [2]
    codes, counts = read_blocks((3, TWO + ONE + TWO), (1, ONE), num_records=4)
    assert TWO_RECORDS.cell_index(codes).tolist() == [8, 16] and counts.tolist() == [2, 2]
    domain = domain_from_json({"a": 3000})
    numbers = np.arange(3000, dtype="<f8").tobytes()
    parts = encode("long", -2000) + encode("long", 16_000) + numbers[:16_000]
    parts += encode("long", 1000) + numbers[16_000:] + b"\0"
    block = potential([b"a"], [3000], [])[:-2] + parts
    data = tables_of((1, block))
    ((names, table),) = read_tables("hypothesis", data, domain)
    assert names == ("a",) and table.tolist() == list(range(3000))


def test_rejects_unsupported_codec():
    file = io.BytesIO()
    fastavro.writer(file, avro.records_schema(TWO_RECORDS), [], "xz")
    with pytest.raises(DamagedFileError, match="codec other than null, deflate and bzip2"):
        read_records(file.getvalue(), release_of(TWO_RECORDS, num_records=0))


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([(70_000, (b"\0\0\2" + bytes(9)) * 70_000)], "more records than a file of this size"),
        ([(1, b"\0" + b"\2\0" * 2**18)], "an array in too many parts"),
        ([(1, encode("long", 2**19) + b"\0" * 2**19 + b"\0\0\0")], "not in its domain"),
    ],
)
def test_rejects_small_but_expensive_compressed_files_in_little_memory(blocks, message):
    data = tables_of(*blocks, deflate=True)
    tracemalloc.start()
    with lines_below(10**6), pytest.raises(DamagedFileError, match=message):
        read_tables("hypothesis", data, TWO_RECORDS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**25


@pytest.mark.parametrize("has_texts", [True, False])
def test_deflates_texts_and_short_codes_each_in_the_shorter_way(has_texts):
    rng = np.random.default_rng(0)
    words = [b"\x10Bachelor", b"\x0eMasters", b"\x04HS"]
    words = words if has_texts else [bytes([2 * code]) for code in range(40)]
    block = b"".join(words[place] for place in rng.integers(0, len(words), 2**17))
    sizes = []
    for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY):
        compressor = zlib.compressobj(3, wbits=-15, strategy=strategy)
        sizes.append(len(compressor.compress(block) + compressor.flush()))
    assert (sizes[0] < sizes[1]) == has_texts
    written = records_of((2**17, block), (2**17, block))
    assert 2 * min(sizes) < len(written) < 2 * min(sizes) + 1000
    schema = avro.records_schema(TWO_RECORDS)
    assert list(avro_files.read_blocks(written, schema, 2**22)) == [(2**17, block)] * 2


BINNED = (
    dp.NumericAttribute("x", (-1.5, 0.0, 0.1, 7.25), other=True, nullable=True),
    dp.NumericAttribute("age", (17, 25, 35.5, 91), whole=True),
    dp.NumericAttribute("ends", (-1e308, 0.0, 1e308)),
    dp.NumericAttribute("near", (1.0, np.nextafter(1.0, 2.0), 2.0)),
    dp.DateAttribute("visit", ("0001-01-01", "1969-12-30", "9999-12-31"), nullable=True),
    dp.DatetimeAttribute("local", ("1969-12-31T23:59:59.999999", "1970-01-01", "9999-12-31")),
    dp.DatetimeAttribute(
        "moment", ("1969-12-31T00:00Z", "2020-01-01T00:00:00.000001Z"), other=True
    ),
)


def drawn_within(domain, seed=0, **fields):
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


@settings(max_examples=40)
@given(
    st.lists(
        st.sampled_from([*ATTRIBUTES, *BINNED]), min_size=1, max_size=4, unique_by=lambda a: a.name
    ),
    st.integers(0, 60),
    st.integers(0, 5),
    st.sampled_from([1, 100, 2**20]),
    st.sampled_from([3, 7]),
    st.booleans(),
)
def test_records_round_trip_through_files(
    attributes, num_records, seed, block_bytes, at_once, is_drawn
):
    domain = dp.Domain((*attributes, *domain_from_json({"code": 3})))
    of_bins = is_drawn and any(hasattr(attribute, "bin_ends") for attribute in attributes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro_files, "BLOCK_BYTES", block_bytes)
        patch.setattr(avro, "_CHUNK_RECORDS", 7)
        patch.setattr(avro, "_MOST_FORMS", at_once)
        patch.setattr(records, "_MOST_WAITING", at_once + 2)
        patch.setattr(shards_module, "_BLOCK_ROWS", 9)
        make = drawn_within if of_bins else partial(release_of, potentials=[])
        release = make(domain, num_records=num_records, seed=seed)
        data = records_bytes(release)
        found = read_records(data, release)
        columns = {
            name: [v for each in release.records() for v in each[name]] for name in domain.names
        }
    assert all(map(np.array_equal, found.codes, release.codes))
    assert [column.dtype for column in found.codes] == [column.dtype for column in release.codes]
    assert np.array_equal(found.counts, release.counts)
    rows = list(fastavro.reader(io.BytesIO(data)))
    assert len(rows) == num_records
    for name, values in columns.items():
        assert [row[name] for row in rows] == values


NUMERIC = dp.Domain(
    (dp.NumericAttribute("a", (0, 1, 2)), dp.NumericAttribute("b", (0, 5, 9), whole=True))
)


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
        data = write_blocks(avro.records_schema(NUMERIC), DRAW, "records", blocks)
        return avro.read_records(data, NUMERIC, 2, is_drawn=True)

    found = read([record(0.75, 3), record(0.25, 3)])  # values of one bin are in no order
    assert [column.tolist() for column in found.codes] == [[0], [0]]
    assert found.counts.tolist() == [2]
    found = read([record(1.5, 3), record(0.25, 7)])
    assert found.codes[0].tolist() == [0, 1]
    with pytest.raises(DamagedFileError, match=message):
        read(records)


def test_values_are_uniform_in_bins_and_null_without_a_bin():
    domain = dp.Domain((*BINNED[:2], BINNED[4]))
    release = drawn_within(domain, num_records=20_000)
    (columns,) = release.records(batch_size=20_000)
    ages = np.bincount(columns["age"], minlength=92)
    for first, last in zip(*domain["age"].bin_ends, strict=True):
        held = ages[first : last + 1]
        # Chi-squared with a false-alarm probability of at most 1e-6, and a fixed seed.
        assert held.min() > 0
        assert ((held - held.mean()) ** 2 / held.mean()).sum() < len(held) + 6 * len(held) ** 0.5
    middle = np.array([value for value in columns["x"] if isinstance(value, float) and value > 0.1])
    assert abs(middle.mean() - 3.675) < 5 * 7.15 / 12**0.5 / len(middle) ** 0.5
    codes = np.concatenate([release.codes[0][block.records] for block in release.blocks()])
    values = np.concatenate([block.values["x"] for block in release.blocks()])
    for code, value in ((3, "other"), (4, None)):
        assert {columns["x"][place] for place in np.flatnonzero(codes == code)} == {value}
        assert not values[codes == code].any()
    assert {type(value) for value in columns["visit"]} == {datetime.date, type(None)}
