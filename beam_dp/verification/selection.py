"""MWEM by selection: attributes, noisy scores of pairs, and the pairs that these chose."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from beam_dp.checks import checked_integer, checked_number
from beam_dp.domain import Domain
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases.measured_tables import MeasuredTable
from beam_dp.verification.steps import Step, gaussian_vector, root
from beam_dp.verification.tables import table_steps
from beam_dp.verification.verdict import Figures


def selection_steps(
    domain: Domain,
    guarantee: Guarantee,
    parameters: Mapping[str, Any],
    tables: Sequence[MeasuredTable],
    figures: Figures,
) -> list[Step]:
    """Returns the steps of a selection by noisy scores.

    The first and the last step measure residuals; the scores between are one vector. Which pairs
    the last step measures follows from noise, so what it may spend is stated: what it did spend
    must not be more. Cards of version 0.1 state neither that nor the grid of the scores, which is
    then taken to be the coarsest.

    Args:
        domain: the universe.
        guarantee: of the mechanism.
        parameters: that it states.
        tables: that are measured, as far as that is known.
        figures: that tables are compared by.
    """
    pairs = checked_integer("num_candidates", parameters.get("num_candidates"), 0)
    moved = guarantee.neighboring.num_moved * guarantee.max_records_per_unit
    steps = []
    # Each that is measured was scored.
    figures.at_least("num_candidates", pairs, sum(len(each.names) > 1 for each in tables))
    if pairs:
        deviation = checked_number("score_deviation", parameters.get("score_deviation"), above=0)
        grid = checked_integer("score_grid", parameters.get("score_grid", 1), 1)
        scale = parameters.get("score_scale", deviation)
        scores = gaussian_vector(f"score {pairs:,} pairs", moved**2 * grid**2 * pairs, scale)
        figures.same("score_deviation", deviation, scale / grid)
        steps.append(scores)
    measured = table_steps(domain, tables, guarantee)
    stated = [parameters.get(name) for name in ("attributes_mu", "pairs_mu")]
    if None not in stated:
        mus = [Fraction(checked_number("mu", each, above=0)) for each in stated]
        squares = sum((each**2 for each in mus), Fraction(0))
        measured = [_reserved(each, squares, figures) for each in measured]
    return [*measured, *steps]


def _reserved(step: Step, squares: Fraction, figures: Figures) -> Step:
    """The step with all that is reserved for it, which must be enough for what was measured."""
    found = step.claims.mu_squared
    if found is None:
        return step
    figures.number += 1
    if math.sqrt(found) > math.sqrt(squares) * (1 + 1e-9):
        figures.faults.append(
            f"noise: what is measured has mu {root(found)}; must be at most {root(squares)}"
        )
    claims = dataclasses.replace(step.claims, mu_squared=max(found, squares))
    return dataclasses.replace(
        step, numbers=f"{step.numbers}, of {root(squares)} reserved", claims=claims
    )
