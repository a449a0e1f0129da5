"""SmallDB: exact laws on all neighbours, samplers against brute force, mutants, refusals, speed.

Chi-square tests reject a true law with probability 1e-6 each, in the limit.
"""

import math
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest
from executed_lines import lines_below
from noise_sources import Seeded

from beam_dp.mechanisms.small_db import (
    enumerated as multisets_enumerated,
    nested as multisets_nested,
    searched as multisets_searched,
    size as multisets_law,
)
from beam_dp.mechanisms.small_db.choice import MultisetChoice
from beam_dp.mechanisms.small_db.enumerated import EnumerationSampler
from beam_dp.mechanisms.small_db.nested import NestedSampler, is_nested
from beam_dp.mechanisms.small_db.searched import SearchSampler
from beam_dp.mechanisms.small_db.size import draw_cells
from beam_dp.privacy.noise.bound import exp_above
from beam_dp.testing import audit

SAMPLERS = {"enumeration": EnumerationSampler, "nested": NestedSampler, "search": SearchSampler}
# The example of the specification: four cells, three distinct columns would not do.
FOUR = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]])


def law_by_hand(mechanism: MultisetChoice, counts: np.ndarray) -> dict[tuple[int, ...], float]:
    """From the definition: every multiset, its worst answer, and weights in doubles."""
    queries, size = mechanism.queries, mechanism.size
    targets = size * (queries @ counts)
    scale = mechanism.public["selection_scale"]
    logs = {}
    for cells in combinations_with_replacement(range(queries.shape[1]), size):
        answers = mechanism.num_records * queries[:, list(cells)].sum(axis=1)
        logs[cells] = -np.abs(targets - answers).max() / scale
    top = max(logs.values())
    weights = {cells: math.exp(log - top) for cells, log in logs.items()}
    total = sum(weights.values())
    return {cells: weight / total for cells, weight in weights.items()}


def test_exact_distribution_over_two_cells_matches_known_values():
    queries = np.array([[0, 1]])
    law = law_by_hand(MultisetChoice(queries, 1.0, 5, 3), np.array([3, 2]))
    ones = [law[(0,) * (3 - k) + (1,) * k] for k in range(4)]
    known = [0.188568275497, 0.433891055705, 0.263168228260, 0.114372440538]
    assert ones == pytest.approx(known, rel=1e-9)


def test_exact_distribution_over_four_cells_matches_known_values():
    mechanism = MultisetChoice(FOUR, 1.0, 5, 4)
    assert mechanism.public["num_multisets"] == 35
    law = law_by_hand(mechanism, np.array([3, 1, 0, 1]))
    assert law[0, 0, 1, 3] == max(law.values()) == pytest.approx(0.0685046631379, rel=1e-9)
    assert law[0, 0, 0, 1] == pytest.approx(0.0533514852959, rel=1e-9)
    assert law[3, 3, 3, 3] == pytest.approx(0.0119043254582, rel=1e-9)


def prefix_queries(num_cells: int) -> np.ndarray:
    """How many records are in cells 0..i, for each i but the last."""
    return np.tri(num_cells, dtype=np.int64)[:-1]


