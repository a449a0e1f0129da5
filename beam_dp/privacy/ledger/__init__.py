"""The ledger of budgets and releases, written before any noise can be drawn."""

from beam_dp.privacy.ledger.edges import check_edges_paid as check_edges_paid
from beam_dp.privacy.ledger.entries import (
    Dataset as Dataset,
    Entry as Entry,
    OverBudgetError as OverBudgetError,
    Token as Token,
)
from beam_dp.privacy.ledger.ledger import Ledger as Ledger
from beam_dp.privacy.ledger.origin import Origin as Origin
from beam_dp.privacy.ledger.url import LedgerError as LedgerError
