"""Exact, predicted and missing error bars."""

import dataclasses
import math
from functools import cache
from itertools import combinations, pairwise

import numpy as np
import pytest
from measured_database import DOMAIN, counts, database, drawn_again
from noise_sources import Seeded
from release_examples import release_of
from tiny import domain_of, on_trees

import beam_dp as dp
from beam_dp.mechanisms.marginals import selection
from beam_dp.mechanisms.marginals.measurements import sampled_triples
from beam_dp.models.basis import subsets
from beam_dp.queries.dense_tables import VectorQuery, sums_of
from beam_dp.queries.linear import Parity, Product, negation
from beam_dp.releases.error_bars import FROM_NOISE, Estimate
from beam_dp.releases.synthetic_database.estimates import Estimates, FittedErrors, UnmeasuredPair
from beam_dp.releases.synthetic_database.measured_tables import query_variance, support_variances
from beam_dp.secret.summaries.histogram import Histogram

TABLE = counts().reshape(DOMAIN.shape)
AGES = np.array([10.0, 30.0, 70.0, 0.0])
REGULAR = np.array([1.0, 1.0, 1.0, 0.0])


def conjunction(**codes: list[int]) -> VectorQuery:
    vectors = {}
    for name, held in codes.items():
        axis = DOMAIN.names.index(name)
        vectors[axis] = np.isin(np.arange(DOMAIN.shape[axis]), held)
    return VectorQuery.of(vectors)


def truth(query: VectorQuery) -> float:
    others = tuple(axis for axis in range(TABLE.ndim) if axis not in query.axes)
    return float(sums_of(TABLE.sum(axis=others).astype(float), [query])[0])


QUERIES = [
    conjunction(age=[0]),
    conjunction(age=[0, 3], sex=[1]),
    conjunction(sex=[0], town=[1, 2]),
    conjunction(town=[3]).with_vectors({0: AGES}),
    VectorQuery((), ()),
]


@pytest.mark.part
@pytest.mark.parametrize("num_records", ["noisy", "public"])
@pytest.mark.parametrize("delta", [1e-9, 0.0])
def test_unbiased_answers_have_the_stated_error(delta, num_records):
    """The weight of the count in 1 - q differs from the weight in q; the weights are not added."""
    product = Product.of(DOMAIN.shape, {0: ((0, 2),), 3: ((1, 2),)})
    parity = Parity(DOMAIN.shape, (1, 2), (((1, 2),), ((1, 2),)))
    asked = [VectorQuery.of_literals(each) for each in (product, negation(product), parity)]
    asked += QUERIES
    errors, stated = [], []
    for release in drawn_again(300, delta, num_records):
        found = [unbiased for _, unbiased in release.estimates.both(asked)]
        assert all(each is not None and each.kind == FROM_NOISE for each in found)
        errors.append([each.value - truth(query) for each, query in zip(found, asked, strict=True)])
        stated.append([each.standard_error for each in found])
    assert np.ptp(stated, axis=0).max() < 1e-9  # it does not depend on what was drawn
    deviations = np.array(stated[0])
    is_known = deviations == 0
    assert is_known.tolist() == [False] * 7 + [num_records == "public"]
    assert (deviations[0] == pytest.approx(deviations[1])) == (num_records == "public")
    found = np.array(errors)[:, ~is_known]
    deviations = deviations[~is_known]
    assert np.abs(np.array(errors)[:, is_known]).max(initial=0.0) < 1e-6
    assert (np.abs(found.mean(axis=0)) < 4.5 * deviations / math.sqrt(300)).all()
    assert np.sqrt((found**2).mean(axis=0)) == pytest.approx(deviations, rel=0.2)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0])
