"""Plans of a domain and of the records per unit; the texts and the bins that are found."""

from __future__ import annotations

import dataclasses
import math
import pickle
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from noise_sources import NoNoise, Seeded
from open_domains import CITY, INCOME, SEX, guarantee, open_domain, plans_of
from scipy import stats
from sketch_laws import Shifted
from tiny import ADD, REPLACE

import beam_dp as dp
from beam_dp.domain.dates import DateAttribute, DatetimeAttribute
from beam_dp.domain.discover import GRID, number_leaves
from beam_dp.domain.ordered import NumericAttribute
from beam_dp.mechanisms.discovery.bins import BinsPlan, plan_bins
from beam_dp.mechanisms.discovery.plan import ValuesPlan, check_together, plan_values
from beam_dp.mechanisms.discovery.records_per_unit import (
    RecordsPlan,
    loss_with_records,
    noise_per_record,
    plan_records,
)
from beam_dp.mechanisms.registry import ReleaseOptions, plan_release
from beam_dp.privacy.budget import Budget
from beam_dp.privacy.discovery import (
    alone_probability,
    chosen_records,
    least_threshold,
    record_levels,
    text_weight,
    threshold_step,
)
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.privacy.ledger.entries import Token
from beam_dp.privacy.ledger.filters import Account
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.steps import Step, normal_tail, total
from beam_dp.releases.domain.earlier import records_of
from beam_dp.releases.domain.verify import domain_steps
from beam_dp.secret.summaries.sparse_counts import ValueCounts
from beam_dp.testing.audit import discrete_gaussian

BINS = [{**INCOME, "name": name} for name in "ab"]


def plan_of(domain: dp.OpenDomain, promise: dp.Guarantee, **options: object):
    """Returns the plans of a domain and of the release that follows."""
    plan = dp.plan_domain(domain, promise)
    asked = ReleaseOptions(discovered=plan.shared, **options)
    workload = dp.marginals(domain, ways=2)
    return plan, plan_release(dp.MWEM(), domain.bounded(), workload, promise, asked)


@settings(max_examples=10, deadline=None)
@given(
    epsilon=st.floats(0.01, 20),
    power=st.integers(5, 15),
    share=st.floats(0.001, 0.5),
    texts=st.integers(0, 3),
    bins=st.integers(0, 3),
    neighboring=st.sampled_from(["add_or_remove_one", "replace_one"]),
    most=st.integers(1, 5),
)
def test_the_parts_add_up_to_the_whole_guarantee(
    epsilon, power, share, texts, bins, neighboring, most
) -> None:
    entries = [{**CITY, "name": f"t{n}"} for n in range(texts)]
    entries += [{**INCOME, "name": f"b{n}"} for n in range(bins)]
    if not entries:
        return
    promise = guarantee(epsilon, 10.0**-power, neighboring=neighboring, max_records_per_unit=most)
    plan = dp.plan_domain(open_domain(*entries), promise, share)
    slack = promise.delta / 2 if texts else 0.0
    assert plan.main.delta == promise.delta - slack
    loss = dp.total_loss(plan.shared)
    assert loss.slack <= Fraction(slack)
    assert loss.slack >= Fraction(slack) * 9 / 10  # no threshold is higher than it needs to be
    _, proved = total(plan.steps, promise)
    assert proved == plan.guarantee.epsilon
    stated = dataclasses.replace(plan.steps[0], loss=Budget.of(plan.shared.main).loss)
    _, together = total([*plan.steps, stated], promise)
    assert 0.999 * epsilon <= together <= epsilon
    mu_squared = float(plan.loss.mu_squared / loss.mu_squared)
    assert mu_squared == pytest.approx(share, rel=1e-3)


def test_a_column_of_texts_gets_two_parts_and_others_one() -> None:
    first, *others = dp.plan_domain(open_domain(CITY, *BINS, SEX), guarantee()).steps
    for step in others:
        ratio = float(first.loss.mu_squared / step.loss.mu_squared)
        assert ratio == pytest.approx(2, rel=1e-6)


