"""Records as Arrow tables, Parquet and CSV: the same rows as in Avro, and rejected files."""

import datetime
import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings, strategies as st
from release_examples import DRAW, records_bytes, release_of

import beam_dp as dp
from beam_dp.domain.files import domain_from_json
from beam_dp.releases.synthetic_database import records_columns, shards as shards_module
from beam_dp.releases.synthetic_database.records_columns import read_columns
from beam_dp.storage.store import DamagedFileError

ATTRIBUTES = {
    pa.int64(): (
        dp.IntegerAttribute("long", -(2**62), -2),
        dp.IntegerAttribute("null", 5, 300, nullable=True),
        dp.CategoricalAttribute("numbers", (3, 4, -1), nullable=True),
        dp.NumericAttribute("whole", (0, 5, 8), whole=True),
    ),
    pa.float64(): (
        dp.NumericAttribute("n", (0, 0.5, 1)),
        dp.NumericAttribute("m", (0, 1), nullable=True),
    ),
    pa.bool_(): (dp.BooleanAttribute("b", nullable=True), dp.BooleanAttribute("plain")),
    pa.date32(): (dp.DateAttribute("day", ("0001-01-01", "1999-12-30", "9999-12-31")),),
    pa.timestamp("us"): (
        dp.DatetimeAttribute("local", ("1969-12-31T00:00", "2000-01-01T00:00"), nullable=True),
    ),
    pa.timestamp("us", "UTC"): (
        dp.DatetimeAttribute("at", ("1969-12-31T00:00Z", "2000-01-01T00:00Z")),
    ),
    pa.string(): (
        dp.CategoricalAttribute("texts", ("", "a", "null"), other=True, nullable=True),
        dp.CategoricalAttribute("both", ("x", 7), nullable=True),
        dp.IntegerAttribute("other", 0, 9, other=True, nullable=True),
        dp.NumericAttribute("bins", (0, 0.5, 1), other=True),
        dp.NumericAttribute("wholes", (0, 5, 8), whole=True, other=True),
        dp.BooleanAttribute("flags", other=True),
        dp.DateAttribute("days", ("2000-01-01", "2000-02-01"), other=True),
        dp.DatetimeAttribute("times", ("2000-01-01", "2000-02-01"), other=True),
    ),
}
TYPES = dp.Domain(tuple(each for attributes in ATTRIBUTES.values() for each in attributes))


def text(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value if value is None else str(value)


@pytest.mark.parametrize("is_drawn", [False, True])
@pytest.mark.parametrize("num_records", [0, 500])
def test_arrow_column_contains_the_record_values_in_one_type(num_records, is_drawn):
    within_bins = "uniform" if is_drawn else "midpoint"
    release = release_of(TYPES, num_records=num_records, potentials=[], within_bins=within_bins)
    table = release.to_arrow()
    (columns,) = list(release.records()) or [{name: [] for name in TYPES.names}]
    for kind, attributes in ATTRIBUTES.items():
        for attribute in attributes:
            expected = columns[attribute.name]
            if pa.types.is_string(kind):
                expected = [text(value) for value in expected]
            found = table[attribute.name]
            assert found.type == kind, attribute.name
            assert [_plain(value) for value in found.to_pylist()] == expected


def _plain(value):
    is_moment = isinstance(value, datetime.datetime) and value.tzinfo is not None
    return value.astimezone(datetime.UTC) if is_moment else value


def test_pandas_frame_matches_the_table():
    domain = TYPES.restrict(("null", "n", "texts", "at"))
    release = release_of(domain, num_records=40)
    table = release.to_arrow()
    pd.testing.assert_frame_equal(release.to_pandas(), table.to_pandas())
    # Readers of Arrow's stream interface need no method of ours.
    assert pa.table(release).equals(table)
    assert np.array_equal(pa.table(release)["n"], table["n"])


def test_polars_frame_matches_the_table():
    polars = pytest.importorskip("polars")
    release = release_of(num_records=40)
    assert polars.DataFrame(release).equals(polars.from_arrow(release.to_arrow()))
    assert release.to_polars().equals(polars.DataFrame(release))


def test_rows_head_and_length_match_the_table():
    release, empty = release_of(num_records=40), release_of(num_records=0)
    assert len(release) == 40 and release.rows() == release.to_arrow().to_pylist()
    pd.testing.assert_frame_equal(release.head(), release.to_pandas().head())
    assert len(release.head(0)) == len(empty.head()) == len(empty.rows()) == 0
    assert {"head", "query", "to_polars"} <= {*dir(release)} and "plan" not in dir(release)
    assert all(hasattr(release, name) for name in dir(release))


FORMATS = ("parquet", "csv")


def made(domain, records_format, is_drawn, **fields):
    within_bins = "uniform" if is_drawn else "midpoint"
    return release_of(
        domain, potentials=[], records_format=records_format, within_bins=within_bins, **fields
    )


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=4, unique_by=lambda a: a.name),
       st.integers(0, 60), st.integers(0, 5), st.booleans(), st.sampled_from(FORMATS))  # fmt: skip
