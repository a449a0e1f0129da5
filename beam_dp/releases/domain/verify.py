"""Verifies a released domain: the noise and the thresholds of every open attribute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from beam_dp.checks import check_choice, checked_integer
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases.discovered import Discovered
from beam_dp.releases.domain.release import DomainRelease
from beam_dp.verification import verdict
from beam_dp.verification.bins import bins_step
from beam_dp.verification.records_per_unit import records_step
from beam_dp.verification.steps import Step, total
from beam_dp.verification.thresholds import threshold_step
from beam_dp.verification.verdict import Figures, check_fields

RECORDS = "records per unit"  # what the choice of the number of records measures
_SHARED = ("measured", "distribution", "scale", "grid")
_TEXTS = (*_SHARED, "threshold", "slack", "max_values")
_BINS = (*_SHARED, "levels")
_RECORDS = ("measured", "distribution", "scale")
_NEEDED, _FREE = ("domain_share", "release", "whole"), ("job", "ledger_release")


def verify_domain(release: DomainRelease) -> verdict.Verification:
    """Verifies a released domain."""
    figures = Figures()
    check_fields("parameters", release.plan, _NEEDED, _FREE)
    steps = domain_steps(release.noise, release.guarantee)
    whole = release.discovered.whole
    for name in ("neighboring", "privacy_unit", "max_records_per_unit", "delta"):
        stated = getattr(release.guarantee, name)
        figures.equal(f"guarantee.{name}", stated, getattr(whole, name))
    _, epsilon = total(steps, release.guarantee)
    figures.same("guarantee.epsilon", release.guarantee.epsilon, epsilon)
    for (attribute, _, noise), step in zip(release.columns(), steps, strict=True):
        is_threshold = "threshold" in noise
        figures.equal(f"threshold of {attribute.name}", is_threshold, attribute.has_values)
        if is_threshold:
            slack = float(step.loss.slack)
            figures.at_least(f"slack of {attribute.name}", noise["slack"], slack)
    return verdict.judged("domain", release.mechanism, release.guarantee, steps, figures)


def share_figures(
    discovered: Discovered, steps: Sequence[Step], beside: Sequence[Step], figures: Figures
) -> None:
    """Compares the guarantee of a release without its domain with the release's own steps."""
    _, epsilon = total(steps, discovered.main, beside)
    figures.at_least("discovered.release.epsilon", discovered.main.epsilon, epsilon)


def with_domain(
    discovered: Discovered, steps: Sequence[Step], beside: Sequence[Step]
) -> tuple[list[Step], list[Step]]:
    """Returns all steps of a release and of its domain, and those whose epsilons are added last.

    If the release has a pure guarantee of its own, its epsilon is added to that of the domain.
    """
    domain = domain_steps(discovered.noise, discovered.whole)
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
        check_choice("distribution", entry["distribution"], ("discrete_laplace",))
        return records_step(moved, entry["scale"])
    if "threshold" in entry:
        check_fields(f"noise of {name}", entry, _TEXTS)
        return threshold_step(
            f"find values of {name}",
            num_moved=moved,
            max_texts=guarantee.max_records_per_unit,
            grid=checked_integer("grid", entry["grid"], 1),
            scale=entry["scale"],
            threshold=checked_integer("threshold", entry["threshold"]),
        )
    check_fields(f"noise of {name}", entry, _BINS)
    for number in entry["levels"]:
        checked_integer("levels", number, 1)
    return bins_step(
        str(name),
        num_moved=moved,
        distribution=entry["distribution"],
        scale=entry["scale"],
        grid=checked_integer("grid", entry["grid"], 1),
        levels=entry["levels"],
    )
