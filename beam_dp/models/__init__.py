"""Distributions over a domain's cells: fits to noisy answers, and rounding to records."""
