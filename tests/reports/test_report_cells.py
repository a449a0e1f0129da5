"""Groups of levels, and what a release and its records say of them."""

from __future__ import annotations

import numpy as np
from pages import random_release

from beam_dp.domain.attributes import CategoricalAttribute
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.domain.universe import Domain
from beam_dp.releases.error_bars import Estimate
from beam_dp.releases.synthetic_database.describe import RecordAnswers
from beam_dp.reports.cells import (
    Cell,
    cells_of,
    groups_of,
)
from beam_dp.reports.marginals import cramers_v
from beam_dp.reports.truth import Truth

DOMAIN = Domain(
    (
        IntegerAttribute("number", 0, 99, other=True),
        NumericAttribute("age", tuple(range(0, 101, 2)), nullable=True),
        CategoricalAttribute("place", tuple(f"p{place}" for place in range(40))),
    )
)
ANSWERS = RecordAnswers(random_release(DOMAIN))


def test_groups_hold_each_level_once() -> None:
    for axis, size in enumerate(DOMAIN.shape):
        for most in (5, 12, 48):
            groups = groups_of(ANSWERS, axis, most)
            codes = np.concatenate([each.codes for each in groups])
            assert sorted(codes.tolist()) == list(range(size)) and len(groups) <= max(most, 1)


def test_labels_of_groups_say_what_they_hold() -> None:
    assert [each.label for each in groups_of(ANSWERS, 0, 3)] == ["0 to 49", "50 to 99", "other"]
    assert [each.label for each in groups_of(ANSWERS, 1, 3)] == ["[0, 50)", "[50, 100]", "null"]
    assert groups_of(ANSWERS, 2, 12)[-1].label == "29 others together"


def test_cells_of_groups_are_the_sums_of_their_levels() -> None:
    rng = np.random.default_rng(0)
    truth = Truth(DOMAIN, [rng.integers(0, size, 500) for size in DOMAIN.shape], 0)
    groups = (groups_of(ANSWERS, 0, 4), groups_of(ANSWERS, 2, 5))
    (cells,) = cells_of(ANSWERS, [((0, 2), groups)], truth)
    (table,) = ANSWERS.values([(0, 2)])
    for place, cell in enumerate(cells):
        first, second = divmod(place, 5)
        codes = groups[0][first].codes, groups[1][second].codes
        assert cell.labels == (groups[0][first].label, groups[1][second].label)
        assert np.isclose(cell.answer.value, table[np.ix_(*codes)].sum())
        inside = np.isin(truth.codes[0], codes[0]) & np.isin(truth.codes[2], codes[1])
        assert cell.truth == inside.sum()
    assert sum(cell.truth or 0 for cell in cells) == 500


def test_a_cell_is_noisy_where_its_bar_is_longer_than_half_of_it() -> None:
    def cell(value: float, margin: float | None, truth: int | None = None) -> Cell:
        return Cell(("a",), Estimate(value, 1.0, margin, "exact"), truth)

    assert cell(10, 5.1).is_noisy and cell(-10, 5.1).is_noisy and cell(0, 0.1).is_noisy
    assert not cell(10, 5.0).is_noisy and not cell(0, None).is_noisy
    assert cell(10, 5.0, 16).is_missed
    assert not cell(10, 5.0, 15).is_missed and not cell(10, 5.0).is_missed


def test_cramers_v_is_that_of_what_is_not_negative() -> None:
    assert np.isclose(cramers_v(np.array([[5.0, -1.0], [-2.0, 7.0]])), 1.0)
    assert cramers_v(np.array([[0.0, 0.0], [1.0, 2.0]])) == 0.0
    table = np.array([[30.0, 10.0], [20.0, 40.0]])
    assert np.isclose(cramers_v(table), (30 * 40 - 10 * 20) / np.sqrt(40 * 60 * 50 * 50))
