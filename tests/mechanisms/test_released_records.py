"""Records of a tree follow the tree, also in pairs of attributes that no table of it holds."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from tiny import domain_of

from beam_dp.mechanisms.marginals.measurements import closure_of
from beam_dp.mechanisms.marginals.released_records import tree_release
from beam_dp.models.record_moves import Target
from beam_dp.models.tree_basis import TreeBasis

SIZES = (6, 5, 7, 4, 6)
NUM_RECORDS = 4000
Pair = tuple[int, int]


def strayed(pairs: list[Pair], asked: list[Pair], seed: int) -> float:
    """The total variation of the records in the pairs that are asked for, on average."""
    rng = np.random.default_rng(seed)
    domain = domain_of(*SIZES)
    basis = TreeBasis(SIZES, closure_of([(0, 1), (1, 2), (2, 3), (3, 4)]), [])
    log_weights = rng.normal(0, 2, basis.num_coefficients)
    (table,) = basis.marginals(log_weights, [(0, 4)])
    # A measured table outside the tree, which says something else than the tree.
    loose = [Target((0, 4), rng.dirichlet(np.ones(table.size)).reshape(table.shape), 1.0)]
    loose = [Target(each.axes, each.table * NUM_RECORDS, 1.0) for each in loose]
    codes, counts = tree_release(domain, basis, log_weights, NUM_RECORDS, loose, pairs)
    found = []
    for (first, second), fitted in zip(asked, basis.marginals(log_weights, asked), strict=True):
        held = np.zeros(fitted.shape)
        np.add.at(held, (codes[first], codes[second]), counts)
        found.append(np.abs(held / NUM_RECORDS - fitted).sum() / 2)
    return float(np.mean(found))


def test_records_stay_close_to_requested_pairs():
    asked = [pair for pair in combinations(range(5), 2) if pair not in {(0, 4)}]
    seeds = range(4)
    alone = np.mean([strayed([], asked, seed) for seed in seeds])
    kept = np.mean([strayed(asked, asked, seed) for seed in seeds])
    assert kept < 0.75 * alone
