"""Distributions over the universe: how they are fitted to noisy answers and turned into records."""
