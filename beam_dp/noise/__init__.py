"""Noise: how it is drawn (`source`), and tail bounds of its sums (`bound`)."""