def test_a_release_with_the_whole_budget_breaks_the_guarantee() -> None:
    """The mutant that forgets what the domain costs."""
    plan = dp.plan_domain(open_domain(), guarantee())
    domain = open_domain().bounded()
    whole = plan_release(dp.Gaussian(), domain, dp.marginals(domain, ways=2), guarantee())
    with pytest.raises(dp.InputError, match="adds up with that of the domain"):
        check_together(whole, plan.shared)
    greedy = dataclasses.replace(plan.shared, main=guarantee(1.0, 5e-10))
    again = plan_release(dp.Gaussian(), domain, dp.marginals(domain, ways=2), greedy.main)
    with pytest.raises(dp.InputError, match="must keep the whole guarantee"):
        check_together(again, greedy)


def test_a_mechanism_whose_loss_does_not_add_up_is_refused() -> None:
    domain = open_domain()
    asked = domain, dp.marginals(domain, ways=2), guarantee()
    with pytest.raises(dp.InputError, match="use mwem, gaussian or laplace, tight"):
        plans_of(dp.Gaussian(calibration="textbook"), *asked)


def test_a_pure_release_of_few_tables_adds_its_epsilon_to_that_of_the_domain() -> None:
    domain = open_domain()
    workload = dp.marginals(domain, ways=2)
    for mechanism in (dp.MWEM(), dp.Laplace()):
        first, later = plans_of(mechanism, domain, workload, guarantee())
        gaussian = dp.plan_domain(domain, guarantee())
        assert first.noise == gaussian.noise  # the domain is as exact
        assert (later.guarantee, later.guarantee.delta) == (first.main, 0)
        assert first.main.epsilon + first.guarantee.epsilon == pytest.approx(1.0, abs=1e-9)
        assert first.main.epsilon + first.guarantee.epsilon <= 1.0
        assert later.loss == Loss.approximate(1.0, 1e-9) == dp.total_loss(first.shared)
        assert Account(1.0, 1e-9, "pure_first").fits(later.loss.in_doubles())
    many = open_domain(CITY, SEX, *({**SEX, "name": f"s{place}"} for place in range(12)))
    first, later = plans_of(dp.MWEM(), many, dp.marginals(many, ways=2), guarantee())
    assert (later.loss.kind, first.main.delta) == ("gaussian", 5e-10)


def test_a_token_must_have_paid_for_both_parts() -> None:
    plan, main = plan_of(open_domain(), guarantee())
    both = Token("visits", 3, "mwem", guarantee(), main.loss)
    assert plan.paid_by(both).public["ledger_release"] == "visits/3"
    assert main.paid_by(both).public["ledger_release"] == "visits/3"
    for wrong in (
        Token("visits", 3, "mwem", guarantee(), plan.loss),
        Token("visits", 3, "mwem", plan.guarantee, main.loss),
    ):
        with pytest.raises(dp.InputError, match="ledger_token"):
            plan.paid_by(wrong)


@pytest.mark.parametrize("discover", [{"bins": 4}, {"bins": 4, "min": -1024, "max": 1024}])
@pytest.mark.parametrize("whole", [False, True])
def test_a_column_without_a_range_in_which_nothing_is_found_has_a_bin_at_0(discover, whole) -> None:
    domain = open_domain({**INCOME, "discover": discover, "whole": whole}, SEX)
    plan = dp.plan_domain(domain, guarantee())
    nothing = np.zeros(plan.columns.leaves[0].num_levels, np.int64)
    income = plan.release(ValueCounts({}, {"income": nothing}), NoNoise()).domain["income"]
    low, high = income.ends
    assert (low, high) == (-1024, 1024) if "min" in discover else -1 <= low < 0 <= high <= 1


# Plans for choosing the records per unit, and the numbers that are chosen.


MOST = 100
LEVELS = record_levels(MOST)
DOMAIN = dp.Domain((dp.IntegerAttribute("a", 0, 2), dp.IntegerAttribute("b", 0, 4)))


