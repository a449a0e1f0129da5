"""Noise: where it is drawn (`source`), and how far sums of it stray (`bound`)."""
