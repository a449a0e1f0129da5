"""Sums and means of values in wide bins, over groups of several releases, against the truth."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from noise_sources import Seeded
from numpy.typing import NDArray

from beam_dp.domain.attributes import CategoricalAttribute
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import marginals
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.summaries.histogram import Histogram

EDGES = np.array([0, 8, 15, 31, 248, 512.0])  # the last bin is 264 wide, and nearly empty
DOMAIN = Domain(
    (
        CategoricalAttribute("Survived", ("no", "yes")),
        IntegerAttribute("Pclass", 1, 3),
        CategoricalAttribute("Sex", ("female", "male")),
        IntegerAttribute("SibSp", 0, 8),
        NumericAttribute("Fare", tuple(EDGES)),
    )
)
GROUPS = ((), ("Pclass",), ("Sex",), ("SibSp",), ("Pclass", "Sex"), ("SibSp", "Survived"))
RELEASES = [(0.3, Gaussian()), (1.0, Gaussian()), (1.0, MWEM())]


CASES = [RELEASES[0], *(pytest.param(*each, marks=pytest.mark.part) for each in RELEASES[1:])]


class People(NamedTuple):
    """The codes of 891 passengers, and the fare of each."""

    codes: list[NDArray[np.int64]]
    fares: NDArray[np.float64]


@cache
def people() -> People:
    rng = np.random.default_rng(1912)
    number = 891
    pclass = rng.choice(3, number, p=[0.24, 0.21, 0.55])
    sex = (rng.random(number) < 0.65).astype(int)
    survived = (rng.random(number) < 0.7 - 0.5 * sex - 0.05 * pclass).astype(int)
    siblings = np.minimum(rng.geometric(0.65, number) - 1, 8)
    logs = np.array([4.2, 2.9, 2.4])[pclass], np.array([0.7, 0.5, 0.5])[pclass]
    fares = np.minimum(rng.lognormal(*logs), 511.0)
    bins = np.searchsorted(EDGES, fares, "right") - 1
    return People([survived, pclass, sex, siblings, bins], fares)


def released(epsilon: float, mechanism: Gaussian | MWEM, seed: int) -> SyntheticDatabase:
    guarantee = Guarantee(epsilon, 1e-9, "add_or_remove_one", "record", 1)
    plan = mechanism.plan(DOMAIN, marginals(DOMAIN, ways=2), guarantee, "noisy")
    cells = np.bincount(DOMAIN.cell_index(people().codes), minlength=DOMAIN.num_cells)
    summary = Histogram(DOMAIN, cells.astype(np.int64)).marginals(plan.summary_tables)
    return mechanism.release(plan, summary, Seeded(seed))


class Answer(NamedTuple):
    """One group of one release: its rows of answers, and the fares and the bins of its records."""

    sum: dict[str, object]
    mean: dict[str, object]
    count: dict[str, object]
    fares: NDArray[np.float64]
    bins: NDArray[np.int64]


@cache
def answers(epsilon: float, mechanism: Gaussian | MWEM) -> list[Answer]:
    table = people()
    values = [np.array(["no", "yes"]), np.arange(1, 4), np.array(["female", "male"]), np.arange(9)]
    found = []
    for seed in range(4, 8):
        release = released(epsilon, mechanism, seed)
        for names in GROUPS:
            asked = release.query().group_by(*names)
            for rows in zip(
                asked.sum("Fare").rows(), asked.mean("Fare").rows(), asked.count().rows(),
                strict=True,
            ):  # fmt: skip
                held = np.ones(len(table.fares), bool)
                for name in names:
                    axis = DOMAIN.axes((name,))[0]
                    held &= values[axis][table.codes[axis]] == rows[0][name]
                found.append(Answer(*rows, table.fares[held], table.codes[-1][held]))
    return found


def number(row: dict[str, object], name: str) -> float:
    value = row[name]
    assert isinstance(value, float)
    return value


@pytest.mark.parametrize(("epsilon", "mechanism"), CASES, ids=["0.3", "1", "1, mwem"])
def test_true_sum_is_within_the_margin_which_includes_the_bins(epsilon, mechanism):
    """In at least 97 % of cases: the bin uncertainty is about as reliable as a margin."""
    halves = np.diff(EDGES) / 2
    held, bounded = [], []
    for each in answers(epsilon, mechanism):
        value, margin = number(each.sum, "sum_Fare"), number(each.sum, "margin")
        within = number(each.sum, "within_bins")
        held.append(abs(value - each.fares.sum()) <= margin)
        if each.sum["bound"] is not None:
            assert abs(value - each.fares.sum()) <= number(each.sum, "bound")
        bounded.append(within >= halves[each.bins].sum())
        if each.mean["margin"] is not None and len(each.fares):
            off = abs(number(each.mean, "mean_Fare") - each.fares.mean())
            held.append(off <= number(each.mean, "margin"))
        # Sums of fares are never negative, and every group has bin uncertainty.
        assert value >= 0 and within > 0
    assert np.mean(held) >= 0.97 and np.mean(bounded) >= 0.93


@pytest.mark.parametrize(("epsilon", "mechanism"), CASES, ids=["0.3", "1", "1, mwem"])
def test_sum_equals_count_times_mean_within_the_margins(epsilon, mechanism):
    for each in answers(epsilon, mechanism):
        if each.mean["margin"] is None:
            continue
        value, margin = number(each.sum, "sum_Fare"), number(each.sum, "margin")
        product = number(each.count, "count") * number(each.mean, "mean_Fare")
        of_count = number(each.mean, "mean_Fare") * number(each.count, "margin")
        assert abs(product - value) <= margin + of_count


def test_empty_sum_is_zero_and_single_value_bins_add_no_uncertainty():
    ages = NumericAttribute("age", (0, 1, 2, 2.5), whole=True, nullable=True)
    domain = Domain((ages, CategoricalAttribute("sex", ("f", "m"))))
    guarantee = Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    plan = Gaussian().plan(domain, marginals(domain, ways=2), guarantee, "noisy")
    cells = np.full(domain.num_cells, 500)
    summary = Histogram(domain, cells).marginals(plan.summary_tables)
    release = Gaussian().release(plan, summary, Seeded(1))
    (row,) = release.query("age == null").sum("age").rows()
    assert row["sum_age"] == 0 and row["within_bins"] == 0
    (row,) = release.query("age == null").mean("age").rows()
    assert row["margin"] is None
    bars = [*release.query().group_by("sex").mean("age").rows()]
    assert [row["within_bins"] for row in bars] == [0.0, 0.0]
