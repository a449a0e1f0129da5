"""What each draw of noise in a synthetic database promises, and the steps that it paid for.

A release has one draw. A combined release has the noisy tables of several draws; its card states,
for each draw, the fields of the draw's own card that its privacy loss follows from.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, Self

from beam_dp.checks import check_choice, checked_integer
from beam_dp.domain.universe import released_edges
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import Workload
from beam_dp.releases.discovered import Discovered, earlier_releases
from beam_dp.releases.domain.verify import (
    domain_figures,
    domain_steps,
    with_domain,
)
from beam_dp.releases.intervals.choice import chosen_figures
from beam_dp.releases.left_out import LeftOut
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.synthetic_database.steps import Stated, synthetic_steps
from beam_dp.verification import verdict
from beam_dp.verification.steps import Step, total
from beam_dp.verification.verdict import Figures, check_fields

COMBINED = "combined"
GIVEN = "given_tables"
# The strategies that measure tables, all listed in the noise of the card.
OF_TABLES = ("measure_all", "rounds", "selection")
# Fields of the guarantee that all draws of a combined release must share.
SHARED = ("neighboring", "privacy_unit", "max_records_per_unit")
_RELEASES, _NUMBER = "releases", "num_measurements"
_ADDED = ("num_added_pairs", "num_added_triples")
_NEEDED = ("guarantee", "parameters")
_OPTIONAL = ("left_out", "discovered", "records_per_unit")


@dataclasses.dataclass(frozen=True)
class Promise:
    """The promise of one draw.

    ``guarantee``: what the draw's card promises, with everything that was paid together.
    ``stated``: the statements about the mechanism, with the guarantee of the mechanism alone.
    """

    draw_id: str
    guarantee: Guarantee
    stated: Stated
    left_out: LeftOut | None = None
    discovered: Discovered | None = None
    records_per_unit: Discovered | None = None

    @classmethod
    def of(cls, release: SyntheticDatabase) -> Self:
        """Returns the promise of a release with one draw."""
        earlier = {"discovered": release.discovered, "records_per_unit": release.records_per_unit}
        parameters, noise = release.plan, release.noise
        stated = Stated(
            verdict.of_release(release.limited_guarantee, release.left_out, release.discovered),
            *(release.workload, parameters, noise, release.queries, release.fit),
        )
        return cls(release.draw_id, release.guarantee, stated, release.left_out, **earlier)

    @classmethod
    def from_json(cls, parsed: Any, workload: Workload, noise: Sequence[Mapping[str, Any]]) -> Self:
        """Returns the promise of a draw in a combined release.

        ``workload``: that of the combined release; only its domain matters for the loss.
        ``noise``: the noise of all tables from the draw's first table on.
        """
        check_fields(_RELEASES, parsed, ("draw_id", *_NEEDED, _NUMBER), (*_OPTIONAL, *_ADDED))
        draw_id, parameters = parsed["draw_id"], parsed["parameters"]
        if not isinstance(draw_id, str) or not re.fullmatch("[0-9a-f]{32}", draw_id):
            raise InputError("draw_id", draw_id, "must be 32 hexadecimal digits")
        if not isinstance(parameters, Mapping):
            raise InputError("parameters", type(parameters).__name__, "must be a JSON object")
        check_choice("strategy", parameters.get("strategy"), OF_TABLES)
        number = checked_integer(_NUMBER, parsed[_NUMBER], 0, len(noise))
        guarantee = Guarantee.from_json(parsed["guarantee"])
        left_out = LeftOut.from_json(parsed["left_out"]) if "left_out" in parsed else None
        earlier = earlier_releases(parsed, guarantee)
        for name, each in {"left_out": left_out, **earlier}.items():
            wrong = [] if each is None else verdict.differences(parsed[name], each.to_json(), name)
            for difference in wrong:
                raise InputError(_RELEASES, draw_id, f"has wrong fields: {difference}")
        chosen = earlier["records_per_unit"]
        limited = guarantee if chosen is None else chosen.main
        own = verdict.of_release(limited, left_out, earlier["discovered"])
        fit = {name: parsed[name] for name in _ADDED if name in parsed}
        stated = Stated(own, workload, parameters, noise[:number], fit=fit)
        return cls(draw_id, guarantee, stated, left_out, **earlier)

    @property
    def limited(self) -> Guarantee:
        """The guarantee without the choice of the records per unit, with the chosen number."""
        return self.guarantee if self.records_per_unit is None else self.records_per_unit.main

    def steps(self, figures: Figures) -> tuple[list[Step], list[Step]]:
        """Returns the steps of the draw, and those whose epsilons are added last."""
        steps = synthetic_steps(self.stated, figures)
        beside: list[Step] = []
        if self.left_out is not None:
            domain = self.stated.domain
            promise = verdict.of_release(self.limited, None, self.discovered)
            beside = verdict.left_out_steps(self.left_out, promise, domain)
            verdict.left_out_figures(self.left_out, promise, domain, steps, figures)
        if self.discovered is not None:
            _, epsilon = total(steps, self.discovered.main, beside)
            stated = self.discovered.main.epsilon
            figures.at_least("discovered.release.epsilon", stated, epsilon)
            found = domain_steps(self.discovered.noise, self.discovered.whole)
            domain_figures(self.discovered, found, self.stated.domain, figures)
            steps, beside = with_domain(self.discovered, steps, beside)
        elif (paid := self.stated.parameters.get("ledger_release")) is not None:
            origins = [each.ledger_release for _, each in released_edges(self.stated.domain)]
            figures.equal("found with this payment, but not stated", origins.count(paid), 0)
        if self.records_per_unit is not None:
            chosen = self.records_per_unit
            choice = domain_steps(chosen.noise, chosen.main)
            chosen_figures(chosen, choice, figures)
            beside = [*beside, *choice]
        return steps, beside


def stated_draws(release: SyntheticDatabase) -> list[dict[str, Any]]:
    """Returns the entry of each draw of a release, for the card of a combined release."""
    if release.plan.get("strategy") == COMBINED:
        return list(release.plan[_RELEASES])
    card, fit = release.card, release.fit
    return [
        {
            "draw_id": release.draw_id,
            **{name: card[name] for name in (*_NEEDED, *_OPTIONAL) if name in card},
            _NUMBER: len(release.noise),
            **{name: fit[name] for name in _ADDED if name in fit},
        }
    ]


def combined_parameters(draws: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the parameters on the card of a combined release."""
    return {"strategy": COMBINED, _RELEASES: list(draws)}


