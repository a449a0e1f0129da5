"""Distributions over the universe: fitting them to noisy answers, and rounding them to records."""
