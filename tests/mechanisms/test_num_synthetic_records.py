"""A release may have another number of records than the data: answers are scaled to the data."""

import dataclasses
import itertools

import numpy as np
import pytest
from noise_sources import NoNoise, Seeded
from tiny import on_trees

import beam_dp as dp
from beam_dp.mechanisms.marginals import plan as plans
from beam_dp.mechanisms.marginals.selection import plan_selection
from beam_dp.mechanisms.registry import ReleaseOptions, plan_release
from beam_dp.secret.summaries.histogram import Histogram

# Fits are dear: they run with the jobs.
pytestmark = pytest.mark.job

SHAPE = (4, 3, 5, 4)
DOMAIN = dp.Domain(
    tuple(
        dp.CategoricalAttribute(f"a{place}", tuple(map(str, range(size))))
        for place, size in enumerate(SHAPE)
    )
)
CODES = DOMAIN.codes(np.arange(DOMAIN.num_cells))
# Neighbouring attributes depend on each other, without interactions of three attributes.
DEPENDENCE = sum((a % 3 == b % 3).astype(float) for a, b in itertools.pairwise(CODES))
COUNTS = np.rint(8 * np.exp(0.7 * DEPENDENCE)).astype(np.int64)
TOTAL = int(COUNTS.sum())
PROMISE = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "person", 1)


def released(rows, mechanism=None, noise=None, num_records="noisy"):
    options = ReleaseOptions(num_records=num_records, num_synthetic_records=rows)
    workload = dp.marginals(DOMAIN, ways=2)
    plan = plan_release(mechanism or dp.Gaussian(), DOMAIN, workload, PROMISE, options)
    summary = Histogram(DOMAIN, COUNTS).marginals(plan.summary_tables)
    return plan.release(summary, noise or Seeded(1))


def selected(rows):
    """A release whose records are fitted to tables that its tree does not join."""
    with on_trees(selected_cells=40):
        plan = plan_selection(dp.marginals(DOMAIN, ways=2), PROMISE, "noisy")
        plan = dataclasses.replace(plan, num_synthetic_records=rows)
        summary = Histogram(DOMAIN, COUNTS).marginals(plan.summary_tables)
        release = plan.release(summary, Seeded(1))
    assert release.record_tables and release.potentials
    return release


def hypothesis(monkeypatch, kind):
    """Makes releases of small domains fit a tree, or weights of candidate records."""
    if kind != "dense_array":
        monkeypatch.setattr(plans, "fits_an_array", lambda domain: False)
        monkeypatch.setattr(plans, "MAX_CANDIDATES", 2**10)
    if kind == "candidates":
        monkeypatch.setattr(plans, "tree_fits", lambda *arguments: False)


@pytest.mark.parametrize("rows", [1, 50, TOTAL, 40 * TOTAL])
@pytest.mark.parametrize("kind", ["dense_array", "junction_tree", "candidates", "selection"])
def test_rows_follow_the_fitted_distribution_and_answers_are_scaled(monkeypatch, kind, rows):
    if kind == "selection":
        release = selected(rows)
    else:
        hypothesis(monkeypatch, kind)
        release = released(rows)
        assert release.fit["hypothesis"] == kind
    assert release.num_records == int(release.counts.sum()) == rows
    number, error = release.noisy_number()
    assert number == release.represented == pytest.approx(TOTAL, abs=6 * error)
    assert dp.verify_release(release).holds
    scale = release.represented / rows
    for answer in release.answer(release.workload):
        assert answer.values.sum() == pytest.approx(release.represented)
        if rows >= 50:
            away = release.record_marginal(answer.attributes) * scale - answer.values
            assert np.abs(away).max() <= 3 * scale + 0.02 * release.represented


@pytest.mark.parametrize("kind", ["dense_array", "junction_tree"])
def test_hypothesis_is_the_same_for_any_number_of_rows(monkeypatch, kind):
    hypothesis(monkeypatch, kind)
    first, second = (released(rows, noise=NoNoise()) for rows in (None, 30))
    for whole, few in zip(*(each.answer(each.workload) for each in (first, second)), strict=True):
        assert np.array_equal(whole.values, few.values)
        assert whole.standard_error == few.standard_error


@pytest.mark.part
def test_error_bars_include_the_sampling_of_records_that_answer(monkeypatch):
    hypothesis(monkeypatch, "candidates")
    inside = number = 0
    queries = [
        " and ".join(f"{name} == '{code}'" for name, code in zip(names, codes, strict=True))
        for names in itertools.combinations(DOMAIN.names, 3)
        for codes in itertools.product("01", "12", "02")
    ]
    for _ in range(5):
        release = released(100)
        scale = release.fitted.scale
        for query in queries:
            (found,) = release.query(query).count().rows()
            error = found["standard_error"]
            assert error**2 >= 0.99 * (scale - 1) * found["count"]
            inside += abs(found["count"] - truth(query)) <= 2 * error
            number += 1
    assert inside >= 0.9 * number


def truth(query):
    mask = np.ones(DOMAIN.num_cells, bool)
    for part in query.split(" and "):
        name, code = part.split(" == ")
        mask &= CODES[DOMAIN.names.index(name)] == int(code.strip("'"))
    return int(COUNTS[mask].sum())


def test_card_states_both_numbers(tmp_path):
    dp.write_release(released(70), tmp_path / "out")
    again = dp.read_release(tmp_path / "out", check_rows=True)
    assert again.num_records == 70 and again.card["num_represented"] == again.represented


def test_number_of_rows_does_not_tell_the_noisy_number():
    # The card states both numbers, also if noise makes them equal.
    release = released(TOTAL, noise=NoNoise())
    assert release.card["num_records"] == {"noisy": TOTAL}
    assert release.card["num_represented"] == TOTAL