def promises_of(release: SyntheticDatabase) -> list[Promise]:
    """Returns the promise of each draw of a release."""
    if release.plan.get("strategy") != COMBINED:
        return [Promise.of(release)]
    check_fields("parameters", release.plan, combined_parameters([]))
    return combined_promises(release.plan[_RELEASES], release.workload, release.noise)


def combined_promises(
    draws: Any, workload: Workload, noise: Sequence[Mapping[str, Any]]
) -> list[Promise]:
    """Returns the promises of the draws of a combined release; ``noise``: that of all its tables.

    Raises:
        InputError: if a draw is stated twice, or if the draws have other numbers of tables.
    """
    if not isinstance(draws, Sequence):
        raise InputError(_RELEASES, type(draws).__name__, "must be a list")
    found: list[Promise] = []
    left = list(noise)
    for each in draws:
        found.append(Promise.from_json(each, workload, left))
        left = left[len(found[-1].stated.noise) :]
    ids = [each.draw_id for each in found]
    if len(set(ids)) < len(ids) or len(ids) < 2:
        raise InputError(_RELEASES, ids, "must be two or more different draws")
    if left:
        raise InputError("noise", len(noise), "must be that of the tables of all releases")
    return found


def combined_steps(
    promises: Sequence[Promise], promise: Guarantee, figures: Figures
) -> tuple[list[Step], list[Step]]:
    """Returns the steps of all draws, and those whose epsilons are added last.

    Privacy: the draws are independent, and their losses add up (``loss.composed``), also if one was
    planned after another was seen.

    ``promise``: that of the combined release.
    """
    steps: list[Step] = []
    beside: list[Step] = []
    pure: list[Step] = []
    for each in promises:
        own = Figures()
        found, more = each.steps(own)
        _, epsilon = total(found, each.guarantee, more)
        own.at_least("epsilon", each.guarantee.epsilon, epsilon)
        for name in SHARED:
            own.equal(name, getattr(each.limited, name), getattr(promise, name))
        figures.number += own.number
        figures.faults += [f"draw {each.draw_id}: {fault}" for fault in own.faults]
        words = f", draw {each.draw_id[:8]}"
        found, more = (
            [dataclasses.replace(step, what=step.what + words) for step in each]
            for each in (found, more)
        )
        if all(step.loss.epsilon is not None and not step.loss.slack for step in found):
            pure += found
        else:
            steps += found
        beside += more
    # The epsilon of a pure draw may be added after the others are converted, if that is less.
    return (steps, [*pure, *beside]) if steps else (pure, beside)


def num_choosable_cells(workload: Workload) -> int:
    """Returns the number of cells of all marginals that noise may choose for a workload."""
    return sum(workload.domain.restrict(names).num_cells for names in workload.closure())
