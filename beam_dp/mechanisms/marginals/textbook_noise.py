"""The noise of published MWEM, with or without an early stop, and what is proved of its errors."""

from __future__ import annotations

import dataclasses
import math

from beam_dp.mechanisms.checks import check_noise
from beam_dp.mechanisms.marginals.pair_scores import score_grid
from beam_dp.mechanisms.sparse_vector.noise import SparseVectorNoise, noise_candidates
from beam_dp.noise.bound import Distribution
from beam_dp.privacy.accounting import zcdp_rho
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.rounding import lowered, raised, root_down

MAX_ROUNDS = 100_000
_STOP_SHARE = 0.1  # of epsilon or rho, for all comparisons together


@dataclasses.dataclass(frozen=True)
class RoundNoise:
    """The noise of all rounds, in records.

    ``stop``: of the comparisons that may end the rounds, one a round; None where nothing does.
    """

    num_rounds: int
    distribution: Distribution
    measurement_scale: float
    selection_scale: float
    stop: SparseVectorNoise | None

    @property
    def grid(self) -> int:
        """Units of a score that make one record."""
        return score_grid(self.selection_scale)

    def stopped_error(
        self, threshold: float, num_queries: int, failure_probability: float
    ) -> float:
        """Returns the largest error of any query where the rounds were ended, in records.

        ``threshold``: under which a comparison ends the rounds, in records.

        Accuracy: with probability 1 - beta: of the hypothesis that is released, whatever the data
        and their number. The selected query is wrong by no more than the threshold and the noise
        of a comparison; all others by no more than that and what a selection may lose, s ln(|Q|T /
        share). Answers and threshold are rounded to the grid of the scores. Each kind of noise
        gets a fourth of beta; measurements have theirs in ``stopping_threshold``.
        """
        log_term = math.log(4 * num_queries * self.num_rounds / failure_probability)
        lost = self.selection_scale * log_term
        return threshold + self._misjudged(failure_probability) + lost

    def stopping_threshold(
        self, num_cells: int, num_records: int, failure_probability: float
    ) -> float:
        """Returns the least threshold under which some comparison ends the rounds, in records.

        Accuracy: with probability 1 - beta, together with ``stopped_error``, if N is the number of
        records. Let p be the data and w a hypothesis, e = q(p) - q(w) the error of what is
        measured, z the noise as a share of N. The update multiplies weights by exp((e + z) q / 2),
        so that by Hoeffding's lemma KL(p, w) falls by (e + z) e / 2 - (e + z)^2 / 32 or more:
        where |e| >= a > |z|, by (a - z)(15 a + z) / 32. T updates with T times that above ln|X|
        are impossible: a = (7 z + sqrt(64 z^2 + 480 ln|X| / T)) / 15. Less than a N is what a
        comparison with this threshold finds in one of T rounds.
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
        """How far from the threshold the selected query may be judged to be, in records."""
        assert self.stop is not None
        # Of what it is given the margin takes two thirds.
        share = 3 * failure_probability / 4
        return self.stop.margin(self.num_rounds, share, self.grid) + 1 / self.grid


def round_noise(guarantee: Guarantee, num_rounds: int, stops: bool = False) -> RoundNoise:
    """Returns the noise of T rounds that share the budget, half of it for selection.

    Privacy: every query is one cell, with sensitivity 1 under both relations (a replacement moves
    two cells, but each by 1), times the records of a unit. Pure, eps / (2T) for each step; else
    rho / (2T), that is eps_sel = sqrt(4 rho / T) and sigma = sqrt(T / rho).

    A comparison of what was selected is no post-processing. One AboveThreshold makes all of them
    and costs a tenth of epsilon or rho, however many they are: it halts when the rounds do. Given
    all that was released the questions are fixed, so its factor of the likelihood ratio is as by
    itself; a pure loss of e is e^2 / 2 of rho, also where other steps come in between.

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
        promised = dataclasses.replace(guarantee, epsilon=stop_epsilon, delta=0.0)
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

    Accuracy: in records, for the largest error of the average of all hypotheses under pure
    privacy, with probability 1 - 2T / |Q|.

    Reference: Hardt, Ligett and McSherry (2012), Theorem 2.2.
    """
    log_cells, log_queries = math.log(num_cells), math.log(max(num_queries, 2))
    return (
        2 * num_records * math.sqrt(log_cells / num_rounds)
        + 10 * num_rounds * log_queries / epsilon
    )
