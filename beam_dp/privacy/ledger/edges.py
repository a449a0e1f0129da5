"""The rule for edges that were computed from a release: what is released with them pays there too.

Such edges depend on the records, through a release of epsilon e1 that was paid for. A release of
epsilon e2 with these edges is chosen after the first one was seen, so both together are (e1 +
e2)-private for the people of both. A ledger adds that up if both are entries of one dataset id.
"""

from __future__ import annotations

from beam_dp.domain.edges_from import EdgesFrom, released_edges
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError, shown
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.privacy.ledger.url import LedgerError


def check_edges_paid(domain: Domain, ledger: Ledger | None, dataset_id: str) -> None:
    """Refuses a domain whose edges came from a release that this budget did not pay for.

    Args:
        domain: of what is to be released.
        ledger: that will pay for it, if one does.
        dataset_id: from whose budget.

    Raises:
        InputError: if edges came from a release, and there is no ledger, or another dataset id.
        LedgerError: if the ledger did not pay for that release, or does not know which draw it
            paid for.

    Example:
        >>> check_edges_paid(Domain(()), None, "")
    """
    for source, origin in released_edges(domain):
        _check_origin(source, origin, ledger, dataset_id)


def _check_origin(source: str, origin: EdgesFrom, ledger: Ledger | None, dataset_id: str) -> None:
    if ledger is None:
        condition = f"must be given, the one that paid before: {source}, and budgets add up"
        raise InputError("ledger", None, condition)
    if dataset_id != origin.dataset_id:
        condition = f"must be {shown(origin.dataset_id)}: {source}, and budgets add up"
        raise InputError("dataset_id", dataset_id, condition)
    paid = {entry.release_id: entry.draw_id for entry in ledger.entries(dataset_id)}
    if origin.ledger_release not in paid:
        raise LedgerError("ledger", ledger.name, f"must be the one that paid before: {source}")
    draw_id = paid[origin.ledger_release]
    if draw_id is None:
        condition = (
            f"must know which draw it paid for (Ledger.mark_released): {source}, draw"
            f" {origin.draw_id}"
        )
        raise LedgerError("ledger", ledger.name, condition)
    if draw_id != origin.draw_id:
        condition = f"must be the one that paid before: {source}, draw {origin.draw_id}, not"
        raise LedgerError("ledger", ledger.name, f"{condition} {draw_id}")