@pytest.mark.parametrize("mechanism", [dp.Laplace(), dp.Gaussian(calibration="textbook")])
def test_margins_cover_95_percent_of_integer_noise(mechanism, epsilon):
    """Integer noise: a margin below a whole number excludes that number."""
    domain, delta = (
        dp.read_domain('{"a": 2, "b": 2}'),
        0.0 if isinstance(mechanism, dp.Laplace) else 1e-9,
    )
    promise = dp.Guarantee(epsilon, delta, "add_or_remove_one", "record", 1)
    plan = mechanism.plan(domain, dp.marginals(domain, ways=2), promise, "noisy")
    exact = Histogram(domain, np.array([50, 60, 70, 20])).marginals(plan.summary_tables)
    release = plan.release(exact, Seeded(1))
    (described,) = plan.measurements
    noise, scale = np.arange(-500, 501), described.scale
    law = np.exp(-(np.abs(noise) / scale if delta == 0 else noise**2 / (2 * scale**2)))
    law /= law.sum()
    laws = [law, np.convolve(law, law, "same")]
    queries = [VectorQuery.of({0: [1, 0], 1: [0, weight]}) for weight in (1, -7)]
    queries.append(VectorQuery.of({0: [0, 1]}))
    for query, own, weight in zip(queries, [laws[0], *laws], (1, 7, 1), strict=True):
        ((_, unbiased),) = release.estimates.both([query])
        assert unbiased is not None and unbiased.margin is not None
        held = own[weight * np.abs(noise) <= unbiased.margin].sum()
        assert held >= 0.95
        assert unbiased.margin <= 2.12 * unbiased.standard_error + weight / 2


@pytest.mark.part
def test_error_of_a_mean_counts_shared_noise_once():
    counted = conjunction(sex=[0]).with_vectors({0: REGULAR})
    exact = truth(counted.with_vectors({0: AGES})) / truth(counted)
    errors, stated = [], []
    for release in drawn_again(300):
        estimates = release.estimates
        (answer,) = estimates.means([counted], 0, AGES)
        assert answer.kind == "approximate"
        errors.append(answer.value - exact)
        stated.append(answer.standard_error)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.mean(stated), rel=0.15)


@pytest.mark.parametrize("delta", [1e-9, 0.0])
def test_exact_errors_match_the_noise(delta):
    """Compares with another formula, which supports only conjunctions."""
    release = database(delta)
    assert release.measurements is not None
    for query in QUERIES[:3]:
        ((_, unbiased),) = release.estimates.both([query])
        supports = list(subsets(query.axes))
        described = release.measurements.described
        variances = support_variances(DOMAIN, supports, described, False)
        held = [int(vector.sum()) for vector in query.vectors]
        expected = query_variance(DOMAIN, variances, query.axes, held)
        assert unbiased is not None
        assert unbiased.standard_error == pytest.approx(math.sqrt(expected), rel=1e-9)
        assert abs(unbiased.value - truth(query)) < 6 * math.sqrt(expected)


def test_ratios_know_what_their_denominators_are():
    counted = conjunction(sex=[0]).with_vectors({0: REGULAR})
    (share,) = database().estimates.means([counted], 0, np.ones(4))
    assert share.value == pytest.approx(1.0) and share.standard_error == pytest.approx(0, abs=1e-9)
    everybody, women = conjunction(), conjunction(sex=[0])
    of_age = np.array([1.0, 0.0, 0.0, 0.0])
    kinds = {}
    for number in ("noisy", "public"):
        estimates = database(num_records=number).estimates
        for name, counted in (("all", everybody), ("women", women)):
            (share,) = estimates.means([counted], 0, of_age)
            assert share.standard_error and share.margin
            kinds[number, name] = share.kind
    assert kinds.pop(("public", "all")) == FROM_NOISE
    assert set(kinds.values()) == {"approximate"}


def test_errors_of_few_measured_attributes_are_predicted_or_unknown():
    release = database()
    noisy = dataclasses.replace(
        release,
        num_records=1,
        counts=np.ones(1, np.int64),
        codes=[column[:1] for column in release.codes],
    )
    measured = release.measurements
    assert measured is not None
    nobody = tuple(np.zeros_like(table) for table in measured.tables)
    empty = dataclasses.replace(noisy, measurements=dataclasses.replace(measured, tables=nobody))
    (answer,) = empty.estimates.means([conjunction(sex=[0], age=[0, 1, 2])], 0, AGES)
    assert (answer.standard_error, answer.reason) == (None, "too few records for their noise")
    estimates = database().estimates
    three = conjunction(age=[0], sex=[0], town=[0])
    ((fitted, unbiased),) = estimates.both([three])
    assert unbiased is None and fitted.kind == "model_based"
    assert abs(fitted.value - truth(three)) < 4 * fitted.margin
    only_singles = database(ways=1).estimates
    ((fitted, unbiased),) = only_singles.both([conjunction(age=[0], town=[0])])
    if unbiased is None:
        assert fitted.standard_error is None and "was not measured" in fitted.reason
    else:  # The plan may have measured a larger table; then it answers.
        assert only_singles.of([conjunction(age=[0], town=[0])]) == [unbiased]


