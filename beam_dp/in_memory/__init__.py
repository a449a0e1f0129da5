"""Releases of a table in memory, without Beam."""

from beam_dp.in_memory.release_table import release as release
