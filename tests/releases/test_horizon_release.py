"""Window tables and their sums, compared with dense least squares; invalid questions."""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from noise_sources import NoNoise, Seeded
from release_examples import DOMAIN as EXAMPLE, release_of
from tiny import domain_of, workload_of
from window_examples import GAUSSIAN, window_of
from window_plans import HORIZON_ID, RECORD, horizon_of, marginals_of, plan_of, whole

from beam_dp.flags.flag import FlagError
from beam_dp.mechanisms.windows.plan import WindowTablesPlan
from beam_dp.queries.linear import Disjunction, LinearQuery, Parity, Product
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.releases.synthetic_database.measured_tables import unbiased_tables
from beam_dp.releases.windows.release import HorizonRelease, WindowTables
from beam_dp.secret.summaries.histogram import Histogram
from beam_dp.views.windows import windows_of

SMALL = domain_of(3, 2, 2)
PAIRS = workload_of(SMALL, 2)


def queries_of() -> list[LinearQuery]:
    """All cells of all marginals up to pairs, prefixes, several ranges, parities, and the total."""
    text = ";".join(",".join(names) for names in PAIRS.closure() if names)
    found: list[LinearQuery] = list(parse_linear_workload(f"marginals:{text}", SMALL))
    shape = SMALL.shape
    found += [
        Product(shape, (), ()),
        Product(shape, (0,), (((0, 2),),)),
        Product(shape, (0, 2), (((0, 1), (2, 3)), ((1, 2),))),
        Disjunction(shape, (0, 2), (((0, 1), (2, 3)), ((1, 2),))),
        Parity(shape, (0,), (((1, 3),),)),
        Parity(shape, (1, 2), (((1, 2),), ((1, 2),))),
    ]
    return found


@pytest.mark.parametrize("noise", ["discrete_laplace", "discrete_gaussian"])
def test_queries_are_answered_with_sums_of_cells(noise):
    plan = plan_of(5, RECORD, PAIRS, distribution=noise)
    histogram = Histogram(SMALL, np.arange(12) ** 2)
    release = plan.draw(0, histogram.marginals(plan.summary_tables), NoNoise(), HORIZON_ID)
    queries = queries_of()
    exact = LinearWorkload(SMALL, tuple(queries)).counts(histogram.counts) / 2**16
    answers = release.answer_queries(queries)
    np.testing.assert_allclose([each.value for each in answers], exact, atol=1e-8)
    for workload in (PAIRS, workload_of(SMALL, 1)):
        for names, answer in zip(workload, release.answer(workload), strict=True):
            np.testing.assert_allclose(answer.values, histogram.marginal(names), atol=1e-8)


@pytest.mark.parametrize("noise", ["discrete_laplace", "discrete_gaussian"])
def test_standard_errors_match_the_noise(noise):
    """40,000 draws: within 5 %, except with probability below 1e-6, as kurtosis is at most 6."""
    plan = plan_of(5, RECORD, PAIRS, distribution=noise)
    measured = plan.measurements
    source = Seeded(8)
    queries = queries_of()
    # Answers are linear: one column for each noisy cell.
    columns, deviations = [], []
    for place, each in enumerate(measured):
        shape = SMALL.restrict(each.names).shape
        for cell in range(math.prod(shape)):
            one = [np.zeros(SMALL.restrict(other.names).shape) for other in measured]
            one[place].ravel()[cell : cell + 1] = 1.0
            columns.append([a.value for a in answered(plan, one, queries)])
            deviations.append(each)
    noises = []
    for each in deviations:
        draw = source.laplace if each.distribution == "discrete_laplace" else source.gaussian
        noises.append(draw(np.zeros(40_000, np.int64), each.scale) / each.grid)
    errors = np.array(noises).T @ np.array(columns)
    found = np.sqrt((errors**2).mean(axis=0))
    release = plan.draw(0, marginals_of(plan, 0), NoNoise(), HORIZON_ID)
    stated = [each.standard_error for each in release.answer_queries(queries)]
    np.testing.assert_allclose(found, np.array(stated, float), rtol=0.05)
    bounds = np.array([each.bound for each in release.answer_queries(queries)], float)
    assert (np.abs(errors) > bounds).any(axis=1).mean() < 0.05
    for names, answer in zip(PAIRS, release.answer(PAIRS), strict=True):
        assert answer.standard_error == pytest.approx(math.sqrt(release.variance(names)))