def levels_of(records: np.ndarray, most: int = MOST) -> np.ndarray:
    levels = record_levels(most)
    places = np.searchsorted(levels, np.minimum(records, most), "right") - 1
    return np.bincount(places, minlength=len(levels)).astype(np.int64)


def predicted(records: np.ndarray, k: int, noise: float) -> float:
    """Records that are dropped, and the noise for k records."""
    return float(np.maximum(records - k, 0).sum()) + k * noise


def planned(
    noise: float = 2000.0, most: int = MOST, epsilon: float = 1.0, neighboring: str = ADD
) -> RecordsPlan:
    whole = Guarantee(epsilon, 1e-9, neighboring, "person", most)  # type: ignore[arg-type]
    return plan_records(DOMAIN, whole, noise)


def number(plan: RecordsPlan, counts: np.ndarray, source: NoNoise) -> int:
    return records_of(plan.release(counts, source)).main.max_records_per_unit


@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
def test_choice_and_later_releases_share_epsilon(neighboring):
    plan = planned(neighboring=neighboring)
    (step,) = plan.steps
    chosen = plan.chosen(7)
    assert domain_steps(chosen.noise, chosen.main)[0].loss == step.loss
    assert chosen.main.epsilon == 0.98
    assert 0.02 * (1 - 1e-9) <= float(step.loss.epsilon) <= 1 - 0.98
    assert chosen.main.max_records_per_unit == 7
    assert plan.scale == pytest.approx(50 if neighboring == ADD else 100)


@pytest.mark.parametrize("noise", [3.0, 40.0, 500.0, 3000.0])
@pytest.mark.parametrize("shape", ["one or two", "all nine", "geometric"])
def test_exact_counts_choose_the_best_number_or_the_end_of_its_level(shape, noise):
    rng = np.random.default_rng(0)
    records = {
        "one or two": rng.integers(1, 3, 5000),
        "all nine": np.full(5000, 9),
        "geometric": rng.geometric(0.2, 5000),
    }[shape]
    counts = levels_of(records).tolist()
    chosen = chosen_records(counts, scale=1e-9, most=MOST, noise_per_record=noise)
    best = min(range(1, MOST + 1), key=lambda k: predicted(records, k, noise))
    place = np.searchsorted(LEVELS, best, "right")
    assert LEVELS[place - 1] <= chosen < LEVELS[place]
    assert predicted(records, chosen, noise) <= 1.1 * predicted(records, best, noise)


@pytest.mark.parametrize("shape", ["one or two", "geometric", "long tail"])
def test_choice_is_near_the_best(shape):
    rng = np.random.default_rng(2)
    records = {
        "one or two": rng.integers(1, 3, 20_000),
        "geometric": rng.geometric(0.2, 20_000),
        "long tail": np.floor(rng.pareto(1.1, 20_000) + 1).astype(np.int64),
    }[shape]
    noise = 2000.0
    found = [number(planned(noise), levels_of(records), Seeded(seed)) for seed in range(20)]
    least = min(predicted(records, k, noise) for k in range(1, MOST + 1))
    assert max(predicted(records, k, noise) for k in found) <= 1.1 * least


@pytest.mark.parametrize("units", [0, pytest.param(1000, marks=pytest.mark.part)])
def test_noise_alone_does_not_choose_a_larger_number(units):
    plan = planned(1.0, 1000)
    counts = levels_of(np.ones(units, np.int64), 1000)
    found = [number(plan, counts, Seeded(seed)) for seed in range(200)]
    assert sum(k > 1 for k in found) <= 20  # 10 are expected at most; 21 have probability 1e-3


