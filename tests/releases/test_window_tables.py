"""Answers of one window: values, exact standard errors, and what is refused."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from noise_sources import NoNoise, Seeded
from release_examples import DOMAIN
from tiny import domain_of, workload_of
from window_examples import AGES, GAUSSIAN, window_of
from window_plans import HORIZON_ID, RECORD, marginals_of, plan_of

from beam_dp.errors import InputError
from beam_dp.queries.disjunction import Disjunction
from beam_dp.queries.linear import Explicit, LinearQuery, Parity, Product
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.workload import Workload, marginals
from beam_dp.releases.synthetic_database.measured_tables import unbiased_tables
from beam_dp.releases.windows.release import WindowTables
from beam_dp.summaries.histogram import Histogram

SMALL = domain_of(3, 2, 2)
PAIRS = workload_of(SMALL, 2)


def queries_of() -> list[LinearQuery]:
    """All cells of all marginals up to pairs, prefixes, several ranges, parities, and all."""
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
def test_queries_are_answered_by_sums_of_cells(noise: Any) -> None:
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
def test_standard_errors_are_those_of_the_noise(noise: Any) -> None:
    """Of 40,000 draws: within 5 %, but for a chance below 1e-6, as kurtosis is at most 6."""
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
    """The answers that follow from given noisy tables."""
    release = plan.draw(0, marginals_of(plan, 0), NoNoise(), HORIZON_ID)
    tables = unbiased_tables(plan.workload, plan.measurements, noisy)
    return dataclasses.replace(release, tables=tables).answer_queries(queries)


def test_query_has_the_same_answer_from_every_table() -> None:
    plan = plan_of(5, RECORD, PAIRS, **GAUSSIAN)
    tables = plan.draw(0, marginals_of(plan, 5), Seeded(3), HORIZON_ID).tables
    for (one, a), (other, b) in itertools.combinations(tables.items(), 2):
        (shared,) = set(one) & set(other)
        sums = [table.sum(axis=1 - names.index(shared)) for names, table in ((one, a), (other, b))]
        np.testing.assert_allclose(*sums, atol=1e-9)


def test_tables_are_never_clipped() -> None:
    plan = plan_of(5, RECORD, PAIRS)
    release = plan.draw(0, marginals_of(plan, 0), Seeded(4), HORIZON_ID)
    assert min(table.min() for table in release.tables.values()) < -1


def test_the_noisy_number_of_records_has_its_error() -> None:
    release = window_of()
    number, error = release.noisy_number()
    (everything,) = release.answer_queries([Product(DOMAIN.shape, (), ())])
    assert everything.value == pytest.approx(number)
    assert everything.standard_error == pytest.approx(error)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda release: release.answer(marginals(DOMAIN, attributes=["age", "hours"])),
            r"marginal: 'hours,age' is refused; must lie inside a marginal of the release",
        ),
        (
            lambda release: release.answer_queries([Product(DOMAIN.shape, (1,), (((0, 3),),))]),
            r"marginal: 'hours' is refused; must lie inside a marginal of the release",
        ),
        (
            lambda release: release.answer_queries([Explicit.of((2, 2), np.zeros((2, 2)))]),
            r"queries: \(2, 2\) is refused; must be over a domain of shape",
        ),
        (
            lambda release: release.answer_queries([Explicit.of(DOMAIN.shape, ZEROS)]),
            r"queries: 'explicit values' is refused; must not have",
        ),
        (
            lambda release: release.answer(PAIRS),
            r"workload: 3 is refused; must be of the release's domain",
        ),
    ],
)
def test_rejects_unanswerable_questions_in_one_line(ask: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        ask(window_of())
    assert "\n" not in str(caught.value)


ZEROS = np.zeros(DOMAIN.num_cells)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"horizon_id": "x" * 32}, "horizon_id"),
        ({"draw_id": "0" * 31}, "draw_id"),
        ({"level": "week"}, "level"),
        ({"number": -1}, "number"),
        ({"end": 5}, "end"),
        ({"tables": {}}, "tables"),
        ({"tables": {names: np.zeros(3) for names in AGES}}, "must be of shape"),
        ({"measured": ()}, "must measure every marginal"),
    ],
)
def test_rejects_inconsistent_window_tables(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dataclasses.replace(window_of(), **changed)


def test_repr_names_the_window_and_not_the_counts() -> None:
    release = window_of()
    assert isinstance(release, WindowTables)
    assert repr(release) == (
        f"WindowTables(level='window', number=3, marginals=2, draw_id='{release.draw_id}')"
    )
    assert isinstance(release.workload, Workload)
