"""One choice of the largest score, by its method, and the exact law of a choice."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from claim_rows.choice_laws import geometric_noisy_top, in_rounds

from beam_dp.mechanisms import choosing
from beam_dp.mechanisms.choosing import Method, TopChoice
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.testing import audit

_ROUNDS = {
    "exponential": audit.exponential_mechanism,
    "permute_and_flip": audit.permute_and_flip,
}


def top_law(scores: Sequence[int], choice: TopChoice) -> dict[tuple[int, ...], float]:
    if choice.method == "geometric":
        return geometric_noisy_top(scores, choice.number, choice.scale)
    return in_rounds(_ROUNDS[choice.method], scores, choice.number, choice.scale)


def pick_one(
    method: Method,
    scores: np.ndarray,
    sensitivity: int,
    epsilon: float,
    noise: NoiseSource,
    *,
    monotone: bool = False,
) -> int:
    scale = choosing.selection_scale(sensitivity, epsilon, monotone)
    choice = TopChoice(method, 1, sensitivity if monotone else 2 * sensitivity, scale)
    (chosen,) = choosing.choose_top(scores, choice, noise)
    return chosen


def geometric_noisy_max(scores: Sequence[int], scale: float) -> dict[int, float]:
    """The law of the index of the largest sum; if two sums are equal, the first one wins."""
    exact = np.asarray(scores, np.int64)
    values = np.arange(exact.max(), exact.max() + math.ceil(48 * scale) + 1)
    # P(score + noise <= value), or < value for earlier candidates, which win ties.
    at_most = -np.expm1(-np.maximum(values[:, None] - exact + 1, 0) / scale)
    below = -np.expm1(-np.maximum(values[:, None] - exact, 0) / scale)
    law = {}
    for index in range(len(exact)):
        others = np.concatenate([below[:, :index], at_most[:, index + 1 :]], axis=1)
        mass = -np.expm1(-1 / scale) * np.exp(-(values - exact[index]) / scale)
        law[index] = float(mass @ np.prod(others, axis=1))
    return law


PICKS: dict[str, Callable[..., int]] = {
    "exponential_mechanism": partial(pick_one, "exponential"),
    "permute_and_flip": partial(pick_one, "permute_and_flip"),
    "geometric_noisy_max": partial(pick_one, "geometric"),
}
LAWS: dict[str, Callable[..., dict[Any, float]]] = {
    "exponential_mechanism": audit.exponential_mechanism,
    "permute_and_flip": audit.permute_and_flip,
    "geometric_noisy_max": geometric_noisy_max,
}
