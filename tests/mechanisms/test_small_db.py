"""SmallDB as a mechanism of pipelines, sizes of small databases, and product weights."""

import dataclasses
import math
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest
from noise_sources import NoNoise, Seeded
from test_multiset_choice import law_by_hand
from tiny import ADD, domain_of, promise, summary

import beam_dp as dp
from beam_dp.mechanisms.small_db import size
from beam_dp.mechanisms.small_db.size import (
    TILT_BITS,
    MultisetLaw,
    find_tilts,
    size_of_workload,
    small_db_size,
    small_db_size_by_vc,
)
from beam_dp.mechanisms.small_db.small_db import SmallDB, SmallDBPlan
from beam_dp.queries.linear_workload import MAX_MATRIX_VALUES, query_matrix
from beam_dp.queries.vc_dimension import sauer_bound
from beam_dp.releases.error_bars import FROM_NOISE
from beam_dp.releases.kinds import read_release, release_from_bytes, release_to_bytes, write_release
from beam_dp.testing import audit


def planned(spec: str, sizes: tuple[int, ...], num_records: int | str = 5, **named) -> SmallDBPlan:
    domain = domain_of(*sizes)
    guarantee = named.pop("guarantee", promise(ADD))
    workload = dp.parse_linear_workload(spec, domain)
    return SmallDB(**named).plan(domain, workload, guarantee, num_records)  # type: ignore[arg-type]


def released(plan: SmallDBPlan, counts, noise, **named) -> dp.SyntheticDatabase:
    mechanism = SmallDB(size=plan.parameters.size, **named)
    return mechanism.release(plan, summary(plan, np.array(counts)), noise)


def cells_of(release: dp.SyntheticDatabase) -> tuple[int, ...]:
    cells = release.domain.cell_index(release.codes)
    return tuple(np.repeat(cells, release.counts).tolist())


@pytest.mark.part
def test_releases_follow_the_distribution_that_excludes_impossible_cells():
    domain = domain_of(2, 2).with_impossible([{"a0": [1], "a1": [1]}])
    workload = dp.parse_linear_workload("conjunctions:1", domain)
    plan = SmallDB(size=3).plan(domain, workload, promise(ADD), 5)
    assert plan.public["num_multisets"] == "10"
    _, matrix, _ = query_matrix(workload)
    assert matrix.shape[1] == 3
    law = law_by_hand(dp.MultisetChoice(matrix, 1.0, 5, 3), np.array([3, 1, 1]))
    noise = Seeded(2)
    outcomes = [cells_of(released(plan, [3, 1, 1, 0], noise)) for _ in range(1000)]
    assert audit.audit_sampler(outcomes, law).passes


@pytest.mark.parametrize("most", [1, 3])
def test_noisy_number_of_records_and_the_choice_share_the_budget(most):
    guarantee = promise(ADD, epsilon=0.7, most=most)
    plan = planned("prefixes:a0", (8,), "noisy", size=4, guarantee=guarantee)
    stated = plan.parameters
    assert stated.total_scale is not None
    for_total = most / stated.total_scale
    assert 0.69 < for_total + stated.selection_epsilon <= 0.7
    assert stated.selection_scale == pytest.approx(2 * 4 * most / stated.selection_epsilon)
    assert plan.loss.epsilon == 0.7
    noise = NoNoise()
    noise.below = Seeded(1).below  # type: ignore[method-assign]
    release = released(plan, [5, 0, 0, 1, 1, 0, 0, 2], noise)
    (draw,) = noise.draws
    assert draw.kind == "laplace" and draw.scale == stated.total_scale
    assert draw.exact.tolist() == [9] and release.represented == 9


def test_answers_are_scaled_and_unchanged_by_saving(tmp_path):
    plan = planned("prefixes:a0", (4, 2), 1000, size=3)
    release = released(plan, [100, 20, 300, 0, 80, 0, 0, 500], Seeded(4))
    write_release(release, tmp_path / "out")
    for each in (
        release,
        read_release(tmp_path / "out"),
        release_from_bytes(release_to_bytes(release)),
    ):
        assert (each.num_records, each.represented) == (3, 1000)
        (answer,) = each.answer(dp.marginals(each.domain, attributes=["a0", "a1"]))
        table = each.record_marginal(["a0", "a1"])
        assert answer.values == pytest.approx(table * 1000 / 3)
        told = each.answer_queries(plan.queries.queries)
        assert [answer.value for answer in told] == pytest.approx(
            (table.sum(axis=1).cumsum() * 1000 / 3).tolist()
        )
        assert {answer.bound for answer in told} == {plan.public["bound"]}
        other = dp.LinearQueries(each.domain).conjunction({"a1": 1})
        (of_other,) = each.answer_queries([other])
        assert of_other.bound is None
        assert of_other.value == pytest.approx(table[:, 1].sum() * 1000 / 3)
        assert each.queries == plan.queries.queries


