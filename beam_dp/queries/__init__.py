"""Linear queries: what analysts ask of a table."""