@pytest.mark.parametrize(("ratio", "shown"), [(3.5e8, 70.0), (-2.0, 20.0), (31.5, 31.5)])
def test_mean_of_hardly_any_records_lies_among_its_values(monkeypatch, ratio, shown):
    found = Estimate(ratio, reason="too few records for their noise")
    monkeypatch.setattr(Estimates, "both_ratios", lambda *_: [(found, None)])
    values = np.array([20.0, 45.0, 70.0, 0.0])  # not of null, which is not asked for
    (mean,) = database().estimates.means([conjunction(age=[0, 1, 2])], 0, values)
    assert mean == dataclasses.replace(found, value=shown)


def test_kinds_of_errors_follow_from_measurements():
    (answer,) = release_of().estimates.of([VectorQuery.of({0: [1, 0, 0, 0, 0]})])
    assert answer == Estimate(answer.value, reason="the release keeps no measurements")
    assert math.isfinite(answer.value)
    release = database()
    assert release.measurements is not None
    chosen = dataclasses.replace(release.measurements, are_fixed=False)
    adaptive = dataclasses.replace(release, measurements=chosen)
    assert {each.kind for each in adaptive.estimates.of(QUERIES)} == {"approximate"}
    exact = Estimate(10.0, 4.0, 8.0, FROM_NOISE)
    for error, taken in ((2.9, "approximate"), (3.1, FROM_NOISE), (None, FROM_NOISE)):
        fitted = Estimate(9.0, error, error, "approximate" if error else None)
        assert Estimates.better(fitted, exact).kind == taken
    assert Estimates.better(Estimate(9.0), None) == Estimate(9.0)


def test_linear_queries_have_errors_and_bounds():
    release, shape = database(), DOMAIN.shape
    product = Product.of(shape, {0: ((0, 2),), 1: ((1, 2),)})
    parity = Parity(shape, (1, 2), (((1, 2),), ((1, 2),)))
    asked = [product, parity, negation(product), negation(parity)]
    found = release.answer_queries(asked)
    for query, answer in zip(asked, found, strict=True):
        exact = query.count(counts()) / 2**16
        assert answer.standard_error is not None and answer.margin is not None
        assert abs(answer.value - exact) <= 3 * answer.margin and answer.reason == ""
        assert answer.bound is not None and answer.failure_probability == 0.05
        assert answer.kind == FROM_NOISE
    (total,) = release.estimates.of([VectorQuery((), ())])
    for query, other in ((0, 2), (1, 3)):
        assert found[query].value + found[other].value == pytest.approx(total.value)


def test_predicted_errors_match_calculations_by_hand():
    """Checks 1 / (1 / V + 1 / tau) for a pair by hand, and what single attributes add."""
    shares = [np.array([0.75, 0.25]), np.array([0.5, 0.5])]
    variances = {(): 4.0, (0,): 9.0, (1,): 16.0, (0, 1): 25.0}
    domain = DOMAIN.restrict(["sex", "in/out"])
    query = VectorQuery.of({0: [1, 0], 1: [1, 0]})
    model = FittedErrors(domain, shares, 0.1, 0.0, 1000.0, variances, {})
    # Of each attribute the literal has s = n = 1 over 2 codes: seen 1/4, own 1/2; p^2, p (1 - p).
    noise = 25 * 0.5 * 0.5
    prior = (1000 * 0.1) ** 2 * (0.75 * 0.25) * (0.5 * 0.5)
    singles = 4 * (0.75**2 * 0.5**2) + 9 * 0.5 * 0.25 + 16 * 0.5 * 0.75**2
    expected = singles + noise * prior / (noise + prior)
    assert model.of([query], np.array([375.0])) == pytest.approx([math.sqrt(expected)])
    # A small count is not that wrong. But noise of 3 and 4 records hides some of the usual 500.
    hiding = 3 / 500 * 9 * 0.5 * 0.25 + 4 / 500 * 16 * 0.5 * 0.75**2
    small = model.of([query], np.array([6.0]), np.array([7.0]))
    spread = expected - hiding
    limit = 7 + 6 * math.sqrt(spread) / 2
    assert small == pytest.approx([math.sqrt(hiding + spread * limit / (spread + limit))])
    unknown = FittedErrors(domain, shares, 0.1, 0.0, 1000.0, {**variances, (0, 1): math.inf}, {})
    assert np.isinf(unknown.of([query], np.array([375.0]))).all()
    shares = [np.array([1 - 1e-15, 1e-15]), np.array([0.5, 0.5])]
    variances = {(): 4.0, (0,): 9.0, (1,): 16.0, (0, 1): 25.0}
    model = FittedErrors(domain, shares, 0.1, 0.0, 1000.0, variances, {})
    query = VectorQuery.of({0: [0, 1], 1: [1, 0]})
    # Some records may have this code although its probability is nearly zero.
    assert model.of([query], np.array([1.0]))[0] < 20
    # Independent attributes: about one record more or less in each cell.
    domain = dp.Domain((*domain.attributes, dp.CategoricalAttribute("third", ("x", "y"))))
    known = dict.fromkeys(subsets((0, 1)), 0.0) | dict.fromkeys([(2,), (0, 2), (1, 2)], 0.0)
    model = FittedErrors(domain, [np.array([0.5, 0.5])] * 3, 0.0, 0.0, 1000.0, known, {})
    query = VectorQuery.of({axis: [1, 0] for axis in range(3)})
    assert model.of([query], np.array([125.0])) == pytest.approx([math.sqrt(1000 / 4**3)])


