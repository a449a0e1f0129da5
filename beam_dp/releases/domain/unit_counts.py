"""The choice of the records per unit, which follows from noisy counts of units."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from beam_dp.checks import checked_number
from beam_dp.privacy.discovery import chosen_records
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.steps import Step
from beam_dp.releases.discovered import LIMIT, RECORDS, Discovered, records_attribute
from beam_dp.releases.intervals.release import IntervalRelease
from beam_dp.releases.verdict import AGREEMENT, Figures, check_fields

# Noisy counts of units, by their numbers of records.
UnitCounts = IntervalRelease


def records_of(release: UnitCounts) -> Discovered:
    """Returns what a later release states about the choice that follows from noisy counts."""
    stated = release.plan["records_per_unit"]
    check_fields("records_per_unit", stated, ("noise_per_record", "release", "whole"), ("job",))
    whole = Guarantee.from_json(stated["whole"])
    places = np.arange(release.num_leaves)
    records = chosen_records(
        release.estimate.answer(places, places).tolist(),
        scale=release.scale,
        most=whole.max_records_per_unit,
        noise_per_record=checked_number("noise_per_record", stated["noise_per_record"], above=0),
    )
    check_fields("records_per_unit.release", stated["release"], ("epsilon", "delta"))
    noise = {"measured": RECORDS, "distribution": release.choice[1], "scale": release.scale}
    main = {**stated["release"], LIMIT: records}
    parsed = {"draw_id": release.draw_id, "release": main, "noise": [noise]}
    return Discovered.from_json(parsed, whole)


def choice_figures(release: UnitCounts, steps: Sequence[Step], figures: Figures) -> None:
    """Compares the split of the budget between noisy counts of units and the release they limit."""
    chosen = records_of(release)
    whole, own = chosen.whole, release.guarantee
    chosen_figures(chosen, steps, figures)
    attribute = records_attribute(whole.max_records_per_unit)
    figures.equal("attribute", release.attribute.to_json(), attribute.to_json())
    figures.equal("mechanism", release.choice, ("histogram", "discrete_laplace"))
    figures.same("guarantee.epsilon", own.epsilon, whole.epsilon - chosen.main.epsilon)
    expected = {"epsilon": own.epsilon, "delta": 0.0, LIMIT: 1}
    figures.equal("guarantee", own.to_json(), whole.to_json() | expected)


def chosen_figures(chosen: Discovered, steps: Sequence[Step], figures: Figures) -> None:
    """Compares what a card states of the choice of its records per unit.

    ``steps``: of the choice.
    """
    whole, main = chosen.whole, chosen.main
    measured = [each.get("measured") for each in chosen.noise]
    figures.equal("records_per_unit.noise", measured, [RECORDS])
    figures.equal("records_per_unit.release.delta", main.delta, whole.delta)
    left = whole.epsilon - sum(float(step.loss.epsilon or 0) for step in steps)
    figures.near("records_per_unit.release", main.epsilon, left, AGREEMENT * whole.epsilon)
    figures.at_least("max_records_per_unit", whole.max_records_per_unit, main.max_records_per_unit)
