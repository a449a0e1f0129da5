"""MWEM as published: one cell selected, one cell measured, one multiplicative update a round."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from beam_dp.errors import InputError
from beam_dp.hypotheses.basis import marginal_of
from beam_dp.hypotheses.residual_basis import ResidualBasis
from beam_dp.mechanisms.contract import NumRecords, Progress, check_noise
from beam_dp.mechanisms.marginals.measurements import importance_of
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, check_array
from beam_dp.mechanisms.marginals.released_records import array_release
from beam_dp.mechanisms.marginals.scores import answer_on_grid, score_grid
from beam_dp.mechanisms.marginals.synthesis import plan_basis
from beam_dp.noise.bound import Distribution
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.accounting import zcdp_rho
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.rounding import lowered, raised
from beam_dp.queries.workload import Workload
from beam_dp.releases import SyntheticDatabase
from beam_dp.summaries import Marginals

_MAX_ROUNDS = 100_000
# Counts saturate here in scores, so that no score wraps.
_MAX_COUNT = 2**45
# A step of the logarithm of a weight: noise far above the number of records could make it infinite.
_MAX_STEP = 700.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextbookPlan(MarginalsPlan):
    """The plan of Hardt, Ligett and McSherry's algorithm.

    Args: as of ``MarginalsPlan``, where ``num_records`` is a number, and
        num_rounds: T.
        distribution: of the noise of a measured cell.
        measurement_scale: of that noise, in records.
        selection_scale: of the noise of a selection, in records.
        bound_of_average: of the largest error of the average of all hypotheses, in records; None
            where none is published.
    """

    strategy: ClassVar[str] = "textbook"
    fits_tables: ClassVar[bool] = False

    mechanism: str = "mwem"
    num_rounds: int
    distribution: Distribution
    measurement_scale: float
    selection_scale: float
    bound_of_average: float | None

    def _stated(self) -> dict[str, Any]:
        bound = self.bound_of_average
        return {
            "calibration": "textbook",
            "strategy": self.strategy,
            "num_rounds": self.num_rounds,
            "distribution": self.distribution,
            "measurement_scale": self.measurement_scale,
            "selection_scale": self.selection_scale,
            "bound_of_average": bound,
            "bound_of_average_is_vacuous": bound is None
            or bound >= int(self.num_records)
            or 2 * self.num_rounds >= self.workload.num_cells(),
        }

    def release(
        self, marginals: Marginals, noise: NoiseSource, progress: Progress | None = None
    ) -> SyntheticDatabase:
        """Runs the published algorithm; releases the last hypothesis."""
        domain, workload = self.domain, self.workload
        total = int(self.num_records)
        draw = noise.laplace if self.distribution == "discrete_laplace" else noise.gaussian
        basis = plan_basis(self)
        assert isinstance(basis, ResidualBasis)
        exact = {names: marginals.marginal(names) for names in workload}
        ends = np.cumsum([exact[names].size for names in workload])
        potentials = {names: np.zeros(exact[names].shape) for names in workload}
        log_weights = np.zeros(domain.shape)
        grid = score_grid(self.selection_scale)
        for number in range(self.num_rounds):
            if progress is not None:
                progress("round", number + 1, self.num_rounds)
            weights = softmax(log_weights)
            coefficients = basis.analyse(weights.ravel()) * total
            scores = []
            for names in workload:
                answer = marginal_of(basis, coefficients, domain.axes(names))
                counts = np.minimum(exact[names], _MAX_COUNT) * grid
                on_grid = answer_on_grid(answer, grid, _MAX_COUNT * grid)
                scores.append(np.abs(counts - on_grid).ravel())
            selected = noise.select(np.concatenate(scores), self.selection_scale * grid)
            position = int(np.searchsorted(ends, selected, side="right"))
            names = workload.marginals[position]
            cell = np.unravel_index(
                selected - (ends[position] - exact[names].size), exact[names].shape
            )
            measured = draw(np.asarray(exact[names][cell]), self.measurement_scale)
            axes = domain.axes(names)
            error = float(measured) - total * float(_part(weights, axes, cell).sum())
            change = min(max(error / (2 * total), -_MAX_STEP), _MAX_STEP)
            _part(log_weights, axes, cell)[...] += change
            potentials[names][cell] += change
        if progress is not None:
            progress("records", 1, 1)
        importance = importance_of(domain, basis, workload.marginals, workload.weights)
        coefficients = basis.analyse(log_weights.ravel())
        codes, counts = array_release(basis, domain, coefficients, total, importance, 0.0)
        return SyntheticDatabase(
            domain=domain,
            workload=workload,
            guarantee=self.guarantee,
            mechanism=self.mechanism,
            num_records=total,
            num_records_is_public=True,
            codes=codes,
            counts=counts,
            potentials=list(potentials.items()),
            draw_id=noise.draw_id(),
            parameters=self.public,
        )


def plan_textbook(
    workload: Workload, guarantee: Guarantee, num_records: NumRecords, num_rounds: int | None
) -> TextbookPlan:
    """Returns the plan of Hardt, Ligett and McSherry's algorithm.

    Privacy: every query is one cell, with sensitivity 1 under both relations (a replacement moves
    two cells, but each by 1), times the records of a unit. T rounds share the budget, half of it
    for selection: pure, eps / (2T) for each step; else rho / (2T), that is eps_sel =
    sqrt(4 rho / T) and sigma = sqrt(T / rho).

    Accuracy: the largest error of a cell is at most 2N sqrt(ln|X| / T) + 10 k T ln|Q| / epsilon
    with probability 1 - 2T/|Q| (published for pure privacy, k = 1 record a unit and the average
    of all hypotheses). Without ``num_rounds``, T minimises this bound, up to 100,000.

    Raises:
        InputError: if the number of records is not public, or noise would not fit.
    """
    check_array(workload.domain)
    if num_records == "noisy":
        raise InputError("num_records", num_records, "must be a number for the textbook algorithm")
    num_queries = workload.num_cells()
    num_cells = workload.domain.num_cells
    sensitivity = guarantee.max_records_per_unit
    rounds = num_rounds or best_num_rounds(num_cells, num_queries, guarantee.epsilon, num_records)
    bound = None
    distribution: Distribution
    if guarantee.delta == 0:
        share = lowered(guarantee.epsilon / (2 * rounds))
        distribution, scale, selection_epsilon = "discrete_laplace", sensitivity / share, share
        bound = published_error(
            num_cells, num_queries, guarantee.epsilon / sensitivity, num_records, rounds
        )
    else:
        rho = lowered(zcdp_rho(guarantee.epsilon, guarantee.delta))
        distribution, scale = "discrete_gaussian", sensitivity * math.sqrt(rounds / rho)
        selection_epsilon = math.sqrt(4 * rho / rounds)
    scale, selection_scale = raised(scale), raised(2 * sensitivity / selection_epsilon)
    check_noise(guarantee, [scale, selection_scale * score_grid(selection_scale)])
    return TextbookPlan(
        workload=workload,
        guarantee=guarantee,
        num_records=num_records,
        summary_tables=workload.maximal(),
        measurements=(),
        loss=_loss(guarantee),
        num_rounds=rounds,
        distribution=distribution,
        measurement_scale=scale,
        selection_scale=selection_scale,
        bound_of_average=bound,
    )


def _loss(guarantee: Guarantee) -> Loss:
    """Returns the loss of steps whose epsilons, or rhos where delta > 0, add up to the promise."""
    if guarantee.delta == 0:
        return Loss.pure(guarantee.epsilon)
    return Loss.zcdp(zcdp_rho(guarantee.epsilon, guarantee.delta))


def best_num_rounds(num_cells: int, num_queries: int, epsilon: float, num_records: int) -> int:
    """Returns the number of rounds that minimises ``published_error``, from 1 to 100,000."""
    log_cells, log_queries = math.log(num_cells), math.log(max(num_queries, 2))
    balance = num_records * epsilon * math.sqrt(log_cells) / (10 * log_queries)
    return max(1, round(min(math.cbrt(balance) ** 2, _MAX_ROUNDS)))


def published_error(
    num_cells: int, num_queries: int, epsilon: float, num_records: int, num_rounds: int
) -> float:
    """Returns the bound of the published theorem, 2N sqrt(ln|X| / T) + 10 T ln|Q| / epsilon.

    Accuracy: in records, for the largest error of the average of all hypotheses under pure
    privacy, with probability 1 - 2T / |Q|.

    Reference: Hardt, Ligett and McSherry (2012), Theorem 2.2.
    """
    log_cells, log_queries = math.log(num_cells), math.log(max(num_queries, 2))
    return (
        2 * num_records * math.sqrt(log_cells / num_rounds)
        + 10 * num_rounds * log_queries / epsilon
    )


def _part(
    weights: NDArray[np.float64], axes: tuple[int, ...], cell: tuple[np.intp, ...]
) -> NDArray[np.float64]:
    """Returns the view of the weights in which one cell of a marginal is set."""
    index: list[slice | np.intp] = [slice(None)] * weights.ndim
    for axis, code in zip(axes, cell, strict=True):
        index[axis] = code
    # A trailing Ellipsis keeps a single cell a view instead of a scalar.
    return weights[(*index, Ellipsis)]