def yes_no(rule: str) -> list[np.ndarray]:
    """Ten yes/no columns, of which seven follow earlier ones at times, perhaps by ``xor``."""
    rng = np.random.default_rng(3)
    codes = [(rng.random(20_000) < chance).astype(np.int64) for chance in (0.4, 0.2, 0.1)]
    for place, share in enumerate(rng.uniform(0.0, 0.6, 7), 3):
        first, second = (codes[part] for part in rng.choice(place, 2, replace=False))
        followed = first ^ second if rule == "xor" and place > 6 else first
        codes.append(np.where(rng.random(20_000) < share, followed, rng.random(20_000) < 0.04))
    return codes


@pytest.mark.parametrize(("rule", "least", "most"), [("none", 0.0, 0.045), ("xor", 0.06, 0.08)])
def test_bars_hold_for_small_counts_and_for_dependence_beyond_pairs(rule, least, most):
    domain, codes = domain_of(*(2,) * 10), yes_no(rule)
    plan = dp.MWEM().plan(domain, dp.marginals(domain, ways=2), database().guarantee, "noisy")
    assert len(plan.measurements) == 1 + 10 + 45 + 120  # all triples
    cells = Histogram(domain, np.bincount(domain.cell_index(codes), minlength=domain.num_cells))
    exact, rng, rows = cells.marginals(plan.summary_tables), np.random.default_rng(0), []
    for seed in range(4):
        estimates = plan.release(exact, Seeded(seed)).estimates
        assert least <= math.sqrt(estimates._third_order) < most
        queries = []
        for order in (3, 4, 5) * 60:
            axes = np.sort(rng.choice(10, order, replace=False)).tolist()
            record = rng.integers(20_000)
            wanted = [rng.choice([codes[axis][record], 1]) for axis in axes]
            queries.append(VectorQuery.of(dict(zip(axes, np.eye(2)[wanted], strict=True))))
        for query, answer in zip(queries, estimates.of(queries), strict=True):
            vectors = zip(query.axes, query.vectors, strict=True)
            count = math.prod(vector[codes[axis]] for axis, vector in vectors).sum()
            rows.append((count, abs(count - answer.value), answer.margin))
    truths, errors, margins = np.array(rows).T
    for group in (truths < 100, truths >= 100):
        assert group.sum() > 200 and (errors <= margins)[group].mean() >= 0.93
        assert margins[group].mean() <= 2 * np.quantile(errors[group], 0.95)


@pytest.mark.parametrize(
    ("size", "sets", "number"),
    [
        (10, list(combinations(range(10), 2)), 120),
        (10, list(combinations(range(10), 3)), 0),
        (10, list(pairwise(range(10))), 0),
        (9, list(combinations(range(9), 2)), 0),
        (23, list(combinations(range(23), 2)), 443),
    ],
)
def test_triples_are_sampled_for_pairs_of_many_attributes_alone(size, sets, number):
    assert len(sampled_triples(domain_of(*(2,) * size), sets)) == number
    assert not sampled_triples(domain_of(*(11,) * size), sets)


