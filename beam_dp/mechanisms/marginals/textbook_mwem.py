"""MWEM as published: each round selects a cell, measures the cell and multiplies the weights."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from beam_dp.errors import InputError
from beam_dp.mechanisms.checks import NumRecords, Progress, check_noise
from beam_dp.mechanisms.marginals.measurements import closure_of
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, check_array
from beam_dp.mechanisms.marginals.released_records import array_release
from beam_dp.mechanisms.marginals.scores import answer_on_grid, score_grid
from beam_dp.mechanisms.sparse_vector import (
    AboveThreshold,
    SparseVectorNoise,
    noise_candidates,
)
from beam_dp.models.basis import importance_of, marginal_of
from beam_dp.models.residual_basis import ResidualBasis
from beam_dp.privacy.accounting import zcdp_rho
from beam_dp.privacy.budget import Budget
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.bound import FAILURE_PROBABILITY, Distribution
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.privacy.rounding import lowered, raised, root_down
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.synthetic_database.strategies import Textbook
from beam_dp.secret.summaries.histogram import Marginals

MAX_ROUNDS = 100_000
_STOP_SHARE = 0.1  # the part of epsilon or rho for all comparisons together


@dataclasses.dataclass(frozen=True)
class RoundNoise:
    """The noise of all rounds, in records."""

    num_rounds: int
    distribution: Distribution
    measurement_scale: float
    selection_scale: float
    stop: SparseVectorNoise | None  # the noise of the comparison that may end the rounds

    @property
    def grid(self) -> int:
        """The number of score units in one record."""
        return score_grid(self.selection_scale)

    def stopped_error(
        self, threshold: float, num_queries: int, failure_probability: float
    ) -> float:
        """Returns a bound on the error of every query if a comparison ends the rounds, in records.

        ``threshold``: the error below which a comparison ends the rounds, in records.

        Accuracy: with probability 1 - beta, for the released hypothesis, any data and any number of
        records. The selected query is wrong by at most the threshold plus the noise of a
        comparison; every other query by at most that plus the loss of a selection of scale s, s
        ln(4 |Q| T / beta). Answers and threshold are rounded to the grid of the scores. Each kind
        of noise gets a fourth of beta; the measurements' fourth is in ``stopping_threshold``.
        """
        log_term = math.log(4 * num_queries * self.num_rounds / failure_probability)
        lost = self.selection_scale * log_term
        return threshold + self._misjudged(failure_probability) + lost

    def stopping_threshold(
        self, num_cells: int, num_records: int, failure_probability: float
    ) -> float:
        """Returns the smallest threshold that makes a comparison end the rounds, in records.

        Accuracy: with probability 1 - beta, together with ``stopped_error``, if N is the number of
        records. Let p be the data and w a hypothesis, e = q(p) - q(w) the error of the measured
        query, z the noise as a share of N. The update multiplies weights by exp((e + z) q / 2), so
        that by Hoeffding's lemma KL(p, w) falls by (e + z) e / 2 - (e + z)^2 / 32 or more: if |e|
        >= a > |z|, by (a - z)(15 a + z) / 32. T updates are impossible if T times this fall is
        above ln|X|, which gives a = (7 z + sqrt(64 z^2 + 480 ln|X| / T)) / 15. So in one of T
        rounds, a comparison with this threshold finds an error below a N.
        """
        log_term = math.log(4 * self.num_rounds / failure_probability)
        if self.distribution == "discrete_laplace":
            noise = float(math.ceil(self.measurement_scale * log_term))
        else:
            noise = self.measurement_scale * math.sqrt(2 * (log_term + math.log(2)))
        steps = 480 * num_records**2 * math.log(num_cells) / self.num_rounds
        gap = (7 * noise + math.sqrt(64 * noise**2 + steps)) / 15
        return (gap + self._misjudged(failure_probability)) * (1 + 1e-12)

    def _misjudged(self, failure_probability: float) -> float:
        """Returns a bound on the error of a comparison of the selected query, in records."""
        assert self.stop is not None
        # ``margin`` uses two thirds of the probability that is passed.
        share = 3 * failure_probability / 4
        return self.stop.margin(self.num_rounds, share, self.grid) + 1 / self.grid


def round_noise(guarantee: Guarantee, num_rounds: int, stops: bool = False) -> RoundNoise:
    """Returns the noise of T rounds that share the budget; selection gets half.

    Privacy: every query is one cell, with sensitivity 1 under both relations (a replacement changes
    two cells, but each by 1), times the records per unit. With pure privacy, each step gets eps /
    (2T); otherwise rho / (2T), that is eps_sel = sqrt(4 rho / T) and sigma = sqrt(T / rho).

    A comparison of the selected query is not post-processing. One AboveThreshold makes all
    comparisons and costs a tenth of epsilon or rho for any number of comparisons: it halts when the
    rounds do. Given everything released, the questions are fixed, so AboveThreshold multiplies the
    likelihood ratio by the same factor as if it ran alone. A pure loss of e costs a rho of e^2 / 2,
    even if other steps come in between.

    Reference: Dwork and Roth (2014), Algorithm 1; Vadhan and Wang (2021).
    """
    k, delta = guarantee.max_records_per_unit, guarantee.delta
    share = _STOP_SHARE if stops else 0.0
    distribution: Distribution
    if delta == 0:
        stop_epsilon = guarantee.epsilon * share
        of_step = lowered((guarantee.epsilon - stop_epsilon) / (2 * num_rounds))
        distribution, scale, selection_epsilon = "discrete_laplace", k / of_step, of_step
    else:
        rho = lowered(zcdp_rho(guarantee.epsilon, delta))
        stop_epsilon = root_down(2 * rho * share)
        rho = lowered(rho * (1 - share)) if stops else rho
        distribution, scale = "discrete_gaussian", k * math.sqrt(num_rounds / rho)
        selection_epsilon = math.sqrt(4 * rho / num_rounds)
    stop = None
    if stops:
        promised = guarantee.with_limits(epsilon=stop_epsilon, delta=0.0)
        (stop,) = noise_candidates(promised, 1, answers=False, calibration="textbook")
    noise = RoundNoise(
        num_rounds, distribution, raised(scale), raised(2 * k / selection_epsilon), stop
    )
    scales = [noise.selection_scale, *(() if stop is None else stop.scales)]
    check_noise(guarantee, [noise.measurement_scale, *(each * noise.grid for each in scales)])
    return noise


def best_num_rounds(num_cells: int, num_queries: int, epsilon: float, num_records: int) -> int:
    """Returns the number of rounds that minimises ``published_error``, from 1 to 100,000."""
    log_cells, log_queries = math.log(num_cells), math.log(max(num_queries, 2))
    balance = num_records * epsilon * math.sqrt(log_cells) / (10 * log_queries)
    return max(1, round(min(math.cbrt(balance) ** 2, MAX_ROUNDS)))


def published_error(
    num_cells: int, num_queries: int, epsilon: float, num_records: int, num_rounds: int
) -> float:
    """Returns the bound of the published theorem, 2N sqrt(ln|X| / T) + 10 T ln|Q| / epsilon.

    Accuracy: under pure privacy, with probability at least 1 - 2T / |Q|, no answer from the average
    of all hypotheses is off by more than this number of records.

    Reference: Hardt, Ligett and McSherry (2012), Theorem 2.2.
    """
    log_cells, log_queries = math.log(num_cells), math.log(max(num_queries, 2))
    return (
        2 * num_records * math.sqrt(log_cells / num_rounds)
        + 10 * num_rounds * log_queries / epsilon
    )


# Counts in scores are clipped at this value, so that scores do not overflow.
_MAX_COUNT = 2**45
# The largest change of a log-weight; without a limit, very large noise could make it infinite.
_MAX_STEP = 700.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextbookPlan(MarginalsPlan):
    """The plan of Hardt, Ligett and McSherry's algorithm."""

    sets_num_rows: ClassVar[bool] = True
    fits_tables: ClassVar[bool] = False

    mechanism: str = "mwem"
    parameters: Textbook

    def comparison(self, total: int, noise: NoiseSource) -> AboveThreshold | None:
        """Returns a test of whether a negated error is above the negated threshold.

        Privacy: AboveThreshold on the negated errors; a unit changes each error by at most k
        records. The noise of the threshold is drawn once, and every comparison gets its own noise.
        The budget of skipped rounds stays unspent but is charged, because the number of rounds
        depends on the data.
        """
        parameters, grid = self.parameters, self.parameters.score_grid
        if not parameters.stop_below:
            return None
        calibration = SparseVectorNoise(
            method="textbook",
            guarantee=self.guarantee,
            max_above=1,
            threshold_scale=parameters.stop_threshold_scale,
            question_scale=parameters.stop_question_scale,
            redraws_threshold=False,
            answer_noise=None,
            answer_scale=None,
            loss=self.loss,
        )
        threshold = round(parameters.stop_below * total * grid)
        return AboveThreshold(-threshold, calibration, noise, grid)

    def release(
        self, marginals: Marginals, noise: NoiseSource, progress: Progress | None = None
    ) -> SyntheticDatabase:
        """Runs the published algorithm; releases the last hypothesis.

        If rounds may end early, the card states the number of updates, so that progress and running
        time reveal nothing more.
        """
        from scipy.special import softmax  # loads slowly

        domain, workload, parameters = self.domain, self.workload, self.parameters
        total, selection_scale = int(self.num_records), parameters.selection_scale
        draw = noise.laplace if parameters.distribution == "discrete_laplace" else noise.gaussian
        basis = ResidualBasis(domain.shape, closure_of(map(domain.axes, workload.maximal())))
        exact = {names: marginals.marginal(names) for names in workload}
        ends = np.cumsum([exact[names].size for names in workload])
        potentials = {names: np.zeros(exact[names].shape) for names in workload}
        log_weights = np.zeros(domain.shape)
        grid = score_grid(selection_scale)
        is_small = self.comparison(total, noise)
        updates = 0
        for number in range(parameters.num_rounds):
            if progress is not None:
                progress("round", number + 1, parameters.num_rounds)
            weights = softmax(log_weights)
            coefficients = basis.analyse(weights.ravel()) * total
            answers = (marginal_of(basis, coefficients, domain.axes(names)) for names in workload)
            errors = _errors(exact.values(), answers, grid)
            selected = noise.select(errors, selection_scale * grid)
            if is_small is not None and is_small.ask(-int(errors[selected])):
                break
            position = int(np.searchsorted(ends, selected, side="right"))
            names = workload.marginals[position]
            cell = np.unravel_index(
                selected - (ends[position] - exact[names].size), exact[names].shape
            )
            measured = draw(np.asarray(exact[names][cell]), parameters.measurement_scale)
            axes = domain.axes(names)
            error = float(measured) - total * float(_part(weights, axes, cell).sum())
            change = min(max(error / (2 * total), -_MAX_STEP), _MAX_STEP)
            _part(log_weights, axes, cell)[...] += change
            potentials[names][cell] += change
            updates += 1
        public = self.public if is_small is None else {**self.public, "num_updates": updates}
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
            plan=public,
        )


