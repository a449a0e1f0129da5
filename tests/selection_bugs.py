"""Deliberate bugs in the selection of pairs, for the tests that must see them."""

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from beam_dp.mechanisms.marginals import (
    public_prior as prior_module,
    scores as scores_module,
    selection as selection_module,
)
from beam_dp.mechanisms.marginals.scores import l1_score, largest_cell_score

Patch = pytest.MonkeyPatch

# Of these records of 3 x 2 x 2 codes one more makes the largest distance of one pair from a fit
# larger, and that of another pair smaller: a choice then costs all that it is given.
EITHER_WAY = np.array([1, 4, 0, 1, 7, 4, 0, 0, 1, 0, 0, 1])
# Noisy scores below this leave all pairs out.
LOW_SCORES = 2**9

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
    patch.setattr(
        selection_module,
        "selection_budget",
        lambda budget, number, *others: dataclasses.replace(
            original(budget, 1, *others), num_candidates=number
        ),
    )


def finer_scores(patch: Patch) -> None:
    """Scores in finer units than their noise."""
    patch.setattr(
        selection_module, "l1_score", lambda exact, answer, grid: l1_score(exact, answer, 2 * grid)
    )


def change_cost(size: int, name: str, change: Callable[[Any, Fraction], Any]) -> Any:
    """Another result of a function of checks, for the check of the sets of one size."""
    original = getattr(selection_module, name)

    def mutant(check: Any, *others: Any) -> Any:
        return (change if check.size == size else original)(check, *others)

    return lambda patch: patch.setattr(selection_module, name, mutant)


def double(check: Any, squared_mu: Fraction) -> float:
    return 2 * scores_module.added_mu(check, squared_mu)


def finer_cells(patch: Patch) -> None:
    """Cells are compared in finer units than the noise of a choice."""
    patch.setattr(
        scores_module,
        "largest_cell_score",
        lambda exact, answer, grid: largest_cell_score(exact, answer, 2 * grid),
    )


def sums_of_cells(patch: Patch) -> None:
    """All cells of a replacement count, at the price of the largest."""
    patch.setattr(
        scores_module,
        "largest_cell_score",
        lambda exact, answer, grid: 2 * l1_score(exact, answer, grid),
    )


def finer_triples(patch: Patch) -> None:
    """Triples are compared in finer units than the noise of a choice."""
    patch.setattr(
        scores_module,
        "l1_score",
        lambda exact, answer, grid: 4 * l1_score(exact, answer, grid),
    )


# Each of these spends more of mu^2 than a check is given.
TRIPLES: dict[str, Callable[[Patch], None]] = {
    "sensitivity of a choice of a triple halved": change_budget(
        lambda b: {"triple_choice_scale": b.triple_choice_scale / 2}
    ),
    "a check of triples for free": change_cost(3, "cost_of", lambda *others: Fraction(0)),
    "choices of triples for free": change_cost(
        3, "cost_of", lambda check, number, mu2: number * Fraction(check.added_share) * mu2
    ),
    "added triples with half of their noise": change_cost(3, "added_mu", double),
    "triples in finer units than the noise of a choice": finer_triples,
}
CHECK: dict[str, Callable[[Patch], None]] = {
    "sensitivity of a choice halved": change_budget(lambda b: {"choice_scale": b.choice_scale / 2}),
    "a check for free": change_cost(2, "cost_of", lambda *others: Fraction(0)),
    "added pairs for free": change_cost(
        2, "cost_of", lambda check, number, mu2: number * Fraction(check.choice_share) * mu2
    ),
    "added pairs with half of their noise": change_cost(2, "added_mu", double),
    "cells in finer units than the noise of a choice": finer_cells,
    "sums of cells at the price of the largest": sums_of_cells,
}
# The shares are known: each of these spends more of mu^2 than there is.
PRICED: dict[str, Callable[[Patch], None]] = {
    "score sensitivity halved": change_budget(lambda b: {"score_scale": b.score_scale / 2}),
    "all scores for the price of one": one_score,
    "scores in finer units than their noise": finer_scores,
    "scores for free": change_budget(
        lambda b: {"pairs_mu": b.pairs_mu * math.sqrt(1 + _SCORES / (1 - _ATTRIBUTES - _SCORES))}
    ),
    "attributes measured for free": change_budget(
        lambda b: {
            "pairs_mu": b.pairs_mu * math.sqrt(1 + _ATTRIBUTES / (1 - _ATTRIBUTES - _SCORES))
        }
    ),
}


def one_distance(patch: Patch) -> None:
    """The distances of all pairs for the price of one."""
    original = prior_module.prior_budget
    patch.setattr(prior_module, "prior_budget", lambda budget, _: original(budget, 1))


def finer_distances(patch: Patch) -> None:
    """Distances of public records in finer units than their noise."""
    patch.setattr(
        prior_module, "l1_score", lambda exact, answer, grid: l1_score(exact, answer, 4 * grid)
    )


# Each of these spends more of mu^2 than there is if public records are compared.
PRIOR: dict[str, Callable[[Patch], None]] = {
    "a quarter of the noise of a distance": change_budget(
        lambda b: {"prior_scale": b.prior_scale / 4}
    ),
    "distances of all pairs for the price of one": one_distance,
    "distances in finer units than their noise": finer_distances,
}
