"""Linear queries answered from a release of marginals: which ones, with what error."""

from __future__ import annotations

from collections import Counter

from beam_dp.errors import InputError
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.queries.linear import LiteralQuery
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database.measured_tables import query_variance, support_variances

# A command line is for people.
_MAX_SPECIFICATION = 2000


def covering_marginals(queries: LinearWorkload) -> Workload:
    """Returns the marginals of whose cells all queries are sums, weighted by how many they are.

    Raises:
        InputError: if a query looks at cells that are no sum of a marginal's, or all at nothing.
    """
    if queries.explicit:
        condition = "must not have explicit values: a release answers sums of cells of marginals"
        raise InputError("workload", "explicit values", condition)
    weights = Counter(
        query.axes for query in queries if isinstance(query, LiteralQuery) and query.axes
    )
    names = queries.domain.names
    return Workload(
        queries.domain,
        tuple(tuple(names[axis] for axis in axes) for axes in weights),
        tuple(float(weight) for weight in weights.values()),
    )


def specification(marginals: Workload) -> str:
    """Returns marginals as ``parse_workload`` reads them, or a word where that would be long."""
    written = [",".join(names) for names in marginals.marginals]
    is_plain = not any(mark in name for name in marginals.domain.names for mark in ",;")
    found = "marginals:" + ";".join(written)
    return found if is_plain and len(found) <= _MAX_SPECIFICATION else "MARGINALS"


def query_errors(queries: LinearWorkload, plan: MarginalsPlan) -> tuple[float, float]:
    """Returns the mean and the largest variance of the queries' unbiased estimates.

    Returns:
        both in squared records.

    Cost: 2^k for each kind of query of k attributes: the same attributes, and as many codes.
    """
    domain = plan.domain
    supports = [domain.axes(names) for names in plan.workload.closure()]
    variances = support_variances(domain, supports, plan.measurements, plan.total_is_public)
    kinds = Counter(
        (
            query.axes,
            tuple(sum(stop - start for start, stop in ranges) for ranges in query.ranges),
            type(query),
        )
        for query in queries
        if isinstance(query, LiteralQuery)
    )
    found = {kind: query_variance(domain, variances, *kind) for kind in kinds}
    mean = sum(found[kind] * times for kind, times in kinds.items()) / kinds.total()
    return mean, max(found.values())
