"""Learns how strongly a fit should hold back each group of coefficients, by post-processing.

A pair of ordered attributes depends on each other in large blocks of codes much more than code by
code, and some pairs depend on each other much more than others. With one penalty for all
coefficients, a fit holds back the strong ones too much and lets noise into the weak ones. So the
coefficients of a support are grouped by the sizes of the blocks that they compare. Quick fits tell
how large the log-weights of each group are, and the penalty of a group falls with their size. Codes
without a meaningful order give groups of similar sizes, which then share one penalty.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from beam_dp.models.basis import Coefficients, contrast_levels

# A group's mean square counts as if it had this many more coefficients, with the mean square of its
# whole support; and a support's, with that of all supports of as many attributes.
_SUPPOSED = 2.0
# Penalties fall with these powers of the mean square: of a group relative to its support, and of a
# support relative to all. The path of a fit applies penalties several times, so that the power 1,
# which is best for a single step, would be too much. Of supports, the strongest ones are nearly
# functions of each other, whose log-weights have no usual size.
_GROUP_POWER, _SUPPORT_POWER = 0.5, 0.25
_LARGEST_FACTOR = 30.0
_LEAST_SHARE = 1e-6  # of the largest mean square: what is smaller counts as this


class PenaltyGroups:
    """Groups of the coefficients of a fit; every group gets one factor for its penalties.

    ``chosen``: the positions of the fitted coefficients in the basis, ascending.
    """

    def __init__(self, basis: Coefficients, chosen: NDArray[np.int64]) -> None:
        groups = np.full(basis.num_coefficients, -1)
        scales = np.ones(basis.num_coefficients)
        supports: list[int] = []  # of each group, a number
        orders: list[int] = []  # of each support
        for support, where in basis.slices.items():
            # The path starts from the attributes, which have penalties of their own.
            if len(support) < 2 or where.start == where.stop:
                continue
            bands = np.zeros(1, dtype=np.int64)
            for axis in support:
                levels = contrast_levels(basis.shape[axis])
                bands = (bands[:, None] * (levels.max() + 1) + levels).ravel()
            found, own = np.unique(bands, return_inverse=True)
            groups[where] = len(supports) + own
            scales[where] = basis.cells_summed(support) ** -0.5
            supports += [len(orders)] * len(found)
            orders.append(len(support))
        self._scales, self._grouped = scales[chosen], groups[chosen] >= 0
        self._groups = groups[chosen][self._grouped]
        self._supports = np.array(supports, dtype=np.int64)
        self._orders = np.array(orders, dtype=np.int64)

    @property
    def exist(self) -> bool:
        """Whether any coefficient is in a group."""
        return len(self._groups) > 0

    def factors(self, moved: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the factor of each coefficient's penalty; around 1, and 1 for attributes.

        ``moved``: the log-weights of a quick fit less those of its start, shape (num_chosen,).
        """
        result = np.ones(len(moved))
        squares = (moved * self._scales)[self._grouped] ** 2
        sums = np.bincount(self._groups, squares, len(self._supports)).astype(np.float64)
        numbers = np.bincount(self._groups, minlength=len(self._supports)).astype(np.float64)
        of_group, of_support = _means(sums, numbers, self._supports, self._orders)
        least = _LEAST_SHARE * of_group.max(initial=0.0)
        if not least > 0:
            return result
        group, support = (np.log(np.maximum(each, least)) for each in (of_group, of_support))
        usual = float(support @ numbers / numbers.sum())
        logs = _GROUP_POWER * (support - group) + _SUPPORT_POWER * (usual - support)
        factors = np.clip(np.exp(logs), 1 / _LARGEST_FACTOR, _LARGEST_FACTOR)
        result[self._grouped] = factors[self._groups]
        return result


def _means(
    sums: NDArray[np.float64],  # of squares of each group
    numbers: NDArray[np.float64],  # of coefficients of each group
    supports: NDArray[np.int64],
    orders: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the mean square of each group and of its support, each shrunk towards a wider one."""
    support_sums, support_numbers = (np.bincount(supports, each) for each in (sums, numbers))
    order_sums, order_numbers = (
        np.bincount(orders, each) for each in (support_sums, support_numbers)
    )
    of_order = order_sums / np.maximum(order_numbers, 1)
    of_support = (support_sums + _SUPPOSED * of_order[orders]) / (support_numbers + _SUPPOSED)
    of_group = (sums + _SUPPOSED * of_support[supports]) / (numbers + _SUPPOSED)
    return of_group, of_support[supports]
