"""Fits a maximum-entropy distribution to noisy marginals.

Multiplicative weights, repeated over all measurements until convergence, give the distribution of
maximum entropy that agrees with the measurements. Exact agreement would fit the noise. So the fit
follows a path: from independent attributes, each step p_k solves

    minimise  sum_j (N c_j(p) - y_j)^2 / (2 v_j)  +  penalty_k N KL(p || p_{k-1})

over distributions p, where y_j with variance v_j are the noisy coefficients and the penalty falls
geometrically (nonstationary iterated regularisation: the path fits strong structure without bias
long before it fits noise). The penalty of each log-weight also has a factor, which quick fits learn
before the path begins: see ``learned_penalties.py``. The fit returns the step with the smallest
estimated error, and only post-processes released values.

Each step minimises one smooth convex function under quadratic penalties: see ``quasi_newton.py``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_dp.models.basis import (
    Basis,
    Coefficients,
    carry_over,
    contrast_levels,
    contrast_matrix,
    on_one_thread,
)
from beam_dp.models.quasi_newton import Penalised, Point, QuasiNewton, TableCurvature
from beam_dp.models.residual_basis import ResidualBasis

Progress = Callable[[str, int, int], None]

# At the first penalty the prior outweighs any data; at the last penalty rounding errors dominate.
# The error estimate normally stops the path earlier.
_FIRST_PENALTY = 64.0
_MAX_STEPS = 100
# While steps halve the squared error, the path is far from its end, and each step halves the
# penalty. Later steps divide the penalty by the fine ratio; a finer ratio is not better.
_COARSE_RATIO = 2.0
_FINE_RATIO = 1.2
# The error estimate is noisy: the path ends only after this number of rises. If errors differ by
# less than the share ``_TIE``, the smoothest step wins.
_PATIENCE = 3
# While the squared error is above this multiple of the squared error of the noise alone, the path
# is far from its end and does not stop at rises.
_FAR = 100.0
_TIE = 0.01
# One-way tables have few cells and many records per cell: fit the observations almost exactly.
_ONE_WAY_PENALTY = 1e-3
# Each code of an attribute has at least this many records at the start of a path, beside the most
# frequent code with all of them.
_LEAST_RECORDS = 1e-3
# The shift of the observations, in standard deviations, for measuring the fit's degrees of freedom.
_PROBE = 0.1
# Each step solves its equations up to this share of the shift. With very many records, an error of
# the same log-weights is more records, and would hide what the shift changed.
_SOLVED = 0.1
# Quick fits learn the penalties. Each one uses the penalties that the one before learned, and holds
# back less. They end when a fit is almost as close to the observations as noise lets the truth be,
# or hardly closer than the fit before.
_QUICK_FITS = 10
_FIRST_QUICK_PENALTY, _QUICK_RATIO = 1.0, 3.0
_CLOSE, _STALLED = 1.2, 0.9
_TOLERANCE = 1e-6
# Matching a fit leaves about this share of its noise.
_MATCHED_PENALTY = 1e-2


@dataclasses.dataclass(frozen=True)
class NoisyCoefficients:
    """Independent noisy observations of the coefficients of a count table."""

    values: NDArray[np.float64]  # shape (num_coefficients,), in records
    variances: NDArray[np.float64]  # of the noise; infinite without an observation

    def fitted(self, basis: Coefficients) -> NDArray[np.int64]:
        """Returns the positions of all observed coefficients except the constant."""
        is_observed = np.isfinite(self.variances)
        is_observed[basis.slices[()]] = False
        return np.flatnonzero(is_observed)

    def restricted(self, layout: Coefficients, to: Coefficients) -> NoisyCoefficients:
        """Returns the observations for other supports; a new support has infinite variances."""
        values = carry_over(layout.slices, self.values, to)
        variances = carry_over(layout.slices, self.variances, to, start=np.inf)
        return NoisyCoefficients(values, variances)


@dataclasses.dataclass(frozen=True)
class Fit:
    """A fitted log-linear hypothesis."""

    log_weights: NDArray[np.float64]  # shape (num_coefficients,); weights are proportional to exp
    steps: int  # the number of steps to the returned hypothesis; 0 means the start of the path
    estimated_error: float  # the root of the estimated weighted squared error, in records
    mismatch: float  # the mean of (fitted - observed)^2 / variance; about 1 for pure noise
    is_from_start: bool = False


@on_one_thread
def fit_maximum_entropy(
    basis: Basis,
    observed: NoisyCoefficients,
    total: float,
    importance: NDArray[np.float64],
    signs: NDArray[np.float64],
    progress: Progress | None = None,
    tolerance: float = _TOLERANCE,
    denoise: Callable[[NoisyCoefficients], NoisyCoefficients] = lambda observed: observed,
) -> Fit:
    """Returns the hypothesis on the regularisation path with the smallest estimated error.

    ``basis``: the coefficients of the domain, including the constant support ().
    ``total``: the number of records of the hypothesis, > 0.
    ``importance``: the weight of each coefficient's squared error, shape (num_coefficients,), >= 0.
    ``signs``: independent fair signs, shape (num_coefficients,).
    ``progress``: called once, with the fit's name.

    Accuracy: the error estimate is Stein's unbiased estimate of the weighted squared error of the
    coefficients. The fit measures the estimate's divergence term by following the path again with
    observations shifted by small random signs.

    Reference: Hanke and Groetsch (1998) for the path; Stein (1981) and Ramani, Blu and Unser
    (2008) for the estimate.
    """
    chosen = observed.fitted(basis)
    values, variances = observed.values[chosen], observed.variances[chosen]
    weights = importance[chosen]
    shift = signs[chosen] * _PROBE * np.sqrt(variances)
    shifted = NoisyCoefficients(observed.values.copy(), observed.variances)
    shifted.values[chosen] += shift
    targets = [denoise(noisy) for noisy in (observed, shifted)]
    starts = [independent_log_weights(basis, target, total) for target in targets]
    problem = _Problem(basis, chosen, total, starts[0], tolerance)
    goals = [target.values[chosen] for target in targets]
    noises = [target.variances[chosen] for target in targets]
    groups = PenaltyGroups(basis, chosen)

    def estimate(fitted: NDArray[np.float64], fitted_shifted: NDArray[np.float64]) -> float:
        freedom = (fitted_shifted - fitted) * shift / _PROBE**2
        return float((weights * ((fitted - values) ** 2 - variances + 2 * freedom)).sum())

    far = _FAR * float(weights @ variances)
    points = [problem.at(starts[0][chosen])]
    points.append(problem.at(starts[1][chosen]))
    if progress is not None:
        # Steps are not reported: their number depends on noise that may never be released.
        progress("fit", 1, 1)
    factors = _learned(problem, points[0], goals[0], noises[0], groups)
    path = _follow(problem, points, goals, noises, factors, estimate, far)
    log_weights = starts[0].copy()
    log_weights[chosen] = path.point.place
    gradient = path.point.gradient
    return Fit(
        log_weights=log_weights,
        steps=path.step,
        estimated_error=math.sqrt(max(path.error, 0.0)),
        mismatch=float(np.mean((gradient - values) ** 2 / variances)) if len(chosen) else 0.0,
    )


class _Place(NamedTuple):
    """A hypothesis on a path, with its estimated squared error and step."""

    error: float
    step: int
    point: Point


def _learned(
    problem: _Problem,
    start: Point,
    goal: NDArray[np.float64],
    variances: NDArray[np.float64],
    groups: PenaltyGroups,
) -> NDArray[np.float64]:
    """Returns the factors of the penalties of a path, from quick fits that begin at its start."""
    factors, penalty, point = np.ones(len(goal)), _FIRST_QUICK_PENALTY, start
    mismatch = math.inf
    for _ in range(_QUICK_FITS if groups.exist else 0):
        point = problem.step(goal, penalty * variances * factors, start.place, point)
        factors = groups.factors(point.place - start.place)
        previous, mismatch = mismatch, float(np.mean((point.gradient - goal) ** 2 / variances))
        if mismatch < _CLOSE or mismatch > _STALLED * previous:
            break
        penalty /= _QUICK_RATIO
    # With almost no noise, log-weights of empty cells run away, and so does the learned curvature.
    problem.forget()
    return factors


def _follow(
    problem: _Problem,
    points: list[Point],  # the start of the path for the observations, and for the shifted ones
    goals: Sequence[NDArray[np.float64]],
    noises: Sequence[NDArray[np.float64]],  # the variances of the observations
    factors: NDArray[np.float64],  # of the penalties
    estimate: Callable[[NDArray[np.float64], NDArray[np.float64]], float],
    far: float,  # the path continues while the least estimated squared error is above this
) -> _Place:
    """Returns the smoothest hypothesis on a path among those with the smallest estimated error."""
    # ``estimate`` returns the estimated squared error for the coefficients on both paths.
    # Candidates are all steps whose error equals the least error up to ``_TIE``, smoothest first.
    least = error = estimate(*(point.gradient for point in points))
    candidates = [_Place(error, 0, points[0])]
    errors = [_SOLVED * _PROBE * np.sqrt(variances) for variances in noises]
    penalties = [variances * factors for variances in noises]
    penalty, best_step, step = _FIRST_PENALTY, 0, 0
    while step < _MAX_STEPS and (step - best_step < _PATIENCE or least > far):
        step += 1
        paths = [point.place for point in points]
        first = problem.step(goals[0], penalties[0] * penalty, paths[0], points[0], errors[0])
        # The shifted path runs close to the first path, so start from the first path's new point.
        other = problem.at(first.place + paths[1] - paths[0])
        other = problem.step(goals[1], penalties[1] * penalty, paths[1], other, errors[1])
        points = [first, other]
        previous, error = error, estimate(first.gradient, other.gradient)
        if error < least:
            least, best_step = error, step
        candidates.append(_Place(error, step, first))
        tie = least + ((1 + _TIE) ** 2 - 1) * abs(least)
        candidates = [candidate for candidate in candidates if candidate.error <= tie]
        penalty /= _COARSE_RATIO if error < previous / 2 else _FINE_RATIO
    return candidates[0]


@on_one_thread
def refit(
    basis: Basis,
    observed: NoisyCoefficients,
    total: float,
    log_weights: NDArray[np.float64],  # the initial hypothesis, shape (num_coefficients,)
    penalty: float,
    tolerance: float = _TOLERANCE,
) -> NDArray[np.float64]:
    """Returns the hypothesis after one more step on the path, for use between rounds."""
    chosen = observed.fitted(basis)
    problem = _Problem(basis, chosen, total, log_weights, tolerance)
    start = log_weights[chosen]
    result = log_weights.copy()
    penalties = penalty * observed.variances[chosen]
    point = problem.step(observed.values[chosen], penalties, start, problem.at(start))
    result[chosen] = point.place
    return result


def matched(
    fit: Fit,
    basis: Basis,
    to: Basis,
    observed: NoisyCoefficients,
    total: float,
    tolerance: float = _TOLERANCE,
) -> Fit:
    """Returns the fit of one basis as a hypothesis of another basis with the same coefficients."""
    _, moments = basis.log_moments(fit.log_weights, math.log(basis.num_cells))
    start = independent_log_weights(
        to, NoisyCoefficients(total * moments, observed.variances), total
    )
    # As if each coefficient had its noise or that of a sample, whichever is less.
    variances = np.where(
        np.isfinite(observed.variances),
        np.minimum(observed.variances, total * independent_variances(to, start)),
        np.inf,
    )
    wanted = NoisyCoefficients(total * moments, variances)
    log_weights = refit(to, wanted, total, start, _MATCHED_PENALTY, tolerance)
    return dataclasses.replace(fit, log_weights=log_weights)


@on_one_thread
def independent_log_weights(
    basis: Basis, observed: NoisyCoefficients, total: float
) -> NDArray[np.float64]:
    """Returns the hypothesis of independent attributes, fitted to single-attribute coefficients.

    Attributes without an observation stay uniform. Coefficients of several attributes are 0.
    """
    result = np.zeros(basis.num_coefficients)
    for axis, size in enumerate(basis.shape):
        where = basis.slices.get((axis,))
        # Attributes with one code have no coefficients.
        if size == 1 or where is None or not np.isfinite(observed.variances[where]).all():
            continue
        # A marginal's coefficients are the basis's coefficients times sqrt(cells_summed).
        scale = math.sqrt(basis.cells_summed((axis,)))
        alone = ResidualBasis((size,), [(0,)])
        chosen = np.arange(alone.num_coefficients)
        problem = _Problem(alone, chosen, total, np.zeros(alone.num_coefficients))
        start = np.zeros(alone.num_coefficients)
        fitted = problem.step(
            observed.values[where] * scale,
            _ONE_WAY_PENALTY * observed.variances[where] * scale**2,
            start,
            problem.at(start),
        )
        result[where] = _within_reach(alone, fitted.place, total) * scale
    return result


def _within_reach(
    alone: ResidualBasis, log_weights: NDArray[np.float64], total: float
) -> NDArray[np.float64]:
    """Returns the log-weights with at least ``_LEAST_RECORDS`` for each code.

    With almost no noise, codes that seem to be empty get log-weights without a bound. Where another
    table then finds a record with such a code, no step of the path could reach it.
    """
    logs = alone.synthesise(log_weights)
    least = logs.max() + math.log(_LEAST_RECORDS / total)
    if logs.min() >= least:
        return log_weights
    return alone.analyse(np.maximum(logs, least))


class _Problem:
    """The dual problem of one step, over the chosen coefficients of a log-linear hypothesis."""

    def __init__(
        self,
        basis: Basis,
        chosen: NDArray[np.int64],
        total: float,
        log_weights: NDArray[np.float64],
        tolerance: float = _TOLERANCE,
    ) -> None:
        self._basis = basis
        self._chosen = chosen
        self._total = total
        # Stop within a small share of a nat per coefficient: noise moves the dual by half a nat.
        self._tolerance = tolerance * len(chosen)
        self._full = log_weights.copy()
        self._shift = math.log(basis.num_cells)
        variances = independent_variances(basis, log_weights)[chosen]
        self._curvature = TableCurvature(basis, chosen, total, variances)
        self.forget()

    def forget(self) -> None:
        """Starts anew with the curvature that steps learn."""
        self._solver = QuasiNewton(self.at, len(self._chosen))

    def at(self, path: NDArray[np.float64]) -> Point:
        """Returns the hypothesis of some log-weights; the gradient is its coefficients."""
        return Point(path, *self._moments(path))

    def step(
        self,
        values: NDArray[np.float64],
        penalties: NDArray[np.float64],
        reference: NDArray[np.float64],
        start: Point,
        errors: NDArray[np.float64] | None = None,
    ) -> Point:
        """Returns the log-weights that solve one step from a reference."""
        problem = Penalised(values, penalties, reference)
        inverse = self._curvature.inverse(start.gradient, penalties)
        return self._solver.minimise(problem, start, self._tolerance, inverse, errors)

    def _moments(self, path: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Returns the log of the sum of weights and the coefficients, both in records."""
        self._full[self._chosen] = path
        log_sum, coefficients = self._basis.log_moments(self._full, self._shift)
        # The next call is for a similar hypothesis, whose sum is almost equal.
        self._shift = log_sum
        return self._total * log_sum, coefficients[self._chosen] * self._total