def hierarchy_queries(num_cells: int) -> np.ndarray:
    """The nodes of a binary tree over so many cells, a power of two of them."""
    widths = 2 ** np.arange(num_cells.bit_length())
    return np.vstack([np.repeat(np.eye(num_cells // w, dtype=np.int64), w, 1) for w in widths])


# Prefixes; a hierarchy with equal columns and a query that no cell answers; nested and weighted.
NESTED = {
    "prefixes": prefix_queries(5),
    "all prefixes": np.tri(4, dtype=int),
    "hierarchy": np.repeat([[1, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], [2, 2, 1], axis=1),
    "equal columns": np.array([[1, 1, 1, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]]),
    "weighted": np.array([[2, 2, 2, 0], [0, 3, 0, 0], [0, 1, 0, 0]]),
    "nothing asked": np.zeros((1, 3), int),
}
CROSSED = {
    "crossed": FOUR,
    "equal columns crossed": np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 0]]),
    "real": np.array([[0, 1, 2, 3], [3, 3, 0, 1]]),
}
CASES = [
    (name, sampler)
    for name in [*NESTED, *CROSSED]
    for sampler in SAMPLERS
    if sampler != "nested" or name in NESTED
]
# Two tables that every sampler it can take draws from 100,000 times; the rest would take minutes.
AT_LENGTH = ("weighted", "crossed")


def mechanism_of(
    name: str, epsilon: float, num_records: int, size: int, sampler: str
) -> MultisetChoice:
    table = {**NESTED, **CROSSED}[name]
    denominator = max(int(table.max()), 1)
    return MultisetChoice(table, epsilon, num_records, size, denominator, sampler=sampler)  # type: ignore[arg-type]


def drawn(mechanism: MultisetChoice, counts: np.ndarray, runs: int, seed: int = 3) -> list[tuple]:
    sampler = SAMPLERS[mechanism.public["sampler"]](mechanism.law(counts))
    noise = Seeded(seed)
    return [tuple(sampler.draw(noise).tolist()) for _ in range(runs)]


def counts_of(mechanism: MultisetChoice) -> np.ndarray:
    return np.array([3, 1, 0, 1, 2])[: mechanism.queries.shape[1]]


@pytest.mark.part
@pytest.mark.usefixtures("weights_once")
@pytest.mark.parametrize("name, sampler", CASES)
def test_samplers_follow_their_distribution_and_not_one_with_a_nearby_scale(name, sampler):
    runs, others = (100_000, (1.8, 2.2)) if name in AT_LENGTH else (30_000, (1.6, 2.5))
    mechanism = mechanism_of(name, 2.0, 5, 4, sampler)
    counts = counts_of(mechanism)
    outcomes = drawn(mechanism, counts, runs)
    assert audit.audit_sampler(outcomes, law_by_hand(mechanism, counts)).passes
    if name != "nothing asked":
        for epsilon in others:
            other = mechanism_of(name, epsilon, 5, 4, sampler)
            assert not audit.audit_sampler(outcomes, law_by_hand(other, counts)).passes


@pytest.mark.usefixtures("weights_once")
@pytest.mark.part
@pytest.mark.parametrize("table_entries", [1, 6, 40, 10**6])
@pytest.mark.parametrize("name", ["crossed", "equal columns crossed", "nothing asked"])
def test_block_length_does_not_change_the_distribution(name, table_entries, monkeypatch):
    monkeypatch.setattr(multisets_enumerated, "_TABLE_ENTRIES", table_entries)
    monkeypatch.setattr(multisets_enumerated, "_CHUNK_ENTRIES", 200)
    mechanism = mechanism_of(name, 2.0, 5, 4, "enumeration")
    counts = counts_of(mechanism)
    outcomes = drawn(mechanism, counts, 3000)
    assert audit.audit_sampler(outcomes, law_by_hand(mechanism, counts)).passes


def loosen_bounds(sampler: str, patch: pytest.MonkeyPatch) -> None:
    """Upper bounds up to three times too large, so that coins decide and not only correct."""
    if sampler == "enumeration":
        patch.setattr(multisets_enumerated, "_BITS", 4)
    elif sampler == "nested":
        patch.setattr(
            multisets_nested, "exp_above", lambda x, bits: exp_above(x, bits) * (1 + int(7 * x) % 3)
        )
    else:
        patch.setattr(multisets_searched, "exp_above", lambda x, bits: exp_above(x / 2, bits))


@pytest.mark.usefixtures("weights_once")
@pytest.mark.part
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_rejection_corrects_loose_bounds(sampler, monkeypatch):
    """Without it the law is another: an audit has that mutant."""
    mechanism = mechanism_of("prefixes", 8.0, 7, 3, sampler)
    counts = counts_of(mechanism)
    loosen_bounds(sampler, monkeypatch)
    outcomes = drawn(mechanism, counts, 10_000)
    assert audit.audit_sampler(outcomes, law_by_hand(mechanism, counts)).passes


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("epsilon", [1e-9, 1.0, 1e3, 3e4, 1e9, 1e300])
@pytest.mark.parametrize("total", [0, 3, 10**6, 2**62])
def test_samplers_handle_extreme_epsilons_and_counts(sampler, epsilon, total):
    """Weights all equal, or all but nothing for all but the best, whatever the exact counts."""
    if sampler == "search" and epsilon > 1e5:
        return  # refused
    mechanism = MultisetChoice(prefix_queries(4), epsilon, 3, 3, sampler=sampler)  # type: ignore[arg-type]
    counts = np.array([total, 0, total // 2, 0])
    found = mechanism.draw(counts, Seeded(1))
    assert found.dtype == np.int64 and found.shape == (3,)
    assert (np.diff(found) >= 0).all() and found.min() >= 0 and found.max() < 4
    if epsilon >= 1e3 and total <= 10**6:
        law = law_by_hand(mechanism, counts)
        assert law[tuple(found.tolist())] == max(law.values())


def test_large_budget_gives_accurate_answers():
    counts = np.random.default_rng(1).multinomial(10**6, np.full(64, 1 / 64))
    mechanism = MultisetChoice(prefix_queries(64), 1.0, 10**6, 20)
    cells = mechanism.draw(counts, Seeded(1))
    answers = (prefix_queries(64)[:, cells].sum(axis=1)) / 20
    assert np.abs(answers - np.cumsum(counts)[:-1] / 10**6).max() < 0.05


def test_multisets_of_cells_are_drawn_uniformly():
    cells = np.array([4, 7, 8])
    for size in (1, 2, 4):
        expected = list(combinations_with_replacement(cells.tolist(), size))
        noise = Seeded(size)
        outcomes = [tuple(draw_cells(cells, size, noise)) for _ in range(3000)]
        law = dict.fromkeys(expected, 1 / len(expected))
        assert audit.audit_sampler(outcomes, law).passes


def test_nested_queries_are_told_from_crossed_ones():
    for table in NESTED.values():
        assert is_nested(table)
    for table in CROSSED.values():
        assert not is_nested(table)


def test_size_that_a_refusal_names_is_feasible():
    bits = np.arange(256)[None, :] >> np.arange(8)[:, None] & 1
    assert MultisetChoice(bits, 1.0, 1000, 4).public["sampler"] == "enumeration"
    assert MultisetChoice(prefix_queries(256), 1.0, 1000, 31).public["sampler"] == "nested"
    assert MultisetChoice(bits, 1.0, 1000, 16, sampler="search").public["sampler"] == "search"


def test_scale_is_computed_exactly_and_rounded_up():
    public = MultisetChoice(FOUR * 8, 0.3, 5, 4, 16, 3).public
    assert Fraction(public["selection_scale"]) >= 2 * 4 * 16 * 3 / Fraction(0.3)
    assert public["selection_scale"] == pytest.approx(2 * 4 * 16 * 3 / 0.3, rel=1e-12)


@pytest.mark.part
@pytest.mark.parametrize(
    "queries, size, epsilon, lines",
    [
        (prefix_queries(128), 16, 0.1, 30_000_000),  # 6e20 multisets, nested
        (hierarchy_queries(64), 16, 0.1, 15_000_000),  # 2e16
        (np.random.default_rng(0).integers(0, 2, (32, 64)), 5, 1.0, 4_000_000),  # 1e7, enumerated
    ],
    ids=["prefixes", "hierarchy", "enumeration"],
)
def test_draw_executes_fewer_lines_than_the_limit(queries, size, epsilon, lines):
    num_cells = queries.shape[1]
    shares = np.random.default_rng(1).dirichlet(np.full(num_cells, 0.3))
    counts = np.random.default_rng(2).multinomial(1000, shares)
    mechanism = MultisetChoice(queries, epsilon, 1000, size)
    with lines_below(lines):
        mechanism.draw(counts, Seeded(1))


@pytest.mark.part
@pytest.mark.parametrize("seed", range(3))
def test_search_stays_within_its_line_limit(seed):
    """All one- and two-way marginals of 8 bits, 16 of 256 cells, epsilon n / 2 = 50."""
    bits = np.arange(256) >> np.arange(8)[:, None] & 1
    literals = np.concatenate([bits, 1 - bits])
    pairs = [literals[i] * literals[j] for i in range(16) for j in range(i) if (i - j) != 8]
    queries = np.concatenate([literals, pairs])
    generator = np.random.default_rng(seed)
    counts = generator.multinomial(1000, generator.dirichlet(np.ones(256)))
    mechanism = MultisetChoice(queries, 0.1, 1000, 16, sampler="search")
    with lines_below(10_000_000):
        SearchSampler(mechanism.law(counts)).draw(Seeded(seed))


@pytest.mark.part
def test_search_handles_deep_trees(monkeypatch):
    """More queries of one cell each than calls may be nested: no division by a query is even."""
    monkeypatch.setattr(multisets_law, "_NUM_STEPS", 1)  # tilts are not the point
    mechanism = MultisetChoice(np.eye(1100, dtype=np.int64), 1e-3, 10, 2, sampler="search")
    assert SearchSampler(mechanism.law(np.ones(1100, np.int64))).draw(Seeded(1)).shape == (2,)


@pytest.mark.part
def test_search_finds_the_best_multiset_if_weights_are_far_apart():
    """Also for answers that no multiset comes near."""
    queries = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1]])
    far = [(9e3, each) for each in ([40, 0, 3, 900], [5, 5, 1, 0], [2**50, 3, 2**40, 0])]
    # An excess of 1 in the loss still has a weight of exp(-166); more digits take long.
    for epsilon, counts in [(1e3, [0, 0, 0, 0]), *far]:
        mechanism = MultisetChoice(queries, epsilon, 11, 3, sampler="search")
        found = mechanism.draw(np.array(counts), Seeded(1))
        losses = {
            cells: max(
                abs(3 * int(row.astype(object) @ counts) - 11 * int(row[list(cells)].sum()))
                for row in queries
            )
            for cells in combinations_with_replacement(range(4), 3)
        }
        assert losses[tuple(found.tolist())] == min(losses.values())
