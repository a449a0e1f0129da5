"""Records from a junction tree or an array, their moves, and candidates for records."""

import dataclasses
import math
from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
from tiny import domain_of

from beam_dp.domain.impossible import Impossible
from beam_dp.models import candidates, rounding, rounding as record_moves
from beam_dp.models.basis import MarginalCoefficients
from beam_dp.models.candidates import CandidateBasis, _distinct, candidate_basis, record_table
from beam_dp.models.junction_tree import JunctionTree, tree_marginals, tree_records
from beam_dp.models.maximum_entropy import NoisyCoefficients
from beam_dp.models.residual_basis import ResidualBasis
from beam_dp.models.rounding import Target, improve_records, round_systematically, round_to_records
from beam_dp.models.tree_basis import TreeBasis

Axes = tuple[int, ...]

SHAPE = (6, 5, 4, 3, 2, 7, 70)
SETS: list[Axes] = [(0, 1), (1, 2), (2, 3, 4), (5,), (4, 6)]
PAIRS = list(combinations(range(len(SHAPE)), 2))


def table_of(codes: np.ndarray, axes: Axes, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    cells = np.zeros(codes.shape[1], dtype=np.int64)
    for axis in axes:
        cells = cells * shape[axis] + codes[axis]
    sizes = [shape[axis] for axis in axes]
    return np.bincount(cells, minlength=math.prod(sizes)).reshape(sizes)


def calibrated(seed: int = 0, size: float = 1.0, share_forbidden: float = 0.0) -> JunctionTree:
    rng = np.random.default_rng(seed)
    tree = JunctionTree(SHAPE, SETS)
    potentials = []
    for axes in SETS:
        table = size * rng.normal(size=[SHAPE[axis] for axis in axes])
        forbidden = rng.random(table.shape) < share_forbidden
        forbidden[(0,) * table.ndim] = False
        potentials.append(np.where(forbidden, -np.inf, table))
    tree.calibrate(potentials)
    return tree


def targets_of(tree: JunctionTree, num_records: int, sets: list[Axes]) -> list[Target]:
    tables = tree_marginals(tree, sets)
    return [
        Target(axes, num_records * table, 1 / table.size)
        for axes, table in zip(sets, tables, strict=True)
    ]


def error_of(codes: np.ndarray, targets: list[Target]) -> float:
    return math.sqrt(
        sum(
            each.weight * ((table_of(codes, each.axes) - each.table) ** 2).sum() for each in targets
        )
    )


@pytest.mark.parametrize("num_records", [0, 1, 2, 50, 20000])
@pytest.mark.parametrize("size", [0.0, 1.0, 200.0])
def test_tree_records_are_valid_and_deterministic(num_records, size):
    tree = calibrated(size=size)
    codes = tree_records(tree, num_records)
    assert codes.shape == (len(SHAPE), num_records) and codes.dtype == np.int32
    assert (codes >= 0).all() and (codes < np.array(SHAPE)[:, None]).all()
    assert (tree_records(tree, num_records) == codes).all()


def drawn_records(tree: JunctionTree, num_records: int) -> np.ndarray:
    """Independent draws from the whole domain."""
    (joint,) = tree_marginals(tree, [tuple(range(len(SHAPE)))])
    cells = np.random.default_rng(1).choice(joint.size, num_records, p=joint.ravel())
    return np.array(np.unravel_index(cells, SHAPE))


@pytest.mark.parametrize("seed", range(5))
def test_tree_records_have_smaller_errors_than_random_draws(seed):
    tree = calibrated(seed)
    inside = [axes for axes in SETS if len(axes) > 1]
    codes, drawn = tree_records(tree, 5000), drawn_records(tree, 5000)
    targets = targets_of(tree, 5000, inside)
    assert error_of(codes, targets) < 0.3 * error_of(drawn, targets)
    # Pairs that only the tree's independences determine are no worse than draws.
    cliques = [set(clique.axes) for clique in tree.cliques]
    across = targets_of(
        tree, 5000, [axes for axes in PAIRS if not any(each >= set(axes) for each in cliques)]
    )
    assert error_of(codes, across) < 1.2 * error_of(drawn, across)


@pytest.mark.parametrize("seed", range(5))
def test_tree_records_avoid_impossible_cells(seed):
    tree = calibrated(seed, share_forbidden=0.4)
    codes = tree_records(tree, 5000)
    wanted = targets_of(tree, 5000, SETS)
    forbidden = [(each.axes, each.table == 0) for each in wanted]
    for axes, cells in forbidden:
        assert not table_of(codes, axes)[cells].any()
    # Not even targets that ask for it move one there.
    wrong = [
        Target(axes, np.full(cells.shape, 5000 / cells.size), 1.0) for axes, cells in forbidden
    ]
    improve_records(SHAPE, codes, wrong, 0.0, impossible=forbidden)
    for axes, cells in forbidden:
        assert not table_of(codes, axes)[cells].any()


@pytest.mark.parametrize("num_records", [1, 10, 300, pytest.param(20000, marks=pytest.mark.part)])
def test_moves_lower_the_error_and_report_it(num_records):
    tree = calibrated()
    codes = tree_records(tree, num_records)
    targets = targets_of(tree, num_records, PAIRS)
    before = error_of(codes, targets)
    found = improve_records(SHAPE, codes, targets, 0.0)
    assert found == pytest.approx(error_of(codes, targets), rel=1e-6, abs=1e-6)
    assert found <= before
    assert (codes >= 0).all() and (codes < np.array(SHAPE)[:, None]).all()
    if num_records == 20000:
        assert found < 0.15 * before


@pytest.mark.parametrize("num_records", [3, 200])
def test_listed_and_dense_changes_make_the_same_moves(num_records, monkeypatch):
    tree = calibrated()
    targets = targets_of(tree, num_records, PAIRS)
    found = []
    for never_or_always_listed in (math.inf, 0):
        monkeypatch.setattr(record_moves, "_SPARSE", never_or_always_listed)
        codes = tree_records(tree, num_records)
        error = improve_records(SHAPE, codes, targets, 0.0)
        assert error == pytest.approx(error_of(codes, targets), rel=1e-6, abs=1e-6)
        found.append(codes)
    assert (found[0] == found[1]).all()
    assert (found[0] != tree_records(tree, num_records)).any()


def test_moves_stop_at_the_wanted_error():
    tree = calibrated()
    codes = tree_records(tree, 5000)
    copy = codes.copy()
    targets = targets_of(tree, 5000, PAIRS)
    improve_records(SHAPE, codes, targets, 1e9)
    assert (codes == copy).all()
    wanted = 0.5 * error_of(codes, targets)
    assert wanted / 5 < improve_records(SHAPE, codes, targets, wanted) <= wanted


def test_tree_records_and_moves_handle_single_code_and_disconnected_attributes():
    shape = (1, 3, 1, 2)
    tree = JunctionTree(shape, [(0, 1)])
    tree.calibrate([np.zeros((1, 3))])
    codes = tree_records(tree, 600)
    assert np.abs(table_of(codes, (1, 3), shape) - 100).max() <= 10
    targets = [Target((1, 3), np.full((3, 2), 100.0), 1.0)]
    assert improve_records(shape, codes, targets, 0.0) <= 2


@pytest.mark.filterwarnings("error")
def test_record_moves_for_a_gain_near_the_smallest_float32():
    codes = np.zeros((1, 1), np.int32)
    improve_records((2,), codes, [Target((0,), np.array([0.0, 1.0]), 1e-44)], 0.0)
    assert codes.tolist() == [[1]]


@pytest.mark.parametrize("slack", [None, 20.0])
def test_moves_for_other_tables_leave_a_table_within_its_slack(slack):
    # The first attribute equals the second, which says nothing of the third; a wrong table says
    # that the first also equals the third.
    codes = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [0, 1, 0, 1]], np.int32).repeat(500, axis=1)
    equal, independent = np.diag([1000.0, 1000.0]), np.full((2, 2), 500.0)
    limits = None if slack is None else np.minimum(equal, slack)
    targets = [
        Target((0, 1), equal, 1.0, limits),
        Target((0, 2), equal, 1.0),
        Target((1, 2), independent, 1.0),
    ]
    improve_records((2, 2, 2), codes, targets, 0.0)
    away = np.abs(table_of(codes, (0, 1), (2, 2, 2)) - equal).max()
    assert away > 150 if slack is None else away <= 3 * slack
    assert slack is None or np.diag(table_of(codes, (0, 2), (2, 2, 2))).min() > 500