@pytest.mark.parametrize("delta", [0.0, 1e-9])
@pytest.mark.parametrize(
    "mechanism", [dp.MWEM(), dp.Gaussian(), dp.Laplace(), dp.Gaussian("textbook")]
)
def test_plans_for_any_chosen_number_are_within_the_paid_loss(mechanism, delta):
    if delta == 0 and isinstance(mechanism, dp.Gaussian):
        return
    whole = Guarantee(1.0, delta, ADD, "person", MOST)
    records, workload = plan_records(DOMAIN, whole, 9.0), dp.marginals(DOMAIN, ways=2)
    most = ReleaseOptions(records_per_unit=records.chosen(MOST))
    paid = plan_release(mechanism, DOMAIN, workload, whole, most).loss
    for k in (1, 2, 17, MOST):
        options = ReleaseOptions(records_per_unit=records.chosen(k), paid=paid)
        plan = plan_release(mechanism, DOMAIN, workload, whole, options)
        assert (plan.promised, plan.loss) == (whole, paid)
        assert plan.guarantee.max_records_per_unit == k
        token = Token("people", 1, plan.mechanism, whole, paid)
        assert plan.paid_by(token).ledger_token == token
        assert dataclasses.replace(records, paid=(whole, paid)).paid_by(token).ledger_token == token
        assert plan.entry()["records_per_unit"]["noise"][0]["scale"] == records.scale


def test_a_later_release_with_the_whole_budget_breaks_the_guarantee():
    """The mutant that forgets what the choice costs."""
    whole = Guarantee(1.0, 1e-9, ADD, "person", MOST)
    chosen = plan_records(DOMAIN, whole, 9.0).chosen(3)
    workload = dp.marginals(DOMAIN, ways=2)
    greedy = dataclasses.replace(chosen.main, epsilon=1.0)
    plan = plan_release(dp.Gaussian(), DOMAIN, workload, greedy)
    with pytest.raises(dp.InputError, match="must keep the whole guarantee, epsilon 1"):
        loss_with_records(plan, chosen)
    options = ReleaseOptions(records_per_unit=chosen)
    with pytest.raises(dp.InputError, match="must be that of the choice"):
        plan_release(dp.Gaussian(), DOMAIN, workload, chosen.main, options)
    with pytest.raises(dp.InputError, match="within the one that was paid"):
        small = dataclasses.replace(options, paid=Loss.gaussian(0.1))
        plan_release(dp.Gaussian(), DOMAIN, workload, whole, small)


@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_mechanism_that_selects_counts_as_one_that_measures_all(delta):
    promise = Guarantee(1.0, delta, "add_or_remove_one", "person", 1)
    workload = dp.marginals(DOMAIN, ways=1)
    selects = dp.MWEM(num_rounds=2).plan(DOMAIN, workload, promise, "noisy")
    measures = (dp.Gaussian() if delta else dp.Laplace("textbook")).plan(
        DOMAIN, workload, promise, "noisy"
    )
    assert noise_per_record(selects, promise) == pytest.approx(
        noise_per_record(measures, promise), rel=1e-6
    )


# What is found of columns that are not declared: texts above a threshold, and bins.


def plan(
    relation: str = ADD, k: int = 1, mu: float = 0.1, slack: float = 1e-10, most: int = 500
) -> ValuesPlan:
    unit = "person" if k > 1 else "record"
    guarantee = Guarantee(1.0, 1e-9, relation, unit, k)  # type: ignore[arg-type]
    return plan_values("city", guarantee, mu, slack, most)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("k", [1, 2, 17, 10**4, 2**40])
@pytest.mark.parametrize("mu", [1e-3, 0.1, 5.0])
def test_step_proves_the_planned_mu_and_slack_and_hardly_less(relation, k, mu):
    found = plan(relation, k, mu, 1e-10)
    noise = {name: getattr(found, name) for name in ("num_moved", "grid", "scale", "threshold")}
    loss = threshold_step("", max_texts=k, **noise).loss
    assert loss.mu_squared is not None and loss.epsilon is None
    assert (1 - 1e-6) * Fraction(mu) ** 2 <= loss.mu_squared <= Fraction(mu) ** 2
    assert Fraction(9, 10**11) < loss.slack <= Fraction(found.slack)


