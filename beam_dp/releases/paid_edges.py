"""Checks that the ledger of a release paid for the edges of its domain."""

from __future__ import annotations

from beam_dp.domain.universe import Domain, released_edges
from beam_dp.errors import InputError, shown
from beam_dp.privacy.ledger.entries import LedgerError
from beam_dp.privacy.ledger.ledger import Ledger


def check_edges_paid(domain: Domain, ledger: Ledger | None, dataset_id: str) -> None:
    """Refuses a domain with edges from a release that this budget did not pay for.

    Released edges depend on the records, through a release of epsilon e1. A second release, of
    epsilon e2, that uses the edges depends on the first release, so by sequential composition the
    two releases together are (e1 + e2)-private for people whose records are in both. A ledger
    computes this sum if both releases are entries of one dataset id. The ledger also knows which
    draw the first entry paid for.
    """
    for source, origin in released_edges(domain):
        if origin.ledger_release is None:
            if ledger is None:
                continue  # no ledger adds these releases up
            raise InputError("ledger", ledger.name, f"must be left out: {source}")
        if ledger is None:
            condition = f"must be given, the ledger of the earlier release: {source}"
            raise InputError("ledger", None, condition)
        if dataset_id != origin.dataset_id:
            budget = f"{shown(origin.dataset_id)}, the budget of the earlier release"
            raise InputError("dataset_id", dataset_id, f"must be {budget}: {source}")
        paid = {entry.release_id: entry.draw_id for entry in ledger.entries(dataset_id)}
        if origin.ledger_release not in paid:
            condition = f"must be the ledger of the earlier release: {source}"
            raise LedgerError("ledger", ledger.name, condition)
        draw_id = paid[origin.ledger_release]
        if draw_id is None:
            condition = (
                f"must know which draw it paid for (Ledger.mark_released): {source}, draw"
                f" {origin.draw_id}"
            )
            raise LedgerError("ledger", ledger.name, condition)
        if draw_id != origin.draw_id:
            paid_for = f"{source}, draw {origin.draw_id}, not {draw_id}"
            condition = f"must be the ledger of the earlier release: {paid_for}"
            raise LedgerError("ledger", ledger.name, condition)
