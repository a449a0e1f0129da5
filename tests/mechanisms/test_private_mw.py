"""Online multiplicative weights: how wrong its answers are, and how a run behaves.

Seeded noise never fails by chance on unchanged code.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import ClassVar

import numpy as np
import pytest
from noise_sources import NoNoise, Seeded
from private_mw_laws import cells, run_of, small_run
from tiny import ADD, REPLACE, domain_of, promise

from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.online.plan import GRID
from beam_dp.mechanisms.online.private_mw import PrivateMW
from beam_dp.mechanisms.online.private_mw_plan import plan_private_mw
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.accounting import zcdp_rho
from beam_dp.privacy.guarantee import Neighboring
from beam_dp.queries.linear import Product
from beam_dp.queries.reader import LinearQueries
from beam_dp.summaries.histogram import Histogram

# Accuracy.


def hard_queries(domain: Domain, run: PrivateMW, counts: np.ndarray, rounds: int):
    """The worst of many random half-spaces each time, as an adversary would ask."""
    generator = np.random.default_rng(1)
    for _ in range(rounds):
        tables = generator.integers(0, 2, (200, domain.num_cells)).astype(float)
        errors = np.abs(tables @ (counts / counts.sum() - run.weights))
        yield LinearQueries(domain).explicit(tables[int(errors.argmax())])


@pytest.mark.parametrize("calibration", ["tight", "textbook"])
def test_updates_without_noise_stay_within_their_bound(calibration):
    domain = domain_of(64)
    counts = np.zeros(64, np.int64)
    counts[:3] = 500_000
    plan = plan_private_mw(
        domain,
        promise(REPLACE, 0.0, 50.0),
        1_500_000,
        num_questions=10**4,
        max_error=0.1,
        calibration=calibration,
    )
    # Without noise the threshold can be the error itself.
    run = run_of(plan, counts)
    gap = math.ceil((2 if calibration == "textbook" else 1) * 0.1 * 1_500_000 * GRID)
    run._sparse._threshold = run._sparse._noisy_threshold = gap
    rate = 0.4 if calibration == "tight" else 0.05
    run.settings = dataclasses.replace(run.settings, learning_rate=rate)
    for query in hard_queries(domain, run, counts, 400 if calibration == "tight" else 1200):
        run.answer(query)
    used = plan.settle(1_500_000).noise.max_above - run.updates_left
    limit = {"tight": math.log(64) / 0.02, "textbook": 4 * math.log(64) / 0.01}[calibration]
    assert 3 <= used <= limit


@pytest.mark.parametrize("neighboring, num_records", [(REPLACE, 2_000_000), (ADD, "noisy")])
@pytest.mark.parametrize("delta", [0.0, 1e-9])
@pytest.mark.parametrize("calibration", ["tight", "textbook"])
def test_every_answer_is_within_its_bound(neighboring, num_records, delta, calibration):
    domain = domain_of(4, 4, 4)
    generator = np.random.default_rng(2)
    counts = generator.multinomial(2_000_000, generator.dirichlet(np.full(64, 0.05)))
    plan = plan_private_mw(
        domain,
        promise(neighboring, delta, 4.0),
        num_records,
        num_questions=200,
        calibration=calibration,
    )
    run = run_of(plan, counts, Seeded(4))
    routes = set()
    for query in hard_queries(domain, run, counts, 200):
        answer = run.answer(query)
        routes.add(answer.route)
        assert answer.bound is not None
        assert abs(answer.value - query.count(counts) / GRID) <= answer.bound
    if calibration == "tight":
        assert routes == {"hypothesis", "update"} and not run.settings.is_vacuous
    assert run.questions_left == 0
    assert run.answer(cells(domain, 0)).bound is None


def test_a_start_from_a_release_saves_updates():
    domain = domain_of(64)
    counts = np.zeros(64, np.int64)
    counts[:3] = 500_000
    used = []
    for start in (None, counts + 1):
        plan = plan_private_mw(
            domain,
            promise(REPLACE, 0.0, 50.0),
            1_500_000,
            num_questions=200,
            starts_from_release=start is not None,
        )
        run = run_of(plan, counts, Seeded(1), start=start)
        for query in hard_queries(domain, run, counts, 100):
            run.answer(query)
        used.append(run.settings.noise.max_above - run.updates_left)
    assert used[1] < 0.75 * used[0], used
    with pytest.raises(InputError, match="starts from a release"):
        run_of(plan, counts)
    for start in (np.zeros(64), np.full(64, np.nan), np.ones(3), -np.ones(64), "x"):
        with pytest.raises(InputError, match="start"):
            run_of(plan, counts, start=start)


# Behaviour.


def test_given_updates_bound_errors_in_records_whatever_their_number():
    # With the updates decided, only noise decides the bound, and noise does not depend on n.
    guarantee = promise(REPLACE, 1e-9, 1.0)
    plans = [
        plan_private_mw(domain_of(2**16), guarantee, total, num_questions=10**5, max_updates=1000)
        for total in (10**6, 10**9)
    ]
    small, large = (plan.settle(plan.num_records) for plan in plans)
    assert small.hypothesis_bound == large.hypothesis_bound < 10**5
    assert small.max_error == pytest.approx(small.gap / 10**6)


def test_a_start_is_worsened_by_a_thousandth_only():
    domain = domain_of(1000)
    plan = plan_private_mw(
        domain, promise(REPLACE), 10**6, num_questions=4, starts_from_release=True
    )
    counts = np.zeros(1000, np.int64)
    counts[0] = 10**6
    run = PrivateMW(plan, Histogram(domain, counts), NoiseSource(), counts)
    guess = 10**6 * run.weights[0]
    assert 10**6 * 0.999 <= guess < 10**6


def test_repeated_query_is_free_and_reads_no_data():
    run = small_run()
    query = cells(run.plan.domain, 0)
    first = run.answer(query)
    assert first.route == "update" and first.value == 80_000 and first.updates_left == 1
    assert first.standard_error == pytest.approx(run.settings.noise.answer_deviation)
    run._counts = None  # data that cannot be read
    same = LinearQueries(run.plan.domain).explicit([1, 0, 0, 0, 0, 0, 0, 0])
    assert run.answer(query) == first
    with pytest.raises((TypeError, ValueError)):
        run.answer(same)  # another query, to the object


class Counted(Product):
    """A query that counts how often it reads a table."""

    READS: ClassVar[list[str]] = []

    def count(self, counts):
        self.READS.append("counts")
        return super().count(counts)

    def mean(self, weights):
        self.READS.append("weights")
        return super().mean(weights)

    def add_to(self, table, step):
        self.READS.append("update")
        super().add_to(table, step)


def test_a_query_that_the_hypothesis_answers_reads_each_table_once():
    run = small_run()
    Counted.READS.clear()
    answer = run.answer(Counted(run.plan.domain.shape, (), ()))
    assert answer.route == "hypothesis"
    assert sorted(Counted.READS) == ["counts", "weights"]


def test_exhausted_runs_leave_the_data_alone():
    run = small_run(max_updates=1)
    run.answer(cells(run.plan.domain, 0))
    assert run.updates_left == 0
    run._counts = None
    answer = run.answer(cells(run.plan.domain, 3))
    assert answer.route == "exhausted" and answer.standard_error is None
    assert answer.bound is None  # one update was too few to promise anything


def test_bounds_end_with_the_questions():
    run = small_run(max_updates=4)
    domain = run.plan.domain
    bounds = [run.answer(cells(domain, code)).bound for code in range(6)]
    assert None not in bounds[:4] and bounds[4:] == [None, None]
    assert run.questions_left == 0


def test_one_cell_and_no_records():
    plan = plan_private_mw(domain_of(1), promise(ADD), "noisy", num_questions=3)
    run = run_of(plan, [0], Seeded(0))
    answer = run.answer(Product((1,), (), ()))
    assert math.isfinite(answer.value) and run.settings.noise.max_above == 1
    empty = plan_private_mw(domain_of(4), promise(ADD, 1e-9), "noisy", num_questions=3)
    run = run_of(empty, [0, 0, 0, 0], NoiseSource())
    assert run.settings.total >= 1
    assert abs(run.answer(cells(empty.domain, 0)).value) <= run.settings.hypothesis_bound


def test_refusals():
    domain, guarantee = domain_of(4), promise(REPLACE)

    def refused(match, num_records=100, guarantee=guarantee, domain=domain, **named):
        named = {"num_questions": 10, **named}
        with pytest.raises(InputError, match=match):
            plan_private_mw(domain, guarantee, num_records, **named)

    refused("public under replace_one", num_records="noisy")
    for num_records in (0, -1, 1.5, True, 2**41, "many"):
        refused("num_records", num_records=num_records)
    for questions in (0, 2.5, True):
        refused("num_questions", num_questions=questions)
    for value in (0.0, 1.0, math.nan):
        refused("failure_probability", failure_probability=value)
        refused("max_error", max_error=value)
    refused("more than 2\\^31 updates", max_error=1e-6)
    refused("max_updates", max_updates=-1)
    refused("must be 'tight'", calibration="textbook", max_updates=3)
    refused("calibration", calibration="best")
    refused("2\\^50", guarantee=promise(REPLACE, 0.0, 1e-12))
    impossible = domain_of(2, 2).with_impossible([{"a0": [0], "a1": [1]}])
    refused("impossible", domain=impossible)
    plan = plan_private_mw(domain, guarantee, 100, num_questions=10)
    with pytest.raises(InputError, match="histogram"):
        PrivateMW(plan, Histogram(domain_of(5), np.zeros(5, np.int64)), NoNoise())
    run = run_of(plan, [100, 0, 0, 0])
    for query in (cells(domain_of(5), 0), {"conjunction": {}}, None):
        with pytest.raises(InputError, match="query"):
            run.answer(query)
    assert run.questions_left == 10


def test_the_loss_is_known_before_the_number_of_records():
    plan = plan_private_mw(domain_of(64), promise(ADD, 1e-9), "noisy", num_questions=100)
    for total in (1, 10**3, 10**6, 2**40):
        settings = plan.settle(total)
        assert settings.noise.loss.rho + 1 / (2 * plan.count_scale**2) <= plan.loss.rho
        assert settings.noise.guarantee.neighboring is Neighboring.ADD_OR_REMOVE_ONE
    json.dumps([plan.public, plan.settle(5).to_json()], allow_nan=False)


@pytest.mark.parametrize("calibration", ["tight", "textbook"])
def test_steps_assume_the_most_records_that_there_may_be(calibration):
    """An update is of an error that is a share of the true number, which N may be below."""
    plan = plan_private_mw(
        domain_of(64),
        promise(ADD),
        "noisy",
        num_questions=100,
        max_error=0.3,
        calibration=calibration,
    )
    settings = plan.settle(10_000)
    most = 10_000 + settings.total_bound
    assert settings.total_bound > 50 and settings.gap >= 0.3 * most
    least = 4 * min(1.0, settings.gap / most) if calibration == "tight" else 0.15
    assert settings.learning_rate == pytest.approx(least, rel=1e-12)
    assert settings.exhausted_bound is not None


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0, 50.0, 1000.0])
def test_the_loss_with_a_noisy_number_of_records_fits_the_guarantee(epsilon):
    """Else a ledger would refuse a run for the whole of a declared budget."""
    guarantee = promise(ADD, 1e-9, epsilon)
    plan = plan_private_mw(domain_of(64), guarantee, "noisy", num_questions=100)
    assert plan.loss.rho <= zcdp_rho(epsilon, 1e-9)
    assert plan.count_scale >= 1 / (0.05 * epsilon)
