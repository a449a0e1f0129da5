"""Releases of a table in memory, without Beam."""