def test_releases_with_a_hypothesis_also_answer_linear_queries():
    domain = domain_of(3, 2)
    plan = dp.MWEM().plan(domain, dp.marginals(domain, ways=2), promise(ADD, epsilon=100.0), 60)
    counts = np.array([10, 5, 0, 20, 15, 10])
    release = dp.MWEM().release(plan, summary(plan, counts), Seeded(1))
    make = dp.LinearQueries(domain)
    queries = [
        make.prefix("a0", 1),
        make.parity({"a0": 2, "a1": 1}),
        make.disjunction({"a0": 2, "a1": 1}),
        make.conjunction({}),
        make.explicit([0, 0.5, 1, 0, 0, 0.25]),
    ]
    exact = [query.count(counts) / 2**16 for query in queries]
    found = release.answer_queries(queries)
    assert [each.value for each in found] == pytest.approx(exact, abs=2)
    # All but the one whose values are listed are answered by the tables that were measured.
    assert [each.kind for each in found] == [FROM_NOISE, FROM_NOISE, FROM_NOISE, FROM_NOISE, None]
    errors = [abs(each.value - truth) for each, truth in zip(found, exact, strict=True)]
    assert all(error <= each.bound for error, each in zip(errors[:4], found, strict=False))
    assert found[4].bound is None and found[4].reason


def test_disjunctions_give_the_same_records_as_their_negations():
    """One less every query moves no error, so that both workloads have the same law."""
    shape, counts = (3, 2), [9, 1, 5, 5, 20, 10]
    disjunctions = planned("disjunctions:2", shape, 50, size=2)
    conjunctions = planned("conjunctions:2", shape, 50, size=2)
    assert len(disjunctions.queries) == len(conjunctions.queries)
    one, other = (released(plan, counts, Seeded(4)) for plan in (disjunctions, conjunctions))
    assert [each.tolist() for each in one.codes] == [each.tolist() for each in other.codes]
    answers = one.answer_queries(disjunctions.queries)
    exact = [query.count(np.array(counts)) / 2**16 for query in disjunctions.queries]
    for answer, truth in zip(answers, exact, strict=True):
        assert abs(answer.value - truth) <= answer.bound == disjunctions.public["bound"]


def test_marginals_with_all_cells_as_queries_have_the_query_bound():
    plan = planned("marginals:1", (3, 2), 50, size=2)
    release = released(plan, [9, 1, 5, 5, 20, 10], Seeded(4))
    assert set(release.errors) == {("a0",), ("a1",)}
    assert release.errors["a0",]["bound"] == plan.public["bound"]
    crossed = planned("monotone_conjunctions:2", (2, 2, 2), 50, size=2)
    assert crossed.workload.marginals == (("a0", "a1"), ("a0", "a2"), ("a1", "a2"))
    assert not released(crossed, [1] * 8, Seeded(4)).errors


def test_queries_with_values_other_than_0_and_1_have_no_vc_dimension():
    domain = domain_of(2)
    workload = dp.LinearWorkload(domain, (dp.LinearQueries(domain).explicit([0.5, 1]),))
    plan = SmallDB(size=2).plan(domain, workload, promise(ADD), 5)
    assert (
        plan.vc_dimension is plan.parameters.vc_dimension is None
        and "vc_dimension" not in plan.public
    )


def test_bound_of_an_explicit_size_uses_its_least_error_fraction():
    plan = planned("prefixes:a0", (8,), 1000, size=8)
    assert plan.parameters.max_error_fraction == pytest.approx(1 / 8, abs=1e-8)
    bound = 1000 / 8 + 2 * (math.log(math.comb(15, 8)) + math.log(20))
    assert plan.public["bound"] == pytest.approx(bound, rel=1e-6)
    assert not plan.public["bound_is_vacuous"]
    assert planned("prefixes:a0", (8,), 10, size=8).public["bound_is_vacuous"]


def test_marginals_are_planned_like_their_cells():
    domain = domain_of(2, 2)
    of_marginals = SmallDB(size=2).plan(domain, dp.marginals(domain, ways=1), promise(ADD), 5)
    of_queries = planned("marginals:1", (2, 2), size=2)
    assert set(of_marginals.queries) == set(of_queries.queries)
    assert dataclasses.replace(of_marginals, queries=of_queries.queries) == of_queries


