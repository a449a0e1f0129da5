"""Which columns may lack far values: told from found bins and their counts alone."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, strategies as st
from release_examples import DRAW, GUARANTEE, release_of
from scipy.special import ndtri

import beam_dp as dp
from beam_dp.domain.attributes import PaidRelease
from beam_dp.domain.ordered import NumericAttribute
from beam_dp.releases.earlier_stage import END_ERRORS, Discovered, hidden_units, may_be_cut

HIDDEN = 250
RANKS = (np.arange(3_000) + 0.5) / 3_000
MONEY = np.exp(1.5 * ndtri(RANKS))


def cut_column(values, num_cut=HIDDEN, origin=None):
    """Returns a column with 18 bins of as many values each, without its ends, and the counts."""
    ends = np.sort(values)[[num_cut, -num_cut - 1]]
    clipped = np.clip(values, *ends)
    edges = np.unique(np.quantile(clipped, np.linspace(0, 1, 19)))
    counts = np.histogram(clipped, edges)[0].astype(float)
    return NumericAttribute("pay", edges.tolist(), edges_from=origin), counts


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (MONEY, True),
        (-MONEY, True),
        ((1 - RANKS) ** -0.8, True),
        (ndtri(RANKS), False),
        (RANKS, False),
        (RANKS**2, False),
        (np.exp(0.4 * ndtri(RANKS)), False),
    ],
)
def test_only_long_tails_may_be_cut(values, expected):
    assert may_be_cut(*cut_column(values), HIDDEN) == expected


@pytest.mark.parametrize(
    ("edges", "expected"), [([0, 1, 1.5], False), ([0, 1, 2], True), ([0, 5, 7, 9], True)]
)
def test_noise_that_hides_an_eighth_cuts_all_but_single_numbers(edges, expected):
    column = NumericAttribute("a", edges, whole=True)
    counts = np.full(column.num_levels, 600.0)
    assert may_be_cut(column, counts, counts.sum() / 7) == expected
    assert not may_be_cut(column, counts, counts.sum() / 9)


def test_codes_have_no_tail():
    counts, hidden = np.array([5_000.0, 900.0, 700.0, 600.0]), 500
    assert may_be_cut(NumericAttribute("a", (0, 1, 3, 9, 20), whole=True), counts, hidden)
    assert not may_be_cut(NumericAttribute("a", (0, 1, 2, 3, 3.5), whole=True), counts, hidden)


def test_tail_that_ends_at_a_frequent_value_is_not_cut():
    ranks = (np.arange(30_000) + 0.5) / 30_000
    values = np.minimum((1 - ranks) ** -1.6, 646)
    edges = [1, 2, 3, 5, 8, 12, 20, 40, 80, 160, 320, 640, 652]
    column, counts = NumericAttribute("a", edges), np.histogram(values, edges)[0].astype(float)
    assert counts[-1] > 2 * HIDDEN and not may_be_cut(column, counts, HIDDEN)
    assert may_be_cut(column, counts, counts[-1])


@given(st.data())
def test_extreme_bins_raise_nothing(data):
    edges = data.draw(
        st.lists(st.floats(-1.7e308, 1.7e308), min_size=2, max_size=9, unique=True).map(sorted)
    )
    size = len(edges) - 1
    counts = data.draw(st.lists(st.floats(-1e3, 1e12), min_size=size, max_size=size))
    hidden = data.draw(st.floats(1e-3, 1e9))
    assert may_be_cut(NumericAttribute("a", edges), np.array(counts), hidden) in (True, False)


def test_card_names_columns_whose_far_values_may_be_cut():
    column, counts = cut_column(MONEY, origin=PaidRelease(None, DRAW))
    scale = HIDDEN / END_ERRORS * 2**20
    entry = {"measured": "pay", "distribution": "discrete_gaussian", "scale": scale}
    entry |= {"grid": 2**20, "levels": [16, 200]}
    assert hidden_units(entry) == pytest.approx(HIDDEN)
    main = dataclasses.replace(GUARANTEE, epsilon=0.8)
    found = Discovered(whole=GUARANTEE, main=main, noise=(entry,), draw_id=DRAW)
    release = release_of(
        dp.Domain((column,)),
        codes=[np.arange(len(counts))],
        counts=counts.astype(np.int64),
        num_records=int(counts.sum()),
        discovered=found,
    )
    expected = {"pay": "far values may be cut"}
    assert release.not_described == release.card["not_described"] == expected
    assert release_of(dp.Domain((column,)), discovered=None).not_described == {}
