"""Where released values lie within their bins."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from release_examples import DRAW, release_of

import beam_dp as dp
from beam_dp.domain.attributes import PaidRelease
from beam_dp.domain.dates import DateAttribute
from beam_dp.domain.files import domain_from_json
from beam_dp.domain.ordered import NumericAttribute
from beam_dp.releases.synthetic_database.shards import bin_positions, values_within
from beam_dp.views.cells import column_warnings

EVEN = NumericAttribute("a", (0.0, 1.0, 2.0, 3.0, 4.0))


def medians(counts, attribute=EVEN):
    positions = bin_positions(attribute, np.array(counts))
    return positions[:, positions.shape[1] // 2].tolist()


def test_density_is_exponential_where_bins_fall_by_a_factor():
    positions = bin_positions(EVEN, np.array([800, 400, 200, 100]) - 0.5)
    shares = np.linspace(0, 1, positions.shape[1])
    expected = -np.log2(1 - shares / 2)  # a factor of 2 in each bin
    assert positions == pytest.approx(np.tile(expected, (4, 1)), abs=1e-4)


@pytest.mark.parametrize(
    ("counts", "sides"),
    [
        ([10, 20, 40, 80], "++++"),
        ([80, 40, 20, 10], "----"),
        ([10, 900, 10, 10], "000-"),  # a peak bends no bin but one that falls at its side
        ([10, 10, 10, 10], "0000"),
        ([0, 0, 0, 0], "0000"),
        ([10, 20, 5, 4], "00--"),
    ],
)
def test_density_rises_and_falls_with_the_bins_on_both_sides(counts, sides):
    expected = {"+": lambda x: x > 0.5, "-": lambda x: x < 0.5, "0": lambda x: x == 0.5}
    signs = [next(sign for sign, holds in expected.items() if holds(x)) for x in medians(counts)]
    if counts[1] == 900:
        sides = "0000"  # the bins at the ends use the two nearest pairs, which disagree or are flat
    assert "".join(signs) == sides


def test_end_of_a_long_tail_has_most_values_near_the_others():
    tail = NumericAttribute("a", (0.0, 1.0, 2.0, 4.0, 100.0))
    assert medians([900, 700, 600, 500], tail)[-1] < 0.2
    values = np.random.default_rng(0).lognormal(0, 1.5, 50_000)
    edges = [0.0, *np.quantile(values, np.arange(1, 20) / 20), values.max()]
    binned = NumericAttribute("a", edges)
    codes = np.searchsorted(edges[1:-1], values, "right")
    words = np.random.default_rng(1).integers(0, 2**64, len(codes), np.uint64)
    deviations = {
        kind: values_within(
            binned, codes, words, bin_positions(binned, np.bincount(codes), kind)
        ).std()
        for kind in ("density", "uniform")
    }
    # The last bin has a twentieth of the values in nearly all of the range.
    assert deviations["uniform"] > 8 * values.std()
    assert deviations["density"] < 2 * values.std()


def test_peak_in_a_found_bin_at_0_is_a_peak_of_zeros():
    paid = PaidRelease(None, DRAW)
    for origin, inner, counts, is_zero in (
        (paid, (0.001, 2.5), [5, 800, 90, 60], True),
        (paid, (0.001, 2.5), [5, 8, 900, 60], False),
        (None, (0.001, 2.5), [5, 800, 90, 60], False),
        (paid, (0.001, 0.001003), [5, 800, 28, 60], True),  # noise beside the peak
        (paid, (0.2, 2.5), [5, 800, 1, 60], False),  # wide: 0.1 is no zero
    ):
        edges = (-3.0, 0.0, *inner, 7.0)
        attribute = NumericAttribute("tip", edges, edges_from=origin)
        words = np.array([1, 2**62, 2**64 - 1], np.uint64)
        values = values_within(
            attribute, np.ones(3, np.uint8), words, bin_positions(attribute, np.array(counts))
        )
        assert (values == 0).all() == is_zero and (values < inner[0]).all()


@given(st.data())
def test_values_stay_in_their_bins(data):
    edges = data.draw(
        st.lists(st.floats(-1.5e308, 1.5e308), min_size=2, max_size=9, unique=True).map(sorted)
    )
    whole = data.draw(st.booleans()) and len({round(x) for x in edges}) == len(edges)
    attributes = [NumericAttribute("a", edges)]
    if whole and max(map(abs, edges)) <= 2**53:
        attributes = [NumericAttribute("a", [round(x) for x in edges], whole=True)]
    days = sorted(data.draw(st.sets(st.integers(1, 28), min_size=2, max_size=9)))
    attributes.append(DateAttribute("b", [f"2020-02-{day:02}" for day in days]))
    for attribute in attributes:
        size = attribute.num_levels
        counts = np.array(data.draw(st.lists(st.integers(0, 10**12), min_size=size, max_size=size)))
        positions = bin_positions(attribute, counts)
        assert (positions[:, 0] == 0).all() and (positions[:, -1] == 1).all()
        assert (np.diff(positions) >= 0).all()
        codes = np.repeat(np.arange(size), 4)
        words = np.array([0, 1, 2**63, 2**64 - 1] * size, np.uint64)
        values = values_within(attribute, codes, words, positions)
        assert (attribute.bins_of(values) == codes).all()


def test_null_and_other_have_no_value_within_a_bin():
    attribute = NumericAttribute("a", (0.0, 1.0, 2.0, 3.0), nullable=True)
    positions = bin_positions(attribute, np.array([5, 6, 7]))
    words = np.full(2, 2**63, np.uint64)
    values = values_within(attribute, np.array([3, 1], np.uint8), words, positions)
    assert values[0] == 0 and 1 < values[1] < 2 and math.isfinite(values[1])


def test_card_says_of_which_columns_the_records_say_little(tmp_path):
    one_bin = {"name": "year", "type": "numeric", "edges": [2000, 2050]}
    city = {"name": "city", "type": "categorical", "values": ["Paris"], "other": True}
    pay = {"name": "pay", "type": "numeric", "edges": [0, 1], "other": True}
    sex = {"name": "sex", "type": "boolean"}
    domain = domain_from_json({"attributes": [one_bin, city, sex, pay]})
    release = release_of(domain, potentials=[], num_records=50, seed=0)
    shares = {name: f"{share:.0%} in other" for name, share in release.other_shares.items()}
    expected = {"year": "one bin", "city": shares["city"], "pay": f"one bin, {shares['pay']}"}
    assert column_warnings(expected) == [
        "Only one bin, so the values carry no information: year, pay",
        f"More than half of the rows are in one level: city {shares['city']}, pay {shares['pay']}",
    ]
    assert release.other_shares["city"] > 0.5 and release.not_described == expected
    dp.write_release(release, tmp_path / "out")
    (card,) = (tmp_path / "out").glob("*.json")
    assert json.loads(card.read_text())["not_described"] == expected
    parsed = json.loads(card.read_text())
    del parsed["not_described"]  # as on the cards of older versions
    card.write_text(json.dumps(parsed))
    assert dp.read_release(tmp_path / "out").not_described == expected
    for forged in ({}, None, {"year": "one bin"}, expected | {"sex": "one bin"}, 7):
        parsed = json.loads(card.read_text()) | {"not_described": forged}
        card.write_text(json.dumps(parsed))
        with pytest.raises(dp.ReleaseError, match="not_described"):
            dp.read_release(tmp_path / "out")