@pytest.mark.parametrize("grid", [4, 8, 64])
@pytest.mark.parametrize("most", [1, 2, 5, 40])
def test_alone_probability_bounds_the_exact_law_of_any_number_of_texts(grid, most):
    scale = 1.3 * grid
    threshold = least_threshold(scale, 0.01, most, grid)
    bound = float(alone_probability(scale, threshold, most, grid))
    assert 0.005 < bound <= 0.01
    far = math.ceil(12 * scale)
    worst = 0.0
    for number in range(1, most + 1):
        law = discrete_gaussian(scale, text_weight(number, grid), -far, threshold + far)
        tail = sum(p for value, p in law.items() if value >= threshold)
        worst = max(worst, -math.expm1(number * math.log1p(-tail)))
    assert 0.3 * bound < worst <= bound


def test_threshold_that_one_text_reaches_without_noise_has_slack_one():
    assert alone_probability(3.0, 8, 2, 8) == 1


def test_normal_tail_is_an_upper_bound():
    for value in (-3.0, 0.0, 0.5, 5.0, 12.5, 30.0):
        exact = math.exp(stats.norm.logsf(value))
        assert float(normal_tail(Fraction(value))) == pytest.approx(exact, rel=1e-12)
    assert 0 < normal_tail(Fraction(10**9)) <= normal_tail(Fraction(100))


def released(found: ValuesPlan, sums: dict[str, int], shift: int = 0) -> list[tuple[str, float]]:
    texts = pa.array([text.encode() for text in sums], pa.large_binary())
    return found.release(texts, np.array(list(sums.values()), np.int64), Shifted(shift))


def test_releases_texts_from_the_threshold_on_largest_first():
    found = plan()
    least = found.threshold
    sums = {"b": least, "a": least - 1, "c": least + GRID, "é": least}
    units = least / GRID
    assert released(found, sums) == [("c", units + 1), ("b", units), ("é", units)]
    assert [text for text, _ in released(found, sums, shift=1)] == ["c", "b", "é", "a"]
    assert released(found, sums, shift=-2 * GRID) == []


def test_keeps_the_largest_noisy_sums_and_breaks_ties_by_text():
    found = plan(most=3)
    sums = dict.fromkeys("fcaebd", found.threshold) | {"z": found.threshold + 1}
    expected = ["z", "a", "b"]
    assert [text for text, _ in released(found, sums)] == expected
    assert [text for text, _ in released(found, dict(reversed(sums.items())))] == expected


def test_releases_nothing_of_nothing():
    assert released(plan(), {}) == []


# Plans for finding bins, and the bins that are found.


ADDING, REPLACING = Neighboring
INCOMES = NumericAttribute("income", tuple(number_leaves(0, 1e7)), clip=True)
MU = 0.033  # a third of a tenth of mu^2 at epsilon 1, delta 1e-9


def counts_of(leaves, values) -> np.ndarray:
    places = np.clip(np.searchsorted(leaves.edges, values, "right") - 1, 0, leaves.num_levels - 1)
    return GRID * np.bincount(places, minlength=leaves.num_levels).astype(np.int64)


@pytest.fixture(scope="module")
def incomes() -> np.ndarray:
    return np.random.default_rng(1).lognormal(10, 0.7, 50_000)


def step_of(plan: BinsPlan) -> Step:
    guarantee = Guarantee(1.0, 1e-9, plan.neighboring, "record", 1)
    return domain_steps([plan.to_json()], guarantee)[0]


@pytest.mark.parametrize("neighboring", [ADDING, REPLACING])
def test_step_has_the_loss_that_was_asked_for(neighboring):
    gaussian = step_of(plan_bins(INCOMES, 20, neighboring, mu=MU))
    assert gaussian.loss.epsilon is None
    assert MU**2 * (1 - 1e-9) <= float(gaussian.loss.mu_squared) <= MU**2
    pure = step_of(plan_bins(INCOMES, 20, neighboring, epsilon=0.05))
    assert 0.05 * (1 - 1e-9) <= float(pure.loss.epsilon) <= 0.05


