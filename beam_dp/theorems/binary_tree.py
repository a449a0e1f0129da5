"""The theorem on a binary tree of noisy counts, and when a histogram is better.

d consecutive cells, padded to 2^h, are the leaves; all nodes of all levels get the same noise. An
interval is the sum of the fewest nodes that make it up.
"""

from __future__ import annotations

import math

import numpy as np

from beam_dp.mechanisms.marginals.measurements import Measurement
from beam_dp.noise.bound import noise_bound
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.theorems.noise import gaussian_deviation
from beam_dp.theorems.theorem import Calibration, Theorem, checked_parameters, constant


def tree_height(num_leaves: int) -> int:
    """Returns h, the least with 2^h >= d.

    Example:
        >>> tree_height(1), tree_height(1000)
        (0, 10)
    """
    checked_parameters(counts={"num_leaves": num_leaves}, reals={})
    return (num_leaves - 1).bit_length()


def tree_sensitivities(num_leaves: int, neighboring: Neighboring) -> tuple[float, float]:
    """Returns how much one record moves the noisy nodes together, in L1 and in L2.

    Under add-or-remove-one a record moves one node of each of h + 1 levels. Under replace-one the
    root is the public number of records and gets no noise; two nodes of each other level move.

    Example:
        >>> tree_sensitivities(1000, Neighboring.ADD_OR_REMOVE_ONE)[0]
        11.0
        >>> tree_sensitivities(1000, Neighboring.REPLACE_ONE)[0]
        20.0
    """
    height = tree_height(num_leaves)
    moved = height + 1 if neighboring is Neighboring.ADD_OR_REMOVE_ONE else 2 * height
    return float(moved), math.sqrt(moved)


def max_interval_nodes(num_leaves: int) -> int:
    """Returns the most nodes that an interval needs.

    Example:
        >>> max_interval_nodes(1), max_interval_nodes(8), max_interval_nodes(1000)
        (1, 4, 18)
    """
    return max(1, 2 * tree_height(num_leaves) - 2)


def mean_interval_nodes(num_leaves: int) -> float:
    """Returns the nodes of an interval, averaged over all d (d + 1) / 2 of them.

    A node is used where the interval holds it and not its parent.

    Cost: O(num_leaves).

    Example:
        >>> round(mean_interval_nodes(1024), 2)
        8.01
    """
    height = tree_height(num_leaves)
    used = 0.0
    for level in range(height + 1):
        held = _num_intervals_around(num_leaves, 2**level)
        used += float(held.sum())
        if level < height:
            # Both children of a parent that the interval holds too are not used themselves; the
            # padding's are no part of any interval.
            used -= 2 * float(_num_intervals_around(num_leaves, 2 ** (level + 1)).sum())
    return used / (num_leaves * (num_leaves + 1) / 2)


def tree_node_deviation(
    num_leaves: int, guarantee: Guarantee, calibration: Calibration = "tight"
) -> float:
    """Returns the standard deviation of a node's noise, in records.

    Laplace noise where delta is 0, else Gaussian noise calibrated as ``gaussian_deviation`` says;
    0 where no node gets noise: one leaf under replace-one.
    """
    l1_sensitivity, l2_sensitivity = tree_sensitivities(num_leaves, guarantee.neighboring)
    if l1_sensitivity == 0:
        return 0.0
    records = guarantee.max_records_per_unit
    if guarantee.delta == 0:
        return _laplace(l1_sensitivity * records / guarantee.epsilon)
    deviation = gaussian_deviation(guarantee.epsilon, guarantee.delta, calibration)
    return l2_sensitivity * records * deviation


def expected_tree_error(
    num_leaves: int, guarantee: Guarantee, calibration: Calibration = "tight"
) -> float:
    """Returns the root mean squared error of an interval, over all intervals, in records.

    Under replace-one the interval of everything is exact, which is left out of account.

    Example:
        >>> promise = Guarantee(1.0, 0, "add_or_remove_one", "record", 1)
        >>> round(expected_tree_error(1024, promise), 3)
        44.022
    """
    deviation = tree_node_deviation(num_leaves, guarantee, calibration)
    return deviation * math.sqrt(mean_interval_nodes(num_leaves))


def expected_histogram_error(
    num_leaves: int, guarantee: Guarantee, calibration: Calibration = "tight"
) -> float:
    """Returns the same error where an interval is summed from noisy cells.

    Example:
        >>> promise = Guarantee(1.0, 0, "add_or_remove_one", "record", 1)
        >>> round(expected_histogram_error(1024, promise), 4)
        25.0946
    """
    checked_parameters(counts={"num_leaves": num_leaves}, reals={})
    moved = guarantee.neighboring.num_moved
    records = guarantee.max_records_per_unit
    if guarantee.delta == 0:
        deviation = _laplace(moved * records / guarantee.epsilon)
    else:
        sigma = gaussian_deviation(guarantee.epsilon, guarantee.delta, calibration)
        deviation = math.sqrt(moved) * records * sigma
    return deviation * math.sqrt((num_leaves + 2) / 3)


def tree_theorem(
    num_leaves: int,
    guarantee: Guarantee,
    failure_probability: float,
    calibration: Calibration = "tight",
) -> Theorem:
    """Returns how wrong a binary tree can be about any interval.

    Accuracy: with probability 1 - beta over all d (d + 1) / 2 intervals at once, by the tails of
    sums of at most 2h - 2 noises.

    Raises:
        InputError: if an argument is out of range.

    Reference: Dwork, Naor, Pitassi and Rothblum (2010); Chan, Shi and Song (2011).
    """
    checked_parameters(
        failure_probability=failure_probability, counts={"num_leaves": num_leaves}, reals={}
    )
    deviation = tree_node_deviation(num_leaves, guarantee, calibration)
    error = 0.0
    if deviation:
        error = noise_bound(
            max_interval_nodes(num_leaves) * deviation**2,
            num_leaves * (num_leaves + 1) // 2,
            deviation**2 if guarantee.delta == 0 else None,
            failure_probability,
        )
    return Theorem(
        "binary tree: union bound over intervals", constant(failure_probability), constant(error)
    )


def _num_intervals_around(
    num_leaves: int, width: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """For each node of a width that has no padding: how many intervals hold all of it."""
    starts = np.arange(0, num_leaves - width + 1, width, dtype=np.float64)
    return (starts + 1) * (num_leaves - starts - width + 1)


def _laplace(scale: float) -> float:
    """The standard deviation of discrete Laplace noise."""
    return math.sqrt(Measurement((), "table", "discrete_laplace", scale).variance)
