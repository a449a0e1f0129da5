"""Compares a release with the entry of the ledger that paid for it."""

from __future__ import annotations

from collections.abc import Iterator

from beam_dp.privacy.ledger.entries import Entry
from beam_dp.releases.release import AnyRelease
from beam_dp.verification.verdict import Verification, differences


def entry_faults(release: AnyRelease, found: Verification, entry: Entry) -> list[str]:
    """Returns what a card states otherwise than the entry: a changed card, or another's entry."""
    return [f"ledger entry {entry.release_id}: {each}" for each in _faults(release, found, entry)]


def _faults(release: AnyRelease, found: Verification, entry: Entry) -> Iterator[str]:
    promise, paid = release.guarantee.to_json(), entry.guarantee.to_json()
    mechanism = release.mechanism
    if release.KIND == "domain" and mechanism != entry.mechanism:
        # The entry paid for this release and the later one, whose split the later one's card has.
        for name in ("epsilon", "delta", "max_records_per_unit"):
            del promise[name], paid[name]
        mechanism = entry.mechanism
    yield from differences(promise, paid, "guarantee")
    yield from differences(mechanism, entry.mechanism, "mechanism")
    if not entry.loss.covers(found.together.loss.in_doubles()):
        yield "it paid for a smaller privacy loss than the noise of the card has"
    earlier = (getattr(release, name, None) for name in ("discovered", "records_per_unit"))
    # The entry of several releases names the first of them.
    drawn = {release.id, *(each.draw_id for each in earlier if each is not None)}
    if entry.draw_id is not None and entry.draw_id not in drawn:
        yield f"it paid for draw {entry.draw_id}, and this release is draw {release.id}"
