"""The ledger of budgets and releases, written before any noise can be drawn."""