CELLS = (3, 4, 2, 5)
SUPPORTS = [s for size in range(3) for s in combinations(range(4), size)]


def weights_of(kind: str, num_cells: int) -> np.ndarray:
    rng = np.random.default_rng(7)
    made = {
        "uniform": np.ones(num_cells),
        "random": rng.gamma(1.0, size=num_cells),
        "skewed": rng.gamma(0.02, size=num_cells) + 1e-300,
        "one cell": np.eye(num_cells)[num_cells // 2],
        "last cell": np.eye(num_cells)[-1],
        "tiny": rng.gamma(1.0, size=num_cells) * 1e-200,
    }[kind]
    return made / made.sum()


def error_of_table(basis: ResidualBasis, weights: np.ndarray, rounded: np.ndarray) -> float:
    return float((basis.analyse(rounded - weights * rounded.sum()) ** 2).sum())


KINDS = ("uniform", "random", "skewed", "one cell", "last cell", "tiny")


@pytest.mark.parametrize("kind", KINDS)
def test_systematic_rounding_stays_within_one_on_every_prefix(kind):
    for num_records in (0, 1, 2, 7, 1000, 10**9, 2**40):
        for num_cells in (1, 2, 120):
            weights = weights_of(kind, num_cells)
            counts = round_systematically(weights, num_records)
            assert counts.dtype == np.int64 and counts.sum() == num_records and (counts >= 0).all()
            error = np.cumsum(counts) - np.cumsum(weights) / weights.sum() * num_records
            assert np.abs(error).max() <= 0.5 + 1e-3
            assert not counts[weights < 1e-9 / max(num_records, 1)].any()


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_keeps_the_sum_and_is_no_worse_than_systematic_sampling(kind):
    basis = ResidualBasis(CELLS, SUPPORTS)
    weights, importance = weights_of(kind, basis.num_cells), np.ones(basis.num_coefficients)
    for num_records in (0, 1, 2, 50, 5000, 10**9, 2**40):
        counts = round_to_records(basis, weights, num_records, importance, 0.0)
        assert counts.dtype == np.int64 and counts.sum() == num_records and (counts >= 0).all()
        systematic = round_systematically(weights, num_records)
        error, other = (error_of_table(basis, weights, each) for each in (counts, systematic))
        assert error <= other * (1 + 1e-9) + 1e-9
        again = round_to_records(basis, weights, num_records, importance, 0.0)
        assert (again == counts).all()


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2,) * 17, (70, 2, 3, 90)])
def test_moving_single_records_lowers_the_error_after_corrections(shape, monkeypatch):
    basis = ResidualBasis(shape, SUPPORTS)
    weights = np.random.default_rng(7).gamma(1.0, size=basis.num_cells)
    importance = np.ones(basis.num_coefficients)
    weights /= weights.sum()

    def error() -> float:
        return error_of_table(
            basis, weights, round_to_records(basis, weights, 2000, importance, 0.0)
        )

    moved = error()
    monkeypatch.setattr(rounding, "_MAX_ROUNDS", 0)
    assert moved < 0.8 * error()


