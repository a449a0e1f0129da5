"""The errors and the time of a release that selects pairs, predicted from public numbers.

Nothing is known of the records, so a model takes their place. Frequencies of levels follow a power
law. A count deviates from independence as in a sample, and by a tenth of itself. Each deviation is
estimated from its noisy measurement by the best linear shrinkage. So what is too noisy to measure
keeps its own deviation as its error, and no choice of pairs needs to be simulated.

Accuracy: ``benchmarks/planned.py`` compares predictions with released records.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from beam_dp.mechanisms.marginals import plan as plans
from beam_dp.mechanisms.marginals.selection import SelectionPlan
from beam_dp.models.basis import Support
from beam_dp.privacy.noise.bound import MEAN_ABSOLUTE
from beam_dp.releases.synthetic_database.measured_tables import support_variances

# Of the power law.
_EXPONENT = 1.25
# The relative deviations of counts that a sample does not explain, by the number of attributes:
# those of one attribute may be anything, and those of three and more are weak.
_DEVIATIONS = {1: 1.0, 2: 0.1}
# Tables with the same public numbers have different errors: the largest over the smallest.
RANGE_RATIO = 3.0
# Limits of cells, in groups of levels, and of marginals that stand for all of a workload.
_MOST_CELLS, _MOST_MARGINALS = 2**12, 400
# Processor seconds: for a cell of a pair; more for it, and for an attribute, if a tree is large;
# for a triple; and for a pair of weighted candidates.
_CELL_SECONDS, _TREE_CELL_SECONDS, _ATTRIBUTE_SECONDS = 4.5e-5, 7e-5, 0.22
_TRIPLE_SECONDS, _CANDIDATES_SECONDS = 1.9e-3, 0.3
# A tree is large from this ratio of the mean count of a pair's cell to the noise.
_LARGE_TREE = 4.0


def range_of(error: float, largest: float = math.inf) -> tuple[float, float]:
    """Returns the range of errors of usual tables around a predicted error."""
    low = min(error / math.sqrt(RANGE_RATIO), largest)
    return low, min(RANGE_RATIO * low, largest)


def selection_errors(plan: SelectionPlan, num_records: int) -> tuple[float, float]:
    """Returns the errors that are predicted for released records, averaged over the workload.

    They are the root mean squared error of a cell, in records, and the total variation distance of
    a marginal from the true one, at most 1.
    """
    domain, workload = plan.domain, plan.workload
    step = -(-len(workload) // _MOST_MARGINALS)
    marginals = [
        tuple(axis for axis in domain.axes(names) if domain.shape[axis] > 1)
        for names in workload.marginals[::step]
    ]
    # Triples are rarely measured.
    measured = [table for table in plan.most_measured if len(table.names) < 3]
    parts = {part for axes in marginals for part in _parts(axes)}
    variances = support_variances(domain, parts, measured, plan.total_is_public)
    alike: dict[tuple[tuple[int, ...], tuple[float, ...]], float] = defaultdict(float)
    for axes, weight in zip(marginals, workload.weights[::step], strict=True):
        sizes = tuple(domain.shape[axis] for axis in axes)
        alike[sizes, tuple(variances[part] for part in _parts(axes))] += weight
    errors = [_errors(num_records, sizes, noise) for sizes, noise in alike]
    square, distance = np.average(errors, axis=0, weights=[*alike.values()])
    return math.sqrt(square), min(float(distance), 1.0)


def selection_seconds(plan: SelectionPlan, num_records: int) -> float:
    """Returns about the processor time of a draw: of choosing, measuring, the fit and records."""
    shape, num_pairs = plan.domain.shape, len(plan.pairs)
    cells = sum(shape[first] * shape[second] for first, second in plan.pairs)
    seconds = _CELL_SECONDS * cells + _TRIPLE_SECONDS * len(plan.triples)
    if num_records > plans.MAX_CANDIDATES:
        return seconds + _CANDIDATES_SECONDS * num_pairs
    variance = np.median([table.variance for table in plan.most_measured if len(table.names) == 2])
    signal = num_records * num_pairs / cells / math.sqrt(variance)
    of_tree = _TREE_CELL_SECONDS * cells + _ATTRIBUTE_SECONDS * len(shape)
    return seconds + min(1.0, math.sqrt(signal / _LARGE_TREE)) * of_tree


def _parts(axes: Sequence[int]) -> list[Support]:
    return [part for size in range(1, len(axes) + 1) for part in combinations(axes, size)]


def _errors(
    num_records: int, sizes: Sequence[int], variances: Sequence[float]
) -> tuple[float, float]:
    """Returns the mean squared error of a cell of a marginal, and its total variation.

    ``variances``: of the noise of the deviations of ``_parts``, in squared records; may be inf.
    """
    number = len(sizes)
    groups = [_levels(size, int(_MOST_CELLS ** (1 / number))) for size in sizes]

    def product(part: Sequence[int], place: int) -> NDArray[np.float64]:
        """Returns a product over some axes, of one of the arrays of ``_levels``."""
        arrays = (groups[axis][place] if axis in part else np.ones(1) for axis in range(number))
        return reduce(np.multiply, np.ix_(*arrays))

    counts, levels = num_records * product(range(number), 0), product(range(number), 1)
    relative = np.zeros_like(counts)
    for part, variance in zip(_parts(range(number)), variances, strict=True):
        expected = num_records * product(part, 0)
        own = product(part, 2) * (1 / expected + _DEVIATIONS.get(len(part), 0.0) ** 2)
        relative += 1 / (expected**2 / variance + 1 / own)
    squares = np.minimum(counts**2 * relative, counts + 2 * counts**2)
    absolute = np.minimum(MEAN_ABSOLUTE * counts * np.sqrt(relative), 2 * counts)
    square = float((levels * squares).sum()) / math.prod(sizes)
    return square, float((levels * absolute).sum()) / (2 * num_records)


def _levels(size: int, most: int) -> tuple[NDArray[np.float64], ...]:
    """Returns, for groups of levels, the share of a level, the levels, and the rest of a share."""
    edges = np.unique(np.rint(np.geomspace(1, size + 1, most + 1))) - 0.5
    masses = -np.diff(edges ** (1 - _EXPONENT))
    numbers = np.diff(edges)
    shares = masses / masses.sum() / numbers
    return shares, numbers, 1 - shares
