"""The ledger of budgets and releases, written before any noise can be drawn."""

from beam_dp.privacy.ledger.entries import Dataset, Entry, OverBudgetError, Token
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.privacy.ledger.url import LedgerError

__all__ = ["Dataset", "Entry", "Ledger", "LedgerError", "OverBudgetError", "Token"]
