"""What a plan's measurements say, without a fit, and what a small database is expected to."""

import math
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

import beam_dp as dp
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.mechanisms.marginals.synthesis import plan_basis
from beam_dp.mechanisms.small_db.size import num_multisets
from beam_dp.models.basis import marginal_of
from beam_dp.noise.source import NoiseSource
from beam_dp.releases.synthetic_database.measured_tables import Combination
from beam_dp.summaries.histogram import Histogram


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


MAX_MULTISETS = 2**20


def expected_small_db_error(mechanism: dp.MultisetChoice, counts: NDArray[np.int64]) -> float:
    """Returns the expected largest error of a query, in records, by the law of the mechanism.

    It depends on the data, so it is for planning with data that one imagines: uniform, or those of
    another year that are public. Exact counts must never be given: what is returned has no noise.

    Args:
        mechanism: whose law is summed over all multisets of its distinct columns.
        counts: imagined records of each cell, >= 0, shape (num_cells,), int64.

    Raises:
        InputError: if there are more than 2^20 of these.

    Cost: the multisets times the queries.

    Example:
        >>> queries = np.array([[0, 1]], np.int64)
        >>> mechanism = dp.MultisetChoice(queries, epsilon=1.0, num_records=5, size=3)
        >>> round(expected_small_db_error(mechanism, np.array([3, 2])), 6)
        1.215775
    """
    law = mechanism.law(counts)
    if num_multisets(law.num_types, law.size) > MAX_MULTISETS:
        condition = f"must make at most {MAX_MULTISETS:,} multisets"
        raise dp.InputError("size", mechanism.size, condition)
    losses, log_weights = [], []
    targets = np.array(law.targets, dtype=np.float64)
    answers = law.answers.astype(np.float64)
    for kinds in combinations_with_replacement(range(law.num_types), law.size):
        copies = np.bincount(kinds, minlength=law.num_types)
        losses.append(float(np.abs(targets - answers @ copies).max()))
        log_ways = sum(
            math.log(math.comb(ways + int(number) - 1, int(number)))
            for ways, number in zip(law.ways, copies, strict=True)
        )
        log_weights.append(log_ways - losses[-1] / float(law.scale))
    shares = np.exp(np.array(log_weights) - max(log_weights))
    expected = float(np.array(losses) @ shares / shares.sum())
    return expected / (mechanism.size * mechanism.denominator)
