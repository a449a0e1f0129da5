"""Public records as the prior of a selection: one paid distance decides whether they are used.

A selection measures a few pairs, and takes independent attributes elsewhere. Public records say
something about all pairs, and about larger sets of attributes. With such records, the mechanism
adds up the L1 distances between the exact tables of all pairs and the tables of the public records,
adds noise, and predicts from the noisy sum what error is left with the records. If this error is
clearly below the error that the usual selection predicts, then every pair is measured, and the
weights of the public records themselves are fitted to the noisy tables, with the precision of the
records learned from these tables (``models.prior_fit``). Otherwise, the records are not used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.marginals import plan as plans
from beam_dp.mechanisms.marginals.measurements import (
    Measurement,
    closure_of,
    freedoms,
)
from beam_dp.mechanisms.marginals.plan import StartingRecords
from beam_dp.mechanisms.marginals.released_records import names_of, tolerance
from beam_dp.mechanisms.marginals.scores import l1_score
from beam_dp.models.basis import Coefficients, MarginalCoefficients, Support, importance_of
from beam_dp.models.candidates import CandidateBasis, record_table
from beam_dp.models.maximum_entropy import Fit, NoisyCoefficients, independent_log_weights
from beam_dp.models.prior_fit import fit_from_prior, learned
from beam_dp.models.rounding import round_systematically
from beam_dp.privacy.budget import Budget
from beam_dp.privacy.noise.bound import MEAN_ABSOLUTE
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database.measured_tables import MAX_SCORE, Combination
from beam_dp.releases.synthetic_database.strategies import Selection
from beam_dp.secret.summaries.histogram import Marginals

# The share of mu^2 for the distance. At epsilon 0.1, with 105 pairs and 24,000 records, the noise
# is a total variation of 0.01 per pair; the difference between good and bad records is ten times
# as large.
PRIOR_SHARE = 0.01
# The largest number of coefficients of measured pairs: a fit takes a few passes over them.
_MAX_COEFFICIENTS = 2**21
# Public records are used if their expected error is below this share of that of a selection, which
# expects 1.1 to 1.35 times the error that it has on halves of Adult, at epsilon 0.1 and 1.
CLEARLY_LESS = 0.7


def prior_budget(budget: Budget, num_pairs: int) -> tuple[int, float]:
    """Returns the grid and the scale of the distance's noise, which costs a share of mu^2.

    Privacy: one record moves the distance of each pair by at most 1 (2 under replace-one), times
    the records of a unit. So the sum over pairs has num_pairs times this sensitivity.
    """
    unit, part = budget.guarantee, budget.part(PRIOR_SHARE)
    moved = unit.neighboring.num_moved * unit.max_records_per_unit * max(1, num_pairs)
    grid = part.fine_grid(moved**2)
    return grid, part.scale(moved**2, grid)


class PublicPrior:
    """The distribution of public records, as weights of the distinct records."""

    def __init__(self, domain: Domain, records: StartingRecords) -> None:
        counts = records.counts
        if len(counts) > plans.MAX_CANDIDATES:
            counts = round_systematically(counts.astype(np.float64), plans.MAX_CANDIDATES)
        kept = counts > 0
        self._domain = domain
        self._codes = np.stack([column[kept] for column in records.codes]).astype(np.int32)
        self._shares = counts[kept] / counts.sum()
        self._num_records = float(records.counts.sum())

    def basis(
        self, sets: Sequence[Support], total: float
    ) -> tuple[CandidateBasis, NDArray[np.float64]]:
        """Returns a basis with the records as candidates, and the log-weights of the prior."""
        # The log-weights describe the attributes as if they were independent; the number of cells
        # of each candidate contains the rest.
        shape, supports = self._domain.shape, closure_of(sets)
        plain = CandidateBasis(shape, supports, self._codes, np.zeros(len(self._shares)))
        expected = total * plain.analyse(self._shares)
        exact = NoisyCoefficients(expected, np.ones(len(expected)))
        log_weights = independent_log_weights(plain, exact, total)
        log_base = np.log(self._shares) - plain.synthesise(log_weights)
        return CandidateBasis(shape, supports, self._codes, log_base), log_weights

    def fitted(
        self,
        workload: Workload,
        layout: Coefficients,  # the coefficients of each marginal of some sets and their subsets
        observed: NoisyCoefficients,
        total: float,
    ) -> tuple[CandidateBasis, Fit]:
        """Returns the candidates and their weights, fitted to noisy coefficients."""
        basis, prior = self.basis(layout.supports, total)
        posterior = learned(basis, observed, total, prior, self._num_records)
        importance = importance_of(self._domain, basis, workload.marginals, workload.weights)
        fit = fit_from_prior(basis, observed, total, importance, prior, posterior, tolerance(basis))
        return basis, fit

    def answers(
        self,
        workload: Workload,
        measurements: Sequence[Measurement],  # of attributes alone
        tables: Sequence[NDArray[np.float64]],
        total: float,
        pairs: Sequence[Support],
    ) -> dict[Support, NDArray[np.float64]]:
        """Returns the tables of pairs, in records, after a fit to noisy tables of attributes."""
        domain = self._domain
        singles = [(axis,) for axis in range(domain.num_attributes)]
        layout = MarginalCoefficients(domain.shape, closure_of(singles))
        observed = Combination(domain, layout, measurements, tables).estimate()
        basis, fit = self.fitted(workload, layout, observed, total)
        weights = total * basis.weights(fit.log_weights)
        return {axes: record_table(domain.shape, self._codes, weights, axes) for axes in pairs}


def noisy_distance(
    answers: Mapping[Support, NDArray[np.float64]],
    marginals: Marginals,
    domain: Domain,
    parameters: Selection,
    noise: NoiseSource,
) -> float:
    """Returns the noisy sum, over pairs, of L1 distances between exact tables and answers.

    ``answers``: one public table per pair, in records; at most all scored pairs.
    ``marginals``: the exact tables, which include these pairs; secret.

    Privacy: see ``prior_budget``. The answers may be anything: see ``l1_score``.
    """
    exact = sum(
        l1_score(marginals.marginal(names_of(domain, axes)), answer, parameters.prior_grid)
        for axes, answer in answers.items()
    )
    sums = np.array([min(exact, MAX_SCORE)], dtype=np.int64)
    (noisy,) = noise.gaussian(sums, parameters.prior_scale)
    return float(noisy) / parameters.prior_grid


def affordable(domain: Domain, pairs: Sequence[Support]) -> list[Support]:
    """Returns the smallest pairs, as many as one fit can hold."""
    sizes = {axes: freedoms(domain.shape[axis] for axis in axes) for axes in pairs}
    kept, left = [], _MAX_COEFFICIENTS
    for axes in sorted(pairs, key=lambda axes: (sizes[axes], axes)):
        left -= sizes[axes]
        if left < 0:
            break
        kept.append(axes)
    return sorted(kept)


def error_with(
    answers: Mapping[Support, NDArray[np.float64]],  # tables of the public records, in records
    independent: Mapping[Support, NDArray[np.float64]],  # for independent attributes, in records
    distance: float,  # the noisy sum of the distances of the public records
    deviations: Mapping[Support, float],  # of the noise of measured pairs
    weights: Mapping[Support, float],
) -> float:
    """Returns the L1 error, over all pairs, that is expected with public records."""
    # The distance is spread in proportion to the root of the count, as the chance of draws is. A
    # cell then keeps an error like that of the best mixture of records and measurement. But no
    # weights fill an empty cell: its count is missing there, and is too much elsewhere.
    roots = {axes: np.sqrt(np.maximum(answer, 0.0)) for axes, answer in answers.items()}
    all_roots = sum(float(root.sum()) for root in roots.values())
    of_root = max(distance, 0.0) / max(all_roots, 1.0)
    error = 0.0
    for axes, root in roots.items():
        cells = of_root * root
        of_noise = MEAN_ABSOLUTE * deviations.get(axes, math.inf)
        mixed = float((cells / np.sqrt(1 + (cells / of_noise) ** 2)).sum())
        missing = 2 * float(independent[axes][root == 0].sum())
        error += weights[axes] * max(mixed, min(missing, float(cells.sum())))
    return error
