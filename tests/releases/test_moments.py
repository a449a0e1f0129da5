"""Medians, ends, variances, correlations and regressions, compared with the values."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from noise_sources import Seeded
from numpy.typing import NDArray
from test_questions import CASES, only, people, released_fares

import beam_dp as dp
from beam_dp.releases.synthetic_database.questions import AnswerTable
from beam_dp.secret.summaries.histogram import Histogram

EDGES = tuple(range(0, 61, 5))


def released(**columns: NDArray[np.float64]) -> dp.SyntheticDatabase:
    """A release of columns, of which x and y are in bins, with little noise."""
    domain = dp.Domain(
        tuple(
            dp.NumericAttribute(name, EDGES) if name in "xy" else dp.IntegerAttribute(name, 0, 5)
            for name in columns
        )
    )
    codes = [
        np.searchsorted(EDGES, values, "right") - 1 if name in "xy" else values
        for name, values in columns.items()
    ]
    return measured(domain, codes, dp.marginals(domain, ways=min(2, len(codes))))


def measured(
    domain: dp.Domain, codes: Sequence[NDArray[np.int64]], workload: dp.Workload
) -> dp.SyntheticDatabase:
    promise = dp.Guarantee(20.0, 1e-9, "add_or_remove_one", "record", 1)
    plan = dp.Gaussian().plan(domain, workload, promise, "noisy")
    cells = np.bincount(domain.cell_index(codes), minlength=domain.num_cells)
    exact = Histogram(domain, cells.astype(np.int64)).marginals(plan.summary_tables)
    return dp.Gaussian().release(plan, exact, Seeded(55))


def slopes(outcome: NDArray[np.float64], *predictors: NDArray[np.float64]) -> list[float]:
    table = np.column_stack([np.ones(len(outcome)), *predictors])
    found: list[float] = np.linalg.lstsq(table, outcome, rcond=None)[0].tolist()
    return found


def holds(table: AnswerTable, name: str, truth: Sequence[float]) -> list[bool]:
    """Whether each row is within its margin of the truth; True without a margin, for a reason."""
    held = []
    for row, value in zip(table.rows(), truth, strict=True):
        assert (row["margin"] is None) == bool(row["reason"])
        held.append(row["margin"] is None or abs(row[name] - value) <= row["margin"] + 1e-9)
    return held


def test_statistics_of_whole_numbers_match_the_records():
    rng = np.random.default_rng(55)
    a = rng.integers(0, 4, 20_000)
    b = np.minimum(a + rng.integers(0, 3, 20_000), 5)
    c = 3 - a + b // 2
    asked = released(a=a, b=b, c=c).query()
    assert only(asked.variance("a"))["variance_a"] == pytest.approx(a.var(), rel=0.02)
    found = only(asked.correlation("a", "b"))
    assert found["correlation"] == pytest.approx(np.corrcoef(a, b)[0, 1], abs=0.02)
    table = asked.regression("c", ["a", "b"])
    assert table.columns["term"] == ["intercept", "a", "b"]
    assert table.columns["coefficient"] == pytest.approx(slopes(c, a, b), rel=0.1)
    assert asked.regression("c", "a + `b`").columns == table.columns
    assert all(holds(table, "coefficient", slopes(c, a, b)))
    assert only(asked.median("a"))["median_a"] == pytest.approx(np.median(a), abs=1)


@pytest.mark.parametrize("place", ["low", "high", "apart", "together", "against"])
def test_bars_hold_wherever_values_lie_within_their_bins(place):
    rng = np.random.default_rng(55)
    low, other = 5.0 * rng.integers(0, 12, (2, 4000))
    low[2000:] = np.clip(other[2000:] + 5.0 * rng.integers(-3, 4, 2000), 0, 55)
    inside = np.zeros((2, 4000))
    if place == "high":
        inside[:] = 4.99
    elif place == "apart":
        inside[:] = np.where(np.array([low, other]) > 27, 4.99, 0)
    elif place != "low":
        inside[:] = np.where(low > 27, 4.99, 0)
        inside[1] = inside[1] if place == "together" else 4.99 - inside[1]
    x, y = low + inside[0], other + inside[1]
    asked = released(x=x, y=y).query()
    assert all(holds(asked.variance("x"), "variance_x", [x.var()]))
    assert all(holds(asked.correlation("x", "y"), "correlation", [np.corrcoef(x, y)[0, 1]]))
    assert all(holds(asked.regression("y", ["x"]), "coefficient", slopes(y, x)))
    assert only(asked.variance("x"))["margin"] is not None


def test_bins_as_wide_as_the_column_leave_no_bar_and_say_so():
    x = np.tile([12.0, 12.0, 12.0, 12.0, 17.0], 200)
    asked = released(x=x, a=np.tile([0, 4, 5, 2], 250)).query()
    for table in (asked.correlation("x", "a"), asked.regression("a", ["x"]), asked.variance("x")):
        assert {row["margin"] for row in table.rows()} == {None}
        assert all("bins are so wide" in row["reason"] for row in table.rows())


def test_columns_that_were_not_measured_together_have_no_bar():
    domain = dp.Domain(tuple(dp.IntegerAttribute(name, 0, 9) for name in "abc"))
    codes = [np.arange(2000) % size for size in (5, 7, 9)]
    asked = measured(domain, codes, dp.Workload(domain, (("a", "b"), ("c",)))).query()
    assert only(asked.correlation("a", "b"))["margin"] is not None
    assert only(asked.correlation("a", "c"))["reason"] == "a with c was not measured"
    assert only(asked.where("b > 1").variance("a"))["margin"] is not None
    assert "was not measured" in str(only(asked.where("c > 1").variance("a"))["reason"])
    found = asked.where("a == 3").correlation("a", "b")
    assert math.isnan(float(only(found)["correlation"]))
    assert "does not vary" in str(only(found)["reason"])


@pytest.mark.parametrize(("epsilon", "mechanism"), CASES, ids=["0.3", "1", "1, mwem"])
def test_bars_hold_in_93_percent_of_questions_also_those_of_the_top(epsilon, mechanism):
    codes, fares = people()
    survived, pclass, _, siblings, _ = codes
    pclass = pclass + 1
    held, tops = list[bool](), list[bool]()
    for seed in range(4):
        asked = released_fares(epsilon, mechanism, seed).query()
        truth = np.corrcoef(pclass, siblings)[0, 1]
        held += holds(asked.correlation("Pclass", "SibSp"), "correlation", [truth])
        truth = np.corrcoef(pclass, fares)[0, 1]
        held += holds(asked.correlation("Pclass", "Fare"), "correlation", [truth])
        fit = slopes(siblings, pclass)
        held += holds(asked.regression("SibSp", "Pclass"), "coefficient", fit)
        held += holds(asked.variance("SibSp"), "variance_SibSp", [siblings.var()])
        chosen = [siblings[survived == code].var() for code in (0, 1)]
        held += holds(asked.group_by("Survived").variance("SibSp"), "variance_SibSp", chosen)
        for row, truth in (
            (only(asked.median("Fare")), np.median(fares)),
            (only(asked.min("Pclass")), 1),
            (only(asked.max("SibSp")), siblings.max()),
            (only(asked.max("Fare")), fares.max()),
        ):
            held.append(row["low"] <= truth <= row["high"])
        numbers = np.bincount(siblings, minlength=9)
        top = asked.top("SibSp", 4)
        counts = top.columns["count"]
        assert list(counts) == sorted(counts, reverse=True) and len(counts) == 4
        tops += holds(top, "count", [numbers[level] for level in top.columns["SibSp"]])
    assert np.mean(held) >= 0.93 and np.mean(tops) >= 0.93
