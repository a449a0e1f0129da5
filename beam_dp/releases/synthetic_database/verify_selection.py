"""MWEM by selection: attributes, noisy scores, the pairs that these chose, and a last check."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from beam_dp.checks import checked_integer, checked_number
from beam_dp.domain.universe import Domain
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.rounding import down, root_up, up
from beam_dp.releases.synthetic_database.measured_tables import MeasuredTable
from beam_dp.releases.synthetic_database.pair_distances import PairDistances
from beam_dp.releases.synthetic_database.verify_tables import table_steps
from beam_dp.verification.steps import Step, Unstated, above, gaussian_vector, selection_step
from beam_dp.verification.verdict import Figures

_GRID = "score_grid"
# Units of the grid that make one deviation of a score at least; where the card does not state it.
_GRID_DEVIATIONS = 4096
_CHOICES = "most_choices"
_ADDED = "num_added_pairs"
_ZERO = Fraction(0)


def selection_steps(
    domain: Domain,
    guarantee: Guarantee,
    parameters: Mapping[str, Any],
    fit: Mapping[str, Any] | None,
    tables: Sequence[MeasuredTable],
    figures: Figures,
) -> list[Step]:
    """Returns the steps of a selection by noisy scores.

    Residuals are measured in all steps but the scores, which are one vector, and the choices of a
    last check. How many choices there are, and which pairs are measured, follows from noise, so
    what both may spend together is stated: what they did spend must not be more. Earlier versions
    checked nothing. Cards of version 0.1 state neither what may be spent nor the grid of the
    scores; both follow from what they do state (``_unstated_scores``, ``_squares``).

    Args:
        domain: the universe.
        guarantee: of the mechanism.
        parameters: that it states.
        fit: what its card states of the fit; None before anything is drawn.
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
        what, l2_squared = f"score {pairs:,} pairs", moved**2 * pairs
        if _GRID in parameters:
            grid = checked_integer(_GRID, parameters[_GRID], 1)
            scale = parameters.get("score_scale", 0.0)
            steps.append(gaussian_vector(what, l2_squared * grid**2, scale))
            figures.same("score_deviation", deviation, scale / grid)
        else:
            steps.append(_unstated_scores(what, l2_squared, deviation))
    if _CHOICES in parameters:
        _share_figures(domain, guarantee, parameters, fit, tables, steps, figures)
    squares = _squares(parameters, steps)
    measured = table_steps(domain, tables, guarantee)
    if _CHOICES in parameters:
        choices = _choices(guarantee, parameters, fit, figures)
        steps += choices
        if squares is not None:
            squares -= sum((each.claims.mu_squared or _ZERO for each in choices), _ZERO)
    if squares is not None:
        measured = [_reserved(each, squares, figures) for each in measured]
    return [*measured, *steps]


def _choices(
    guarantee: Guarantee,
    parameters: Mapping[str, Any],
    fit: Mapping[str, Any] | None,
    figures: Figures,
) -> list[Step]:
    """The choices among pairs that were left out: as many as were made, or may be in a plan.

    A record moves a cell by 1, also where it replaces another, and so the largest distance.
    """
    number = most = checked_integer(_CHOICES, parameters[_CHOICES], 0)
    if fit is not None:
        number = checked_integer(_ADDED, fit.get(_ADDED), 0)
        figures.at_least(_CHOICES, most, number)
    one = _choice(guarantee, parameters, number)
    return [one] if number else []


def _choice(guarantee: Guarantee, parameters: Mapping[str, Any], number: int = 1) -> Step:
    what, scale = "choose a pair that was left out", parameters.get("choice_scale", 0.0)
    return selection_step(what, guarantee.max_records_per_unit, scale, number)


def _added_figures(
    domain: Domain,
    guarantee: Guarantee,
    tables: Sequence[MeasuredTable],
    fit: Mapping[str, Any],
    squared_mu: float,
    figures: Figures,
) -> None:
    """Compares how many pairs were added with those that were measured last, each by itself."""
    added = 0
    for each in reversed(tables):
        (step,) = table_steps(domain, [each], guarantee)
        found = step.claims.mu_squared
        if (
            len(each.names) != 2
            or found is None
            or not math.isclose(up(found), squared_mu, rel_tol=1e-9)
        ):
            break
        added += 1
    figures.equal(f"fit.{_ADDED}", fit[_ADDED], added)


