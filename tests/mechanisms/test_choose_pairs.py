"""Which pairs a selection measures, and which of them one tree joins."""

import numpy as np
import pytest
from noise_sources import Seeded
from tiny import ADD, APPROXIMATE, domain_of, on_trees, plan_of, promise, summary, workload_of

from beam_dp.mechanisms.marginals import pair_scores as pair_scores_module
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.mechanisms.marginals.plan import growing_tree, tree_cells
from beam_dp.mechanisms.marginals.selection import pair_weights
from beam_dp.queries.workload import Workload


def test_dependent_pairs_are_joined():
    """Two pairs are tied together, all else is independent; the tree has room for no third."""
    domain = domain_of(3, 3, 2, 2)
    tied = np.einsum("ab,cd->abcd", np.eye(3) * 100, np.eye(2)).astype(np.int64).ravel()
    with on_trees(9 + 4):
        plan = plan_of(MWEM(), workload_of(domain, 2), promise(ADD, APPROXIMATE, 2.0), 600)
        release = MWEM().release(plan, summary(plan, tied), Seeded(3))
    assert sorted(names for names, _ in release.potentials) == [("a0", "a1"), ("a2", "a3")]
    assert release.fit["num_joined_pairs"] == 2


def test_pairs_that_exceed_the_tree_limit_are_measured_outside_it():
    """These pairs fit a tree that grows one by one; triangulated at once they need a larger one."""
    domain = domain_of(3, 2, 5, 2, 3)
    pairs = [(0, 2), (2, 3), (1, 4), (3, 4), (1, 2), (0, 4)]
    limit = 96
    tree = growing_tree(domain, limit)
    assert all(tree.join(pair) for pair in pairs) and tree.num_cells <= limit
    assert tree_cells(domain, pairs) > limit
    with on_trees(limit):
        joined, loose = pair_scores_module._joined_and_loose(
            domain, pairs, dict.fromkeys(pairs, 1.0), len(pairs)
        )
    assert tree_cells(domain, joined) <= limit
    assert loose and joined + loose == pairs


@pytest.mark.parametrize("heavy", [("a0", "a1"), ("a2", "a3")])
def test_joins_the_pair_of_more_weight(heavy):
    """Two pairs are tied equally, and the tree has room for one of them."""
    domain = domain_of(3, 3, 3, 3)
    tied = np.einsum("ab,cd->abcd", np.eye(3) * 20, np.eye(3)).astype(np.int64).ravel()
    pairs = workload_of(domain, 2).marginals
    workload = workload_of(domain, 2, [3.0 if each == heavy else 1.0 for each in pairs])
    with on_trees(9 + 3 + 3):
        plan = plan_of(MWEM(), workload, promise(ADD, APPROXIMATE, 2.0), int(tied.sum()))
        release = MWEM().release(plan, summary(plan, tied), Seeded(3))
    assert [names for names, _ in release.potentials if len(names) > 1] == [heavy]


def test_weight_of_a_pair_is_that_of_all_marginals_around_it():
    domain = domain_of(2, 2, 2)
    workload = Workload(domain, (("a0", "a1", "a2"), ("a1", "a0"), ("a2",)), (0.5, 4.0, 8.0))
    assert pair_weights(workload) == {(0, 1): 4.5, (0, 2): 0.5, (1, 2): 0.5}
