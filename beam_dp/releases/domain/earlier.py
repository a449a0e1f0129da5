"""The earlier releases that a release was planned with: in its folders, and in its ledger.

One of them chooses the records per unit, which follow from noisy counts of units.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_dp.checks import checked_number
from beam_dp.domain.attributes import PaidRelease
from beam_dp.domain.universe import released_edges
from beam_dp.errors import InputError, shown
from beam_dp.privacy.discovery import chosen_records
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.steps import Step
from beam_dp.releases.domain.release import FOLDER, TYPES_FOLDER, DomainRelease
from beam_dp.releases.earlier_stage import LIMIT, RECORDS, Discovered, records_attribute
from beam_dp.releases.intervals.release import IntervalRelease
from beam_dp.releases.kinds import ReleaseT, holds_release, read_release, verify_release
from beam_dp.releases.release import Release
from beam_dp.releases.verdict import AGREEMENT, Figures, check_fields, differences

if TYPE_CHECKING:
    from beam_dp.privacy.ledger.entries import Entry
    from beam_dp.privacy.ledger.ledger import Ledger

# The folder for the choice of the records per unit, in that of the release that follows.
RECORDS_FOLDER = "records_per_unit"
# The parameter that names the choice, if it was paid for apart.
RECORDS_FROM = "records_per_unit_from"


def origin_of(release: Release) -> PaidRelease:
    """Returns the draw of an earlier release, and the ledger's entry that paid for it."""
    return PaidRelease(release.plan.get("ledger_release"), release.draw_id)


def below(directory: str, folder: str, kind: type[ReleaseT]) -> ReleaseT | None:
    """Returns the release in a folder, if there is one."""
    place = f"{directory.rstrip('/')}/{folder}"
    return read_release(place, kind=kind) if holds_release(place) else None


def earlier_figures(release: Any, figures: Figures, notes: list[str]) -> None:
    """Compares a card with the domain and the choice of records in the folders of its release."""
    if release.directory is None:
        return
    is_domain = isinstance(release, DomainRelease)
    domain = release if is_domain else below(release.directory, FOLDER, DomainRelease)
    place = "" if is_domain or domain is None else f"{FOLDER}/"
    types = below(release.directory, f"{place}{TYPES_FOLDER}", DomainRelease)
    place = f"{place}{'' if types is None else f'{TYPES_FOLDER}/'}{RECORDS_FOLDER}"
    counts = below(release.directory, place, UnitCounts)

    def same(name: str, stated: Any, found: Any) -> None:
        figures.number += 1
        figures.faults += differences(stated, found, name)

    def planned_with(name: str, folder: str, earlier: Release, split: Discovered) -> None:
        """Compares what a card of a synthetic database says of an earlier release."""
        figures.faults += [f"{folder}: {each}" for each in verify_release(earlier).faults]
        stated = getattr(release, name)
        promise = release.limited_guarantee if earlier is domain else release.guarantee
        if stated is not None:
            same(name, stated.to_json(), split.to_json())
            same("guarantee", promise.to_json(), split.whole.to_json())
            paid = origin_of(earlier).ledger_release
            same("ledger_release", release.plan.get("ledger_release"), paid)
        elif earlier is domain or domain is None:
            same("guarantee", promise.to_json(), split.main.to_json())

    if is_domain and types is not None:
        figures.faults += [f"{TYPES_FOLDER}: {fault}" for fault in verify_release(types).faults]
        later, votes = release.discovered, types.discovered
        same("domain", release.open_domain.to_json(), types.result.to_json())
        same("types", later.types and later.types.to_json(), votes.to_json())
        same("whole", later.whole.to_json(), votes.whole.to_json())
    elif is_domain and release.discovered.types is not None:
        notes.append("The release that the card calls types is not in a folder below it.")
    if domain is not None and not is_domain:
        same("domain", release.domain.to_json(), domain.domain.to_json())
        planned_with("discovered", FOLDER, domain, domain.discovered)
    if counts is not None:
        chosen, origin = records_of(counts), origin_of(counts).to_json()
        if domain is not None:
            same("whole", domain.discovered.whole.to_json(), chosen.main.to_json())
        if not is_domain:
            planned_with("records_per_unit", place, counts, chosen)
        named = release.plan.get(RECORDS_FROM)
        if named is not None or (not is_domain and release.records_per_unit is None):
            same(RECORDS_FROM, named, origin)
    for name, found in (("discovered", domain), ("records_per_unit", counts)):
        if found is None and not is_domain and getattr(release, name) is not None:
            notes.append(f"The release that the card calls {name} is not in a folder below it.")


def check_edges_paid(attributes: Iterable[object], ledger: Ledger | None, dataset_id: str) -> None:
    """Refuses attributes with edges from a release that this budget did not pay for.

    Released edges depend on the records, through a release of epsilon e1. A second release, of
    epsilon e2, that uses the edges depends on the first release, so by sequential composition the
    two releases together are (e1 + e2)-private for people whose records are in both. A ledger
    computes this sum if both releases are entries of one dataset id. The ledger also knows which
    draw the first entry paid for.
    """
    from beam_dp.privacy.ledger.entries import LedgerError  # reading a release needs no ledger

    for source, origin in released_edges(attributes):
        entry = entry_of(source, origin, ledger, dataset_id)
        if ledger is None or entry is None:
            continue  # no ledger adds these releases up
        if entry.draw_id is None:
            condition = (
                f"must know which draw it paid for (Ledger.mark_released): {source}, draw"
                f" {origin.draw_id}"
            )
            raise LedgerError("ledger", ledger.name, condition)
        if entry.draw_id != origin.draw_id:
            paid_for = f"{source}, draw {origin.draw_id}, not {entry.draw_id}"
            condition = f"must be the ledger of the earlier release: {paid_for}"
            raise LedgerError("ledger", ledger.name, condition)


def entry_of(
    source: str, origin: PaidRelease, ledger: Ledger | None, dataset_id: str
) -> Entry | None:
    """Returns the ledger's entry that paid for an earlier release; refuses another budget.

    ``source``: says what comes from that release. None if no ledger paid for it and none is given.
    """
    from beam_dp.privacy.ledger.entries import LedgerError

    if origin.ledger_release is None:
        if ledger is None:
            return None
        raise InputError("ledger", ledger.name, f"must be left out: {source}")
    if ledger is None:
        condition = f"must be given, the ledger of the earlier release: {source}"
        raise InputError("ledger", None, condition)
    if dataset_id != origin.dataset_id:
        budget = f"{shown(origin.dataset_id)}, the budget of the earlier release"
        raise InputError("dataset_id", dataset_id, f"must be {budget}: {source}")
    for entry in ledger.entries(dataset_id):
        if entry.release_id == origin.ledger_release:
            return entry
    condition = f"must be the ledger of the earlier release: {source}"
    raise LedgerError("ledger", ledger.name, condition)


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
