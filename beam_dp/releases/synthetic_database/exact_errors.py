"""How wrong sums of noisy tables are: known from the noise, whatever the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from beam_dp.domain.universe import Domain
from beam_dp.models.residual_basis import Support
from beam_dp.queries.vector_query import Vector, VectorQuery, affine_parts
from beam_dp.releases.synthetic_database.fitted_errors import times


def exact_variances(
    domain: Domain, queries: Sequence[VectorQuery], variances: Mapping[Support, float]
) -> Vector:
    """Returns the variances of unbiased answers, in squared records.

    The total alone sees a constant of each record: of 1 - q it sees 1 less what it sees of q. Of a
    product a residual sees, of a vector with sum s and squared norm n over d codes, s^2 / d^2 where
    its attribute was summed out, and n - s^2 / d where it was not.

    Args:
        domain: the universe.
        queries: all of the same axes.
        variances: of the orthonormal coefficients of each set of attributes inside these.

    Returns:
        shape (num_queries,).
    """
    axes = queries[0].axes
    own, means = (np.empty((len(axes), len(queries))) for _ in range(2))
    for place, axis in enumerate(axes):
        size = domain.shape[axis]
        vectors = np.array([query.vectors[place] for query in queries])
        sums = vectors.sum(axis=1)
        own[place] = np.maximum((vectors**2).sum(axis=1) - sums**2 / size, 0.0)
        means[place] = sums / size
    constant, factor = affine_parts(queries)
    total = np.zeros(len(queries))
    for support, variance in variances.items():
        mask = np.isin(axes, support)
        seen = own[mask].prod(axis=0) * means[~mask].prod(axis=0) ** 2
        if not mask.any():
            seen = (constant / factor + means.prod(axis=0)) ** 2
        total += times(factor**2 * seen, variance)
    return total