def test_records_round_trip_through_every_format(
    attributes, num_records, seed, is_drawn, records_format
):
    domain = dp.Domain(tuple(attributes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records_columns, "_ROWS", 7)
        patch.setattr(records_columns, "_CSV_BYTES", 1)
        patch.setattr(shards_module, "_BLOCK_ROWS", 5)
        release = made(domain, records_format, is_drawn, num_records=num_records, seed=seed)
        data = records_bytes(release)
        assert records_bytes(release) == data
        found = read_columns(data, domain, num_records, records_format, is_drawn=is_drawn)
    assert all(map(np.array_equal, found.codes, release.codes))
    assert np.array_equal(found.counts, release.counts)


@pytest.mark.parametrize("records_format", FORMATS)
def test_other_libraries_read_the_columns_and_values(records_format):
    release = made(TYPES, records_format, True, num_records=100)
    file = io.BytesIO(records_bytes(release))
    if records_format == "parquet":
        table = pa.parquet.read_table(file)
        assert table.schema.metadata[b"beam_dp.draw_id"] == DRAW.encode()
    else:
        table = pa.csv.read_csv(
            file,
            convert_options=pa.csv.ConvertOptions(
                column_types=release.to_arrow().schema, strings_can_be_null=True,
                quoted_strings_can_be_null=False, null_values=[""],
            ),
        )  # fmt: skip
    assert table.replace_schema_metadata(None).equals(release.to_arrow())


def test_many_equal_records_take_little_space_in_parquet():
    domain = domain_from_json({"a": 2, "b": 3})
    counts = [300_000, 200_000]
    release = release_of(
        domain, codes=domain.codes([1, 4]), counts=counts, num_records=500_000,
        records_format="parquet",
    )  # fmt: skip
    data = records_bytes(release)
    assert len(data) < 80_000  # 1.3 bits a record; 0.97 is the least
    found = read_columns(data, domain, 500_000, "parquet")
    assert domain.cell_index(found.codes).tolist() == [1, 4] and found.counts.tolist() == counts


DOMAIN = dp.Domain(
    (
        dp.NumericAttribute("n", (0, 1, 2), other=True),
        dp.CategoricalAttribute("c", ("", "a")),
        *domain_from_json({"i": 3}),
    )
)
ROWS = {"n": ["0.5", "1.5", "other"], "c": ["", "a", "a"], "i": [2, 0, 1]}


def written(table, records_format):
    file = io.BytesIO()
    if records_format == "csv":
        pa.csv.write_csv(table, file)
    else:
        pa.parquet.write_table(table, file, compression="none")
    return file.getvalue()


@pytest.mark.parametrize("is_drawn", [False, True])
@pytest.mark.parametrize("records_format", FORMATS)
@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("n", ["0.5", "2.5", "other"]),
        ("n", ["0.5", "1.50", "other"]),
        ("n", ["0.5", "nan", "other"]),
        ("n", ["0.5", "text", "other"]),
        ("n", ["0.5", None, "other"]),
        ("n", [0.5, 1.5, 0.5]),
        ("c", ["", "b", "a"]),
        ("c", ["", None, "a"]),
        ("i", [2, 3, 1]),
        ("i", [2, -(2**63), 1]),
        ("i", [2, None, 1]),
        ("i", ["2", "0", "x"]),
        ("x", [2, 0, 1]),
    ],
)
def test_rejects_a_file_that_does_not_match_its_card(records_format, is_drawn, column, values):
    def read(table, num_records=3):
        data = written(table, records_format)
        return read_columns(data, DOMAIN, num_records, records_format, is_drawn=is_drawn)

    table = pa.table(ROWS)
    assert [column.tolist() for column in read(table).codes] == [[0, 1, 2], [0, 1, 1], [2, 0, 1]]
    for number in (2, 4):
        with pytest.raises(DamagedFileError, match=r"more|fewer"):
            read(table, number)
    place = table.schema.get_field_index(column)
    if place < 0:
        damaged = table.append_column(column, pa.array(values))
    else:
        damaged = table.set_column(place, column, pa.array(values))
    is_text = records_format == "csv" and column == "n" and values[2] == 0.5
    if is_text:  # texts and numbers are written alike
        read(damaged)
        return
    with pytest.raises(DamagedFileError):
        read(damaged)


def test_files_that_do_not_fit_are_rejected():
    release = made(DOMAIN, "csv", False, num_records=40)
    backwards = [column[::-1] for column in release.codes]
    with pytest.raises(dp.InputError, match="ascending"):
        made(DOMAIN, "csv", False, num_records=40, codes=backwards, counts=release.counts)
    data = written(pa.table(ROWS), "parquet")
    for cut in (0, 3, len(data) // 2, len(data) - 1):
        with pytest.raises(DamagedFileError):
            read_columns(data[:cut], DOMAIN, 3, "parquet")
    domain = dp.Domain((dp.CategoricalAttribute("c", ("a\nb", "c")),))
    with pytest.raises(dp.InputError, match="must be avro or parquet"):
        release_of(domain, records_format="csv")
    assert release_of(domain, records_format="parquet").records_format == "parquet"