def independent_variances(basis: Basis, log_weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the variance of every basis vector under independent attributes."""
    # They are the diagonal of the dual's Hessian, and scale the coefficients of rare codes.
    firsts, seconds = [], []
    for axis, size in enumerate(basis.shape):
        contrasts = contrast_matrix(size)
        where = basis.slices.get((axis,))
        table = np.zeros(size) if where is None else log_weights[where] @ contrasts
        table /= math.sqrt(basis.cells_summed((axis,)))
        weights = np.exp(table - table.max())
        weights /= weights.sum()
        firsts.append(contrasts @ weights)
        seconds.append(contrasts**2 @ weights)
    result = np.empty(basis.num_coefficients)
    for support, where in basis.slices.items():
        first, second = np.ones(1), np.ones(1)
        for axis in support:
            first = np.kron(first, firsts[axis])
            second = np.kron(second, seconds[axis])
        # A code with almost no weight must not scale its coefficient out of reach.
        least = 1e-3 / math.prod(basis.shape[axis] for axis in support)
        result[where] = np.maximum(second - first**2, least) / basis.cells_summed(support)
    return result


# Learns how strongly a fit should hold back each group of coefficients, by post-processing.
#
# A pair of ordered attributes depends on each other in large blocks of codes much more than code by
# code, and some pairs depend on each other much more than others. With one penalty for all
# coefficients, a fit holds back the strong ones too much and lets noise into the weak ones. So the
# coefficients of a support are grouped by the sizes of the blocks that they compare. Quick fits
# tell how large the log-weights of each group are, and the penalty of a group falls with their
# size. Codes without a meaningful order give groups of similar sizes, which then share one penalty.


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
            values, places = np.unique(bands, return_inverse=True)
            groups[where] = len(supports) + places
            scales[where] = basis.cells_summed(support) ** -0.5
            supports += [len(orders)] * len(values)
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
        group, support = (np.log(np.maximum(means, least)) for means in (of_group, of_support))
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
    support_sums, support_numbers = (np.bincount(supports, part) for part in (sums, numbers))
    order_sums, order_numbers = (
        np.bincount(orders, part) for part in (support_sums, support_numbers)
    )
    of_order = order_sums / np.maximum(order_numbers, 1)
    of_support = (support_sums + _SUPPOSED * of_order[orders]) / (support_numbers + _SUPPOSED)
    of_group = (sums + _SUPPOSED * of_support[supports]) / (numbers + _SUPPOSED)
    return of_group, of_support[supports]
