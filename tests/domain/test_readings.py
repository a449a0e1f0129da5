"""Columns whose type is to be discovered: how values are read, and the type that counts give."""

import dataclasses
import datetime
import decimal
import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from scipy import stats

import beam_dp as dp
from beam_dp.domain.discover import OpenAttribute
from beam_dp.domain.readings import LEAST_UNITS, READINGS, type_of
from beam_dp.secret.encoding.records import encode_column

NAMES = tuple(READINGS)
LOCAL = datetime.datetime(2020, 2, 29, 8)
COLUMN = OpenAttribute("a", "discover", nullable=True, null_values=("n/a",))
TYPED = [COLUMN.typed(name).bounded() for name in ("whole number", "date", "text")]
TEXTS = {
    "whole number": ["7", " +07 ", "-3.0", "1e3", "5."],
    "number": ["0.5", "-1e-3", ".25"],
    "date": ["2020-02-29", " 1850-01-01 ", "2020-02-29T00:00"],
    "time": ["2020-02-29 08:00", "2020-02-29T00:00:00.5"],
    "time with a zone": ["2020-02-29T00:00Z", "2020-02-29 08:00+01"],
    "text": ["x", "", "nan", "inf", "1,5", "29.02.2020", "2020-02-30", "true", "0x1F", "1e999"],
}
ARROW = {
    "whole number": [pa.array([7, 2**62]), pa.array([7.0]), pa.array([decimal.Decimal("7.00")])],
    "number": [pa.array([0.5], pa.float16()), pa.array([decimal.Decimal("7.50")])],
    "date": [pa.array([LOCAL.date()]), pa.array([86_400], pa.timestamp("s"))],
    "time": [pa.array([LOCAL], pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")],
    "time with a zone": [pa.array([LOCAL], pa.timestamp("us", "UTC"))],
    "text": [pa.array([True]), pa.array([math.inf]), pa.array([[1]]), pa.array([b"\xff"])],
}


def readings(column: pa.Array, attribute: OpenAttribute = COLUMN) -> list[str | None]:
    codes = encode_column(attribute.leaves, column).tolist()
    return [NAMES[code] if 0 <= code < len(NAMES) else None for code in codes]


@pytest.mark.parametrize("name", NAMES)
def test_a_value_votes_for_its_narrowest_reading_in_every_type(name):
    layouts = [pa.array(TEXTS[name]), pa.array(TEXTS[name]).dictionary_encode(), *ARROW[name]]
    for column in layouts:
        assert readings(column) == [name] * len(column)


def test_missing_values_do_not_vote():
    assert readings(pa.array(["n/a", None])) == [None, None]
    assert readings(pa.array([math.nan, None])) == [None, None]


@given(
    texts=st.lists(
        st.sampled_from(sorted({*["5", "07", "x", "nan"], *itertools.chain(*TEXTS.values())}))
    ),
    odd=st.sampled_from(["?", "0.5", "2020-01-01", "nan", "0x1"]),
)
def test_a_table_with_one_odd_row_more_gives_the_same_reading_of_every_other_value(texts, odd):
    before = readings(pa.array(texts, pa.string()))
    assert readings(pa.array([*texts, odd], pa.string()))[:-1] == before
    for attribute in TYPED:
        codes = encode_column(attribute, pa.array([*texts, odd], pa.string())).tolist()
        assert encode_column(attribute, pa.array(texts, pa.string())).tolist() == codes[:-1]


def votes(noise: float = 0.0, **shares: float) -> np.ndarray:
    named = {name.replace("_", " "): share for name, share in shares.items()}
    return np.array([named.get(name, 0.0) for name in NAMES]) + noise


@pytest.mark.parametrize("name", NAMES)
def test_columns_of_one_reading_get_its_type_up_to_five_standard_errors(name):
    counts = np.array([LEAST_UNITS * (name == each) for each in NAMES])
    assert type_of(counts, 1.0) == name
    for sign in (-1, 1):  # all sums of counts are at most 5 standard errors off
        assert type_of(counts + sign * 5 / math.sqrt(6), 1.0) == name
    assert type_of(0.6 * counts, 1.0) == "text"
    assert 7 * stats.norm.sf(5) < 2.1e-6 and 3 * stats.norm.sf(5) < 1e-6


@pytest.mark.parametrize(
    ("shares", "name"),
    [
        ({"whole_number": 0.99, "text": 0.01}, "whole number"),
        ({"whole_number": 0.95, "text": 0.05}, "text"),
        ({"whole_number": 0.99, "number": 0.01}, "whole number"),
        ({"whole_number": 0.6, "number": 0.4}, "number"),
        ({"date": 0.5, "time": 0.5}, "time"),
        ({"time": 0.5, "time_with_a_zone": 0.5}, "text"),
        ({"number": 0.5, "date": 0.5}, "text"),
        ({}, "text"),
    ],
)
def test_few_odd_values_do_not_change_a_type_and_many_make_it_text(shares, name):
    rng = np.random.default_rng(3)
    for _ in range(200):
        assert type_of(900 * votes(**shares) + rng.normal(size=6), 1.0) == name


def test_domains_with_types_to_discover_are_written_as_they_are_read():
    entries = [
        {"name": "a", "type": "discover", "nullable": True, "null_values": ["-"], "trim": True},
        {"name": "b", "type": "categorical", "discover": {"max_values": 3}},
        {"name": "c", "type": "categorical", "values": ["x"]},
        {"name": "d", "type": "discover", "case": "ignore"},
    ]
    domain = dp.read_open_domain({"attributes": entries})
    assert isinstance(domain, dp.OpenDomain) and domain.lacks_types
    assert domain.to_json()["attributes"] == entries
    assert [each.name for each in domain.open] == ["a", "d"]
    assert [each.size for each in domain.bounded()] == [102, 4, 1, 101]
    typed = domain.typed({"a": "whole number", "d": "time with a zone"})
    assert [each.name for each in typed.open] == ["a", "b", "d"] and not typed.lacks_types
    assert dp.read_open_domain(typed.to_json()) == typed
    first, *_, last = typed.open
    assert (first.whole, first.trim, first.null_values) == (True, True, ("-",))
    assert last.leaves.has_zone and last.leaves.num_levels == 2**14
    assert dataclasses.replace(first, any_type=False) != first