def answered(plan: Any, noisy: Any, queries: list[LinearQuery]) -> Any:
    """The answers computed from given noisy tables."""
    release = plan.draw(0, marginals_of(plan, 0), NoNoise(), HORIZON_ID)
    tables = unbiased_tables(plan.workload, plan.measurements, noisy)
    return dataclasses.replace(release, tables=tables).answer_queries(queries)


def test_tables_agree_on_what_they_share():
    plan = plan_of(5, RECORD, PAIRS, **GAUSSIAN)
    tables = plan.draw(0, marginals_of(plan, 5), Seeded(3), HORIZON_ID).tables
    for (one, a), (other, b) in itertools.combinations(tables.items(), 2):
        (shared,) = set(one) & set(other)
        sums = [table.sum(axis=1 - names.index(shared)) for names, table in ((one, a), (other, b))]
        np.testing.assert_allclose(*sums, atol=1e-9)
    workload = workload_of(domain_of(3, 2, 2), 2)
    release = released(plan_of(8, RECORD, workload, **LEVELS))
    one, other, _ = release.answer(workload, slice(1, 7))
    np.testing.assert_allclose(one.values.sum(axis=1), other.values.sum(axis=1), atol=1e-8)
    release = window_of()
    number, error = release.noisy_number()
    (everything,) = release.answer_queries([Product(EXAMPLE.shape, (), ())])
    assert everything.value == pytest.approx(number)
    assert everything.standard_error == pytest.approx(error)


ALL = range(1000)
LEVELS = {"strategy": "levels", "block": 3, "share": 0.4}


def released(
    plan: WindowTablesPlan, windows: Any = ALL, blocks: Any = ALL, seed: int = 0
) -> HorizonRelease:
    """A horizon with some released windows and blocks, and seeded noise."""
    parts = plan.blocks
    number_of = plan.horizon.num_windows, 0 if parts is None else len(parts)
    source = Seeded(seed)
    held = [marginals_of(plan, np.arange(plan.workload.domain.num_cells))] * 2
    drawn = [plan.draw(number, held[0], source, HORIZON_ID) for number in range(number_of[0])]
    totals = [
        plan.draw_block(number, held[1], source, HORIZON_ID) for number in range(number_of[1])
    ]
    return HorizonRelease(
        horizon=plan.horizon,
        horizon_id=HORIZON_ID,
        guarantee=plan.guarantee,
        workload=plan.workload,
        windows={each.number: each for each in drawn if each.number in windows},
        block=plan.block,
        blocks={each.number: each for each in totals if each.number in blocks},
        card=plan.public,
    )


def dense(
    release: HorizonRelease, plan: WindowTablesPlan, windows: range
) -> tuple[np.ndarray, float]:
    """Sums windows by generalised least squares over everything released.

    Windows that are not released are unknowns, too; those without data have no effect.

    Returns:
        The estimate, in the shape of the one table, and the variance of a cell.
    """
    names = plan.workload.marginals[0]
    number_of = plan.horizon.num_windows
    rows, values, precisions = [], [], []
    for number, each in release.windows.items():
        assert isinstance(each, WindowTables)
        rows.append(np.arange(number_of) == number)
        values.append(each.tables[names].ravel())
        precisions.append(1 / each.variance(names))
    for number, each in release.blocks.items():
        assert plan.blocks is not None
        rows.append(np.isin(np.arange(number_of), list(plan.blocks.windows(number))))
        values.append(each.tables[names].ravel())
        precisions.append(1 / each.variance(names))
    design, weights = np.array(rows, float), np.array(precisions)
    covariance = np.linalg.pinv((design.T * weights) @ design)
    asked = np.isin(np.arange(number_of), list(windows)).astype(float)
    estimate = asked @ covariance @ (design.T * weights) @ np.array(values)
    return estimate.reshape(release.domain.shape), float(asked @ covariance @ asked)