def _share_figures(
    domain: Domain,
    guarantee: Guarantee,
    parameters: Mapping[str, Any],
    fit: Mapping[str, Any] | None,
    tables: Sequence[MeasuredTable],
    scores: Sequence[Step],
    figures: Figures,
) -> None:
    """Compares the shares of all mu^2 with what each step may spend."""
    shares = {
        name: checked_number(name, parameters[name], above=0, below=1)
        for name in ("attributes_share", "scores_share", "choice_share", "added_share")
    }
    of_attributes = Fraction(checked_number("mu", parameters["attributes_mu"], above=0)) ** 2
    whole = of_attributes / Fraction(shares["attributes_share"])
    of_pairs = Fraction(checked_number("mu", parameters["pairs_mu"], above=0)) ** 2
    rest = 1 - Fraction(shares["attributes_share"]) - Fraction(shares["scores_share"])
    figures.same("pairs_mu", float(of_pairs), float(whole * rest))
    if fit is not None:
        _added_figures(
            domain, guarantee, tables, fit, float(whole) * shares["added_share"], figures
        )
    spent = [
        ("choice_share", _choice(guarantee, parameters)),
        *(("scores_share", s) for s in scores),
    ]
    for name, step in spent:
        found = step.claims.mu_squared
        figures.same(name, shares[name], None if found is None else up(found / whole))


def score_figures(
    distances: PairDistances,
    parameters: Mapping[str, Any],
    public_number: int | None,
    figures: Figures,
) -> None:
    """Compares what bounds of left-out pairs follow from with what is stated of the scores.

    Args:
        distances: the noisy scores.
        parameters: of the mechanism.
        public_number: of records, where it is public.
        figures: that they are compared by.
    """
    stated = parameters.get("score_deviation")
    figures.same("distances: standard_deviation", distances.deviation, stated)
    figures.equal("distances: pairs", len(distances.pairs), parameters.get("num_candidates"))
    if distances.independent is not None:
        grid, number = distances.independent.grid, distances.independent.num_records
        if _GRID in parameters:
            figures.equal("distances: grid", grid, parameters[_GRID])
        if public_number is not None:
            figures.equal("distances: num_records", number, float(public_number))


def _unstated_scores(what: str, l2_squared: int, deviation: float) -> Step:
    """The step of scores whose grid the card does not state, by the rule of all such versions.

    These added noise of s = g x deviation in steps of 1 / g, g = ceil(4096 / r) or 1, where r^2 =
    deviation^2 - 4 / g^2 is the variance of the continuous noise.
    """
    # The deviation was rounded to the nearest.
    exact = Fraction(math.nextafter(deviation, 0.0))

    def grid_of(variance: Fraction) -> int:
        return max(1, math.ceil(_GRID_DEVIATIONS / root_up(variance)))

    grid = grid_of(exact**2)
    while (variance := exact**2 - Fraction(4, grid**2)) > 0 and grid_of(variance) > grid:
        grid += 1
    step = gaussian_vector(what, l2_squared * grid**2, down(exact * grid))
    at_worst = gaussian_vector(what, l2_squared, float(exact)).claims
    rule = (
        f"Every such version drew scores in steps of 1 / {_GRID_DEVIATIONS} of their noise or less"
    )
    return dataclasses.replace(step, unstated=Unstated(_GRID, rule, at_worst))


def _squares(parameters: Mapping[str, Any], scores: Sequence[Step]) -> Fraction | None:
    """The sum of mu^2 that is reserved for what is measured; None where the card does not tell.

    Cards of version 0.1 state the share of the scores in all mu^2: the others have the rest.
    """
    stated = [parameters.get(name) for name in ("attributes_mu", "pairs_mu")]
    if None not in stated:
        return sum((Fraction(checked_number("mu", each, above=0)) ** 2 for each in stated), _ZERO)
    share = parameters.get("scores_share")
    if not scores or share is None or scores[0].claims.mu_squared is None:
        return None
    of_all = 1 / Fraction(checked_number("scores_share", share, above=0, below=1))
    return scores[0].claims.mu_squared * (of_all - 1)


def _reserved(step: Step, squares: Fraction, figures: Figures) -> Step:
    """The step with all that is reserved for it, which must be enough for what was measured."""
    found = step.claims.mu_squared
    if found is None:
        return step
    figures.number += 1
    if root_up(found) > root_up(max(squares, _ZERO)) * (1 + 1e-9):
        figures.faults.append(
            f"noise: what is measured has mu^2 {above(found)}; must be at most {above(squares)}"
        )
    claims = dataclasses.replace(step.claims, mu_squared=max(found, squares))
    numbers = f"{step.numbers}, of {above(squares)} reserved"
    return dataclasses.replace(step, numbers=numbers, claims=claims)