# Candidates that are all cells of a domain describe the same distributions as arrays of it.


SHAPES = [(2, 3, 4, 2), (70, 2, 3), (1, 3, 2), (5,)]


def supports_of(shape, ways=2):
    axes = range(len(shape))
    return [s for k in range(min(ways, len(shape)) + 1) for s in combinations(axes, k)]


def all_cells(shape, ways=2):
    codes = np.array(list(product(*map(range, shape))), dtype=np.int32).T
    return CandidateBasis(shape, supports_of(shape, ways), codes, np.zeros(codes.shape[1]))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ways", [1, 2, 3])
def test_moments_and_marginals_over_all_cells_equal_those_of_a_tree(shape, ways):
    basis, tree = all_cells(shape, ways), TreeBasis(shape, supports_of(shape, ways))
    log_weights = np.random.default_rng(1).normal(size=basis.num_coefficients)
    log_sum, moments = basis.log_moments(log_weights)
    expected_sum, expected = tree.log_moments(log_weights)
    assert log_sum == pytest.approx(expected_sum)
    np.testing.assert_allclose(moments, expected, atol=1e-12)
    wanted = supports_of(shape, 3)
    for found, table in zip(
        basis.marginals(log_weights, wanted), tree.marginals(log_weights, wanted), strict=True
    ):
        np.testing.assert_allclose(found, table, atol=1e-12)


@pytest.mark.parametrize(("least", "kept"), [(1, 3_000), (3_001, 4_500), (9_000, 9_000)])
def test_fit_begins_with_enough_candidates(least, kept, monkeypatch):
    """A noise that is small against the records of a candidate needs more of them."""
    monkeypatch.setattr(candidates, "_FEW_CANDIDATES", 3_000)
    codes = np.array(np.unravel_index(np.arange(9_000), (90, 100)), np.int32)
    basis = CandidateBasis((90, 100), [(), (0,), (1,)], codes, np.zeros(9_000))
    few = basis.thinned(least)
    assert few.codes.shape == (2, kept) and (few is basis) == (kept == 9_000)


