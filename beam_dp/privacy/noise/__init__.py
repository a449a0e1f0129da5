"""Noise: samplers (`source`), and tail bounds for sums of noise (`bound`)."""