def test_leaves_are_counted_until_cells_can_be_leaves():
    for num_leaves, levels in ((1, 1), (16, 1), (17, 2), (256, 2), (257, 3), (270_002, 5)):
        leaves = NumericAttribute("a", tuple(map(float, range(num_leaves + 1))))
        plan = plan_bins(leaves, 20, REPLACING, mu=MU)
        assert plan.to_json()["levels"] == [*[16] * (levels - 1), num_leaves]
        assert pickle.loads(pickle.dumps(plan)).to_json() == plan.to_json()


@pytest.mark.parametrize("loss", [{"mu": MU}, {"epsilon": 0.2}])
def test_bins_follow_the_values_and_not_the_range(incomes, loss):
    plan = plan_bins(INCOMES, 20, ADDING, **loss)
    bins = plan.release(counts_of(INCOMES, incomes), Seeded(0))
    edges = np.array(INCOMES.edges)[list(bins.cuts)]
    assert 12 <= len(bins.counts) <= 20
    # Of a range up to 10,000,000 in which nearly all values are below 150,000.
    assert edges[0] < 8_000 and 70_000 < edges[-1] < 1_000_000
    exact, _ = np.histogram(np.clip(incomes, edges[0], edges[-1]), edges)
    assert exact.max() < 12_000
    errors = (np.array(bins.counts)[1:-1] - exact[1:-1]) / np.array(bins.standard_errors)[1:-1]
    assert abs(errors).max() < 5


def test_tails_go_on_beyond_the_units_that_noise_hides_and_abrupt_ends_do_not():
    heights = NumericAttribute("height", tuple(number_leaves(-1000, 1000)))
    rng = np.random.default_rng(5)
    for make, furthest in ((rng.normal, 4.2), (lambda _, width, n: rng.uniform(0, width, n), 1.0)):
        counts, reached = counts_of(heights, make(0, 100, 50_000)), []
        for seed in range(5):
            bins = plan_bins(heights, 20, ADDING, mu=MU).release(counts, Seeded(seed))
            reached.append(heights.edges[bins.cuts[-1]] / 100)
            assert len(bins.counts) <= 20
            for few in (2, 3):
                bins = plan_bins(heights, few, ADDING, mu=MU).release(counts, Seeded(seed))
                assert len(bins.counts) <= few
        assert 0.8 * furthest < np.mean(reached) and max(reached) < 1.25 * furthest


def test_no_end_moves_far_outwards_where_no_finer_cells_are_counted_any_more():
    leaves = NumericAttribute("score", number_leaves(None, None, whole=True), whole=True)
    scores = 100 - np.random.default_rng(52).gamma(1.4, 5.5, 3_000)
    counts = counts_of(leaves, np.clip(np.rint(scores), 66, 100))
    plan = plan_bins(leaves, 20, ADDING, mu=0.044)
    for seed in range(20):
        cuts = plan.release(counts, Seeded(seed)).cuts
        assert leaves.edges[cuts[0]] >= 66 - 3.4 and leaves.edges[cuts[-1]] <= 101 + 3.4


def test_two_whole_numbers_get_no_third_one_as_a_tail():
    leaves = NumericAttribute("code", number_leaves(None, None, whole=True), whole=True)
    counts = counts_of(leaves, np.repeat([1, 2], [800, 26_000]))
    for seed in range(20):
        cuts = plan_bins(leaves, 20, ADDING, mu=0.03).release(counts, Seeded(seed)).cuts
        assert {leaves.edges[cut] for cut in cuts} <= {1.0, 2.0, 3.0}


@pytest.mark.parametrize("whole", [False, True])
def test_noise_alone_makes_no_bins_of_all_numbers(whole):
    leaves = NumericAttribute("fare", number_leaves(None, None, whole=whole), whole=whole)
    plan = plan_bins(leaves, 20, ADDING, mu=MU)
    for num_units in (0, 40):
        counts = counts_of(leaves, np.arange(num_units))
        for seed in range(5):
            cuts = plan.release(counts, Seeded(seed)).cuts
            assert len(cuts) == 2 or max(abs(leaves.edges[cut]) for cut in cuts) < 10**12


