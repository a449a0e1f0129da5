"""Domain files with attributes whose values or bins a release still has to find."""

import datetime
import json
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import beam_dp as dp
from beam_dp.domain.attributes import PaidRelease
from beam_dp.domain.discover import DiscoverBins, OpenAttribute
from beam_dp.domain.files import open_domain_from_json
from beam_dp.secret.encoding.records import encode_column

CITY = {"name": "city", "type": "categorical", "discover": {"max_values": 3, "include": ["Rome"]}}
INCOME = {"name": "income", "type": "numeric", "discover": {"bins": 4, "min": 0, "max": 8192}}
DAY = {
    "name": "day",
    "type": "date",
    "discover": {"bins": 2, "min": "2020-01-01", "max": "2020-12-31"},
}
SEX = {"name": "sex", "type": "categorical", "values": ["F", "M"]}
ALIVE = {"name": "alive", "type": "boolean"}
ORIGIN = PaidRelease("visits/1", "0" * 32)


def open_domain(*entries: dict, **rest: object) -> dp.OpenDomain:
    domain = dp.read_open_domain({"attributes": list(entries), **rest})
    assert isinstance(domain, dp.OpenDomain)
    return domain


def test_a_domain_is_open_where_something_is_to_be_discovered() -> None:
    domain = open_domain(SEX, CITY, INCOME, DAY)
    assert domain.names == ("sex", "city", "income", "day")
    assert [each.name for each in domain.open] == ["city", "income", "day"]
    assert domain.declared == dp.read_domain({"attributes": [SEX]})
    assert open_domain(CITY).declared is None
    assert isinstance(dp.read_open_domain({"attributes": [SEX]}), dp.Domain)


def test_found_values_and_edges_close_a_domain() -> None:
    domain = open_domain(CITY, SEX, INCOME, DAY)
    days = ["2020-01-01", "2020-02-01", "2020-12-31"]
    found = {"city": ["Bonn", "Oslo"], "income": [0, 2.5, 8192], "day": days}
    closed = domain.closed(found, ORIGIN)
    assert closed["city"].labels() == ("Rome", "Bonn", "Oslo", "other")
    assert closed["income"].labels() == ("[0, 2.5)", "[2.5, 8192]")
    assert closed["day"].labels() == ("[2020-01-01, 2020-02-01)", "[2020-02-01, 2020-12-31]")
    assert domain.open[2].edges_at([0, 31, 365]) == days
    assert closed["city"].values_from == closed["day"].edges_from == ORIGIN
    assert dp.read_domain(closed.to_json()) == closed


@given(data=st.data(), low=st.integers(-9999, 9999), length=st.integers(1, 9999))
@settings(max_examples=20)
def test_any_cuts_of_a_range_of_whole_numbers_give_bins(
    data: st.DataObject, low: int, length: int
) -> None:
    column = OpenAttribute("a", "numeric", DiscoverBins(9, low, low + length), whole=True)
    places = st.integers(0, column.leaves.num_levels)
    cuts = sorted(data.draw(st.sets(places, min_size=2, max_size=10)))
    closed = column.closed(column.edges_at(cuts))
    first, last = closed.whole_ends
    wide_first, wide_last = column.leaves.whole_ends
    assert first[0] == wide_first[cuts[0]]
    assert last[-1] == wide_last[cuts[-1] - 1]


def test_last_bin_of_found_dates_ends_with_the_last_day_of_its_leaves() -> None:
    ends = datetime.date(2020, 1, 1), datetime.date(2020, 12, 31)
    column = OpenAttribute("a", "date", DiscoverBins(9, *ends))
    # The bin of one day also has the next one, because its edges must differ.
    for cut, last in ((60, (2, 29)), (365, (12, 31)), (32, (2, 2))):
        edges = column.closed(column.edges_at([0, 31, cut])).edges
        assert edges == (ends[0], datetime.date(2020, 2, 1), datetime.date(2020, *last))


def test_open_domains_are_written_as_they_are_read() -> None:
    entries = [
        {**CITY, "nullable": True, "null_values": ["-"], "case": "ignore", "trim": True},
        SEX,
        {**INCOME, "whole": True, "other": True, "nullable": True, "null_values": [-9, "-"]},
        {**INCOME, "name": "b", "discover": {"bins": 2}},
        {**DAY, "nullable": True, "null_values": ["-"]},
    ]
    impossible = [{"city": ["Rome", None], "sex": ["M"]}]
    domain = open_domain(*entries, impossible=impossible)
    written = json.loads(json.dumps(domain.to_json()))
    assert written == {"attributes": entries, "impossible": impossible}
    assert open_domain_from_json(written) == domain
    ends = datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)
    assert DiscoverBins(2, *ends).to_json() == {"bins": 2, "min": "2020-01-01", "max": "2021-01-01"}


def test_impossible_combinations_of_declared_attributes_hold_before_anything_is_found() -> None:
    impossible = [{"alive": [False], "sex": ["M"]}, {"city": ["Rome"], "sex": ["F"]}]
    domain = open_domain(CITY, SEX, ALIVE, impossible=impossible)
    assert domain.declared is not None
    assert [each.axes for each in domain.declared.impossible] == [(0, 1)]
    closed = domain.closed({"city": ["Oslo"]})
    assert [each.axes for each in closed.impossible] == [(1, 2), (0, 1)]


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("nullable", [False, True])
def test_missing_numbers_of_found_bins_leave_no_record_out(nullable: bool, other: bool) -> None:
    column = OpenAttribute("a", "numeric", DiscoverBins(9), nullable=nullable, other=other)
    found = column.closed([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], ORIGIN)
    read = dp.read_domain({"attributes": [found.to_json()]})["a"]
    values = pa.array(["0.5", "x", None, "9", "inf"])
    for attribute in (found, read, column.bounded()):
        middle = attribute.num_levels // 2
        null = attribute.null_code if nullable else attribute.other_code if other else middle
        unreadable = attribute.other_code if other else null
        codes = encode_column(attribute, values).tolist()
        assert codes[1:3] == [unreadable, null] and codes[4] == unreadable
    assert encode_column(read, values).tolist()[::3] == [0, 4]
    declared = replace(column.closed([0.0, 1.0, 2.0]), is_found=False)
    assert encode_column(declared, values)[1] == (-1 if not other else declared.other_code)
