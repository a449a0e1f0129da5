"""What a plan's measurements say, without a fit, and what a small database is expected to."""

import numpy as np
from numpy.typing import NDArray

from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.mechanisms.marginals.released_records import plan_basis
from beam_dp.models.basis import marginal_of
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.releases.synthetic_database.measured_tables import Combination
from beam_dp.secret.summaries.histogram import Histogram


def table_errors(
    plan: MarginalsPlan, counts: NDArray[np.int64], noise: NoiseSource
) -> NDArray[np.float64]:
    """Draws all measurements once; returns the error of every cell of the workload's marginals.

    Of the unbiased estimates from all measurements together, and a total that is public.
    """
    domain = plan.domain
    histogram = Histogram(domain, counts)
    exact = histogram.marginals(plan.summary_tables)
    basis = plan_basis(plan)
    tables = [each.draw(exact, noise) for each in plan.measurements]
    found = Combination(domain, basis, plan.measurements, tables).estimate().values
    if plan.total_is_public:
        # The first coefficient of an orthonormal basis is the mean of a uniform table.
        found[basis.slices[()]] = basis.analyse(counts.astype(np.float64))[basis.slices[()]]
    errors = [
        (marginal_of(basis, found, domain.axes(names)) - histogram.marginal(names)).ravel()
        for names in plan.workload
    ]
    return np.concatenate(errors)