@pytest.mark.parametrize("options", [{}, LEVELS, {**LEVELS, **GAUSSIAN}, {**LEVELS, "block": 8}])
def test_every_sum_of_windows_is_the_least_squares_estimate(options):
    """Eight windows: blocks of three leave a last one of two."""
    plan = plan_of(8, RECORD, whole(domain_of(2, 2)), **options)
    everything = released(plan)
    partly = [
        everything,
        released(plan, range(5)),
        released(plan, ALL, (0, 2)),
        released(plan, (0, 1, 2, 4, 5, 6, 7)),
        released(plan, range(8), ()),
    ]
    for release in partly:
        for first, stop in itertools.combinations(range(9), 2):
            if any(number not in release.windows for number in range(first, stop)):
                continue
            (answer,) = release.answer(plan.workload, slice(first, stop))
            values, variance = dense(release, plan, range(first, stop))
            np.testing.assert_allclose(answer.values, values, rtol=1e-7, atol=1e-7)
            assert answer.standard_error == pytest.approx(math.sqrt(variance), rel=1e-6)


@pytest.mark.parametrize("options", [{}, LEVELS, {**LEVELS, **GAUSSIAN}])
def test_error_of_the_whole_horizon_matches_the_closed_form(options):
    plan = plan_of(9, RECORD, whole(domain_of(4)), **options)
    release = released(plan)
    squares = [
        float(release.answer(plan.workload, slice(number, number + 1))[0].standard_error or 0) ** 2
        for number in range(9)
    ]
    assert math.sqrt(np.mean(squares)) == pytest.approx(plan.error("one", "end"), rel=1e-6)


@pytest.mark.parametrize("options", [LEVELS, {**LEVELS, **GAUSSIAN}])
def test_answers_to_queries_are_sums_of_cell_answers(options):
    workload = workload_of(domain_of(3, 2, 2), 2)
    plan = plan_of(8, RECORD, workload, **options)
    release = released(plan)
    for windows in (slice(1, 6), slice(None), slice(2, None), slice(None, 4)):
        tables = {a.attributes: a for a in release.answer(workload, windows)}
        queries = [
            Product((3, 2, 2), (0, 1), (((0, 2),), ((1, 2),))),
            Product((3, 2, 2), (0, 2), (((1, 2),), ((0, 1),))),
        ]
        prefix, cell = release.answer_queries(queries, windows)
        assert prefix.value == pytest.approx(tables["a0", "a1"].values[:2, 1].sum())
        assert cell.value == pytest.approx(tables["a0", "a2"].values[1, 0])
        assert cell.standard_error == pytest.approx(tables["a0", "a2"].standard_error)
        assert cell.bound is not None and cell.bound > 2 * float(cell.standard_error or 0)


def test_windows_with_synthetic_databases_are_queried_one_at_a_time():
    database = release_of()
    release = HorizonRelease(
        horizon=horizon_of(4),
        horizon_id=HORIZON_ID,
        guarantee=database.guarantee,
        workload=database.workload,
        windows={0: database, 1: database},
    )
    asked = database.workload
    (found, *_), (own, *_) = release.answer(asked, slice(1, 2)), database.answer(asked)
    np.testing.assert_array_equal(found.values, own.values)


def test_windows_flag_selects_the_same_as_python_slices():
    numbers = range(9)
    for first in ("", *map(str, range(-9, 9))):
        for stop in ("", *map(str, range(-9, 10))):
            ends = (int(end) if end else None for end in (first, stop))
            expected = numbers[slice(*ends)]
            try:
                assert numbers[windows_of(f"{first}:{stop}", 9)] == expected
            except FlagError:
                assert len(expected) == 0
