"""The exact law of a choice of the largest, by its method."""

from __future__ import annotations

from collections.abc import Sequence

from beam_dp.mechanisms.choosing import TopChoice
from beam_dp.testing import audit

_ROUNDS = {
    "exponential": audit.exponential_mechanism,
    "permute_and_flip": audit.permute_and_flip,
}


def top_law(scores: Sequence[int], choice: TopChoice) -> dict[tuple[int, ...], float]:
    if choice.method == "geometric":
        return audit.geometric_noisy_top(scores, choice.number, choice.scale)
    return audit.in_rounds(_ROUNDS[choice.method], scores, choice.number, choice.scale)
