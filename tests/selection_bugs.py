"""Deliberate bugs in the selection of pairs, for the tests that must see them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from beam_dp.mechanisms.marginals import selection as selection_module
from beam_dp.mechanisms.marginals.scores import l1_score

Patch = pytest.MonkeyPatch

_ATTRIBUTES, _SCORES = selection_module._ATTRIBUTES_SHARE, selection_module._SCORES_SHARE


def change_budget(change: Callable[[Any], dict[str, float]]) -> Callable[[Patch], None]:
    original = selection_module.selection_budget

    def mutant(*arguments: Any) -> Any:
        budget = original(*arguments)
        return dataclasses.replace(budget, **change(budget))

    return lambda patch: patch.setattr(selection_module, "selection_budget", mutant)


def one_score(patch: Patch) -> None:
    """All scores for the price of one."""
    original = selection_module.selection_budget
    patch.setattr(selection_module, "selection_budget", lambda guarantee, _: original(guarantee, 1))


def finer_scores(patch: Patch) -> None:
    """Scores in finer units than their noise."""
    patch.setattr(
        selection_module, "l1_score", lambda exact, answer, grid: l1_score(exact, answer, 2 * grid)
    )


def exact_scores(patch: Patch) -> None:
    """Noise is drawn, and the choice made without it."""
    original = selection_module.noisy_scores

    def mutant(
        pairs: Sequence[Any], answers: Any, marginals: Any, domain: Any, budget: Any, noise: Any
    ) -> dict[Any, float]:
        original(pairs, answers, marginals, domain, budget, noise)
        return {
            axes: l1_score(
                marginals.marginal(tuple(domain.names[axis] for axis in axes)), answers[axes], 1
            )
            for axes in pairs
        }

    patch.setattr(selection_module, "noisy_scores", mutant)


# The shares are known: each of these spends more of mu^2 than there is.
PRICED: dict[str, Callable[[Patch], None]] = {
    "score sensitivity halved": change_budget(lambda b: {"score_scale": b.score_scale / 2}),
    "all scores for the price of one": one_score,
    "scores in finer units than their noise": finer_scores,
    "scores for free": change_budget(
        lambda b: {"pairs": b.pairs * math.sqrt(1 + _SCORES / (1 - _ATTRIBUTES - _SCORES))}
    ),
    "attributes measured for free": change_budget(
        lambda b: {"pairs": b.pairs * math.sqrt(1 + _ATTRIBUTES / (1 - _ATTRIBUTES - _SCORES))}
    ),
}
