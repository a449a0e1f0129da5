"""Models and an attack that compare released records with exact ones."""

from __future__ import annotations

import html
import re
import sys

import numpy as np
import pytest
from pages import release_of

import beam_dp as dp
from beam_dp.releases.synthetic_database.learned import learned_section
from beam_dp.reports.truth import Truth

NUM = 1_000
# A pair that depends on each other, a column like no other, and many that identify a record.
DOMAIN = dp.parse_domain({"a": 4, "b": 4, "c": 2, "id1": 30, "id2": 30, "id3": 30})


def people(seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    codes = np.stack([generator.integers(0, size, NUM) for size in DOMAIN.shape])
    codes[1] = np.where(generator.random(NUM) < 0.8, codes[0], codes[1])
    return codes


def told(released: np.ndarray, exact: np.ndarray) -> tuple[str, dict[str, list[float]]]:
    """The text of the section, and the figures of each row, first those of its first table."""
    section = learned_section(release_of(DOMAIN, list(released)), Truth(DOMAIN, list(exact), 0))
    rows: dict[str, list[float]] = {}
    for name, cells in re.findall(r'<tr><th scope="row">(\w+)</th>(.*?)</tr>', section):
        rows.setdefault(name, []).extend(map(float, re.findall(r">([0-9.]+) %<", cells)))
    return html.unescape(re.sub("<[^>]+>", " ", section)), rows


@pytest.fixture
def no_models(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)


@pytest.mark.usefixtures("no_models")
def test_attack_tells_a_copy_from_records_of_the_same_law():
    exact = people(1)
    text, rows = told(exact, exact)
    assert "scikit-learn is not installed: pip install 'beam_dp[report]'" in text
    assert "errors, about a, b, c of the 3 attributes about which a copy does" in text
    for frequent, others, released, copy in rows.values():
        assert released > 90 and copy > 90 and max(frequent, others) < 85
    text, rows = told(people(2), exact)
    assert "errors, about none of the 3 attributes about which a copy does" in text
    assert all(max(others, released) < 85 < copy for _, others, released, copy in rows.values())
    # Of two records that depend on each other, one tells about the other.
    assert rows["b"][2] > rows["b"][0] + 10


@pytest.mark.usefixtures("no_models")
def test_attack_says_where_it_shows_nothing():
    exact = people(1)
    exact[3:] = 0  # nothing identifies a record, so a copy tells no more than others
    text, _ = told(exact, exact)
    assert "About a, b, c, id1, id2, id3, a copy" not in text
    assert "c, a copy tells hardly more than other records, so the attack shows nothing" in text
    assert "No such number proves privacy" in text


@pytest.mark.usefixtures("no_models")
def test_attack_on_few_of_many_records_shows_nothing(monkeypatch):
    monkeypatch.setattr("beam_dp.releases.synthetic_database.learned._LOOKED_UP", 50)
    text, _ = told(people(1), people(1))
    assert "a copy of 5 % of all exact records" in text
    assert "About a, b, c, a copy tells hardly more" in text and "which a copy does" not in text


@pytest.mark.part
def test_forests_find_what_released_records_keep():
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: beam_dp[report] does")
    exact = people(1)
    _, rows = told(people(2), exact)
    assert all(areas > 85 for name in "ab" for areas in rows[name][:2])
    assert all(40 < area < 60 for area in rows["c"][:2])
    apart = np.random.default_rng(3).permuted(people(2), axis=1)
    _, rows = told(apart, exact)
    for name in "ab":
        assert rows[name][0] < 60 and rows[name][1] > 85
    gone = people(2)
    gone[0][gone[0] == 3] = 0  # a level that no released record has
    _, rows = told(gone, exact)
    assert 60 < rows["a"][0] < rows["a"][1] - 5


@pytest.mark.parametrize("number", [0, 399])
def test_few_records_are_not_compared(number):
    exact = people(1)
    assert "Not computed: it needs two attributes" in told(exact, exact[:, :number])[0]


def test_units_stay_together():
    units = np.zeros((2, NUM), np.uint64)
    units[1] = np.arange(NUM) // 5
    truth = Truth(DOMAIN, list(people(1)), 0, units=units)
    for share in (0.1, 0.5, 1.0):
        chosen, others = truth.apart(share)
        assert sorted([*chosen, *others]) == list(range(NUM))
        assert abs(len(chosen) - share * NUM) < 100
        assert not {*units[1][chosen]} & {*units[1][others]}
        assert not np.all(np.diff(chosen) > 0)
