"""The exact law of what a sparse vector mechanism says, by summing over the threshold's noise."""

import math
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from beam_dp.mechanisms.sparse_vector import SparseVectorNoise
from beam_dp.testing.audit import discrete_gaussian, discrete_laplace

Transcript = tuple[Any, ...]
# From the data and the transcript so far: the question, and the value to answer; None ends it.
Asker = Callable[[Any, Transcript], tuple[int, int] | None]

REACH = 45  # scales; the rest of a law is below 1e-19


def above(scale: float, distance: np.ndarray) -> np.ndarray:
    """P(noise >= distance) for discrete Laplace noise; no noise at all where the scale is 0."""
    if scale == 0:
        return (distance <= 0).astype(np.float64)
    ratio = math.exp(-1 / scale)
    tail = np.exp(-np.abs(np.where(distance > 0, distance, 1 - distance)) / scale) / (1 + ratio)
    return np.where(distance > 0, tail, 1 - tail)


def laplace_pmf(scale: float, values: np.ndarray) -> np.ndarray:
    if scale == 0:
        return (values == 0).astype(np.float64)
    return np.exp(-np.abs(values) / scale) * math.tanh(1 / (2 * scale))


def transcript_law(
    noise: SparseVectorNoise,
    threshold: int,
    data: Any,
    ask: Asker,
    *,
    low: int = 0,
    high: int = 0,
) -> dict[Hashable, float]:
    """Returns the probability of every transcript: False, or True or the answer, clipped.

    Args:
        noise: of the mechanism, in units of the questions.
        threshold: public.
        data: secret.
        ask: whoever asks, adaptively.
        low: lower end of answers.
        high: upper end of answers.
    """
    reach = math.ceil(REACH * noise.threshold_scale) + 1
    thresholds = np.arange(-reach, reach + 1) + threshold
    fresh = laplace_pmf(noise.threshold_scale, thresholds - threshold)
    fresh = fresh / fresh.sum()
    law: dict[Hashable, float] = {}

    def answers(value: int) -> dict[Any, float]:
        if noise.answer_noise is None:
            return {True: 1.0}
        assert noise.answer_scale is not None
        draw = discrete_laplace if noise.answer_noise == "discrete_laplace" else discrete_gaussian
        return dict(draw(noise.answer_scale, value, low, high))

    def follow(transcript: Transcript, num_above: int, weights: np.ndarray) -> None:
        asked = ask(data, transcript) if num_above < noise.max_above else None
        if asked is None:
            law[transcript] = law.get(transcript, 0.0) + float(weights.sum())
            return
        question, value = asked
        is_above = above(noise.question_scale, thresholds - question)
        follow((*transcript, False), num_above, weights * (1 - is_above))
        for said, share in answers(value).items():
            held = share * weights * is_above
            rest = held.sum() * fresh if noise.redraws_threshold else held
            follow((*transcript, said), num_above + 1, rest)

    follow((), 0, fresh)
    return law