def plan_textbook(
    workload: Workload,
    guarantee: Guarantee,
    num_records: NumRecords,
    num_rounds: int | None,
    stop_below: float | None = None,
) -> TextbookPlan:
    """Returns the plan of Hardt, Ligett and McSherry's algorithm.

    Privacy: see ``round_noise``, and ``TextbookPlan.comparison`` if ``stop_below`` is given.

    Accuracy: the largest error of a cell is at most 2N sqrt(ln|X| / T) + 10 k T ln|Q| / epsilon
    with probability 1 - 2T/|Q| (published for pure privacy, k = 1 record per unit and the average
    of all hypotheses). Without ``num_rounds``, T minimises this bound, up to 100,000.
    """
    check_array(workload.domain)
    if num_records == "noisy":
        raise InputError("num_records", num_records, "must be a number for the textbook algorithm")
    num_queries = workload.num_cells()
    num_cells = workload.domain.num_cells
    rounds = num_rounds or best_num_rounds(num_cells, num_queries, guarantee.epsilon, num_records)
    bound = None
    noise = round_noise(guarantee, rounds, stops=stop_below is not None)
    if guarantee.delta == 0 and stop_below is None:
        of_record = guarantee.epsilon / guarantee.max_records_per_unit
        bound = published_error(num_cells, num_queries, of_record, num_records, rounds)
    parameters = Textbook(
        num_rounds=rounds,
        distribution=noise.distribution,
        measurement_scale=noise.measurement_scale,
        selection_scale=noise.selection_scale,
        bound_of_average=bound,
        bound_of_average_is_vacuous=bound is None
        or bound >= num_records
        or 2 * rounds >= num_queries,
    )
    if stop_below is not None:
        assert noise.stop is not None
        small = stop_below * num_records
        parameters = dataclasses.replace(
            parameters,
            stop_below=stop_below,
            stop_threshold_scale=noise.stop.threshold_scale,
            stop_question_scale=noise.stop.question_scale,
            score_grid=noise.grid,
            bound_when_stopped=noise.stopped_error(small, num_queries, FAILURE_PROBABILITY),
            failure_probability=FAILURE_PROBABILITY,
        )
    return TextbookPlan(
        workload=workload,
        guarantee=guarantee,
        num_records=num_records,
        summary_tables=workload.maximal(),
        measurements=(),
        loss=Budget.of(guarantee, "zcdp" if guarantee.delta > 0 else "pure").loss,
        parameters=parameters,
    )


def _errors(
    exact: Iterable[NDArray[np.int64]], answers: Iterable[NDArray[np.float64]], grid: int
) -> NDArray[np.int64]:
    """Returns each cell's distance from its hypothetical answer, in units of a grid; secret."""
    return np.concatenate(
        [
            np.abs(
                np.minimum(counts, _MAX_COUNT) * grid
                - answer_on_grid(answer, grid, _MAX_COUNT * grid)
            ).ravel()
            for counts, answer in zip(exact, answers, strict=True)
        ]
    )


def _part(
    weights: NDArray[np.float64], axes: tuple[int, ...], cell: tuple[np.intp, ...]
) -> NDArray[np.float64]:
    """Returns the view of the weights that belong to one cell of a marginal."""
    index: list[slice | np.intp] = [slice(None)] * weights.ndim
    for axis, code in zip(axes, cell, strict=True):
        index[axis] = code
    # A trailing Ellipsis keeps a single cell a view instead of a scalar.
    return weights[(*index, Ellipsis)]
