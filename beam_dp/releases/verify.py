"""What verification of all kinds of releases shares: cards that were read, and left-out counts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from beam_dp.domain.universe import Domain
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.bound import laplace_bound, noise_bound, noise_variance
from beam_dp.privacy.steps import Step, laplace_step, total
from beam_dp.releases.discovered import Discovered
from beam_dp.releases.left_out import LeftOut
from beam_dp.releases.release import Release, plain_json
from beam_dp.releases.verdict import Figures, differences

# Fields in every card that do not describe the noise.
_HEAD = ("schema_version", "kind", "draw_id", "files", "versions")


def misread(release: Release) -> list[str]:
    """Returns the differences between a release's card and the card written from the read release.

    Reading a release ignores or recomputes some fields of its card. Comparing the card with one
    written from the release that was read therefore reveals every wrong field.
    """
    if release.read_from is None:
        return []
    stated, found = (
        {name: value for name, value in fields.items() if name not in _HEAD}
        for fields in (release.read_from, release.card)
    )
    return [f"card: {each}" for each in differences(stated, plain_json(found))]


def of_release(
    promise: Guarantee, left_out: LeftOut | None, discovered: Discovered | None = None
) -> Guarantee:
    """Returns the guarantee of a release without its left-out counts and without its domain."""
    if discovered is not None:
        promise = discovered.main
    if left_out is None:
        return promise
    epsilon = left_out.budget["release"]["epsilon"]
    return dataclasses.replace(promise, epsilon=epsilon, allow_large_delta=True)


def left_out_steps(left_out: LeftOut, promise: Guarantee, domain: Domain) -> list[Step]:
    """Returns the step of the counts: a unit changes one count by k, a replacement two counts."""
    counts = len(domain.names) + bool(domain.impossible)
    moved = promise.neighboring.num_moved if counts > 1 else 1
    what = "count left-out records"
    return [laplace_step(what, moved * promise.max_records_per_unit, left_out.scale)]


def left_out_figures(
    left_out: LeftOut,
    promise: Guarantee,
    domain: Domain,
    of_steps: Sequence[Step],
    figures: Figures,
) -> None:
    """Compares the errors of the counts and the split of the budget."""
    counts = len(domain.names) + bool(domain.impossible)
    beta = left_out.failure_probability
    variance = noise_variance("discrete_laplace", left_out.scale)
    bound = laplace_bound(left_out.scale, counts, beta)
    of_sum = bound if counts == 1 else noise_bound(counts * variance, 1, variance, beta)
    for name, found in (
        ("standard_error", math.sqrt(variance)),
        ("bound", bound),
        ("sum_standard_error", math.sqrt(counts * variance)),
        ("sum_bound", of_sum),
    ):
        figures.same(f"left_out.{name}", getattr(left_out, name), found)
    (step,) = left_out_steps(left_out, promise, domain)
    assert step.loss.epsilon is not None
    stated = left_out.budget["left_out"]["epsilon"]
    figures.same("left_out.budget", stated, float(step.loss.epsilon))
    for name, delta in (("release", promise.delta), ("left_out", 0.0)):
        figures.same(f"left_out.budget.{name}.delta", left_out.budget[name]["delta"], delta)
    own = of_release(promise, left_out)
    _, epsilon = total(of_steps, own)
    figures.at_least("left_out.budget.release.epsilon", own.epsilon, epsilon)
    both = stated + left_out.budget["release"]["epsilon"]
    figures.at_least("left_out.budget, the sum", both, 0.0, promise.epsilon)
