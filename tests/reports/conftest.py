"""Fixtures of this folder."""

from seeded_releases import seeded_releases  # noqa: F401
