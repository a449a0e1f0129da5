"""Verifies a released domain: the noise and the thresholds of every open attribute."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from beam_dp.checks import check_choice, checked_integer, checked_number
from beam_dp.domain.discover import (
    GRID,
    NUM_CELLS,
    DiscoverValues,
    OpenAttribute,
    levels_of,
)
from beam_dp.domain.readings import READINGS
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.models.intervals.hierarchy import best_tree
from beam_dp.privacy.accounting import discrete_gaussian_mu
from beam_dp.privacy.discovery import least_threshold, threshold_step
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.bound import noise_variance
from beam_dp.privacy.steps import Step, laplace_step, noise_step, total
from beam_dp.releases import verdict
from beam_dp.releases.domain.earlier import RECORDS_FROM, earlier_figures
from beam_dp.releases.domain.release import DomainRelease, Found
from beam_dp.releases.earlier_stage import RECORDS, Discovered
from beam_dp.releases.verdict import AGREEMENT, MAX_LEAVES, Figures, check_fields

# The part of delta for the thresholds of texts: the part that ledgers keep for slacks.
SLACK_SHARE = 0.5
_SHARED = ("measured", "distribution", "scale", "grid")
_TEXTS = (*_SHARED, "threshold", "slack", "max_values")
_BINS = (*_SHARED, "levels")
_RECORDS = ("measured", "distribution", "scale")
_NEEDED = ("domain_share", "release", "whole")
_FREE = ("job", "ledger_release", RECORDS_FROM, "types")


def verify(release: DomainRelease) -> verdict.Verification:
    """Verifies a released domain."""
    figures, notes = Figures(), list[str]()
    check_fields("parameters", release.plan, _NEEDED, _FREE)
    steps = domain_steps(release.noise, release.guarantee)
    discovered, whole = release.discovered, release.discovered.whole
    promise = release.guarantee.to_json()
    figures.equal("guarantee", promise, whole.to_json() | {"epsilon": promise["epsilon"]})
    _, epsilon = total(steps, release.guarantee)
    figures.same("guarantee.epsilon", release.guarantee.epsilon, epsilon)
    domain = None if release.readings else release.domain
    domain_figures(discovered, steps, domain, figures)
    parameter, share = release.plan["domain_share"], 1 - discovered.main.epsilon / whole.epsilon
    if whole.delta > 0:
        delta = whole.delta - _slack(discovered, domain)
        share = float(_squares(steps)) / discrete_gaussian_mu(whole.epsilon, delta) ** 2
    figures.near("domain_share", parameter, share, AGREEMENT)
    for attribute, result, noise in release.columns():
        _found_figures(attribute, result, noise, figures)
    earlier_figures(release, figures, notes)
    return verdict.judged(
        "domain", release.mechanism, release.guarantee, steps, figures, notes=notes
    )


def domain_figures(
    discovered: Discovered, steps: Sequence[Step], domain: Domain | None, figures: Figures
) -> None:
    """Compares what a card states of a domain's release: its columns, its noise and the split.

    ``steps``: of the domain's release. ``domain``: with what was found; the attributes whose origin
    is the domain's draw are those that were measured. None for a release of types.
    """
    whole, main, votes = discovered.whole, discovered.main, list[Step]()
    if discovered.types is not None:
        votes = domain_steps(discovered.types.noise, whole)
        domain_figures(discovered.types, votes, None, figures)
    kinds: list[Any] = [(noise.get("measured"), "threshold" in noise) for noise in discovered.noise]
    origins: list[Any] = [
        (attribute.name, what == "values_from")
        for attribute in domain or ()
        for what in ("values_from", "edges_from")
        if getattr(getattr(attribute, what, None), "draw_id", None) == discovered.draw_id
    ]
    if domain is None:
        kinds = [noise.get("levels") for noise in discovered.noise]
        origins = [[len(READINGS)]] * len(kinds)
    figures.equal("discovered.noise, columns", kinds, origins)
    for entry, step in zip(discovered.noise, steps, strict=True):
        _noise_figures(discovered, entry, step, figures)
    limits = [promise.max_records_per_unit for promise in (main, whole)]
    figures.equal("discovered.release.max_records_per_unit", *limits)
    if main.delta > 0 or domain is None:
        left = whole.delta - _slack(discovered, domain)
        figures.same("discovered.release.delta", main.delta, left)
        spent, budget = (discrete_gaussian_mu(g.epsilon, left) ** 2 for g in (main, whole))
        measured = float(_squares([*votes, *steps]))
        figures.near("discovered.noise, mu^2", measured, budget - spent, AGREEMENT * budget)
    else:
        _, epsilon = total([*votes, *steps], whole)
        rest, error = whole.epsilon - epsilon, AGREEMENT * whole.epsilon
        figures.near("discovered.release.epsilon", main.epsilon, rest, error)


def _squares(steps: Sequence[Step]) -> Fraction:
    return sum((step.loss.mu_squared or Fraction(0) for step in steps), Fraction(0))


def _slack(discovered: Discovered, domain: Domain | None) -> float:
    """Returns the part of delta for the thresholds of all texts, or of what votes may find."""
    has_texts = any("threshold" in step for step in discovered.noise)
    has_texts = has_texts or domain is None or discovered.types is not None
    return discovered.whole.delta * SLACK_SHARE if has_texts else 0.0


def _noise_figures(
    discovered: Discovered, entry: Mapping[str, Any], step: Step, figures: Figures
) -> None:
    """Compares the noise of a column with the public functions that chose it."""
    name, whole = entry["measured"], discovered.whole
    figures.equal(f"grid of {name}", entry["grid"], GRID)
    is_pure = whole.delta == 0
    kind = "discrete_laplace" if is_pure else "discrete_gaussian"
    figures.equal(f"distribution of {name}", entry["distribution"], kind)
    if "threshold" not in entry:
        levels = list(entry["levels"])
        last = checked_integer("levels", levels[-1], 1, MAX_LEAVES)
        older = best_tree(last, 1 if is_pure else 2).sizes[1:]  # of version 0.1.0
        figures.equal(f"levels of {name}", levels in (levels_of(last), list(older)), True)
        return
    checked_integer("max_values", entry["max_values"], 1)
    num_texts = sum("threshold" in noise for noise in discovered.noise)
    figures.same(f"slack of {name}", entry["slack"], whole.delta * SLACK_SHARE / num_texts)
    figures.at_least(f"slack of {name}", entry["slack"], float(step.loss.slack))
    slack = checked_number("slack", entry["slack"], above=0, below=0.5)
    least = least_threshold(entry["scale"], slack, whole.max_records_per_unit, GRID)
    # The last digits of quantiles differ between machines.
    figures.near(f"threshold of {name}", entry["threshold"], least, 1)


def _found_figures(
    attribute: OpenAttribute, result: Found, noise: Mapping[str, Any], figures: Figures
) -> None:
    """Compares what was found for a column with its noise and with the public leaves."""
    name = attribute.name
    deviation = math.sqrt(noise_variance(noise["distribution"], noise["scale"])) / noise["grid"]
    if isinstance(attribute.discover, DiscoverValues):
        figures.equal(f"max_values of {name}", noise["max_values"], attribute.discover.max_values)
        least = noise["threshold"] / noise["grid"]
        falls = np.diff(result.counts, append=least)
        figures.equal(f"counts of {name} fall to its threshold", bool((falls <= 0).all()), True)
    elif attribute.has_bins:
        edges, levels = attribute.leaves.edges, noise["levels"]
        closed: Sequence[Any] = getattr(attribute.closed(result.values), "edges", ())
        if levels == levels_of(levels[-1]):  # version 0.1.0 had other leaves
            figures.equal(f"leaves of {name}", levels[-1], len(edges) - 1)
        are_edges = set(edges).issuperset(closed[:-1]) and closed[-1] <= edges[-1]
        figures.equal(f"bins of {name} consist of leaves", are_edges, True)
        # No level tells more of a bin than a sum of its own, and none less than all sums of cells.
        least = deviation / math.sqrt(len(levels))
        largest = deviation * math.sqrt(NUM_CELLS * (len(levels) + 1))
        errors = result.standard_errors
        follows = bool(((least <= errors * (1 + 1e-9)) & (errors <= largest)).all())
        figures.equal(f"standard errors of {name} fit its noise", follows, True)
        return
    follows = np.allclose(result.standard_errors, deviation, rtol=1e-6, atol=0)
    figures.equal(f"standard errors of {name} follow from its noise", follows, True)


def with_domain(
    discovered: Discovered, steps: Sequence[Step], beside: Sequence[Step]
) -> tuple[list[Step], list[Step]]:
    """Returns all steps of a release and of its domain, and those whose epsilons are added last.

    If the release has a pure guarantee of its own, its epsilon is added to that of the domain.
    """
    domain = domain_steps(discovered.all_noise, discovered.whole)
    if discovered.main.delta == 0:
        return domain, [*steps, *beside]
    return [*steps, *domain], list(beside)


def domain_steps(noise: Sequence[Mapping[str, Any]], guarantee: Guarantee) -> list[Step]:
    """Returns one step per open attribute, from the noise that a card states.

    ``guarantee``: only its relation and the number of records per unit matter.
    """
    return [_step(entry, guarantee) for entry in noise]


def _step(entry: Mapping[str, Any], guarantee: Guarantee) -> Step:
    name, moved = entry.get("measured"), guarantee.neighboring.num_moved
    if set(entry) == set(_RECORDS) and name == RECORDS:
        # A unit is in one level or, without records, in none.
        check_choice("distribution", entry["distribution"], ("discrete_laplace",))
        return laplace_step("count units by their records", moved, entry["scale"])
    check_fields(f"noise of {name}", entry, _TEXTS if "threshold" in entry else _BINS)
    grid, scale = checked_integer("grid", entry["grid"], 1), entry["scale"]
    if "threshold" in entry:
        return threshold_step(
            f"find values of {name}",
            num_moved=moved,
            max_texts=guarantee.max_records_per_unit,
            grid=grid,
            scale=scale,
            threshold=checked_integer("threshold", entry["threshold"]),
        )
    # A unit adds at most ``grid`` to the leaves in total, and each leaf is in one cell of each
    # level. So the unit changes each level by at most ``grid`` in the L1 norm, and therefore in the
    # L2 norm, whether or not its cells follow from the noisy sums of the levels before. No change
    # is negative, so the difference between two units, of which one replaces the other, has at most
    # twice the squared L2 norm of one unit.
    levels = [checked_integer("levels", level, 1) for level in entry["levels"]]
    if not levels:
        raise InputError("levels", levels, "must list at least one level")
    what = f"count {name} in cells of leaves, by {len(levels)} levels of sums"
    l1 = moved * len(levels) * grid
    return noise_step(what, entry["distribution"], l1, l1 * grid, scale)
