"""Small databases: one choice by the exponential mechanism, and perhaps a noisy count."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_choice, checked_integer
from beam_dp.domain.universe import Domain
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.linear import VALUE_BITS, LinearQuery
from beam_dp.releases.synthetic_database.release import NUM_RECORDS, SyntheticDatabase
from beam_dp.verification.fields import check_fields
from beam_dp.verification.steps import Step, laplace_step, positive, selection_step
from beam_dp.verification.verdict import Figures

# More records than any version chooses.
_MAX_SIZE = 2**20
_CHOICE = "choice of the records"
_SCALES = {_CHOICE: "selection_scale", NUM_RECORDS: "total_scale"}
_LAWS = {_CHOICE: "exponential", NUM_RECORDS: "discrete_laplace"}


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
    moved = size * denominator_of(domain, queries) * k
    steps = []
    for entry in noise:
        check_fields("noise", entry, ("what", "distribution", "scale"))
        check_choice("what", entry["what"], (_CHOICE, NUM_RECORDS))
        check_choice("distribution", entry["distribution"], (_LAWS[entry["what"]],))
        # Of two scales that do not agree the smaller one is charged.
        name = _SCALES[entry["what"]]
        scale = min(map(positive, (entry["scale"], parameters.get(name) or entry["scale"])))
        if entry["what"] == NUM_RECORDS:
            steps.append(laplace_step("count the records", k, float(scale)))
        else:
            steps.append(selection_step(f"choose {size:,} records", moved, float(scale)))
    return steps


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
    parameters, k = release.plan, release.guarantee.max_records_per_unit
    scales = [(_CHOICE, parameters["selection_scale"]), (NUM_RECORDS, parameters["total_scale"])]
    listed = [(entry["what"], entry["scale"]) for entry in release.noise]
    figures.equal("noise", listed, [each for each in scales if each[1] is not None])
    figures.equal("num_records", release.num_records_is_public, True)
    figures.equal("num_represented", release.num_represented is not None, True)
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
    known = {"standard_error": None, "failure_probability": beta}
    for error in (release.query_error, *release.errors.values()):
        figures.same("bound of an answer", error.get("bound"), bound)
        figures.equal("error of an answer", {name: error.get(name) for name in known}, known)
    figures.equal("record_tables", release.record_tables, ((),))
    if total_scale is None:
        figures.same("bound", parameters["bound"], bound)
        figures.equal("bound_is_vacuous", parameters["bound_is_vacuous"], bound >= total)


def _possible(domain: Domain) -> NDArray[np.bool_]:
    """Which cells no declared combination forbids, shape (num_cells,)."""
    possible = np.ones(domain.shape, np.bool_)
    for each in domain.impossible:
        where = [size if axis in each.axes else 1 for axis, size in enumerate(domain.shape)]
        possible &= ~each.mask(domain.shape).reshape(where)
    return possible.ravel()