def test_attribute_with_one_code_changes_no_error():
    """An attribute with one code has no interaction, so no measurement is missing."""
    domain = dp.Domain((dp.CategoricalAttribute("only", ("x",)), *DOMAIN.attributes[:2]))
    guarantee = database().guarantee
    plan = dp.Gaussian().plan(domain, dp.marginals(domain, ways=3), guarantee, "noisy")
    table = TABLE.sum(axis=(2, 3)).ravel()
    release = plan.release(Histogram(domain, table).marginals(plan.summary_tables), Seeded(3))
    pair = {1: [1, 0, 0, 0], 2: [1, 0]}
    without = VectorQuery.of(pair)
    beside = VectorQuery((0, *without.axes), (np.ones(1), *without.vectors))
    ((fitted, _),), ((other, _),) = (release.estimates.both([each]) for each in (without, beside))
    assert fitted.kind == other.kind == "approximate"
    assert fitted.standard_error == pytest.approx(other.standard_error)


YOUNG, TOWN = [1, 1, 0, 0], [1, 0, 0, 0]


@cache
def selected(seed: int = 5) -> dp.SyntheticDatabase:
    """Adds enough noise that a selection leaves out pairs: age with in/out, and age with town.

    The last check of the selection, which would add one of these pairs, is left out.
    """
    guarantee = dp.Guarantee(0.1, 1e-9, "add_or_remove_one", "person", 1)
    with on_trees(16), pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "num_choices", lambda *arguments: 0)
        plan = dp.MWEM().plan(DOMAIN, dp.marginals(DOMAIN, ways=2), guarantee, "noisy")
        exact = Histogram(DOMAIN, counts()).marginals(plan.summary_tables)
        return plan.release(exact, Seeded(seed))


def without_scores(release: dp.SyntheticDatabase) -> dp.SyntheticDatabase:
    assert release.measurements is not None
    bare = dataclasses.replace(release.measurements, distances=None)
    return dataclasses.replace(release, measurements=bare)


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


def test_pairs_without_a_score_have_no_bar_and_records_count_once():
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
    measured = selected().measurements
    assert measured is not None and measured.distances is not None
    assert list(measured.distances.pairs) == list(dp.marginals(DOMAIN, ways=2))
    assert measured.distances.deviation == selected().plan["score_deviation"]
    assert not {("age", "in/out"), ("age", "town")} & {each.names for each in measured.described}


def test_error_of_pairs_matches_calculations_by_hand():
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
    domain = DOMAIN.restrict(["sex", "in/out"])
    expected = np.full((2, 2), 250.0)
    pair = UnmeasuredPair(40.0, 30.0, expected + np.outer([20, -20], [1, -1]), expected)
    variances = {(): 4.0, (0,): 9.0, (1,): 16.0}
    shares = [np.array([0.5, 0.5])] * 2
    model = FittedErrors(domain, shares, 0.1, 0.0, 1000.0, variances, {(0, 1): pair})
    query = VectorQuery.of({0: [1, 0], 1: [1, 0]})
    lift = 270 / 250
    singles = 4 * 0.25**2 * lift**2 + (9 + 16) * 0.5 * 0.25 * lift**2
    total = singles + (pair.size / 4) ** 2 * lift + (0.7 * 20) ** 2
    assert model.of([query], np.array([270.0])) == pytest.approx([math.sqrt(total)])


def test_errors_of_pairs_that_were_not_measured_add_up():
    domain = domain_of(2, 2, 2)
    expected = np.full((2, 2), 250.0)
    pair = UnmeasuredPair(40.0, 30.0, expected, expected)
    sets = [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]
    query = VectorQuery.of({axis: [1, 0] for axis in range(3)})

    def squared(number: int, chance: float = math.inf) -> float:
        known, pairs = (
            dict.fromkeys(sets[: 7 - number], 0.0),
            dict.fromkeys(sets[7 - number :], pair),
        )
        model = FittedErrors(domain, [np.array([0.5, 0.5])] * 3, 0.1, 0.0, 1000.0, known, pairs)
        return float(model.of([query], np.array([125.0]), chance)[0]) ** 2

    one, two, three = (squared(number) - squared(0) for number in (1, 2, 3))
    assert (two, three) == pytest.approx((2**2 * one, 3**2 * one))
    # Of 125 records, an error E explains a variance of 125 E / 2, and that of the pairs alone more.
    limit = 125 * (math.sqrt(squared(3)) / 2 + math.sqrt(three))
    assert 1 / squared(3, 0.0) == pytest.approx(1 / squared(3) + 1 / limit)
