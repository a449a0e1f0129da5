"""Error bars of pairs that a selection scored but did not measure: stored data, and the model."""

from __future__ import annotations

import dataclasses
import math
from functools import cache

import numpy as np
import pytest
from measured_database import DOMAIN, counts
from noise_sources import Seeded
from tiny import on_trees

from beam_dp.mechanisms.marginals import pair_scores
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.vector_query import VectorQuery, sums_of
from beam_dp.queries.workload import marginals
from beam_dp.releases.synthetic_database.predicted_errors import FittedErrors, UnmeasuredPair
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.summaries.histogram import Histogram

YOUNG, TOWN = [1, 1, 0, 0], [1, 0, 0, 0]


@cache
def selected(seed: int = 5) -> SyntheticDatabase:
    """Adds enough noise that a selection leaves out pairs: age with in/out, and age with town.

    The last check of the selection, which would add one of these pairs, is left out.
    """
    guarantee = Guarantee(0.05, 1e-9, "add_or_remove_one", "person", 1)
    with on_trees(16), pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_scores, "num_choices", lambda *arguments: 0)
        plan = MWEM().plan(DOMAIN, marginals(DOMAIN, ways=2), guarantee, "noisy")
        exact = Histogram(DOMAIN, counts()).marginals(plan.summary_tables)
        return plan.release(exact, Seeded(seed))


def without_scores(release: SyntheticDatabase) -> SyntheticDatabase:
    assert release.measurements is not None
    bare = dataclasses.replace(release.measurements, distances=None)
    return dataclasses.replace(release, measurements=bare)


def test_release_contains_the_noisy_scores_of_all_pairs():
    measured = selected().measurements
    assert measured is not None and measured.distances is not None
    assert list(measured.distances.pairs) == list(marginals(DOMAIN, ways=2))
    assert measured.distances.deviation == selected().plan["score_deviation"]
    assert not {("age", "in/out"), ("age", "town")} & {each.names for each in measured.described}


@pytest.mark.parametrize(
    "vectors", [{0: YOUNG, 3: TOWN}, {0: YOUNG, 2: [1, 0]}, {0: YOUNG, 2: [1, 0], 3: TOWN}]
)
def test_unmeasured_pair_has_an_error_bar_only_with_its_score(vectors):
    query = VectorQuery.of(vectors)
    others = tuple(axis for axis in range(4) if axis not in query.axes)
    table = counts().reshape(DOMAIN.shape).sum(axis=others).astype(float)
    ((fitted, unbiased),) = selected().estimates.both([query])
    assert unbiased is None and fitted.kind == "model_based" and fitted.margin is not None
    assert abs(fitted.value - float(sums_of(table, [query])[0])) <= 1.5 * fitted.margin
    assert 0 < fitted.margin < 20_000
    ((unknown, _),) = without_scores(selected()).estimates.both([query])
    assert unknown.value == fitted.value and unknown.standard_error is None
    assert "was not measured" in unknown.reason


def test_repeated_record_is_counted_only_in_its_own_cell():
    """A single record released many times is counted in its own cell of every table."""
    release = selected()
    often = dataclasses.replace(
        release,
        counts=np.array([release.num_records]),
        codes=[column[:1] for column in release.codes],
    )
    axes = DOMAIN.axes(release.record_tables[0])
    own = {axis: np.arange(DOMAIN.shape[axis]) == often.codes[axis][0] for axis in axes}
    other = own | {axes[0]: ~own[axes[0]]}
    both = often.estimates.both([VectorQuery.of(own), VectorQuery.of(other)])
    assert [fitted.value for fitted, _ in both] == [release.num_records, 0]


def test_three_attributes_without_a_measured_pair_have_no_error_bar():
    release = selected()
    measured = release.measurements
    assert measured is not None
    alone = [place for place, each in enumerate(measured.described) if len(each.names) < 2]
    singles = dataclasses.replace(
        measured,
        described=tuple(measured.described[place] for place in alone),
        tables=tuple(measured.tables[place] for place in alone),
    )
    bare = dataclasses.replace(release, measurements=singles, potentials=(), record_tables=())
    (three,) = bare.estimates.of([VectorQuery.of({0: YOUNG, 2: [1, 0], 3: TOWN})])
    assert (three.standard_error, three.reason) == (
        None,
        "no two attributes were measured together",
    )


def test_pair_model_matches_manual_calculation():
    """Four cells of 100: a distance of 40 +- 30, spread evenly, moves each by 50 / 4."""
    expected = np.full((2, 2), 100.0)
    table = expected + np.array([[20.0, -20.0], [-20.0, 20.0]])
    pair = UnmeasuredPair(40.0, 30.0, table, expected)
    # In units of the expansion: a cell moves by size sqrt(1/2 1/2)^2 = size / 4 records.
    assert pair.size == pytest.approx(1.75 * 50 / 2)
    one = np.array([[1.0, 0.0]])
    assert pair.invented(one, one) == pytest.approx([0.7 * 20])
    assert pair.lift(one, one) == pytest.approx([1.2])
    assert pair.lift(one, 1 - one) == pytest.approx([1.0])
    assert UnmeasuredPair(-40.0, 30.0, table, expected).size == pytest.approx(1.75 * 30 / 2)


def test_pair_error_adds_to_the_errors_of_its_attributes():
    domain = DOMAIN.restrict(["sex", "in/out"])
    expected = np.full((2, 2), 250.0)
    pair = UnmeasuredPair(40.0, 30.0, expected + np.outer([20, -20], [1, -1]), expected)
    variances = {(): 4.0, (0,): 9.0, (1,): 16.0}
    shares = [np.array([0.5, 0.5])] * 2
    model = FittedErrors(domain, shares, 0.1, 1000.0, variances, {(0, 1): pair})
    query = VectorQuery.of({0: [1, 0], 1: [1, 0]})
    lift = 270 / 250
    singles = 4 * 0.25**2 * lift**2 + (9 + 16) * 0.5 * 0.25 * lift**2
    total = singles + (pair.size / 4) ** 2 * lift + (0.7 * 20) ** 2
    assert model.of([query], np.array([270.0])) == pytest.approx([math.sqrt(total)])
