"""From noisy measurements to unbiased tables: post-processing, nothing here sees exact counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from beam_dp.hypotheses.basis import MarginalCoefficients, marginal_of
from beam_dp.mechanisms.marginals.measurements import Combination, Measurement, Names
from beam_dp.queries.dense_tables import marginal_tables
from beam_dp.queries.workload import Workload


def unbiased_tables(
    workload: Workload, measurements: Sequence[Measurement], noisy: Sequence[NDArray[np.float64]]
) -> dict[Names, NDArray[np.float64]]:
    """Returns the best unbiased estimates of a workload's marginals from noisy tables.

    They are never clipped or rounded: sums of many of them stay unbiased.

    Args:
        workload: the marginals.
        measurements: what was measured; of it all marginals follow.
        noisy: the noisy tables, in records, in the same order.

    Returns:
        one table a marginal, one axis an attribute.
    """
    if len(measurements) == 1 and measurements[0].kind == "table":
        # Nothing to combine: sums of the one table, which may have very many marginals.
        return marginal_tables(noisy[0], measurements[0].names, workload.marginals)
    domain = workload.domain
    supports = [domain.axes(names) for names in workload.closure()]
    basis = MarginalCoefficients(domain.shape, supports)
    coefficients = Combination(domain, basis, measurements, noisy).estimate().values
    return {names: marginal_of(basis, coefficients, domain.axes(names)) for names in workload}