def test_candidate_with_base_weight_2_counts_like_two_candidates():
    """A candidate of base 2 weighs as much as two candidates of base 1."""
    shape, codes = (2, 3), np.array([[0, 1, 1], [2, 0, 1]], dtype=np.int32)
    basis = CandidateBasis(shape, supports_of(shape), codes, np.log([2.0, 1.0, 1.0]))
    np.testing.assert_allclose(basis.weights(np.zeros(basis.num_coefficients)), [0.5, 0.25, 0.25])
    assert basis.log_moments(np.zeros(basis.num_coefficients))[0] == pytest.approx(math.log(4))


def observed_of(domain, counts, deviation):
    """Returns exact coefficients of all pairs of a table, with a noise that they do not have."""
    layout = MarginalCoefficients(domain.shape, supports_of(domain.shape))
    codes = np.array(np.unravel_index(np.arange(counts.size), domain.shape), dtype=np.int32)
    cells = CandidateBasis(domain.shape, layout.supports, codes, np.zeros(counts.size))
    variances = np.full(layout.num_coefficients, deviation**2)
    return layout, NoisyCoefficients(cells.analyse(counts.ravel()), variances)


def drawn(domain, counts, number=2**14):
    layout, observed = observed_of(domain, counts, 1.0)
    ones = np.ones(layout.num_coefficients)
    total = float(counts.sum())
    return candidate_basis(domain, layout.supports, observed, total, ones, ones, number)


def dependent(domain, seed=0):
    """Returns a table in which the first attributes go together."""
    rng = np.random.default_rng(seed)
    counts = rng.uniform(size=domain.shape)
    counts[0, 0] *= 30
    counts[1, 1] *= 30
    return np.round(counts * 1e6 / counts.sum())


def test_base_weights_of_candidates_give_uniform_tables():
    """Importance sampling: with base weights alone every cell of a pair has its own share."""
    domain = domain_of(3, 4, 5, 6)
    basis = drawn(domain, dependent(domain))
    uniform = basis.weights(np.zeros(basis.num_coefficients))
    for axes in combinations(range(4), 2):
        table = record_table(domain.shape, basis.codes, uniform, axes)
        np.testing.assert_allclose(table, 1 / table.size, rtol=0.2)


def test_candidates_are_distinct_and_the_same_for_the_same_noise():
    domain = domain_of(3, 4, 5, 6)
    first, again = (drawn(domain, dependent(domain)) for _ in range(2))
    assert (first.codes == again.codes).all()
    assert len({*map(tuple, first.codes.T.tolist())}) == first.codes.shape[1]


def test_impossible_combinations_have_no_candidate():
    impossible = (Impossible((0, 1), (((0, 1),), ((2, 4),))), Impossible((2, 3), (((1, 3),),) * 2))
    domain = dataclasses.replace(domain_of(3, 4, 5, 6), impossible=impossible)
    counts = dependent(domain)
    cells = list(np.indices(domain.shape))
    # Records of impossible combinations are left out before they are counted.
    counts[impossible[0].matches(cells) | impossible[1].matches(cells)] = 0
    basis = drawn(domain, counts)
    assert basis.codes.shape[1] > 100
    assert not any(each.matches(list(basis.codes)).any() for each in impossible)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.part) for seed in range(1, 5))]
)
def test_rounding_of_candidates_keeps_tables_better_than_systematic_rounding(seed):
    domain = domain_of(3, 4, 5, 6)
    basis = drawn(domain, dependent(domain))
    weights = basis.weights(np.random.default_rng(seed).normal(size=basis.num_coefficients))
    importance = np.ones(basis.num_coefficients)

    def largest_error(counts, num_records):
        return np.abs(basis.analyse(counts - num_records * weights)).max()

    for num_records in (0, 1, 500, 10**9):
        counts = round_to_records(basis, weights, num_records, importance, 0.0)
        assert counts.sum() == num_records and counts.min() >= 0
        if num_records >= 500:
            systematic = np.diff(np.round(np.cumsum(num_records * weights)), prepend=0)
            # The largest ratio of 120 other weights and numbers was 0.69.
            assert largest_error(counts, num_records) < 0.8 * largest_error(systematic, num_records)


@pytest.mark.parametrize("shape", [(3, 4), (2**31, 2**31, 3, 2**30, 2)])
def test_distinct_records_of_any_domain_are_in_ascending_order(shape):
    rng = np.random.default_rng(5)
    few = np.stack([rng.integers(0, size, 3) for size in shape]).astype(np.int32)
    codes = few[:, rng.integers(0, 3, 50)]
    found, copies = _distinct(shape, codes)
    expected = Counter(map(tuple, codes.T.tolist()))
    assert [*map(tuple, found.T.tolist())] == sorted(expected)
    assert copies.tolist() == [expected[each] for each in sorted(expected)]
