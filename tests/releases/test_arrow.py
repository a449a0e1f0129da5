"""Released records as Arrow tables and frames: the values of ``records``, one type per column."""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from release_examples import release_of

from beam_dp.domain.attributes import BooleanAttribute, CategoricalAttribute
from beam_dp.domain.dates import DateAttribute, DatetimeAttribute
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.domain.universe import Domain

ATTRIBUTES = {
    pa.int64(): (
        IntegerAttribute("long", -(2**62), -2),
        IntegerAttribute("null", 5, 300, nullable=True),
        CategoricalAttribute("numbers", (3, 4, -1), nullable=True),
        NumericAttribute("whole", (0, 5, 8), whole=True),
    ),
    pa.float64(): (
        NumericAttribute("n", (0, 0.5, 1)),
        NumericAttribute("m", (0, 1), nullable=True),
    ),
    pa.bool_(): (BooleanAttribute("b", nullable=True), BooleanAttribute("plain")),
    pa.date32(): (DateAttribute("day", ("0001-01-01", "1999-12-30", "9999-12-31")),),
    pa.timestamp("us"): (
        DatetimeAttribute("local", ("1969-12-31T00:00", "2000-01-01T00:00"), nullable=True),
    ),
    pa.timestamp("us", "UTC"): (
        DatetimeAttribute("at", ("1969-12-31T00:00Z", "2000-01-01T00:00Z")),
    ),
    pa.string(): (
        CategoricalAttribute("texts", ("", "a", "null"), other=True, nullable=True),
        CategoricalAttribute("both", ("x", 7), nullable=True),
        IntegerAttribute("other", 0, 9, other=True, nullable=True),
        NumericAttribute("bins", (0, 0.5, 1), other=True),
        NumericAttribute("wholes", (0, 5, 8), whole=True, other=True),
        BooleanAttribute("flags", other=True),
        DateAttribute("days", ("2000-01-01", "2000-02-01"), other=True),
        DatetimeAttribute("times", ("2000-01-01", "2000-02-01"), other=True),
    ),
}
DOMAIN = Domain(tuple(each for attributes in ATTRIBUTES.values() for each in attributes))


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
    release = release_of(DOMAIN, num_records=num_records, potentials=[], within_bins=within_bins)
    table = release.to_arrow()
    (columns,) = list(release.records()) or [{name: [] for name in DOMAIN.names}]
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
    domain = DOMAIN.restrict(("null", "n", "texts", "at"))
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