def test_bins_are_not_narrower_than_the_noise_allows(incomes):
    plan = plan_bins(INCOMES, 1000, ADDING, mu=MU)
    for seed in range(3):
        bins = plan.release(counts_of(INCOMES, incomes), Seeded(seed))
        assert 20 < len(bins.counts) <= len(incomes) / plan.noise_deviation
        assert list(bins.cuts) == sorted(set(bins.cuts))


def test_values_that_many_units_share_have_a_bin_of_their_own():
    values = np.concatenate([np.zeros(8_000), np.linspace(1_000, 90_000, 40_000)])
    bins = plan_bins(INCOMES, 10, ADDING, mu=MU).release(counts_of(INCOMES, values), Seeded(3))
    assert bins.cuts[0] == 0 and bins.counts[0] == pytest.approx(8_000, abs=1_000)
    assert INCOMES.edges[bins.cuts[1]] <= 1_500


def test_numbers_that_many_units_share_are_not_spread_over_the_gap_before_them():
    leaves = NumericAttribute("coinsurance", number_leaves(None, None))
    values = np.repeat([0.0, 3.258, 3.932, 4.564], [8_000, 4_000, 1_400, 6_400])
    for seed in range(10):
        bins = plan_bins(leaves, 20, ADDING, mu=0.028).release(
            counts_of(leaves, values), Seeded(seed)
        )
        edges = np.array(leaves.edges)[list(bins.cuts)]
        above = int(np.searchsorted(edges, 3.258))
        assert edges[above] - edges[above - 1] < 0.2


@pytest.mark.parametrize("loss", [{"mu": MU}, {"epsilon": 0.05}])
def test_without_records_there_are_valid_bins(loss):
    plan = plan_bins(INCOMES, 20, ADDING, **loss)
    nothing = np.zeros(INCOMES.num_levels, np.int64)
    assert plan.release(nothing, NoNoise()).cuts == (0, INCOMES.num_levels)
    for seed in range(20):
        cuts = plan.release(nothing, Seeded(seed)).cuts
        assert 0 <= cuts[0] < cuts[-1] <= INCOMES.num_levels and len(cuts) <= 21


def test_standard_errors_match_noisy_counts():
    """Where the bins do not depend on the noise."""
    plan = plan_bins(NumericAttribute("a", tuple(range(65))), 2, ADDING, mu=0.5)
    counts = np.repeat([100 * GRID, 2000 * GRID], 32)
    found = [plan.release(counts, Seeded(seed)) for seed in range(300)]
    assert {each.cuts for each in found} == {(0, 32, 64)}
    ratios = [(each.counts[1] - 64_000) / each.standard_errors[1] for each in found]
    assert np.mean(np.square(ratios)) == pytest.approx(1, abs=5 * math.sqrt(2 / 300))


@pytest.mark.parametrize(
    "leaves",
    [
        DateAttribute("day", [f"20{year:02}-01-01" for year in range(60)]),
        DatetimeAttribute("at", [f"2020-01-{day:02}T00:00Z" for day in range(1, 31)]),
        NumericAttribute("stay", tuple(range(30)), whole=True),
    ],
)
def test_dates_times_and_whole_numbers_have_bins(leaves):
    rng = np.random.default_rng(2)
    places = np.minimum(rng.geometric(0.1, 20_000) + 4, leaves.num_levels - 1)
    counts = GRID * np.bincount(places, minlength=leaves.num_levels).astype(np.int64)
    bins = plan_bins(leaves, 6, ADDING, mu=0.5).release(counts, Seeded(1))
    assert len(bins.counts) == 6 and bins.cuts[0] == 5
    assert sum(bins.counts) == pytest.approx(20_000, rel=0.02)


def test_a_single_leaf_is_a_single_bin():
    leaf = NumericAttribute("a", (0.0, 1.0))
    bins = plan_bins(leaf, 2, ADDING, mu=0.5).release(np.array([9 * GRID]), Seeded(0))
    assert bins.cuts == (0, 1)
