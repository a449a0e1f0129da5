"""The ledger of budgets and releases, paid before any noise is drawn; ``filters`` adds them up."""
