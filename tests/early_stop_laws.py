"""Published MWEM that stops early: the exact law of the real code on tiny domains, and its bugs.

Its noise is replaced by outcomes that are played back; the next draw is caught, and all of its
outcomes are followed. Probabilities of a comparison are summed over the threshold's noise.
"""

import dataclasses
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest
from noise_sources import Draw
from sparse_vector_laws import REACH, above, laplace_pmf
from tiny import domain_of, plan_of, summary, with_unit, workload_of

import beam_dp as dp
from beam_dp.mechanisms.marginals import (
    scores as scores_module,
    textbook_mwem as module,
)
from beam_dp.mechanisms.marginals.textbook_mwem import TextbookPlan
from beam_dp.mechanisms.sparse_vector import AboveThreshold
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.testing.audit import discrete_gaussian, discrete_laplace, exponential_mechanism

Patch = pytest.MonkeyPatch
Outcomes = tuple[Any, ...]
SIZE, TOTAL = 2, 4


class Caught(Exception):  # noqa: N818
    """A draw that nothing was told of."""


class Played(NoiseSource):
    """Says what it is told, then catches the next draw; keeps all of them."""

    def __init__(self, outcomes: Outcomes) -> None:
        self._told = list(outcomes)
        self.draws: list[Draw] = []

    def next(self, draw: Draw) -> Any:
        self.draws.append(draw)
        if not self._told:
            raise Caught
        return self._told.pop(0)

    def laplace(self, values: np.ndarray, scale: float) -> Any:
        return np.int64(self.next(Draw("laplace", values, scale)))

    def gaussian(self, values: np.ndarray, sigma: float) -> Any:
        return np.int64(self.next(Draw("gaussian", values, sigma)))

    def select(self, scores: np.ndarray, scale: float) -> int:
        return int(self.next(Draw("select", scores, scale)))


class Probe:
    """Stands for AboveThreshold: says what its noise source is told."""

    def __init__(self, threshold: int, calibration: Any, noise: Played, grid: int) -> None:
        self._threshold, self._scale, self._noise = threshold, calibration.question_scale, noise
        assert grid == 1

    def ask(self, question: int) -> bool:
        distance = np.array(question - self._threshold)
        return bool(self._noise.next(Draw("compare", distance, self._scale)))


@contextmanager
def whole_records() -> Iterator[None]:
    """A grid of whole records, so that thresholds take few values; and no release at the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scores_module, "_MAX_SCORE_GRID", 1)
        patch.setattr(module, "importance_of", lambda *arguments: None)
        patch.setattr(module, "array_release", lambda *arguments: (None, None))
        patch.setattr(module, "SyntheticDatabase", lambda **named: named["plan"])
        yield


def plan(guarantee: dp.Guarantee, num_rounds: int, stop_below: float = 0.25) -> TextbookPlan:
    mechanism = dp.MWEM(num_rounds=num_rounds, calibration="textbook", stop_below=stop_below)
    found = plan_of(mechanism, workload_of(domain_of(SIZE), 1), guarantee, TOTAL)
    assert isinstance(found, TextbookPlan)
    return found


def replay(planned: TextbookPlan, data: tuple[int, ...], outcomes: Outcomes) -> list[Draw]:
    """Returns what is drawn when so much is told, the first that nothing was told of included."""
    held = summary(planned, with_unit(np.zeros(SIZE, np.int64), data))
    noise = Played(outcomes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "AboveThreshold", Probe)
        with suppress(Caught):
            planned.release(held, noise)
    return noise.draws


def law_of(planned: TextbookPlan, data: tuple[int, ...], reach: int) -> dict[Hashable, float]:
    """The probability of every sequence of selections, comparisons and measurements.

    Args:
        planned: with a grid of whole records.
        data: the cells of the records.
        reach: measured cells are clipped at so many records from 1.
    """
    threshold_scale = planned.parameters.stop_threshold_scale
    far = int(REACH * threshold_scale) + 1
    thresholds = np.arange(-far, far + 1)
    fresh = laplace_pmf(threshold_scale, thresholds)
    law: dict[Hashable, float] = {}

    def follow(outcomes: Outcomes, weights: np.ndarray) -> None:
        draws = replay(planned, data, outcomes)
        if len(draws) == len(outcomes):
            law[outcomes] = float(weights.sum())
            return
        draw = draws[-1]
        if draw.kind == "compare":
            is_above = above(draw.scale, thresholds - int(draw.exact))
            follow((*outcomes, True), weights * is_above)
            follow((*outcomes, False), weights * (1 - is_above))
            return
        if draw.kind == "select":
            drawn = exponential_mechanism(draw.exact.tolist(), draw.scale)
        else:
            of = discrete_laplace if draw.kind == "laplace" else discrete_gaussian
            drawn = of(draw.scale, int(draw.exact), 1 - reach, 1 + reach)
        for said, share in drawn.items():
            follow((*outcomes, said), share * weights)

    follow((), fresh / fresh.sum())
    return law


class _Exact:
    """A comparison with the exact error."""

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold

    def ask(self, question: int) -> bool:
        return question >= self._threshold


def free_comparison(patch: Patch) -> None:
    """The stop compares the exact error, without noise."""

    def exact(self: TextbookPlan, total: int, noise: NoiseSource) -> _Exact:
        return _Exact(-round(self.parameters.stop_below * total * self.parameters.score_grid))

    patch.setattr(TextbookPlan, "comparison", exact)


def doubled_error(patch: Patch) -> None:
    """What is compared is twice the error, with the noise of once."""
    for kind in (AboveThreshold, Probe):
        original = kind.ask
        patch.setattr(kind, "ask", lambda self, asked, of=original: of(self, 2 * asked))


def little_noise(patch: Patch) -> None:
    """The stop gets a twentieth of its noise: that of twice the whole budget."""
    original = module.noise_candidates

    def mutant(guarantee: dp.Guarantee, *arguments: Any, **named: Any) -> Any:
        more = dataclasses.replace(guarantee, epsilon=20 * guarantee.epsilon)
        return original(more, *arguments, **named)

    patch.setattr(module, "noise_candidates", mutant)
