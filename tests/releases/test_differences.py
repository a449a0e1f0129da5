"""Comparing two releases: in Python, and with the command `beam-dp diff`."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from noise_sources import Seeded
from window_plans import HORIZON_ID, RECORD, marginals_of, plan_of

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.domain.files import read_domain
from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.errors import InputError
from beam_dp.mechanisms.intervals.plan import plan_intervals, release_intervals
from beam_dp.mechanisms.registry import plan_release
from beam_dp.releases.differences import compare_releases
from beam_dp.releases.kinds import write_release
from beam_dp.releases.release import Release
from beam_dp.summaries.histogram import Histogram

DOMAIN = read_domain('{"sex": 2, "class": 3}')
PAIRS = dp.marginals(DOMAIN, ways=2)
ONES = dp.marginals(DOMAIN, ways=1)
PROMISE = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "person_id", 1)
COUNTS = np.array([500, 400, 300, 200, 100, 50])
NOISE = Seeded(11)


def synthetic(counts: np.ndarray, workload: dp.Workload = PAIRS) -> dp.SyntheticDatabase:
    plan = plan_release(dp.Laplace(), DOMAIN, workload, PROMISE)
    return plan.release(Histogram(DOMAIN, counts).marginals(plan.summary_tables), NOISE)


def intervals(counts: np.ndarray, name: str = "age") -> dp.IntervalRelease:
    plan = plan_intervals(len(counts), PROMISE, "histogram")
    return release_intervals(plan, counts, NOISE, IntegerAttribute(name, 0, 5))


def tables(counts: np.ndarray) -> Release:
    plan = plan_of(3, RECORD, PAIRS)
    return plan.draw(0, marginals_of(plan, counts), NOISE, HORIZON_ID)


def other_counts() -> np.ndarray:
    counts = COUNTS.copy()
    counts[4] += 1000
    return counts


@pytest.mark.parametrize("make", [synthetic, intervals, tables])
def test_orders_cells_by_their_z_scores(make):
    first, *rest = compare_releases(make(COUNTS), make(other_counts()))
    label = (("age", "4"),) if make is intervals else (("sex", "1"), ("class", "1"))
    assert first.cell == label and first.difference == pytest.approx(1000, abs=60)
    assert first.z_score == pytest.approx(first.difference / first.standard_error)
    scores = [abs(each.z_score) for each in rest]
    assert len(rest) == 5 and scores == sorted(scores, reverse=True)


def test_variances_of_both_releases_add_up():
    one, other = intervals(COUNTS), intervals(COUNTS)
    cells = np.arange(6)
    error = float(one.answer(cells, cells).standard_errors[0])
    for each in compare_releases(one, other):
        assert each.standard_error == pytest.approx(math.sqrt(2) * error)


def test_z_scores_of_releases_of_the_same_records_follow_the_noise():
    """About 600 squared normal variables; the seed is fixed."""
    scores = [
        each.z_score
        for _ in range(100)
        for each in compare_releases(intervals(COUNTS), intervals(COUNTS))
    ]
    assert 0.6 < np.mean(np.square(scores)) < 1.5


def test_cell_without_a_stated_error_has_no_error_bar():
    asked = dp.marginals(DOMAIN, attributes=["sex", "class"])
    found = compare_releases(synthetic(COUNTS), synthetic(COUNTS, ONES), asked)
    unknown = [each for each in found if each.standard_error is None]
    assert len(found) == 6
    for each in unknown:
        assert each.z_score is None and each.to_json()["z_score"] is None
    sizes = [abs(each.difference) for each in unknown]
    assert sizes == sorted(sizes, reverse=True)


def test_compares_only_marginals_of_both_releases():
    both = dp.marginals(DOMAIN, attributes=[["sex"], ["sex", "class"]])
    found = compare_releases(synthetic(COUNTS, both), synthetic(COUNTS, ONES))
    assert {each.cell for each in found} == {(("sex", "0"),), (("sex", "1"),)}


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (lambda: intervals(COUNTS), "must both be synthetic databases or tables"),
        (lambda: synthetic(COUNTS, ONES), "must be given: the releases were not made for a"),
    ],
)
def test_rejects_releases_with_different_cells(second, expected):
    with pytest.raises(InputError, match=expected):
        compare_releases(synthetic(COUNTS), second())


def test_rejects_two_copies_of_one_draw():
    release = intervals(COUNTS)
    with pytest.raises(InputError, match="must be another draw"):
        compare_releases(release, release)
    with pytest.raises(InputError, match="in the first release, whose attribute is 'age'"):
        compare_releases(release, intervals(COUNTS, "hours"))


def test_diff_command_shows_the_largest_differences_and_the_number_of_cells(tmp_path, capsys):
    directories = [str(tmp_path / name) for name in "ab"]
    for directory, counts in zip(directories, (COUNTS, other_counts()), strict=True):
        write_release(synthetic(counts), directory)
    assert main(["diff", *directories, "--limit", "2"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "sex 1, class 1" in shown and "2 of 6 cells are shown; --limit shows more" in shown
    assert "of 6 cells differ by more than 3 standard errors" in shown
    assert main(["diff", *directories, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found) == 6 and found[0]["cell"] == {"sex": "1", "class": "1"}
    assert main(["diff", *directories, "--marginal", "sex"]) == 0
    assert "of 2 cells differ" in capsys.readouterr().out


def test_diff_command_says_that_no_cell_has_an_error_bar(tmp_path, capsys):
    directories = [str(tmp_path / name) for name in "ab"]
    promise = dp.Guarantee(1.0, 0.0, "add_or_remove_one", "person_id", 1)
    for directory in directories:
        plan = plan_release(dp.SmallDB(size=3), DOMAIN, ONES, promise)
        marginals = Histogram(DOMAIN, COUNTS).marginals(plan.summary_tables)
        write_release(plan.release(marginals, NOISE), directory)
    assert main(["diff", *directories]) == 0
    assert "No cell has an error bar" in capsys.readouterr().out
