"""What is published of MWEM: multiplicative weights by the exponential mechanism, offline."""

from __future__ import annotations

import math

import numpy as np
from claim_rows.claim import Claim, Failures, failures
from claim_rows.multiplicative_weights import BETA, DELTA, domain_of, promise
from numpy.typing import NDArray

from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.mechanisms.marginals.textbook_mwem import published_error
from beam_dp.mechanisms.online.private_mw import DenseWeights
from beam_dp.planning.theorems.synthesis import best_early_stop
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.linear import Explicit
from beam_dp.queries.workload import marginals
from beam_dp.secret.summaries.histogram import Histogram


class Kept(NoiseSource):
    """Real noise; keeps what was selected and measured, which is public."""

    def __init__(self) -> None:
        self.rounds: list[tuple[int, float]] = []
        self._selected = 0

    def select(self, scores: NDArray[np.int64], scale: float) -> int:
        """See ``NoiseSource``."""
        self._selected = super().select(scores, scale)
        return self._selected

    def laplace(self, values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        """See ``NoiseSource``."""
        drawn = super().laplace(values, scale)
        self.rounds.append((self._selected, float(drawn)))
        return drawn


def _average(trials: int) -> list[Failures]:
    """The average of all hypotheses, made again from what was selected and measured."""
    num_cells, rounds = 1024, 28
    workload = marginals(domain_of(num_cells), ways=1)
    found = []
    for total, held in ((10**6, 1), (10**8, 4)):
        counts = np.zeros(num_cells, np.int64)
        counts[:held] = total // held
        plan = MWEM(rounds, "textbook").plan(workload.domain, workload, promise(0.0), total)
        exact = Histogram(workload.domain, counts).marginals(plan.summary_tables)
        bound = published_error(num_cells, num_cells, 1.0, total, rounds)
        shares = []
        for _ in range(trials):
            noise = Kept()
            plan.release(exact, noise)
            hypothesis, average = DenseWeights(np.zeros(num_cells)), np.zeros(num_cells)
            for cell, measured in noise.rounds:
                average += hypothesis.weights / rounds
                point = Explicit.of((num_cells,), np.eye(1, num_cells, cell)[0])
                step = (measured - total * hypothesis.weights[cell]) / (2 * total)
                hypothesis.update(point, step)
            shares.append(float(np.abs(counts - total * average).max()) / bound)
        found.append(failures(shares, 2 * rounds / num_cells))
    return found


def _early_stop(trials: int) -> list[Failures]:
    """Of 16 cells, all records in one of them, or in two; a run that does not stop fails."""
    workload, total, rounds = marginals(domain_of(16), ways=1), 10_000, 30
    found = []
    for delta, held in ((0.0, 1), (DELTA, 1), (DELTA, 2)):
        best = best_early_stop(16, 16, promise(delta), BETA, total, rounds)
        mechanism = MWEM(rounds, "textbook", stop_below=best.stop_below)
        plan = mechanism.plan(workload.domain, workload, promise(delta), total)
        counts = np.zeros(16, np.int64)
        counts[:held] = total // held
        exact = Histogram(workload.domain, counts).marginals(plan.summary_tables)
        shares = []
        for _ in range(trials):
            release = plan.release(exact, NoiseSource())
            (answer,) = release.answer(workload)
            worst = float(np.abs(answer.values - counts).max()) / best.max_error
            shares.append(worst if release.plan["num_updates"] < rounds else math.inf)
        found.append(failures(shares, BETA))
    return found


CLAIMS = [
    Claim(
        key="offline_weights.mwem",
        source="Hardt, Ligett and McSherry 2012, Theorem 2.2",
        statement="no error of the average of all hypotheses exceeds 2 n sqrt(ln U / T) + 10 T"
        " ln|Q| / epsilon except with probability 2T/|Q|",
        here="`theorems.synthesis.mwem_theorem`; U = |Q| = 1024, T = 28; all records in one cell, n"
        " = 10^6, or in four, n = 10^8",
        measure=_average,
        trials=30,
    ),
    Claim(
        key="offline_weights.early_stop",
        source="lecture on online private multiplicative weights, offline",
        statement="offline: select the worst query by the exponential mechanism; if its error is"
        " small, return; else measure it and update",
        printed="whether the error is small is asked of the data: it must be paid for",
        here="`--stop_below`: AboveThreshold, with a tenth of the budget; `best_early_stop`: it"
        " stops, and no released error exceeds the bound, except with probability beta; U = 16,"
        " T = 30; pure, then twice delta 1e-6",
        measure=_early_stop,
        trials=300,
    ),
]
