"""What is published of histograms, and of the binary tree of intervals."""

from __future__ import annotations

import functools
import itertools

import numpy as np
from claim_rows.claim import Agreement, Claim, Failures, Slack, failures
from numpy.typing import NDArray

from beam_dp.mechanisms.intervals import plan_intervals, release_intervals
from beam_dp.models.intervals.strategy import TextbookTree
from beam_dp.planning.intervals import intervals_theorem
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.privacy.noise.source import NoiseSource

_BETA = 0.05
_SIZES = (1, 2, 3, 5, 8, 13, 16, 31)


def _all_intervals(size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    low, high = np.triu_indices(size)
    return low.astype(np.int64), high.astype(np.int64)


def _columns(size: int, relation: Neighboring) -> NDArray[np.int64]:
    """The measured sums of one record, shape (size, num_sums)."""
    tree = TextbookTree.build(size, relation)
    return np.stack([tree.measure(row) for row in np.eye(size, dtype=np.int64)])


def _moved(columns: NDArray[np.int64], relation: Neighboring) -> int:
    """The most that neighbours differ by, in L1, by trying all records and pairs of them."""
    if relation is Neighboring.ADD_OR_REMOVE_ONE:
        return int(np.abs(columns).sum(axis=1).max())
    return max(
        int(np.abs(one - other).sum()) for one, other in itertools.product(columns, repeat=2)
    )


def _tree_sensitivity(trials: int) -> Agreement:
    del trials
    differences = []
    for size, relation in itertools.product(_SIZES, Neighboring):
        height = (size - 1).bit_length()
        stated = height + 1 if relation is Neighboring.ADD_OR_REMOVE_ONE else 2 * height
        differences.append(abs(_moved(_columns(size, relation), relation) - stated))
    return Agreement(max(differences), len(differences), "all neighbours")


def _histogram_sensitivity(trials: int) -> Agreement:
    del trials
    cases = [
        abs(_moved(np.eye(size, dtype=np.int64), relation) - relation.num_moved)
        for size, relation in itertools.product(_SIZES[1:], Neighboring)
    ]
    return Agreement(max(cases), len(cases), "all neighbours")


def _nodes(trials: int) -> list[Slack]:
    del trials
    found = []
    for size in (8, 64, 1024):
        tree = TextbookTree.build(size, Neighboring.ADD_OR_REMOVE_ONE)
        low, high = _all_intervals(size)
        most = float(tree.errors.variances(low, high).max())
        height = (size - 1).bit_length()
        found.append(Slack(most, max(1, 2 * height - 2), len(low), "nodes"))
    return found


def _num_intervals(trials: int) -> Agreement:
    del trials
    cases = [
        abs(len({frozenset(range(s, t + 1)) for s in range(d) for t in range(s, d)}) - stated)
        for d in range(1, 20)
        for stated in [d * (d + 1) // 2]
    ]
    return Agreement(max(cases), len(cases), "sets of cells that are different")


def _tree_error(delta: float, size: int, trials: int) -> Failures:
    distribution = "discrete_gaussian" if delta else "discrete_laplace"
    promise = Guarantee(1.0, delta, "add_or_remove_one", "record", 1)
    plan = plan_intervals(size, promise, "textbook_tree", distribution)
    low, high = _all_intervals(size)
    variances = plan.noise_variance * plan.strategy.errors.variances(low, high)
    bound = intervals_theorem(plan, variances, _BETA).bound(10**6).max_error
    zeros, noise = np.zeros(size, np.int64), NoiseSource()
    errors = []
    for _ in range(trials):
        answers = release_intervals(plan, zeros, noise).estimate.answer(low, high)
        errors.append(float(np.abs(answers).max()) / bound)
    return failures(errors, _BETA)


CLAIMS = [
    Claim(
        key="intervals.histogram",
        source="lecture on linear queries",
        statement="one record moves a histogram by 2 in L1",
        printed="2/n: of replacing a record, with n public. Adding or removing one moves a count "
        "by 1, and no share of a private n has a sensitivity that may be used",
        here="counts: 1 for add-or-remove-one, 2 for replace-one",
        measure=_histogram_sensitivity,
    ),
    Claim(
        key="intervals.number",
        source="lecture on linear queries",
        statement="d ordered cells have d (d + 1) / 2 intervals; their queries map X to [0, 1]",
        printed="(d choose 2) intervals, queries that map to {0, 1} and are sums without "
        "division by n; sigma^2 has lost its sigma, and a sum runs over the wrong letter",
        here="`intervals:` workloads",
        measure=_num_intervals,
    ),
    Claim(
        key="intervals.tree_sensitivity",
        source="lecture on linear queries",
        statement="one record moves the nodes of a binary tree over d = 2^h cells by lg d in L1",
        printed="lg d / n hides both constants",
        here="counts: h + 1 for add-or-remove-one; 2 h for replace-one, whose root is public",
        measure=_tree_sensitivity,
    ),
    Claim(
        key="intervals.tree_nodes",
        source="lecture on linear queries",
        statement="every interval is the sum of few nodes of the tree",
        here="at most max(1, 2 h - 2); d of 8, 64 and 1,024",
        measure=_nodes,
    ),
    Claim(
        key="intervals.tree_laplace",
        source="lecture on linear queries; Chan, Shi and Song 2011",
        statement="all intervals from one noisy tree, each with an error of order "
        "lg^1.5(d) ln(1/beta) / epsilon",
        here="`planning.intervals.intervals_theorem`, all intervals at once; d = 64, epsilon 1",
        measure=functools.partial(_tree_error, 0.0, 64),
    ),
    Claim(
        key="intervals.tree_gaussian",
        source="lecture on linear queries",
        statement="the same with Gaussian noise, of order lg(d) sqrt(ln(1/delta)) / epsilon",
        here="the same; d = 64, epsilon 1, delta 1e-9",
        measure=functools.partial(_tree_error, 1e-9, 64),
    ),
]
