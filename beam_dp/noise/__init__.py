"""Noise: the only package that draws it, and how far sums of it stray."""

from beam_dp.noise.source import MAX_SCALE, NoiseSource

__all__ = ["MAX_SCALE", "NoiseSource"]