@pytest.mark.parametrize("dimension", [0, 1, 2, 3, 5, 8])
def test_query_count_gives_the_smallest_size_for_enumerable_workloads(dimension):
    """No dimension that Sauer's bound admits makes a size smaller, in 2^24 values of a matrix."""
    for num_cells in (2**each for each in range(4, 25, 2)):
        num_queries = min(sauer_bound(num_cells, dimension), MAX_MATRIX_VALUES // num_cells)
        for fraction in (1, 0.7, 0.4, 0.1, 0.02):
            size = small_db_size_by_vc(dimension, fraction, None, num_cells)
            assert size >= small_db_size(num_queries, fraction)
            assert size_of_workload(
                num_queries, fraction, vc_dimension=dimension, num_cells=num_cells
            ) == (small_db_size(num_queries, fraction), "queries")
    # More queries than that need fewer records by their dimension.
    assert size_of_workload(2**40, 0.1, vc_dimension=1) == (754, "vc_dimension")


# Product weights: upper bounds for every multiset, and near the least that there are.


QUERIES = {
    "crossed": np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]]),
    "one query": np.array([[1, 0]]),
    "values": np.array([[0, 1, 2, 3], [3, 3, 0, 1]]),
}


def law_of(name: str, targets: list[int], scale: float) -> MultisetLaw:
    answers = 7 * QUERIES[name]
    members = tuple(np.array([kind]) for kind in range(answers.shape[1]))
    return MultisetLaw(tuple(targets), answers, members, 3, Fraction(scale))


def losses(law: MultisetLaw) -> dict[tuple[int, ...], int]:
    return {
        kinds: max(
            abs(target - int(row[list(kinds)].sum()))
            for target, row in zip(law.targets, law.answers, strict=True)
        )
        for kinds in combinations_with_replacement(range(law.num_types), law.size)
    }


def log_bound(law: MultisetLaw, tilt, kinds: tuple[int, ...], known: int, least: int) -> float:
    product = math.prod(tilt.weights[kind] for kind in kinds)
    logarithm = math.log(product) - TILT_BITS * law.size * math.log(2)
    return logarithm - tilt.rest * float((known - least) / law.scale)


LAW_CASES = [
    ("crossed", [9, 3, 0, 12]),
    ("crossed", [0, 0, 0, 0]),
    ("crossed", [21, 21, 21, 21]),
    ("crossed", [2**61, 3, 2**40, 5]),
    ("one query", [4]),
    ("values", [40, 2]),
]


def slack(law: MultisetLaw, least: int) -> float:
    """How far the lowest of all bounds, also those of sets that hold more, is above a weight."""
    found = losses(law)
    return min(
        log_bound(law, tilt, kinds, known, least) + float((loss - least) / law.scale)
        for tilt in find_tilts(law, least)
        for kinds, loss in found.items()
        for known in {least, (least + loss) // 2, loss}
    )


@pytest.mark.parametrize("name, targets", LAW_CASES)
@pytest.mark.parametrize("scale", [0.5, 3.0, 1e6])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_weights_never_exceed_their_bounds(name, targets, scale, share):
    law = law_of(name, targets, scale)
    # Nothing less than the least loss of all is known at first; at best, that itself.
    most = int(law.answers.max()) * law.size
    known = max(0, max(targets) - most)
    least = known + int(share * (min(losses(law).values()) - known))
    assert slack(law, least) >= 0


def test_detects_shares_with_too_large_a_sum(monkeypatch):
    original = size._best_shares
    monkeypatch.setattr(size, "_best_shares", lambda *given: 1.2 * original(*given))
    assert slack(law_of("one query", [4], 3.0), 0) < 0


def test_tilt_lowers_the_bound_if_few_multisets_are_good():
    """All records in one of 64 cells: nearly all multisets are far off."""
    answers = 1000 * np.eye(64, dtype=np.int64)
    members = tuple(np.array([kind]) for kind in range(64))
    targets = (8000, *(0,) * 63)
    law = MultisetLaw(targets, answers, members, 8, Fraction(160))
    logs = []
    for tilt in find_tilts(law, 0):
        weights = np.array([float(Fraction(each, 2**TILT_BITS)) for each in tilt.weights])
        logs.append(size._log_sum(np.log(weights), np.ones(64), 8)[0])
    assert logs[0] == pytest.approx(math.log(law.num_multisets))
    assert min(logs) < logs[0] - 8


def test_log_sum_matches_enumeration_of_all_multisets():
    exponents, ways = np.array([0.3, -1.0, 2.0]), np.array([1.0, 2.0, 1.0])
    cells = [0, 1, 1, 2]
    total, numbers = 0.0, np.zeros(3)
    for chosen in combinations_with_replacement(range(4), 3):
        kinds = [cells[each] for each in chosen]
        weight = math.exp(exponents[kinds].sum())
        total += weight
        numbers += weight * np.bincount(kinds, minlength=3)
    log, means = size._log_sum(exponents, ways, 3)
    assert log == pytest.approx(math.log(total))
    assert means == pytest.approx(numbers / total)


def test_queries_with_only_zero_answers_need_only_the_plain_tilt():
    law = dataclasses.replace(law_of("one query", [4], 3.0), answers=np.zeros((1, 2), np.int64))
    (plain,) = find_tilts(law, 4)
    assert plain.rest == 1 and set(plain.weights) == {1 << TILT_BITS}
