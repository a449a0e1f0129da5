"""Small databases: one choice by the exponential mechanism, and perhaps a noisy count."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer
from beam_dp.domain import Domain
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.linear import VALUE_BITS, LinearQuery
from beam_dp.releases.synthetic_database import NUM_RECORDS, SyntheticDatabase
from beam_dp.verification.steps import Step, laplace_step, selection_step
from beam_dp.verification.verdict import Figures

# More records than any version chooses.
_MAX_SIZE = 2**20


def small_db_steps(
    domain: Domain,
    guarantee: Guarantee,
    parameters: Mapping[str, Any],
    noise: Sequence[Mapping[str, Any]],
    queries: Sequence[LinearQuery],
) -> list[Step]:
    """Returns the steps of the choice of m records, and of a noisy number of records.

    A score is the largest |m S(q) - N s(q, y)|, in units of 1 / d of an answer: k records move S by
    k d, under either relation, and so every score by m d k.
    """
    size = checked_integer("size", parameters.get("size"), 1, _MAX_SIZE)
    k = guarantee.max_records_per_unit
    steps = []
    for entry in noise:
        if entry.get("what") == NUM_RECORDS:
            steps.append(laplace_step("count the records", k, entry.get("scale", 0.0)))
    moved = size * denominator_of(domain, queries) * k
    scale = parameters.get("selection_scale", 0.0)
    return [*steps, selection_step(f"choose {size:,} records", moved, scale)]


def denominator_of(domain: Domain, queries: Sequence[LinearQuery]) -> int:
    """Returns the least integer that makes all values of all queries whole, at possible cells."""
    unit, possible = 1 << VALUE_BITS, _possible(domain)
    common = unit
    for query in queries:
        values = np.rint(query.values()[possible] * unit).astype(np.int64)
        common = math.gcd(common, int(np.gcd.reduce(values)))
    return unit // common


def small_db_figures(release: SyntheticDatabase, figures: Figures) -> None:
    """Compares the scales of the card, which it states twice, and the bounds that follow."""
    parameters, k = release.parameters, release.guarantee.max_records_per_unit
    scales = {entry.get("what"): entry.get("scale") for entry in release.noise}
    figures.equal(
        "selection_scale", parameters.get("selection_scale"), scales.get("choice of the records")
    )
    figures.equal("total_scale", parameters.get("total_scale"), scales.get(NUM_RECORDS))
    figures.equal("num_queries", parameters.get("num_queries"), len(release.queries))
    figures.equal("size", parameters.get("size"), release.num_records)
    size, epsilon = parameters["size"], parameters["selection_epsilon"]
    denominator = denominator_of(release.domain, release.queries)
    figures.same(
        "selection_epsilon", epsilon, 2 * size * denominator * k / parameters["selection_scale"]
    )
    beta, share = parameters["failure_probability"], parameters["max_error_fraction"]
    total_scale, total = parameters.get("total_scale"), release.represented
    each_beta = beta if total_scale is None else beta / 2
    cells = np.count_nonzero(_possible(release.domain))
    drawn = np.arange(size, dtype=np.float64)
    log_ways = float(np.log((cells + drawn) / (drawn + 1)).sum())
    bound = share * total + 2 * k / epsilon * (log_ways - math.log(each_beta))
    if total_scale is not None:
        bound += (1 + share) * math.ceil(total_scale * math.log(1 / each_beta))
    figures.same("query_error.bound", release.query_error.get("bound"), bound)
    for names, error in release.errors.items():
        figures.same(f"bound of {','.join(names)}", error.get("bound"), bound)
    if "bound" in parameters:
        figures.same("bound", parameters["bound"], bound)


def _possible(domain: Domain) -> NDArray[np.bool_]:
    """Which cells no declared combination forbids, shape (num_cells,)."""
    possible = np.ones(domain.shape, np.bool_)
    for each in domain.impossible:
        where = [size if axis in each.axes else 1 for axis, size in enumerate(domain.shape)]
        possible &= ~each.mask(domain.shape).reshape(where)
    return possible.ravel()
