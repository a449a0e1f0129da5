"""How much the records of one privacy unit may move residual measurements together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.models.basis import Support
from beam_dp.privacy.rounding import UNIT
from beam_dp.privacy.unit_costs import PARTS, UnitCosts
from beam_dp.releases.synthetic_database.measured_tables import MeasuredTable


def unit_costs(
    domain: Domain, measurements: Sequence[MeasuredTable], max_unit_cost: float
) -> UnitCosts:
    """Returns the limit under which a unit moves residual measurements no more than C records do.

    Privacy: the measurements are one Gaussian mechanism. Let phi(x) be what a record x adds to all
    of them, each in units of its noise: their L2 norm. A unit adds the sum of its records' phi, so
    that mu^2 is at most the largest squared norm of such a sum, which is the sum over all ordered
    pairs of a unit's records of <phi(x), phi(y)>. That is a public function of where x and y agree:

        <phi(x), phi(y)> = sum over residuals S of precision_S
                           times the product over i in S of ([x_i = y_i] - 1 / size_i)

    It is ``one`` for x = y, whatever x is, and by Cauchy and Schwarz no more for any pair. What
    stays of a unit costs at most C^2 ``one``, by ``UnitCosts.keeps``: exactly, whatever the data,
    for costs are rounded up. Hence mu <= C sqrt(one), as of C equal records, under
    add-or-remove-one. (A replacement moves the difference of two such sums, at most twice as much;
    equal units would cancel, but none must, so it is refused.)
    """
    supports = [domain.axes(each.names) for each in measurements]
    # As ``discrete_gaussian_mu`` counts: the squared change over s^2 - 4, in grid units.
    precisions = np.array([each.grid**2 / (each.scale**2 - 4) for each in measurements])
    used = sorted({axis for support in supports for axis in support})
    # The pattern's first bit is of the first attribute, hence the fastest axis.
    overlaps = agreement_overlaps(domain, used, supports, precisions).transpose().ravel()
    # No more than the rounding of so many sums and products, whose terms are below their sum.
    slack = (len(supports) + 8 * len(used) + 16) * UNIT * float(precisions.sum())
    one = float(overlaps[-1])
    above = overlaps + slack
    shares = above / np.where(above > 0, one - slack, one + slack)
    pairs = np.minimum(np.ceil((shares + 8 * UNIT) * PARTS), PARTS).astype(np.int64)
    pairs[-1] = PARTS
    return UnitCosts(tuple(used), pairs, int(Fraction(max_unit_cost) ** 2 * PARTS))


def chance_cost(domain: Domain, measurements: Sequence[MeasuredTable], num_records: int) -> float:
    """Returns the limit C under which ``unit_costs`` keeps records that agree by chance alone.

    Two records with independent and uniform codes have, on average, nothing in common but what
    each adds to the total: the inner products of all other residuals average to 0.

    Returns:
        A whole number from 1 to K.
    """
    precisions = {domain.axes(each.names): 1 / each.variance for each in measurements}
    one = sum(
        precision * math.prod(1 - 1 / domain.shape[axis] for axis in support)
        for support, precision in precisions.items()
    )
    shared = precisions.get((), 0.0) / one
    cost = math.sqrt(num_records + num_records * (num_records - 1) * shared)
    return float(min(math.ceil(cost), num_records))


def agreement_overlaps(
    domain: Domain,
    used: Sequence[int],
    supports: Sequence[Support],
    precisions: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Returns the sum over residuals of precision x inner product of two records' residuals.

    Each attribute of a residual contributes 1 - 1/size where the records agree and -1/size where
    they differ.

    ``used``: axes of all supports, ascending.
    ``precisions``: one over their variances, shape (len(supports),).

    Returns:
        shape (2,) * len(used): of two records that agree exactly where the index is 1.
    """
    overlaps = np.zeros((2,) * len(used))
    for support, precision in zip(supports, precisions, strict=True):
        overlaps[tuple(int(axis in support) for axis in used)] += precision
    for position, axis in enumerate(used):
        size = domain.shape[axis]
        factors = np.array([[1.0, -1 / size], [1.0, 1 - 1 / size]])
        overlaps = np.moveaxis(np.tensordot(factors, overlaps, axes=(1, position)), 0, position)
    return overlaps
